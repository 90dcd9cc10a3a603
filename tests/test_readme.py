"""README.md is true: every console command in it is run, in order, against a cluster of its own."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCKS = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """The lines that begin with `$`, of all console blocks."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [line[2:] for block in BLOCKS.findall(text) for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture
def home() -> Iterator[Path]:
    """A RAYSCHED_HOME of its own; whatever runs there is ended."""
    made = Path(tempfile.mkdtemp(prefix="rr-"))
    yield made
    run("raysched down", made)
    shutil.rmtree(made, ignore_errors=True)


def run(command: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run one line of the README with this environment's `raysched`."""
    words = shlex.split(command)
    if words[0] == "raysched":
        words[0] = str(Path(sys.executable).parent / "raysched")
    env = {**os.environ, "RAYSCHED_HOME": str(home), "RAY_AUTH_MODE": "disabled"}
    with open(home / "out.txt", "w+") as out:
        found = subprocess.run(words, cwd=ROOT, env=env, stdout=out, stderr=out, stdin=subprocess.DEVNULL, timeout=180)
        out.seek(0)
        return subprocess.CompletedProcess(words, found.returncode, out.read())


def test_the_two_commands_are_make_targets() -> None:
    for command in commands()[:2]:
        program, target = command.split()
        assert program == "make"
        assert subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True).returncode == 0


@pytest.mark.ray
def test_every_command_of_the_tour_works(home: Path) -> None:
    told: dict[str, str] = {}
    for command in commands()[2:]:
        found = run(command, home)
        assert found.returncode == 0, f"{command}\n{found.stdout}"
        told[command] = found.stdout
    explained = next(text for command, text in told.items() if command.startswith("raysched explain"))
    assert "USER_LIMIT: user bo in share vision: 4 of 4 gpu in use, asked 4" in explained
    assert "starts now with: an override of 4 gpu for user bo" in explained
