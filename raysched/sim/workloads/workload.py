"""A workload: a cluster, the jobs that come to it, and the nodes that fail meanwhile.

Times are whole milliseconds from the workload's start. Whatever a maker leaves out of its source stands in `dropped`,
each with its reason."""

from collections.abc import Iterable
from math import inf

from msgspec import Struct, structs

from raysched.config import ClusterConfig
from raysched.core.model import JobId, JobSpec, NodeId, NodeSpec, PoolId, ShareId
from raysched.core.units import MILLI


class WorkloadJob(Struct, frozen=True):
    """One submission, and how long it runs once it has started."""

    submit_ms: int
    runtime_ms: int
    spec: JobSpec

    @property
    def gpu_milli(self) -> int:
        """Thousandths of a GPU of the whole gang."""
        return sum(bundle.gpu_milli * bundle.count for bundle in self.spec.bundles)


class WorkloadNode(Struct, frozen=True):
    """One host, there from the start."""

    node: NodeId
    pool: PoolId
    spec: NodeSpec


class NodeFailure(Struct, frozen=True):
    """A node fails by `signal` and is repaired later."""

    at_ms: int
    node: NodeId
    signal: str
    repaired_ms: int


class Dropped(Struct, frozen=True):
    """A job of the source that is not played."""

    job: JobId
    share: ShareId
    submit_ms: int
    gpu_milli: int
    reason: str


class Workload(Struct, frozen=True):
    """All that is played. Jobs are in order of submission, failures in order of time."""

    name: str
    config: ClusterConfig
    nodes: tuple[WorkloadNode, ...]
    jobs: tuple[WorkloadJob, ...]
    failures: tuple[NodeFailure, ...] = ()
    dropped: tuple[Dropped, ...] = ()

    @property
    def gpus(self) -> int:
        """Whole GPUs of the nodes on which jobs are placed (standby nodes are not)."""
        return sum(node.spec.gpu for node in self.working_nodes)

    @property
    def working_nodes(self) -> tuple[WorkloadNode, ...]:
        """The nodes of pools that are not standby."""
        normal = {pool.pool for pool in self.config.pools if pool.role == "normal"}
        return tuple(node for node in self.nodes if node.pool in normal)

    def of_shares(self, shares: Iterable[ShareId], name: str) -> "Workload":
        """The same with the jobs of these shares alone."""
        wanted = frozenset(shares)
        return structs.replace(
            self,
            name=name,
            jobs=tuple(job for job in self.jobs if job.spec.share in wanted),
            dropped=tuple(each for each in self.dropped if each.share in wanted),
        )


class Bounds(Struct, frozen=True):
    """What no schedule can beat (design/performance.md 4). `gpu_ms` is all work in GPU milliseconds; `offered_load` is
    that work over what the GPUs could do between the first and the last submission."""

    makespan_ms: float
    mean_jct_ms: float
    gpu_ms: float
    arrival_ms: int
    offered_load: float


def bounds(jobs: Iterable[WorkloadJob], gpus: int) -> Bounds:
    """The bounds of jobs on `gpus` GPUs: makespan from the first submission, and mean completion time.

    makespan ≥ max(max(r + p), min r + Σ p g / G, Σ p of jobs with g > G / 2); mean completion ≥ mean p."""
    found = list(jobs)
    if not found:
        return Bounds(0.0, 0.0, 0.0, 0, 0.0)
    first = min(job.submit_ms for job in found)
    arrival_ms = max(job.submit_ms for job in found) - first
    gpu_ms = sum(job.runtime_ms * job.gpu_milli for job in found) / MILLI
    last = max(job.submit_ms + job.runtime_ms for job in found) - first
    one_by_one = sum(job.runtime_ms for job in found if job.gpu_milli * 2 > gpus * MILLI)
    area = gpu_ms / gpus if gpus else 0.0
    load = gpu_ms / (gpus * arrival_ms) if gpus and arrival_ms else (inf if gpu_ms else 0.0)
    mean_ms = sum(job.runtime_ms for job in found) / len(found)
    return Bounds(max(last, area, one_by_one), mean_ms, gpu_ms, arrival_ms, load)
