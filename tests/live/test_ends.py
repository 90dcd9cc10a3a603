"""Jobs that end badly: cancelled, failed, over their time. Nothing of them is left on the machine or in the books."""

from pathlib import Path

import pytest

import raysched
from tests.live.house import House, await_ids, family, is_alive, until

pytestmark = pytest.mark.ray


def test_a_cancelled_job_leaves_no_process(house: House, tmp_path: Path) -> None:
    job = house.submit(family(tmp_path / "ids"), gpu=2, grace="2s")
    pids = await_ids(tmp_path / "ids")
    assert all(is_alive(pid) for pid in pids)
    job.cancel()
    with pytest.raises(raysched.JobCancelled):
        job.result(60)
    until(lambda: house.left_over() == [] or None, "nothing to be left over", house.left_over)
    assert [pid for pid in pids if is_alive(pid)] == []


def test_a_failed_job_leaves_no_process(house: House, tmp_path: Path) -> None:
    job = house.submit(family(tmp_path / "ids", "sys.exit(3)"), gpu=2)
    pids = await_ids(tmp_path / "ids")
    with pytest.raises(raysched.JobFailed, match="exit code 3") as failed:
        job.result(60)
    assert failed.value.exit_code == 3
    until(lambda: house.left_over() == [] or None, "nothing to be left over", house.left_over)
    assert [pid for pid in pids if is_alive(pid)] == []


def test_a_job_over_its_time_is_stopped(house: House) -> None:
    job = house.submit(["sleep", "600"], gpu=1, max_runtime="2s", grace="1s")
    view = job.wait(60)
    assert view["state"] == "failed" and "max_runtime" in view["detail"], view


def test_a_waiting_job_that_is_cancelled_never_runs(house: House, tmp_path: Path) -> None:
    house.submit(["sleep", "600"], user="bo", gpu=4)
    job = house.submit(["touch", str(tmp_path / "ran")], user="bo", gpu=4)
    job.cancel()
    assert job.wait(60)["state"] == "cancelled"
    assert not (tmp_path / "ran").exists() and job.status()["attempt"] == 0


def test_a_job_that_is_cancelled_at_once_leaves_nothing(house: House) -> None:
    jobs = [house.submit(["sleep", "600"], gpu=1) for _ in range(4)]
    for job in jobs:
        job.cancel()
    assert [job.wait(60)["state"] for job in jobs] == ["cancelled"] * 4
