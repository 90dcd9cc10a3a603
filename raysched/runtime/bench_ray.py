"""What raysched adds to Ray: submit → running beside the bare placement group and actor, in one run, as ratios.

Both sides are measured in turn on the same nodes, to the answer of the first process in the group. raysched's side
contains its durable queue, the decision, the ledger and the group; Ray's side is the group and the actor alone. Times
of raysched are the submitting call and, by the scheduler's own clock, from there to running; so no two clocks meet."""

import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import cloudpickle
import msgspec

from raysched.core.model import Bundle, FunctionRun, JobId, JobSpec, ShareId, UserId
from raysched.core.units import MILLI
from raysched.runtime import bringup
from raysched.runtime.local_cluster import start_local
from raysched.runtime.scheduler_actor import NAME, NAMESPACE

PATIENCE_S: Final = 120.0
REST_S: Final = 0.3  # room that Ray has just got back is seen after 0.1 s, and must not count for either side
CONFIG: Final = """\
version: 1
cluster: bench
node_specs: {sim8: {gpu: 8, gpu_model: SIM, cpu: 8, memory: 16Gi}}
pools: {bench: {}}
shares: {bench: {nominal: {bench: {gpu: 16}}, queue: {policy: any_fit}}}
"""
NODES: Final = [{"name": f"bench{i}", "num_cpus": 8, "num_gpus": 8, "model": "SIM", "pool": "bench"} for i in (0, 1)]

Row = dict[str, Any]
Tell = Callable[[str], None]


class BenchFailed(Exception):
    """Something did not run; the message says what."""


def run(
    address: str | None = None,
    *,
    share: str = "bench",
    gpus: int = 8,
    rounds: int = 6,
    jobs: int = 32,
    tell: Tell = lambda doing: None,
) -> Row:
    """Measure on the cluster at `address` (a share with two idle nodes of `gpus` GPUs), else on one of its own.

    Raises BenchFailed, BringupFailed, LocalClusterFailed."""
    with contextlib.ExitStack() as ends:
        if address is None:
            tell("starting a cluster of two nodes")
            address = ends.enter_context(_own_cluster())
        ends.enter_context(bringup.connected(address))
        return Bench(share, gpus, tell).measure(rounds, jobs)


@contextlib.contextmanager
def _own_cluster() -> Iterator[str]:
    home = Path(tempfile.mkdtemp(prefix="rb-"))
    try:
        cluster = start_local(NODES, str(home / "ray"))
        try:
            path = home / "data" / "config.yaml"
            path.parent.mkdir()
            path.write_text(CONFIG, encoding="utf-8")
            bringup.start_actors(cluster.address, path, nvml=False)
            yield cluster.address
        finally:
            cluster.shutdown()
    finally:
        shutil.rmtree(home, ignore_errors=True)


