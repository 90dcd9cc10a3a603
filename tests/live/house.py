"""What the tests of the running whole speak in: jobs, processes that are killed, and what may be left of them."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray._private import state as ray_state

import raysched
from raysched.client.handle import JobHandle
from raysched.runtime import ranks
from raysched.runtime.guard import marked
from raysched.runtime.local_cluster import LocalCluster
from raysched.runtime.placement_groups import list_groups
from raysched.runtime.scheduler_actor import NAME as SCHEDULER
from raysched.runtime.scheduler_actor import NAMESPACE

CLUSTER = "live"
PATIENCE_S = 120.0  # how long anything may take on a busy machine before a test gives up

CONFIG = """\
version: 1
cluster: live
# Long enough for a machine on which other things run, and short enough to wait for.
defaults:
  {silent_after: 6s, evidence_max_age: 15s, failed_after: 8s, healthy_after: 3s, validate_for: 4s, fence_after: 6s,
   fence_wait: 8s}
node_specs: {sim8: {gpu: 8, gpu_model: SIM, cpu: 8, memory: 16Gi}}
pools:
  train:  {match: {pool: train}}
  spares: {match: {pool: spares}, role: standby}
shares:
  vision:
    nominal: {train: {gpu: 16}}
    weight: 60
    sharing: {strategy: lend_and_borrow, borrow_limit: 100%}
    queue: {policy: any_fit}
    reclaim: {policy: wait}
    limits: {enabled: true, rules: [{user: bo, gpu: 4}]}
  language:
    nominal: {train: {gpu: 8}}
    weight: 40
    sharing: {strategy: lend_and_borrow, borrow_limit: 100%}
    queue: {policy: any_fit}
    reclaim: {policy: wait}
