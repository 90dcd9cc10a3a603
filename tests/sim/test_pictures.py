"""Pictures: all of them are written, say what they should, and are the same for the same outcome."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from raysched.sim.outcome import Played
from raysched.sim.run import play
from raysched.sim.workloads import synthetic
from raysched.sim.workloads.synthetic import Plan, Team
from tests.sim.small_workload import job, workload

pytest.importorskip("matplotlib")
from raysched.sim.pictures import MOST_SHARES, PICTURES, draw  # noqa: E402


@pytest.fixture(scope="module")
def busy() -> Played:
    """A cluster with more shares than colours."""
    teams = tuple(Team(f"team{number:02}", 1, 1) for number in range(MOST_SHARES + 2))
    return play(synthetic.workload(Plan(days=0.2, nodes=4, load=1.5, teams=teams)), samples=40)


def texts(file: Path) -> str:
    return " ".join(element.text or "" for element in ElementTree.parse(file).iter() if element.text)


def test_every_picture_is_written_as_svg_and_twice_the_same(busy: Played, tmp_path: Path) -> None:
    first, second = draw(busy, tmp_path / "a"), draw(busy, tmp_path / "b")
    assert [file.stem for file in first] == [*PICTURES, "overview"]
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_small_shares_are_drawn_together_and_sizes_named_with_their_jobs(busy: Played, tmp_path: Path) -> None:
    found = {file.stem: texts(file) for file in draw(busy, tmp_path)}
    assert "3 others" in found["use-per-share"]
    assert f"1 ({sum(line.size == '1' for line in busy.lines):,})" in found["wait-by-size"]
    assert f"{len(busy.lines):,} jobs on 32 GPUs" in found["overview"]


def test_a_run_of_one_short_job_can_be_drawn_too(tmp_path: Path) -> None:
    files = draw(play(workload(job("j", 8, 1)), samples=1), tmp_path, "png")
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in files)
