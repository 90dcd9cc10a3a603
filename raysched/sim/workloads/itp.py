"""Microsoft's ITP traces as a workload: each of the ten clusters is a tenant of one large cluster.

The traces have no sizes. A tenant owns the nodes that the 95th percentile of its concurrent demand needs (as if every
job had started at once), taken over the time from its first to its last submission, and never fewer than its largest
job needs."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from raysched.core.model import JobSpec, QueuePolicy, ShareId, Strategy, UserId
from raysched.sim.traces.itp import ItpJob, read_clusters
from raysched.sim.workloads.pieces import NODE_GPUS, config, gang, job_id, nodes, share_keys, whole_nodes
from raysched.sim.workloads.workload import Workload, WorkloadJob

DAY_MS = 86_400_000
PERCENTILE = 95.0


def workload(
    folder: Path,
    *,
    days: float | None = None,
    jobs: int | None = None,
    percentile: float = PERCENTILE,
    policy: QueuePolicy = "fifo_within_priority",
    strategy: Strategy = "lend_and_borrow",
) -> Workload:
    """All ten clusters together, at most `days` of each and `jobs` in all (None: all). Raises TraceError."""
    return of_clusters(
        read_clusters(folder), days=days, jobs=jobs, percentile=percentile, policy=policy, strategy=strategy
    )


def of_clusters(
    clusters: dict[str, list[ItpJob]],
    *,
    days: float | None = None,
    jobs: int | None = None,
    percentile: float = PERCENTILE,
    policy: QueuePolicy = "fifo_within_priority",
    strategy: Strategy = "lend_and_borrow",
) -> Workload:
    """As `workload`, of clusters already read. Quotas are made from the jobs that are played."""
    every = sorted(
        ((job, cluster) for cluster, found in clusters.items() for job in found),
        key=lambda pair: (pair[0].submit_ms, pair[1], pair[0].job),
    )
    until_ms = None if days is None else days * DAY_MS
    chosen = [(job, cluster) for job, cluster in every if until_ms is None or job.submit_ms < until_ms][:jobs]
    start_ms = chosen[0][0].submit_ms if chosen else 0
    owned = {
        cluster: tenant_nodes([job for job, of in chosen if of == cluster], percentile) for cluster in sorted(clusters)
    }
    shares = {cluster: share_keys(count * NODE_GPUS, policy, strategy) for cluster, count in owned.items() if count}
    return Workload(
        name="itp",
        config=config("itp", shares),
        nodes=nodes(sum(owned.values())),
        jobs=tuple(_job(job, cluster, number, start_ms) for number, (job, cluster) in enumerate(chosen)),
    )


def _job(job: ItpJob, cluster: str, number: int, start_ms: int) -> WorkloadJob:
    spec = JobSpec(job_id(cluster, number), UserId(cluster), ShareId(cluster), gang(job.gpus))
    return WorkloadJob(job.submit_ms - start_ms, job.duration_ms, spec)


def alone(shared: Workload, share: ShareId, policy: QueuePolicy) -> Workload:
    """One tenant of a workload in a cluster of its own, which is as large as what it owns."""
    gpus = next(each.nominal for each in shared.config.shares if each.share == share)
    owned = sum(amounts.get("gpu", 0) for amounts in gpus.values()) // 1_000
    return structs.replace(
        shared.of_shares([share], f"{shared.name}-{share}"),
        config=config(share, {share: share_keys(owned, policy, "reserve")}),
        nodes=nodes(whole_nodes(owned)),
    )


def tenant_nodes(jobs: Sequence[ItpJob], percentile: float = PERCENTILE) -> int:
    """The nodes a tenant owns; 0 for one without jobs."""
    if not jobs:
        return 0
    demand = demand_percentile([(job.submit_ms, job.duration_ms, job.gpus) for job in jobs], percentile)
    return max(whole_nodes(demand), whole_nodes(max(job.gpus for job in jobs)))


def demand_percentile(jobs: Sequence[tuple[int, int, int]], percentile: float) -> int:
    """GPUs that are enough for this per cent of the time from the first to the last submission, if every job
    (submit, run time, GPUs) began when it was submitted."""
    steps: list[tuple[int, int]] = []
    for submit_ms, runtime_ms, gpus in jobs:
        steps += [(submit_ms, gpus), (submit_ms + runtime_ms, -gpus)]
    steps.sort()
    until_ms = max(submit_ms for submit_ms, _, _ in jobs)
    spent: dict[int, int] = {}
    level, before_ms = 0, steps[0][0]
    for at_ms, change in steps:
        at_ms = min(at_ms, until_ms)
        spent[level] = spent.get(level, 0) + at_ms - before_ms
        level, before_ms = level + change, at_ms
    left = sum(spent.values()) * percentile / 100
    for level in sorted(spent):
        left -= spent[level]
        if left <= 0:
            return level
    return max(spent)
