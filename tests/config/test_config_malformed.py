"""Five hundred spoiled configurations: each loads or is refused with file, path or line, and reason. Nothing else."""

import random
from pathlib import Path

import pytest
import yaml

from raysched.config import ConfigError, load_config
from tests.config.test_config_keys import WHOLE

CONFIGS = Path(__file__).parents[2] / "configs"
SOURCES = [WHOLE, *(file.read_text() for file in sorted(CONFIGS.glob("*.yaml")))]
STRANGE: list[object] = [
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "P3",
    "8Gi",
    "1h",
    "100%",
    "\u2028",
    [],
    [1],
    {},
    {"a": 1},
    [[]],
    float("nan"),
]


def places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """The paths of everything below the top."""
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for step, inner in steps for place in [(*path, step), *places(inner, (*path, step))]]


def drop(parent: object, key: object, dice: random.Random) -> None:
    del parent[key]  # type: ignore[attr-defined]


def rename(parent: object, key: object, dice: random.Random) -> None:
    if isinstance(parent, dict):
        name = str(key)
        cut = dice.randrange(len(name))
        parent[name[:cut] + dice.choice("xyz_ 7/") + name[cut + 1 :]] = parent.pop(key)
    else:
        retype(parent, key, dice)


def retype(parent: object, key: object, dice: random.Random) -> None:
    parent[key] = dice.choice(STRANGE)  # type: ignore[index]


def graft(parent: object, key: object, dice: random.Random) -> None:
    """Something that is right elsewhere, in the wrong place."""
    whole = yaml.safe_load(WHOLE)
    value = whole
    for step in dice.choice(places(whole)):
        value = value[step]
    parent[key] = value  # type: ignore[index]


def spoiled_values(seed: int) -> str:
    """A valid configuration with one to three keys dropped, renamed, retyped or replaced."""
    dice = random.Random(seed)
    data = yaml.safe_load(dice.choice(SOURCES))
    for _ in range(dice.randint(1, 3)):
        found = places(data)
        if not found:
            break
        *path, key = dice.choice(found)
        parent = data
        for step in path:
            parent = parent[step]
        dice.choice([drop, rename, retype, graft])(parent, key, dice)
    return yaml.safe_dump(data, sort_keys=False)


def spoiled_text(seed: int) -> bytes:
    """A valid configuration with lines repeated, cut, swapped, or bytes thrown in."""
    dice = random.Random(seed)
    lines = dice.choice(SOURCES).encode().splitlines(keepends=True)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(lines))
        match dice.randrange(5):
            case 0:
                lines.insert(at, lines[at])
            case 1:
                lines[at] = lines[at][: dice.randrange(len(lines[at]) + 1)]
            case 2:
                lines[at] = dice.randbytes(dice.randint(1, 8)) + lines[at]
            case 3:
                lines[at] = b" " * dice.randint(1, 4) + lines[at]
            case _:
                cut = dice.randrange(len(lines[at]))
                lines[at] = lines[at][:cut] + dice.choice(b"{}[]:,&*!|>'\"%@`#-?\t\0").to_bytes() + lines[at][cut:]
    return b"".join(lines)


def is_refused(file: Path) -> bool:
    """Whether the file is refused; every problem must then be complete."""
    try:
        load_config(file)
    except ConfigError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.file == str(file)
            assert problem.reason
            assert problem.path or problem.line
            assert len(str(problem)) < 1_000
            str(problem).encode()
        return True
    return False


@pytest.mark.parametrize("kind", ["values", "text"])
def test_a_spoiled_file_is_refused_and_never_crashes(tmp_path: Path, kind: str) -> None:
    refused = 0
    for seed in range(250):
        file = tmp_path / f"{kind}-{seed}.yaml"
        file.write_bytes(spoiled_values(seed).encode() if kind == "values" else spoiled_text(seed))
        refused += is_refused(file)
    # Dropping an optional key or repeating a comment spoils nothing; most of the rest must be noticed.
    assert refused > 125


def test_random_bytes_are_refused(tmp_path: Path) -> None:
    for seed in range(50):
        file = tmp_path / f"{seed}.yaml"
        file.write_bytes(random.Random(seed).randbytes(200))
        assert is_refused(file)


def test_the_sources_are_valid(tmp_path: Path) -> None:
    for number, text in enumerate(SOURCES):
        file = tmp_path / f"{number}.yaml"
        file.write_text(text)
        assert not is_refused(file)