"""


def node(name: str, pool: str = "train") -> dict[str, Any]:
    """How a node of the cluster is started."""
    return {"name": name, "num_cpus": 8, "num_gpus": 8, "memory": 16 * 2**30, "model": "SIM", "pool": pool}


NODES = [*(node(f"node{i}") for i in range(3)), node("spare0", "spares")]

V = TypeVar("V")


class House:
    """The running whole, seen from outside."""

    def __init__(self, base: Path, local: LocalCluster) -> None:
        self.base, self.local = base, local
        self.client = raysched.Client(local.address, user="root")
        self.submitted: list[JobHandle] = []

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, what: Any, *args: Any, user: str = "ana", share: str = "vision", **options: Any) -> JobHandle:
        """A job through the public door."""
        handle = raysched.submit(what, *args, client=self.client.as_user(user), share=share, **options)
        self.submitted.append(handle)
        return handle

    def await_state(self, job: JobHandle, *states: str) -> dict[str, Any]:
        """The job once it is in one of these states."""

        def found() -> dict[str, Any] | None:
            view = job.status()
            assert view["state"] in states or not view["ended_ms"], f"{job.job} ended: {view}"
            return view if view["state"] in states else None

        return until(found, f"{job.job} to be {' or '.join(states)}")

    def call(self, method: str, *args: Any) -> Any:
        """A call of the scheduler that the client has no name for."""
        return ray.get(getattr(ray.get_actor(SCHEDULER, namespace=NAMESPACE), method).remote(*args), timeout=PATIENCE_S)

    def cli(self, *words: str, check: int = 0) -> str:
        """What a command prints, run as a person runs it."""
        ran = subprocess.run(
            [sys.executable, "-c", "from raysched.cli.main import app; app()", *words],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert ran.returncode == check, ran.stdout + ran.stderr
        return ran.stdout if check == 0 else ran.stdout + ran.stderr

    def environment(self) -> dict[str, str]:
        """The environment of somebody at this cluster's door."""
        own = {"RAYSCHED_ADDRESS": self.local.address, "RAYSCHED_HOME": str(self.base / "home"), "RAYSCHED_USER": "ana"}
        return {**os.environ, **own}

    # ── processes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def kill_actor(self, name: str) -> None:
        """kill -9 of the process of an actor, and wait until Ray has started it again."""
        pid = self.pid_of(name)
        os.kill(pid, signal.SIGKILL)
        until(lambda: self.pid_of(name) not in (0, pid) or None, f"{name} to be started again")

    @contextlib.contextmanager
    def without(self, name: str) -> Iterator[None]:
        """The time between the death of an actor's process and the first step of the next one."""
        self.kill_actor(name)
        pid = self.pid_of(name)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def pid_of(self, name: str) -> int:
        """The process of an actor; 0 while it has none."""
        actor = ray.get_actor(name, namespace=NAMESPACE)
        row = ray_state.state.actor_table(actor._actor_id.hex())
        return int(row["Pid"]) if row["State"] == "ALIVE" else 0

    def processes(self, job: JobHandle, attempts: int = 3) -> list[int]:
        """Every process on this machine that carries the mark of one of the job's first attempts."""
        return [pid for n in range(1, attempts + 1) for pid in marked(f"{CLUSTER}:{job.job}/{n}")]

    # ── rest ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Nodes by name."""
        return {view["node"]: view for view in self.client.nodes()}

    def await_nodes(self) -> None:
        """Wait until three nodes work and a fourth stands by."""

        def ready() -> bool | None:
            found = sorted(view["pool"] for view in self.nodes().values() if view["health"] == "healthy")
            return found == ["spares", "train", "train", "train"] or None

        until(ready, "all nodes to be healthy")

    def begin(self) -> None:
        self.submitted.clear()
        self.await_nodes()

    def come_to_rest(self) -> None:
        """Cancel what still runs; then nothing may be left over, and the books must be sound."""
        for job in self.submitted:
            job.cancel()
        for job in self.submitted:
            job.wait(PATIENCE_S)
        until(lambda: self.left_over() == [] or None, "nothing to be left over", self.left_over)
        assert self.call("check") == {"broken": []}

    def left_over(self) -> list[str]:
        """Everything that a job has left: in the books, in Ray, on the machine."""
        used = [f"{share} is charged {amounts}" for share, amounts in self.client.usage()["shares"].items() if amounts]
        groups = [f"group of {job}/{attempt}" for job, attempt in list_groups(CLUSTER)]
        actors = ranks.rank_names(CLUSTER)
        processes = [f"process {pid} of {job.job}" for job in self.submitted for pid in self.processes(job)]
        return used + groups + actors + processes + self._held()

    def _held(self) -> list[str]:
        """GPUs that Ray does not count as free on a live node."""
        free = ray_state.state.available_resources_per_node()
        alive = [row for row in ray.nodes() if row["Alive"] and row["Resources"].get("GPU")]
        return [f"{row['NodeID']} holds GPUs" for row in alive if free.get(row["NodeID"], {}).get("GPU", 0) != 8]


def until(look: Callable[[], V | None], what: str, had: Callable[[], Any] = lambda: "nothing") -> V:
    """Look until there is something to see."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        value = look()
        if value is not None:
            return value
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE_S:.0f} s for {what}; had {had()}")


# ── jobs that tests submit ────────────────────────────────────────────────────────────────────────────────────────


def once(path: str, gate: str) -> str:
    """Write one line, wait until the gate is open."""
    import os
    import time

    with open(path, "a") as file:
        file.write(f"{os.environ['RANK']}\n")
    while not os.path.exists(gate):
        time.sleep(0.05)
    return "done"


# Starts a child in a session of its own that ignores SIGTERM, and a daemon forked twice; writes all their ids.
FAMILY = """
import os, signal, subprocess, sys, time
out = sys.argv[1]
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
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
"""


def family(out: Path, then: str = "time.sleep(600)") -> list[str]:
    """A command that leaves children everywhere."""
    return ["python", "-c", FAMILY + then, str(out)]


def await_ids(out: Path) -> list[int]:
    """The ids of a family once all of it runs."""
    return until(lambda: [int(word) for word in out.read_text().split()] if out.exists() else None, str(out))


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
