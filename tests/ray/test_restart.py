"""A scheduler that is lost and comes back: jobs run once and their ends are not lost."""

from pathlib import Path

import pytest

from raysched.core.decisions import RemoveGang
from raysched.core.events import AttemptStarted, GangReady, GangRemoved
from raysched.core.model import CommandRun, JobId
from raysched.runtime.rank_files import log_path
from tests.ray.shell import Shell, await_file, await_value, gpus, on

pytestmark = pytest.mark.ray


def until(path: Path) -> CommandRun:
    """Says that it runs, waits for a file, ends with status 4."""
    wait = f"while not os.path.exists({str(path)!r}): time.sleep(0.02)"
    text = f"import os, sys, time\nprint('ran', flush=True)\n{wait}\nsys.exit(4)"
    return CommandRun(("python", "-c", text))


def test_a_running_job_is_taken_up_and_runs_once(shell: Shell, tmp_path: Path) -> None:
    started = shell.run("kept", [gpus(1)], (on("n0"), on("n1")), until(tmp_path / "go"))
    for rank in (0, 1):
        await_file(log_path(shell.log_root, "kept", 1, rank))
    shell.restart()
    (gang,) = [gang for gang in shell.cluster.observe() if gang.job == "kept"]
    assert gang.ready and gang.running
    shell.cluster.adopt([shell.made["kept", 1]])
    shell.start("kept")
    assert shell.wait_for(AttemptStarted, "kept").devices == started.devices
    (tmp_path / "go").touch()
    ended = shell.end("kept")
    assert (ended.outcome, ended.exit_code) == ("failed", 4)
    assert [shell.log("kept", rank) for rank in (0, 1)] == ["ran\n", "ran\n"]
    assert shell.remove("kept").unfenced == ()


def test_an_end_that_nobody_saw_is_delivered(shell: Shell, tmp_path: Path) -> None:
    shell.run("unseen", [gpus(1)], (on("n0"),), until(tmp_path / "go"))
    shell.cluster.close()
    (tmp_path / "go").touch()
    await_file(Path(shell.log_root) / "unseen/1/rank0.outcome")
    shell.cluster = shell._connect()
    shell.cluster.adopt([shell.made["unseen", 1]])
    assert shell.end("unseen").exit_code == 4
    assert shell.log("unseen") == "ran\n"


def test_an_end_is_delivered_although_the_rank_is_gone(shell: Shell, tmp_path: Path) -> None:
    import ray

    (tmp_path / "go").touch()
    shell.run_to_end("left", [gpus(1)], (on("n0"),), until(tmp_path / "go"))
    ray.kill(ray.get_actor("raysched:test:left/1/rank0", namespace="raysched"))
    shell.restart()
    shell.cluster.adopt([shell.made["left", 1]])
    shell.start("left")
    assert shell.end("left").exit_code == 4
    assert shell.log("left") == "ran\n"


def test_a_group_that_was_made_is_taken_up_before_its_start(shell: Shell) -> None:
    shell.create("waits", [gpus(8)], (on("n0"),), CommandRun(("echo", "ran")))
    shell.wait_for(GangReady, "waits")
    shell.restart()
    (gang,) = [gang for gang in shell.cluster.observe() if gang.job == "waits"]
    assert gang.ready and not gang.running
    shell.cluster.adopt([shell.made["waits", 1]])
    shell.wait_for(GangReady, "waits")
    shell.start("waits")
    assert shell.end("waits").outcome == "succeeded"
    assert shell.log("waits") == "ran\n"


def test_what_nobody_holds_can_be_removed_after_a_restart(shell: Shell) -> None:
    shell.run("stranger", [gpus(1)], (on("n0"),))
    shell.restart()
    shell.cluster.perform([RemoveGang(JobId("stranger"), 1)])
    shell.wait_for(GangRemoved, "stranger")
    shell.removed.add(("stranger", 1))
    assert await_value(lambda: shell.processes("stranger") == [] or None, "no process")
    shell.restart()
    assert [gang for gang in shell.cluster.observe() if gang.job == "stranger"] == []
