"""Alibaba's openb trace (cluster-trace-gpu-v2023): nodes with GPUs, and pods that ask for CPU, memory and GPUs.

A pod asks for whole GPUs, a share of one GPU, or none."""

from pathlib import Path

from msgspec import Struct

from raysched.sim.traces.reading import Row, TraceError, rows

FOLDER = "alibaba-gpu-v2023"
NODES_FILE = "openb_node_list_gpu_node.csv.gz"
ASKS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
MOST_GPUS = 8
LEAST_CPU_MILLI = 100  # what a pod that asks for no CPU counts as


class OpenbNode(Struct, frozen=True):
    """One host; all its GPUs are of one model."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


class OpenbPod(Struct, frozen=True):
    """One pod. `gpu_milli` is per GPU (0 without GPUs); an empty `models`: any model will do."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...]


class OpenbRun(Struct, frozen=True):
    """How a pod went in the trace, in seconds from its start. `scheduled_s` None: it was still pending at the end;
    `deleted_s` of a pod that ran on is the end of the trace."""

    pod: OpenbPod
    qos: str
    created_s: int
    scheduled_s: int | None
    deleted_s: int


def read_nodes(folder: Path) -> list[OpenbNode]:
    """The 1,213 nodes with GPUs. Raises TraceError."""
    found: list[OpenbNode] = []
    for row in rows(folder / NODES_FILE, ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        gpus = row.whole("gpu", least=1)
        if gpus > MOST_GPUS:
            raise row.error(f"gpu: {gpus} is above {MOST_GPUS}")
        found.append(
            OpenbNode(row.text("sn"), row.whole("cpu_milli"), row.whole("memory_mib"), gpus, row.text("model"))
        )
    return found


def read_pods(folder: Path, workload: str) -> list[OpenbPod]:
    """The pods of one workload (`default`, `gpuspec33`, …), by name. Raises TraceError."""
    found = [_pod(row) for row in rows(_pods_file(folder, workload), ASKS)]
    return sorted(found, key=lambda pod: pod.name)


def read_runs(folder: Path, workload: str) -> list[OpenbRun]:
    """The pods of one workload with their times, by creation; equal times by name. Raises TraceError, also for the
    workloads whose files have no times."""
    file = _pods_file(folder, workload)
    found = [
        OpenbRun(
            _pod(row),
            row.text("qos"),
            row.whole("creation_time"),
            row.whole("scheduled_time") if row.optional("scheduled_time") is not None else None,
            row.whole("deletion_time"),
        )
        for row in rows(file, (*ASKS, "qos", "creation_time", "deletion_time", "scheduled_time"))
    ]
    return sorted(found, key=lambda run: (run.created_s, run.pod.name))


def _pod(row: Row) -> OpenbPod:
    gpus = row.whole("num_gpu")
    if gpus > MOST_GPUS:
        raise row.error(f"num_gpu: {gpus} is above {MOST_GPUS}")
    milli = min(max(row.whole("gpu_milli"), 1), 1000) if gpus else 0
    if gpus > 1 and milli < 1000:
        raise row.error(f"gpu_milli: {milli} of each of {gpus} GPUs; only one GPU can be shared")
    models = tuple(sorted(set((row.optional("gpu_spec") or "").split("|")) - {""}))
    cpu_milli = row.whole("cpu_milli") or LEAST_CPU_MILLI
    return OpenbPod(row.text("name"), cpu_milli, row.whole("memory_mib"), gpus, milli, models)


def workloads(folder: Path) -> list[str]:
    """The workloads that lie in the folder."""
    return sorted(
        file.name[len("openb_pod_list_") : -len(".csv.gz")] for file in folder.glob("openb_pod_list_*.csv.gz")
    )


def _pods_file(folder: Path, workload: str) -> Path:
    file = folder / f"openb_pod_list_{workload}.csv.gz"
    if not file.exists():
        raise TraceError(str(file), None, f"is missing; workloads here: {', '.join(workloads(folder)) or 'none'}")
    return file
