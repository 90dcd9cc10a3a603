"""What the tests of the Ray shell speak in: orders, the events they wait for, and processes they look for."""

import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle
import ray
from raysched_agent.processes import sweep

from raysched.core.decisions import CreateGang, RemoveGang, StartAttempt, StopAttempt
from raysched.core.events import AnyEvent, AttemptEnded, AttemptStarted, GangReady, GangRemoved
from raysched.core.model import (
    Bundle,
    CommandRun,
    FunctionRun,
    JobId,
    JobSpec,
    NodeId,
    PlacedBundle,
    Placement,
    PoolId,
    Run,
    ShareId,
    UserId,
)
from raysched.core.units import MILLI
from raysched.runtime.guard import marked
from raysched.runtime.local_cluster import POOL_LABEL, LocalCluster
from raysched.runtime.rank_files import log_path
from raysched.runtime.ray_cluster import RayCluster

CLUSTER = "test"
PATIENCE_S = 40.0  # how long an event may take on a busy machine before a test gives up

E = TypeVar("E")


class SystemClock:
    """The wall clock; good enough where nothing depends on its never falling."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


@ray.remote(num_cpus=0)
class SweepingAgent:
    """The part of a node agent that a removal asks for."""

    def sweep(self, job: str, attempt: int) -> dict[str, bool]:
        return {"clean": sweep(CLUSTER, job, attempt).clean}


@contextlib.contextmanager
def agents(nodes: list[str]) -> Iterator[None]:
    """Agents under the names that a removal looks for."""
    started = []
    for node in nodes:
        affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(ray_id_of(node), soft=False)
        options = {"name": f"raysched:agent:{node}", "namespace": "raysched", "lifetime": "detached"}
        started.append(
            SweepingAgent.options(**options, get_if_exists=True, scheduling_strategy=affinity).remote()  # type: ignore[attr-defined]
        )
    yield


def ray_id_of(node: str) -> str:
    """The Ray id of a live node, by its name."""
    found = [row["NodeID"] for row in ray.nodes() if row["Alive"] and row["Labels"].get("raysched/node") == node]
    assert len(found) == 1, f"{node}: {found}"
    return str(found[0])


def on(node: str, bundle: int = 0, count: int = 1) -> PlacedBundle:
    """`count` bundles on a node."""
    return PlacedBundle(NodeId(node), bundle, count)


def gpus(amount: float, cpus: float = 1) -> Bundle:
    """A bundle of GPUs and cores."""
    return Bundle(gpu_milli=round(amount * MILLI), cpu_milli=round(cpus * MILLI))


class Shell:
    """A RayCluster with a blob store in memory. Jobs are made, started and removed by hand, as the loop would."""

    def __init__(self, local: LocalCluster, log_root: Path) -> None:
        self.local = local
        self.log_root = str(log_root)
        self.blobs: dict[str, bytes] = {}
        self.events: list[AnyEvent] = []
        self.made: dict[tuple[str, int], CreateGang] = {}
        self.removed: set[tuple[str, int]] = set()
        self.cluster = self._connect()

    def _connect(self) -> RayCluster:
        return RayCluster(CLUSTER, self.log_root, self.blobs.get, self.put_blob, self._pool_of, SystemClock())

    def _pool_of(self, labels: Mapping[str, str]) -> PoolId:
        return PoolId(labels[POOL_LABEL])

    def put_blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    def restart(self) -> None:
        """Drop the cluster object as a dying scheduler does, and make a new one."""
        self.cluster.close()
        self.events.clear()
        self.cluster = self._connect()

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def function(self, call: Callable[..., Any], *args: Any, **settings: Any) -> FunctionRun:
        """A stored function; those of this package travel by value, as a user's do."""
        return FunctionRun(self.put_blob(cloudpickle.dumps((call, args, {}))), call.__name__, **settings)

    def create(
        self, job: str, bundles: list[Bundle], placement: Placement, run: Run | None = None, attempt: int = 1
    ) -> CreateGang:
        """Order a gang; `run` None: one that only sleeps."""
        run = run or CommandRun(("sleep", "600"))
        spec = JobSpec(JobId(job), UserId("ann"), ShareId("team"), tuple(bundles), run=run)
        ids = {placed.node: ray_id_of(placed.node) for placed in placement}
        made = CreateGang(spec.job, attempt, spec.user, spec.share, 5, spec, placement, ids)
        self.made[job, attempt] = made
        self.cluster.perform([made])
        return made

    def start(self, job: str, attempt: int = 1) -> None:
        self.cluster.perform([StartAttempt(JobId(job), attempt)])

    def run(self, job: str, bundles: list[Bundle], placement: Placement, run: Run | None = None) -> AttemptStarted:
        """Create, wait, start, wait."""
        self.create(job, bundles, placement, run)
        self.wait_for(GangReady, job)
        self.start(job)
        return self.wait_for(AttemptStarted, job)

    def end(self, job: str) -> AttemptEnded:
        return self.wait_for(AttemptEnded, job)

    def run_to_end(self, job: str, bundles: list[Bundle], placement: Placement, run: Run) -> AttemptEnded:
        """The whole life but for the removal."""
        self.run(job, bundles, placement, run)
        return self.end(job)

    def stop(self, job: str, grace_ms: int = 5_000) -> AttemptEnded:
        self.cluster.perform([StopAttempt(JobId(job), 1, grace_ms, "cancelled")])
        return self.end(job)

    def remove(self, job: str, attempt: int = 1) -> GangRemoved:
        self.removed.add((job, attempt))
        self.cluster.perform([RemoveGang(JobId(job), attempt)])
        return self.wait_for(GangRemoved, job)

    def value(self, ended: AttemptEnded) -> Any:
        """What the function returned."""
        assert ended.outcome == "succeeded", ended.detail
        assert ended.result is not None
        return cloudpickle.loads(self.blobs[ended.result])["value"]

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def wait_for(self, kind: type[E], job: str | None = None, node: str | None = None) -> E:
        """The first event of that kind, of that job or node, since the cluster object was made."""

        def found() -> E | None:
            self.events += self.cluster.poll()
            for event in self.events:
                mine = job in (None, getattr(event, "job", None)) and node in (None, getattr(event, "node", None))
                if isinstance(event, kind) and mine:
                    return event
            return None

        return await_value(found, f"{kind.__name__} of {job or node}; had {self.events}")

    def all(self, kind: type[E]) -> list[E]:
        """Every event of that kind up to now."""
        self.events += self.cluster.poll()
        return [event for event in self.events if isinstance(event, kind)]

    def log(self, job: str, rank: int = 0) -> str:
        return log_path(self.log_root, job, 1, rank).read_text()

    def processes(self, job: str, attempt: int = 1) -> list[int]:
        """The processes of an attempt on this machine."""
        return marked(f"{CLUSTER}:{job}/{attempt}")

    def await_no_process(self, job: str) -> None:
        await_value(lambda: not self.processes(job) or None, f"the end of {self.processes(job)}")

    def clean_up(self) -> None:
        for key in self.made:
            if key not in self.removed:
                self.remove(*key)
        self.cluster.close()


V = TypeVar("V")


def await_value(look: Callable[[], V | None], what: str) -> V:
    """Look until there is something to see."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        value = look()
        if value is not None:
            return value
        time.sleep(0.01)
    raise AssertionError(f"waited {PATIENCE_S} s for {what}")


def await_file(path: Path) -> str:
    """The text of a file once it is there and not empty."""
    return await_value(lambda: path.read_text() if path.exists() and path.read_text() else None, str(path))


def is_alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
