"""The examples, run as the README says, against a running cluster."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.house import PATIENCE_S, House

pytestmark = pytest.mark.ray

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(house: House, name: str) -> str:
    """What an example prints; it must end well."""
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env=house.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_a_function(house: House) -> None:
    said = run(house, "function.py")
    assert "pi is about 3.1" in said
    assert " of ana on node" in said and "GPU " in said


def test_an_entrypoint(house: House) -> None:
    said = run(house, "entrypoint/submit.py")
    assert "training with {'epochs': 3, 'batch': 32} on GPUs " in said and "learning rate 0.1" in said
    assert "epoch 2: loss 0.125" in said and "ended with exit code 0" in said


def test_the_entrypoint_from_the_command_line(house: House) -> None:
    text = (EXAMPLES / "entrypoint/submit.py").read_text()
    (line,) = [line.strip() for line in text.splitlines() if line.strip().startswith("raysched submit")]
    words = line.replace("examples/entrypoint", str(EXAMPLES / "entrypoint")).split()[1:]
    assert "epoch 2: loss 0.125" in house.cli(*words)


def test_a_gang_over_two_nodes_whose_ranks_meet(house: House) -> None:
    said = run(house, "gang.py")
    assert "rank 0 returned 30" in said
    lines = [line for line in said.splitlines() if line.startswith("rank ") and ": the sum is 30" in line]
    assert [line.split(" on ")[0] for line in lines] == ["rank 0 of 2", "rank 1 of 2"]
    assert len({line.split(" on ")[1] for line in lines}) == 2  # two nodes


def test_jobs_that_fail(house: House) -> None:
    said = run(house, "failing.py")
    assert "OutOfMemory('79.6 of 80 GiB are in use')" in said and "in train" in said
    assert "exit code 3; it said: no such dataset" in said
    assert "refused: OVER_NODE_MAX" in said and "9" in said


def test_a_quota_context(house: House) -> None:
    said = run(house, "quota_context.py")
    assert "was charged to ana in share vision" in said and "was charged to cy in share language" in said
    assert "share vision owns 16 GPUs" in said and "share language owns 8 GPUs" in said
