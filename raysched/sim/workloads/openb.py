"""Alibaba's openb trace as a workload: its nodes, its pods at their times, a share for every class of service.

The trace says nothing of quotas: a class owns as much of the cluster's GPUs as it has of the work. Pods that still ran
at the end ran as long as the trace saw them; pods that never ran are dropped."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from raysched.core.model import Bundle, JobSpec, NodeId, NodeSpec, QueuePolicy, ShareId, UserId
from raysched.sim.traces.openb import OpenbNode, OpenbPod, OpenbRun, read_nodes, read_runs
from raysched.sim.workloads.pieces import POOL, config, job_id, share_keys
from raysched.sim.workloads.workload import Dropped, Workload, WorkloadJob, WorkloadNode

MIB = 1 << 20


def workload(
    folder: Path,
    pods: str = "default",
    *,
    jobs: int | None = None,
    from_day: float = 0,
    shrink: int = 1,
    policy: QueuePolicy = "fifo_within_priority",
) -> Workload:
    """The first `jobs` pods from a day on (None: all). `shrink`: only every so manieth node. Raises TraceError."""
    hosts = read_nodes(folder)[::shrink]
    runs = [run for run in read_runs(folder, pods) if run.created_s >= from_day * 86_400][:jobs]
    start_s = runs[0].created_s if runs else 0
    gpus: dict[str, int] = defaultdict(int)
    for host in hosts:
        gpus[host.model] += host.gpus
    played: list[WorkloadJob] = []
    dropped: list[Dropped] = []
    for run in runs:
        at_ms, name, share = (run.created_s - start_s) * 1_000, job_id(run.pod.name), ShareId(run.qos)
        reason = _unfit(run, hosts)
        if reason is None:
            assert run.scheduled_s is not None
            spec = JobSpec(name, UserId(run.qos), share, _bundles(run.pod), model=_model(run.pod, gpus))
            played.append(WorkloadJob(at_ms, (run.deleted_s - run.scheduled_s) * 1_000, spec))
        else:
            dropped.append(Dropped(name, share, at_ms, run.pod.gpus * run.pod.gpu_milli, reason))
    owned = _owned(played, sum(gpus.values()))
    return Workload(
        name=f"openb-{pods}",
        config=config("openb", {share: share_keys(size, policy, "lend_and_borrow") for share, size in owned.items()}),
        nodes=tuple(WorkloadNode(NodeId(host.name), POOL, _spec(host)) for host in hosts),
        jobs=tuple(played),
        dropped=tuple(dropped),
    )


def _unfit(run: OpenbRun, hosts: Iterable[OpenbNode]) -> str | None:
    if run.scheduled_s is None:
        return "never ran in the trace: its run time is not known"
    pod = run.pod
    for host in hosts:
        fits = host.gpus >= pod.gpus and host.cpu_milli >= pod.cpu_milli and host.memory_mib >= pod.memory_mib
        if fits and (not pod.models or not pod.gpus or host.model in pod.models):
            return None
    return "fits no node"


def _bundles(pod: OpenbPod) -> tuple[Bundle, ...]:
    return (Bundle(pod.gpus * pod.gpu_milli, pod.cpu_milli, pod.memory_mib * MIB),)


def _model(pod: OpenbPod, gpus: Mapping[str, int]) -> str | None:
    """A job names one model or none: of several that a pod may use it is the one with most GPUs here."""
    if not pod.models or not pod.gpus:
        return None
    return max(pod.models, key=lambda model: (gpus.get(model, 0), model))


def _spec(host: OpenbNode) -> NodeSpec:
    return NodeSpec(host.gpus, host.model, host.cpu_milli, host.memory_mib * MIB)


def _owned(jobs: Iterable[WorkloadJob], gpus: int) -> dict[ShareId, int]:
    """Whole GPUs of each share, by its part of the work, rounded up: the sum may pass the cluster by a few."""
    work: dict[ShareId, int] = defaultdict(int)
    for job in jobs:
        work[job.spec.share] += job.gpu_milli * job.runtime_ms
    total = sum(work.values()) or 1
    return {share: max(1, -(-gpus * amount // total)) for share, amount in sorted(work.items())}
