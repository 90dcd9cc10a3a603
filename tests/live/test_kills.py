"""kill -9 of every process of the control plane while jobs run: they end once, and nothing is lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import raysched
from raysched.client.handle import JobHandle
from raysched.runtime import bringup
from raysched.runtime.quota_actor import NAME as QUOTA
from raysched.runtime.scheduler_actor import NAME as SCHEDULER
from tests.live.house import House, is_alive, once, until

pytestmark = pytest.mark.ray


class Busy:
    """A gang and a job of one rank that run, and a job that waits for them."""

    def __init__(self, house: House, where: Path) -> None:
        self.house, self.where = house, where
        self.early, self.late = str(where / "early"), str(where / "late")
        self.gang = house.submit(once, str(where / "gang"), self.late, gpu=8, count=2)
        self.single = house.submit(once, str(where / "single"), self.early, gpu=4, share="language")
        self.waiting = house.submit(once, str(where / "waiting"), self.late, gpu=8)
        for job, lines in ((self.gang, 2), (self.single, 1)):
            house.await_state(job, "running")
            until(lambda job=job, lines=lines: len(self.lines(job)) == lines or None, f"{lines} lines of {job.job}")

    def lines(self, job: JobHandle) -> list[str]:
        name = {self.gang.job: "gang", self.single.job: "single", self.waiting.job: "waiting"}[job.job]
        path = self.where / name
        return sorted(path.read_text().split()) if path.exists() else []

    def open(self, gate: str) -> None:
        Path(gate).touch()

    def end_once(self) -> None:
        """Let all of them end; each rank has written one line, in the one attempt of its job."""
        self.open(self.early)
        self.open(self.late)
        for job in (self.gang, self.single, self.waiting):
            assert job.result(120) == "done"
            assert job.status()["attempt"] == 1
        assert [self.lines(job) for job in (self.gang, self.single, self.waiting)] == [["0", "1"], ["0"], ["0"]]


def test_the_scheduler_is_killed(house: House, tmp_path: Path) -> None:
    busy = Busy(house, tmp_path)
    epoch = house.client.health()["epoch"]
    os.kill(house.pid_of(SCHEDULER), signal.SIGKILL)
    busy.open(busy.early)  # this one ends while nobody watches
    assert busy.single.result(120) == "done"
    assert house.client.health()["epoch"] == epoch + 1
    assert busy.gang.status()["state"] == "running"
    busy.end_once()


def test_the_quota_actor_is_killed(house: House, tmp_path: Path) -> None:
    busy = Busy(house, tmp_path)
    house.kill_actor(QUOTA)
    busy.end_once()


def test_both_are_killed_at_once(house: House, tmp_path: Path) -> None:
    busy = Busy(house, tmp_path)
    pids = [house.pid_of(name) for name in (SCHEDULER, QUOTA)]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    busy.end_once()


def test_an_acknowledged_submission_outlives_the_scheduler(house: House, tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    pid = house.pid_of(SCHEDULER)
    job = house.submit(once, str(tmp_path / "line"), str(tmp_path / "gate"), gpu=1)
    os.kill(pid, signal.SIGKILL)
    assert job.result(120) == "done"
    assert (tmp_path / "line").read_text() == "0\n"


def test_the_scheduler_is_killed_again_and_again_while_jobs_come(house: House, tmp_path: Path) -> None:
    (tmp_path / "gate").touch()
    jobs = []
    for number in range(3):
        jobs += [house.submit(once, str(tmp_path / f"{number}-{i}"), str(tmp_path / "gate"), gpu=2) for i in range(3)]
        house.kill_actor(SCHEDULER)
    assert [job.result(120) for job in jobs] == ["done"] * 9
    assert [path.read_text() for path in sorted(tmp_path.glob("?-?"))] == ["0\n"] * 9


def test_the_api_is_killed_and_started_again(house: House, tmp_path: Path) -> None:
    busy = Busy(house, tmp_path)
    port = bringup.free_port()
    pid = bringup.start_api(house.local.address, port, tmp_path)
    jobs = f"http://127.0.0.1:{port}/v1/jobs/{busy.gang.job}"
    assert httpx.get(jobs, timeout=60).json()["state"] == "running"
    os.kill(pid, signal.SIGKILL)
    until(lambda: not is_alive(pid) or None, "the end of the API")
    again = bringup.start_api(house.local.address, port, tmp_path)
    try:
        assert httpx.get(jobs, timeout=60).json()["state"] == "running"
        busy.end_once()
        assert httpx.get(jobs, timeout=60).json()["state"] == "succeeded"
    finally:
        os.kill(again, signal.SIGTERM)


def test_the_api_answers_again_after_the_scheduler_was_away(house: House, tmp_path: Path) -> None:
    port = bringup.free_port()
    pid = bringup.start_api(house.local.address, port, tmp_path)
    try:
        os.kill(house.pid_of(SCHEDULER), signal.SIGKILL)
        answers = until(lambda: _jobs(port), "an answer of the API")
        assert isinstance(answers, list)
    finally:
        os.kill(pid, signal.SIGTERM)


def _jobs(port: int) -> list[object] | None:
    """The list of jobs; None while the API says that the scheduler is away."""
    answer = httpx.get(f"http://127.0.0.1:{port}/v1/jobs", timeout=60)
    assert answer.status_code in (200, 503), answer.text
    return list(answer.json()) if answer.status_code == 200 else None


def test_an_agent_is_killed_and_its_node_stays_at_work(house: House, tmp_path: Path) -> None:
    busy = Busy(house, tmp_path)
    name = busy.single.status()["nodes"][0]
    house.kill_actor(f"raysched:agent:{name}")
    heard = house.nodes()[name]["last_report_ms"]
    until(lambda: house.nodes()[name]["last_report_ms"] > heard or None, f"a report of {name}")
    assert house.nodes()[name]["health"] == "healthy"
    busy.end_once()


def test_a_caller_that_comes_while_the_scheduler_is_away_waits_for_it(house: House) -> None:
    os.kill(house.pid_of(SCHEDULER), signal.SIGKILL)
    caller = "import raysched; print(len(raysched.Client().nodes()))"
    ran = subprocess.run(
        [sys.executable, "-c", caller], env=house.environment(), capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout.strip() == "4"
    assert raysched.Client(house.local.address).health()["status"] == "ok"


def test_jobs_that_their_nodes_ended_while_no_scheduler_was_there_go_on(house: House, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    job = house.submit(once, str(tmp_path / "lines"), gate, gpu=8, count=2)
    house.await_state(job, "running")
    with house.without(SCHEDULER):
        until(lambda: house.processes(job) == [] or None, "the agents' leases to be over")
    until(lambda: job.status()["attempt"] == 2 or None, "attempt 2", job.status)
    Path(gate).touch()
    assert job.result(120) == "done"
    assert sorted((tmp_path / "lines").read_text().split()) == ["0", "0", "1", "1"]
