"""A made-up team cluster: jobs that come by day and week, GPU fractions, single GPUs, gangs of whole nodes, jobs
without GPUs; nodes that fail and are repaired; standby nodes. One seed is one workload, on every machine."""

from collections.abc import Iterator, Sequence
from math import exp, log
from random import Random
from typing import Any, Final

from msgspec import Struct

from raysched.config import ClusterConfig
from raysched.core.model import Bundle, JobSpec, NodeId, QueuePolicy, ShareId, UserId
from raysched.core.units import MILLI
from raysched.sim.workloads import arrivals
from raysched.sim.workloads.arrivals import DAY_MS, HOUR_MS, Shape
from raysched.sim.workloads.pieces import (
    GPU_CPU_MILLI,
    GPU_MEMORY_BYTES,
    NODE_GPUS,
    POOL,
    SPARES,
    config,
    job_id,
    nodes,
    share_keys,
)
from raysched.sim.workloads.workload import NodeFailure, Workload, WorkloadJob, WorkloadNode

SIGNALS: Final = ("xid_79", "node_dead")  # a GPU falls off its bus; the whole host goes down
LEAST_RUNTIME_MS: Final = 10_000
MOST_RUNTIME_MS: Final = 14 * DAY_MS


class JobClass(Struct, frozen=True):
    """A kind of jobs: `part` of all of them (relative), GPUs in thousandths on each of `nodes` nodes, and a log-normal
    run time with this median and spread (standard deviation of its logarithm)."""

    name: str
    part: float
    gpu_milli: int
    nodes: int = 1
    median_ms: int = HOUR_MS
    spread: float = 1.2
    workload: str = "training"

    def draw_ms(self, rng: Random) -> int:
        """A run time, cut at 10 seconds and 14 days."""
        drawn = rng.lognormvariate(log(self.median_ms), self.spread)
        return int(min(max(drawn, LEAST_RUNTIME_MS), MOST_RUNTIME_MS))

    @property
    def mean_ms(self) -> float:
        """The mean run time, but for the cuts."""
        return self.median_ms * exp(self.spread**2 / 2)

    @property
    def work(self) -> float:
        """Mean GPU milliseconds of one job."""
        return self.mean_ms * self.gpu_milli * self.nodes / MILLI

    @property
    def bundles(self) -> tuple[Bundle, ...]:
        """One bundle a node; CPU and memory in step with the GPUs, and two cores without."""
        cpu_milli = max(GPU_CPU_MILLI * self.gpu_milli // MILLI, 2_000)
        memory_bytes = max(GPU_MEMORY_BYTES * self.gpu_milli // MILLI, 8 << 30)
        return (Bundle(self.gpu_milli, cpu_milli, memory_bytes, count=self.nodes),)


MIX: Final = (
    JobClass("cpu", 0.10, 0, median_ms=HOUR_MS // 3, workload="batch"),
    JobClass("quarter", 0.12, 250, median_ms=2 * HOUR_MS, workload="notebook"),
    JobClass("half", 0.10, 500, median_ms=HOUR_MS, workload="notebook"),
    JobClass("one", 0.40, 1_000, median_ms=HOUR_MS // 2),
    JobClass("two", 0.12, 2_000),
    JobClass("four", 0.08, 4_000, median_ms=2 * HOUR_MS),
    JobClass("node", 0.05, 8_000, median_ms=3 * HOUR_MS),
    JobClass("two-nodes", 0.02, 8_000, 2, median_ms=4 * HOUR_MS),
    JobClass("four-nodes", 0.01, 8_000, 4, median_ms=4 * HOUR_MS),
)  # many small jobs and few large ones that do most of the work, as in the public traces


class Team(Struct, frozen=True):
    """A share: what part it owns of the GPUs and what part of the jobs is its own; both relative."""

    name: str
    owns: float
    sends: float
    users: int = 8


TEAMS: Final = (Team("vision", 4, 3), Team("speech", 3, 2), Team("robots", 2, 3), Team("lab", 1, 2))


class Plan(Struct, frozen=True):
    """What to make. `load`: work that comes over what the GPUs can do. `fails_every_days` is the mean time between
    failures of one node (None: nodes never fail), `repair_hours` the mean time until it is repaired.

    Meta report 419 unplanned stops of 16,384 GPUs in 54 days (The Llama 3 Herd of Models, 2024): one in 264 days for
    a node of 8."""

    days: float = 7.0
    nodes: int = 32
    standby: int = 2
    load: float = 0.9
    seed: int = 1
    shape: Shape = Shape()
    mix: tuple[JobClass, ...] = MIX
    teams: tuple[Team, ...] = TEAMS
    fails_every_days: float | None = 60.0
    repair_hours: float = 6.0
    checkpoint_ms: int = HOUR_MS // 2
    policy: QueuePolicy = "fifo_within_priority"

    def __post_init__(self) -> None:
        largest = max((each.nodes for each in self.mix), default=0)
        if self.nodes < largest:
            raise ValueError(f"{self.nodes} nodes: the largest jobs of the mix need {largest}")
        if self.days <= 0 or self.load <= 0:
            raise ValueError(f"days {self.days} and load {self.load} must be above 0")

    @property
    def span_ms(self) -> int:
        return int(self.days * DAY_MS)

    @property
    def per_ms(self) -> float:
        """Jobs that come in a millisecond of mean rate: load × GPUs over the mean work of a job."""
        parts = sum(each.part for each in self.mix)
        work = sum(each.part * each.work for each in self.mix) / parts
        return self.load * self.nodes * NODE_GPUS / work


def workload(plan: Plan) -> Workload:
    """The workload of a plan."""
    hosts = (*nodes(plan.nodes), *nodes(plan.standby, SPARES, prefix="s"))
    # A generator of its own for each: another failure rate leaves the jobs as they are.
    jobs_rng, failures_rng = Random(f"jobs {plan.seed}"), Random(f"failures {plan.seed}")
    return Workload(
        name=f"synthetic-{plan.seed}",
        config=_config(plan),
        nodes=hosts,
        jobs=tuple(_jobs(plan, jobs_rng)),
        failures=tuple(sorted(_failures(plan, hosts, failures_rng), key=lambda failure: failure.at_ms)),
    )


def _jobs(plan: Plan, rng: Random) -> Iterator[WorkloadJob]:
    parts, sends = [each.part for each in plan.mix], [team.sends for team in plan.teams]
    for number, at_ms in enumerate(arrivals.arrivals(rng, plan.shape, plan.per_ms, plan.span_ms)):
        kind = rng.choices(plan.mix, parts)[0]
        team = rng.choices(plan.teams, sends)[0]
        spec = JobSpec(
            job=job_id(kind.name, number),
            user=UserId(f"{team.name}-{rng.randrange(team.users)}"),
            share=ShareId(team.name),
            bundles=kind.bundles,
            workload=kind.workload,
            checkpoint_every_ms=plan.checkpoint_ms,
        )
        yield WorkloadJob(at_ms, kind.draw_ms(rng), spec)


def _failures(plan: Plan, hosts: Sequence[WorkloadNode], rng: Random) -> Iterator[NodeFailure]:
    """Each node by itself: up for an exponential time, then down for an exponential time."""
    if plan.fails_every_days is None:
        return
    for host in hosts:
        at_ms = 0.0
        while (at_ms := at_ms + rng.expovariate(1 / (plan.fails_every_days * DAY_MS))) < plan.span_ms:
            repaired_ms = at_ms + rng.expovariate(1 / (plan.repair_hours * HOUR_MS))
            yield NodeFailure(int(at_ms), NodeId(host.node), rng.choice(SIGNALS), int(repaired_ms) + 1)
            at_ms = repaired_ms


def _config(plan: Plan) -> ClusterConfig:
    owns, gpus = sum(team.owns for team in plan.teams), plan.nodes * NODE_GPUS
    shares: dict[str, Any] = {
        team.name: share_keys(max(1, round(gpus * team.owns / owns)), plan.policy, "lend_and_borrow")
        for team in plan.teams
    }
    return config("synthetic", shares, (POOL, SPARES) if plan.standby else (POOL,))
