"""Muri's Philly traces as a workload: its cluster of 8 nodes of 8 GPUs, with one share that owns all of it.

Run times are Muri's, but not its start-up costs, and nothing is stopped for a shorter job: `raysched bench muri` plays
its own model."""

from pathlib import Path

from raysched.core.model import JobSpec, QueuePolicy, ShareId, UserId
from raysched.sim.muri import GPUS_PER_NODE, NODES, SLOWDOWN
from raysched.sim.traces.muri import read_jobs
from raysched.sim.workloads.pieces import config, gang, job_id, nodes, share_keys
from raysched.sim.workloads.workload import Dropped, Workload, WorkloadJob

SHARE = ShareId("muri")
USER = UserId("muri")


def workload(
    folder: Path, trace: str, *, jobs: int | None = None, policy: QueuePolicy = "fifo_within_priority"
) -> Workload:
    """The first `jobs` of a trace (None: all). Jobs larger than the cluster are dropped. Raises TraceError."""
    chosen = sorted(read_jobs(folder, trace), key=lambda job: (job.submit_ms, job.job))[:jobs]
    gpus = NODES * GPUS_PER_NODE
    played: list[WorkloadJob] = []
    dropped: list[Dropped] = []
    for job in chosen:
        name = job_id(trace, job.job)
        if job.gpus > gpus:
            dropped.append(Dropped(name, SHARE, job.submit_ms, job.gpus * 1_000, "asks more GPUs than the cluster has"))
            continue
        runtime_ms = round(job.iterations * job.iteration_ms * SLOWDOWN)
        spec = JobSpec(name, USER, SHARE, gang(job.gpus, GPUS_PER_NODE))
        played.append(WorkloadJob(job.submit_ms, runtime_ms, spec))
    return Workload(
        name=trace,
        config=config(trace, {SHARE: share_keys(gpus, policy, "reserve")}),
        nodes=nodes(NODES),
        jobs=tuple(played),
        dropped=tuple(dropped),
    )
