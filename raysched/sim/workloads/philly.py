"""Microsoft's Philly trace as a workload: every virtual cluster is a share that owns the GPUs of philly_vc.csv."""

from pathlib import Path

from raysched.core.model import JobSpec, QueuePolicy, ShareId, Strategy, UserId
from raysched.sim.traces.philly import PhillyJob, read_cluster_gpus, read_jobs
from raysched.sim.workloads.pieces import NODE_GPUS, config, gang, job_id, nodes, share_keys, whole_nodes
from raysched.sim.workloads.workload import Dropped, Workload, WorkloadJob

DAY_MS = 86_400_000


def workload(
    folder: Path,
    *,
    jobs: int | None = None,
    from_day: float = 0,
    shrink: float = 1,
    policy: QueuePolicy = "fifo_within_priority",
    strategy: Strategy = "lend_and_borrow",
) -> Workload:
    """The first `jobs` of the trace (None: all) from a day on. `shrink`: every virtual cluster has its nodes divided by
    this, rounded up. Jobs of a virtual cluster without a size, or larger than it, are dropped. Raises TraceError."""
    gpus = {vc: whole_nodes(size / shrink) * NODE_GPUS for vc, size in read_cluster_gpus(folder).items()}
    chosen = [job for job in read_jobs(folder) if job.submit_ms >= from_day * DAY_MS][:jobs]
    start_ms = chosen[0].submit_ms if chosen else 0
    played: list[WorkloadJob] = []
    dropped: list[Dropped] = []
    for number, job in enumerate(chosen):
        reason = _unfit(job, gpus.get(job.cluster))
        name, share, at_ms = job_id("philly", number), ShareId(job.cluster), job.submit_ms - start_ms
        if reason is None:
            spec = JobSpec(name, UserId(job.cluster), share, gang(job.gpus))
            played.append(WorkloadJob(at_ms, job.duration_ms, spec))
        else:
            dropped.append(Dropped(name, share, at_ms, job.gpus * 1_000, reason))
    return Workload(
        name="philly",
        config=config("philly", {vc: share_keys(size, policy, strategy) for vc, size in gpus.items()}),
        nodes=nodes(sum(gpus.values()) // NODE_GPUS),
        jobs=tuple(played),
        dropped=tuple(dropped),
    )


def _unfit(job: PhillyJob, gpus: int | None) -> str | None:
    if gpus is None:
        return "its virtual cluster has no size in philly_vc.csv"
    return "asks more GPUs than its virtual cluster has" if job.gpus > gpus else None
