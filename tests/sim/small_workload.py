"""Workloads small enough to follow by hand: nodes of 8 GPUs, shares, jobs at their seconds."""

from raysched.core.model import JobSpec, ShareId, UserId
from raysched.sim.workloads.pieces import NODE_GPUS, config, gang, job_id, nodes, share_keys
from raysched.sim.workloads.workload import NodeFailure, Workload, WorkloadJob


def job(name: str, gpus: int, seconds: float, at_s: float = 0, share: str = "s", confirm: bool = False) -> WorkloadJob:
    """A job of whole GPUs."""
    spec = JobSpec(job_id(name), UserId("ana"), ShareId(share), gang(gpus), confirm=confirm)
    return WorkloadJob(round(at_s * 1_000), round(seconds * 1_000), spec)


def workload(
    *jobs: WorkloadJob,
    shares: dict[str, int] | None = None,
    policy: str = "any_fit",
    strategy: str = "lend_and_borrow",
    failures: tuple[NodeFailure, ...] = (),
) -> Workload:
    """These jobs on as many nodes as the shares own (by default 16 GPUs of share `s`)."""
    owned = {"s": 16} if shares is None else shares
    return Workload(
        name="small",
        config=config("small", {name: share_keys(gpus, policy, strategy) for name, gpus in owned.items()}),
        nodes=nodes(sum(owned.values()) // NODE_GPUS),
        jobs=tuple(sorted(jobs, key=lambda each: each.submit_ms)),
        failures=failures,
    )
