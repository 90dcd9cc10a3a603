"""Jobs end: by order, by failure, with their node. Nothing of them is left."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

from raysched.core.events import AlertRaised, GangReady, NodeGone, NodeJoined
from raysched.core.model import CommandRun
from raysched.runtime.local_cluster import LocalCluster
from tests.ray.shell import Shell, await_file, gpus, is_alive, on

pytestmark = pytest.mark.ray

cloudpickle.register_pickle_by_value(sys.modules[__name__])

# Starts a child in a session of its own that ignores SIGTERM, and a daemon forked twice; says all their ids.
FAMILY = """
import os, signal, subprocess, sys, time
out = sys.argv[1]
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"],
                         start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    open(out + ".daemon", "w").write(str(os.getpid()))
    time.sleep(600)
while not os.path.exists(out + ".daemon"):
    time.sleep(0.01)
open(out + ".new", "w").write(f"{os.getpid()} {child.pid} " + open(out + ".daemon").read())
os.rename(out + ".new", out)
"""  # noqa: E501


SLEEP = "print('up', flush=True)\ntime.sleep(600)"


def family(path: Path, then: str = "time.sleep(600)") -> CommandRun:
    return CommandRun(("python", "-c", FAMILY + then, str(path)))


def ids(path: Path) -> list[int]:
    found = [int(text) for text in await_file(path).split()]
    assert len(found) == 3 and all(is_alive(pid) for pid in found[1:])
    return found


def test_a_cancel_leaves_no_process(shell: Shell, tmp_path: Path) -> None:
    shell.run("cancelled", [gpus(1)], (on("n0"),), family(tmp_path / "ids"))
    pids = ids(tmp_path / "ids")
    assert shell.stop("cancelled").outcome == "stopped"
    assert shell.remove("cancelled").unfenced == ()
    assert [pid for pid in pids if is_alive(pid)] == []
    assert shell.processes("cancelled") == []


def test_a_failed_job_leaves_no_process(shell: Shell, tmp_path: Path) -> None:
    shell.run("failed", [gpus(1)], (on("n0"),), family(tmp_path / "ids", "sys.exit(3)"))
    assert shell.end("failed").exit_code == 3
    pids = ids(tmp_path / "ids")
    assert shell.remove("failed").unfenced == ()
    assert [pid for pid in pids if is_alive(pid)] == []


def test_a_killed_rank_leaves_no_process_also_without_an_agent(shell: Shell, tmp_path: Path) -> None:
    shell.run("crash", [gpus(1)], (on("n3"),), family(tmp_path / "ids"))
    pids = ids(tmp_path / "ids")
    rank = [pid for pid in shell.processes("crash") if b"ray::" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    os.kill(rank[0], signal.SIGKILL)
    ended = shell.end("crash")
    assert ended.outcome == "failed" and "rank 0 died" in ended.detail
    shell.await_no_process("crash")
    assert [pid for pid in pids if is_alive(pid)] == []
    assert shell.remove("crash").unfenced == ("n3",)


def test_the_room_of_a_removed_group_is_seen_before_it_is_announced(shell: Shell) -> None:
    import ray

    shell.run("full", [gpus(8)], (on("n0"),))
    shell.remove("full")
    node = shell.made["full", 1].ray_ids[on("n0").node]
    assert ray._private.state.available_resources_per_node()[node]["GPU"] == 8


def test_a_stopped_program_has_its_grace(shell: Shell) -> None:
    text = "import signal, sys, time\nsignal.signal(15, lambda *_: (print('saved'), sys.exit(0)))\n" + SLEEP
    shell.run("saves", [gpus(0)], (on("n0"),), CommandRun(("python", "-c", text)))
    await_file(Path(shell.log_root) / "saves/1/rank0.log")
    assert shell.stop("saves").outcome == "stopped"
    assert shell.log("saves") == "up\nsaved\n"


def test_a_program_that_ignores_its_notice_is_killed(shell: Shell) -> None:
    text = "import signal, time\nsignal.signal(15, signal.SIG_IGN)\n" + SLEEP
    shell.run("deaf", [gpus(0)], (on("n0"),), CommandRun(("python", "-c", text)))
    await_file(Path(shell.log_root) / "deaf/1/rank0.log")
    assert shell.stop("deaf", grace_ms=300).outcome == "stopped"


def test_a_stopped_function_is_interrupted_and_can_save(shell: Shell) -> None:
    def train() -> None:
        import time

        from raysched.runtime.context import should_stop

        try:
            print("up", flush=True)
            time.sleep(600)
        except KeyboardInterrupt:
            print("saving", should_stop())
            raise

    shell.run("train", [gpus(0)], (on("n0"),), shell.function(train))
    await_file(Path(shell.log_root) / "train/1/rank0.log")
    assert shell.stop("train").outcome == "stopped"
    assert shell.log("train") == "up\nsaving True\n"


def test_stopping_what_has_not_started_ends_it(shell: Shell) -> None:
    shell.create("early", [gpus(1)], (on("n0"),))
    shell.wait_for(GangReady, "early")
    assert shell.stop("early").outcome == "stopped"


# ── the death of a node ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def extra(local: LocalCluster) -> Iterator[str]:
    """A node that the test may kill."""
    local.add({"name": "extra", "num_cpus": 4, "num_gpus": 8, "model": "H100", "pool": "main"})
    yield "extra"
    local.remove("extra")


def test_a_killed_node_ends_its_jobs_and_leaves_no_process(shell: Shell, extra: str, tmp_path: Path) -> None:
    joined = shell.wait_for(NodeJoined, node=extra)
    assert (joined.spec.gpu, joined.spec.gpu_model, joined.spec.cpu_milli, joined.pool) == (8, "H100", 4000, "main")
    shell.run("gang", [gpus(1)], (on("n0"), on(extra)))
    shell.run("lone", [gpus(1)], (on(extra),), family(tmp_path / "ids"))
    pids = ids(tmp_path / "ids")
    shell.local.kill(extra)
    assert shell.end("lone").outcome == "node_lost"
    assert shell.end("gang").outcome == "node_lost"
    assert shell.wait_for(NodeGone, node=extra).node == extra
    shell.await_no_process("lone")
    assert [pid for pid in pids if is_alive(pid)] == []
    assert shell.remove("lone").unfenced == (extra,)
    assert shell.remove("gang").unfenced == (extra,)
    assert shell.processes("gang") == []


def test_a_node_that_hangs_ends_its_job_and_does_not_freeze_ray(shell: Shell, extra: str) -> None:
    shell.run("on-hung", [gpus(1)], (on(extra),))
    shell.local.stop_hang(extra)
    shell.create("behind-hung", [gpus(1)], (on(extra),))
    assert shell.end("on-hung").outcome == "node_lost"
    shell.create("after", [gpus(1)], (on("n0"),))
    shell.wait_for(GangReady, "after")
    assert shell.all(AlertRaised) == []
