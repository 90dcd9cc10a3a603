"""Files that somebody spoiled: always file, path and reason, never a traceback; what is still valid runs to its end.

A failure prints the seed; `spoiled(text, seed)` makes the same file again."""

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from raysched.config import ConfigError
from raysched.sim.scenario_reading import load_scenario
from raysched.sim.scenario_run import run_scenario
from tests.sim.places import EXAMPLES

SEEDS = 400
ODD: list[Any] = [
    None, True, -1, 0, 1.5, 10**30, float("inf"), "", "x", "*", "0s", "-5s", "1e9d", "gpu", [], {}, [[]],
    {"a": {"b": 1}}, "\ud800", "2026-01-01", "2026-01-01T00:00:00Z", "8Gi", "P12", "running", ["x"], "n0",
    "\x00", "ø" * 200,
]  # fmt: skip


def spoiled(text: str, seed: int) -> str:
    """The text with one thing wrong (or merely odd)."""
    chance = random.Random(seed)
    if seed % 2:
        return _spoiled_text(text, chance)
    data = yaml.load(text, Loader=yaml.BaseLoader) if chance.random() < 0.1 else yaml.safe_load(text)
    for _ in range(chance.choice((1, 1, 2))):
        _spoil(data, chance)
    return yaml.safe_dump(data, allow_unicode=False)


def _spoil(data: Any, chance: random.Random) -> None:
    """Change one place somewhere in the tree."""
    places = list(_places(data))
    holder, key = chance.choice(places)
    match chance.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        case 2:
            other, name = chance.choice(places)
            holder[key] = other[name] if not isinstance(other[name], dict | list) else str(name)
        case _:
            holder[key] = chance.choice(ODD)


def _places(data: Any) -> Any:
    keys = list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    for key in keys:
        yield data, key
        yield from _places(data[key])


def _spoiled_text(text: str, chance: random.Random) -> str:
    lines = text.splitlines()
    number = chance.randrange(len(lines))
    match chance.randrange(6):
        case 0:
            del lines[number]
        case 1:
            lines.insert(number, lines[chance.randrange(len(lines))])
        case 2:
            return text[: chance.randrange(len(text))]
        case 3:
            lines[number] = " " * chance.randrange(4) + lines[number]
        case 4:
            at = chance.randrange(len(lines[number]) + 1)
            lines[number] = lines[number][:at] + chance.choice("{}[],:&*!|>'\"%@`#\t0") + lines[number][at:]
        case _:
            words = lines[number].split(" ")
            chance.shuffle(words)
            lines[number] = " ".join(words)
    return "\n".join(lines)


@pytest.mark.parametrize("block", range(8))
def test_a_spoiled_file_is_told_or_runs(block: int, tmp_path: Path) -> None:
    told = 0
    for seed in range(block * SEEDS // 8, (block + 1) * SEEDS // 8):
        example = EXAMPLES[seed % len(EXAMPLES)]
        file = tmp_path / f"seed-{seed}-{example.name}"
        file.write_text(spoiled(example.read_text(), seed))
        try:
            run_scenario(load_scenario(file))
        except ConfigError as error:
            told += 1
            assert error.problems, f"seed {seed}"
            for problem in error.problems:
                assert problem.file == str(file), f"seed {seed}: {problem}"
                assert problem.reason, f"seed {seed}: {problem}"
                # Only a file without any line has none.
                assert problem.line is not None or "empty" in problem.reason, f"seed {seed}: {problem}"
    assert told > SEEDS // 8 // 4