class Bench:
    """Both sides on a connected cluster."""

    def __init__(self, share: str, gpus: int, tell: Tell) -> None:
        import ray

        self._actor = ray.get_actor(NAME, namespace=NAMESPACE)
        self._share, self._gpus, self._tell = share, gpus, tell
        self._payload = self._call("put_blob", cloudpickle.dumps((_nothing, (), {})))
        self._run_id = f"{os.getpid()}-{time.time_ns() % 1_000_000}"
        self._made = 0
        self._bare_actor = _bare_actor()

    def measure(self, rounds: int, jobs: int) -> Row:
        """Both shapes in turn, then the sustained rate."""
        self._until("two nodes are healthy", lambda: self._healthy() >= 2)
        self._tell("warming up")
        self._side_by_side(self._gpus, 2, 1)
        self._tell("one bundle")
        one = self._side_by_side(1, 1, rounds)
        self._tell("a gang on two nodes")
        two = self._side_by_side(self._gpus, 2, rounds)
        self._tell("sustained")
        return {"one_bundle": one, "two_nodes": two, "sustained": self._sustained(jobs), "machine": _machine()}

    # ── one at a time ─────────────────────────────────────────────────────────────────────────────────────────────

    def _side_by_side(self, gpus: int, count: int, rounds: int) -> Row:
        bare, ours = [], []
        for _ in range(rounds):
            bare.append(_bare(self._bare_actor, gpus, count))
            time.sleep(REST_S)
            ours.append(self._ours(gpus, count))
            time.sleep(REST_S)
        row = {"rounds": rounds, "ray_ms": _middle(bare), "raysched_ms": _middle(ours)}
        row |= {"ray_worst_ms": _ms(max(bare)), "raysched_worst_ms": _ms(max(ours))}
        return row | {"ratio": round(statistics.median(ours) / statistics.median(bare), 2)}

    def _ours(self, gpus: int, count: int) -> float:
        """Seconds from the submission to running."""
        began = time.monotonic()
        job = self._submit(gpus, count)
        acknowledged = time.monotonic() - began
        view = self._ended(job)
        return acknowledged + float(view["started_ms"] - view["submitted_ms"]) / 1_000

    def _submit(self, gpus: int, count: int) -> str:
        self._made += 1
        spec = JobSpec(
            job=JobId(f"bench-{self._run_id}-{self._made}"),
            user=UserId("bench"),
            share=ShareId(self._share),
            bundles=(Bundle(gpu_milli=gpus * MILLI, count=count),),
            run=FunctionRun(payload=self._payload, name="nothing"),
        )
        return str(self._call("submit", msgspec.to_builtins(spec), "bench")["job"])

    def _ended(self, job: str) -> Row:
        view: Row = self._call("wait", job, PATIENCE_S)
        if view["state"] != "succeeded":
            raise BenchFailed(f"{job} is {view['state']} ({view['reason'] or view['detail']}) after {PATIENCE_S:.0f} s")
        return view

    # ── as fast as it goes ────────────────────────────────────────────────────────────────────────────────────────

    def _sustained(self, jobs: int) -> Row:
        """Groups per second, each with one process that starts, answers and goes; as many at once as GPUs."""
        at_once = 2 * self._gpus
        began = time.monotonic()
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda _: _bare(self._bare_actor, 1, 1), range(jobs)))
        bare_per_s = jobs / (time.monotonic() - began)
        time.sleep(REST_S)
        began = time.monotonic()
        names = [self._submit(1, 1) for _ in range(jobs)]
        for name in names:
            self._ended(name)
        ours_per_s = jobs / (time.monotonic() - began)
        row = {
            "jobs": jobs,
            "at_once": at_once,
            "ray_per_s": round(bare_per_s, 2),
            "raysched_per_s": round(ours_per_s, 2),
        }
        return row | {"ratio": round(ours_per_s / bare_per_s, 2)}

    # ── the scheduler ─────────────────────────────────────────────────────────────────────────────────────────────

    def _call(self, method: str, *args: Any) -> Any:
        import ray

        found = ray.get(getattr(self._actor, method).remote(*args), timeout=PATIENCE_S + 30)
        if isinstance(found, dict) and "error" in found:
            raise BenchFailed(found["error"]["message"])
        return found

    def _healthy(self) -> int:
        return sum(node["health"] == "healthy" and node["role"] == "normal" for node in self._call("nodes"))

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise BenchFailed(f"in {PATIENCE_S:.0f} s it did not happen that {what}")
            time.sleep(0.1)


def _nothing() -> None:
    """What every job of the bench does."""


def _bare_actor() -> Any:
    """The bare actor's class. Defined in here, so that it travels by value and its process imports nothing of ours."""
    import ray

    class Answering:
        def answer(self) -> int:
            return 0

    return ray.remote(num_cpus=0)(Answering)


def _bare(actor: Any, gpus: int, count: int) -> float:
    """Seconds until the actors of a bare placement group have answered; then all of it is removed."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    began = time.monotonic()
    group = placement_group([{"GPU": gpus}] * count, strategy="STRICT_SPREAD" if count > 1 else "PACK")
    ray.get(group.ready(), timeout=PATIENCE_S)
    places = [PlacementGroupSchedulingStrategy(group, number) for number in range(count)]
    made = [actor.options(num_gpus=gpus, scheduling_strategy=place).remote() for place in places]
    ray.get([one.answer.remote() for one in made], timeout=PATIENCE_S)
    took = time.monotonic() - began
    for one in made:
        ray.kill(one)
    remove_placement_group(group)
    return took


def _middle(seconds: list[float]) -> float:
    return _ms(statistics.median(seconds))


def _ms(seconds: float) -> float:
    return round(seconds * 1_000, 1)


def _machine() -> Row:
    import ray

    return {"cores": os.cpu_count(), "ray": ray.__version__, "nodes": sum(node["Alive"] for node in ray.nodes())}  # type: ignore[no-untyped-call]
