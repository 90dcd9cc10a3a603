"""Processes of an attempt are found by their marker and ended wherever they went, and nothing else is."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_node import until
from raysched_agent.processes import attempts_here, marked, sweep, sweep_all

CLUSTER = f"test-{os.getpid()}"
SLEEP = "import time; time.sleep(600)"

# A runner whose child is in a session of its own and whose daemon was forked twice; both write their process id.
RUNNER = """
import os, subprocess, sys, time
out = sys.argv[1]
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
own_session = subprocess.Popen(sleep, start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, sleep)
    os._exit(0)
open(out + ".new", "w").write(str(own_session.pid))
os.rename(out + ".new", out)
time.sleep(600)
"""

# A program that is always one step ahead: it starts its successor and ends.
RUNAWAY = """
import os, time
while True:
    time.sleep(0.02)
    if os.fork():
        os._exit(0)
"""


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()
    sweep_all(CLUSTER)


def start(started: list[subprocess.Popen[bytes]], code: str, *args: str, **env: str) -> subprocess.Popen[bytes]:
    started.append(subprocess.Popen([sys.executable, "-c", code, *args], env={**os.environ, **env}))
    return started[-1]


def marker(attempt: str, cluster: str = CLUSTER) -> dict[str, str]:
    return {"RAYSCHED_ATTEMPT": f"{cluster}:{attempt}"}


def test_own_sessions_and_daemons_are_swept(processes: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    runner = start(processes, RUNNER, str(tmp_path / "pids"), **marker("ana-1/2"))
    until((tmp_path / "pids").exists, "the runner's children")
    own_session = int((tmp_path / "pids").read_text())
    until(lambda: len(list(marked(CLUSTER))) == 3, "runner, child and daemon")
    assert attempts_here(CLUSTER) == ["ana-1/2"]

    swept = sweep(CLUSTER, "ana-1", 2)

    assert swept.clean and len(swept.pids) == 3 and {runner.pid, own_session} < set(swept.pids)
    assert list(marked(CLUSTER)) == [] and attempts_here(CLUSTER) == []


def test_nothing_else_is_touched(processes: list[subprocess.Popen[bytes]]) -> None:
    victim = start(processes, SLEEP, **marker("ana-1/2"))
    others = [
        start(processes, SLEEP),
        start(processes, SLEEP, **marker("ana-1/1")),
        start(processes, SLEEP, **marker("ana-1/22")),
        start(processes, SLEEP, **marker("ana-11/2")),
        start(processes, SLEEP, **marker("ana-1/2", cluster=CLUSTER + "x")),
        start(processes, SLEEP, RAYSCHED_ATTEMPT="ana-1/2"),
        start(processes, SLEEP, OTHER=f"RAYSCHED_ATTEMPT={CLUSTER}:ana-1/2"),
    ]
    until(lambda: len(list(marked(CLUSTER))) == 4, "every marked process")

    assert sweep(CLUSTER, "ana-1", 2).pids == (victim.pid,)
    assert [process.poll() for process in others] == [None] * len(others)


def test_a_sweep_of_nothing_is_clean() -> None:
    swept = sweep(CLUSTER, "nobody", 1)
    assert (swept.pids, swept.clean) == ((), True)


def test_a_program_that_forks_away_is_caught(processes: list[subprocess.Popen[bytes]]) -> None:
    start(processes, RUNAWAY, **marker("bo-7/1"))
    until(lambda: attempts_here(CLUSTER) == ["bo-7/1"], "the runaway")

    assert sweep(CLUSTER, "bo-7", 1).clean
    assert [attempts_here(CLUSTER) for _ in range(20)] == [[]] * 20


def test_the_sweeper_spares_itself(processes: list[subprocess.Popen[bytes]]) -> None:
    code = f"from raysched_agent.processes import sweep; print(sweep({CLUSTER!r}, 'ana-1', 2))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **marker("ana-1/2")}, capture_output=True, text=True
    )
    assert done.stdout.strip() == "Swept(pids=(), clean=True)"


def test_nodes_of_one_machine_are_told_apart(processes: list[subprocess.Popen[bytes]]) -> None:
    ours = start(processes, SLEEP, **marker("ana-1/1"), RAYSCHED_NODE="n1")
    theirs = start(processes, SLEEP, **marker("ana-2/1"), RAYSCHED_NODE="n2")
    unmarked = start(processes, SLEEP, **marker("ana-3/1"))
    until(lambda: len(list(marked(CLUSTER))) == 3, "every marked process")

    assert attempts_here(CLUSTER, "n1") == ["ana-1/1", "ana-3/1"]
    assert set(sweep_all(CLUSTER, "n1").pids) == {ours.pid, unmarked.pid}
    assert theirs.poll() is None
