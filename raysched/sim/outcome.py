"""How a workload went: every job, every sample, and the summary of both next to what no schedule can beat."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal

from msgspec import Struct

from raysched.core.model import JobId, ShareId, UserId
from raysched.core.units import MILLI
from raysched.sim.recording import Sample
from raysched.sim.workloads.workload import Bounds

Ended = Literal["succeeded", "failed", "cancelled", "dropped", "refused", "unfinished"]
# Upper ends of the classes of job size in thousandths of a GPU, and what each is called.
SIZES: Final = (
    (0, "no GPU"),
    (MILLI - 1, "part of one"),
    (MILLI, "1"),
    (7 * MILLI, "2-7"),
    (15 * MILLI, "8-15"),
    (63 * MILLI, "16-63"),
)
LARGEST: Final = "64 and more"
SIZE_NAMES: Final = (*(name for _, name in SIZES), LARGEST)


class JobLine(Struct, frozen=True):
    """One job of the workload. Times count from the workload's start; `start_ms` is its first start, `ran_ms` what all
    its attempts ran together. `reason`: why it was dropped, refused or did not succeed; `held_by`: the reasons for
    which it ever waited."""

    job: JobId
    share: ShareId
    user: UserId
    size: str
    gpu_milli: int
    nodes: int
    submit_ms: int
    start_ms: int | None
    end_ms: int | None
    runtime_ms: int
    ran_ms: int
    attempts: int
    state: Ended
    reason: str = ""
    held_by: tuple[str, ...] = ()

    @property
    def wait_ms(self) -> int | None:
        """From submission to the first start."""
        return None if self.start_ms is None else self.start_ms - self.submit_ms

    @property
    def jct_ms(self) -> int | None:
        """From submission to the end of one that succeeded."""
        return self.end_ms - self.submit_ms if self.end_ms is not None and self.state == "succeeded" else None


class Played(Struct, frozen=True):
    """A workload played to its end. `busy_ms` and `busy_arrival_ms` are GPU milliseconds that attempts ran: in all, and
    until the last submission. `seconds` of real time."""

    name: str
    gpus: int
    bounds: Bounds
    lines: tuple[JobLine, ...]
    samples: tuple[Sample, ...]
    makespan_ms: int
    busy_ms: float
    busy_arrival_ms: float
    failures: int
    swaps: int
    seconds: float


class Spread(Struct, frozen=True):
    """Of several spans, in milliseconds; zeros when there are none."""

    count: int
    mean_ms: float
    median_ms: int
    p99_ms: int
    most_ms: int


class Summary(Struct, frozen=True):
    """The numbers of a run. Loads and utilisations are parts of 1, of the GPUs of the working nodes: `utilisation` over
    the makespan (its bound: all work over the least makespan), `utilisation_arrival` from the first to the last
    submission. Loans and fragmentation are means over the samples. `lost_gpu_ms`: what attempts ran beyond the run
    times of jobs that succeeded; `held_by`: how many jobs ever waited for a reason."""

    name: str
    gpus: int
    jobs: int
    ended: dict[str, int]
    makespan_ms: int
    makespan_bound_ms: float
    wait: Spread
    jct: Spread
    jct_bound_ms: float
    offered_load: float
    utilisation: float
    utilisation_bound: float
    utilisation_arrival: float
    waits: dict[str, Spread]
    loans_mean_gpus: float
    loans_most_gpus: float
    fragmented_part: float
    attempts: int
    failures: int
    swaps: int
    lost_gpu_ms: float
    held_by: dict[str, int]
    seconds: float


def size_of(gpu_milli: int) -> str:
    """The class of job size."""
    return next((name for most, name in SIZES if gpu_milli <= most), LARGEST)


def spread(spans: Iterable[int | None]) -> Spread:
    """Mean, median, 99th percentile (element floor(0.99 n) of the sorted spans) and largest; None is passed over."""
    found = sorted(span for span in spans if span is not None)
    if not found:
        return Spread(0, 0.0, 0, 0, 0)
    count = len(found)
    p99_ms = found[min(count - 1, count * 99 // 100)]
    return Spread(count, sum(found) / count, found[count // 2], p99_ms, found[-1])


def summary(played: Played) -> Summary:
    """The summary of a run."""
    lines, bounds = played.lines, played.bounds
    by_size = {name: [line.wait_ms for line in lines if line.size == name] for name in SIZE_NAMES}
    loans = [sum(sample.borrowed.values()) / MILLI for sample in played.samples]
    parts = [sample.fragmented / sample.capacity for sample in played.samples if sample.capacity]
    useful_ms = sum(line.runtime_ms * line.gpu_milli for line in lines if line.state == "succeeded") / MILLI
    return Summary(
        name=played.name,
        gpus=played.gpus,
        jobs=len(lines),
        ended=dict(sorted(Counter(str(line.state) for line in lines).items())),
        makespan_ms=played.makespan_ms,
        makespan_bound_ms=bounds.makespan_ms,
        wait=spread(line.wait_ms for line in lines),
        jct=spread(line.jct_ms for line in lines),
        jct_bound_ms=bounds.mean_jct_ms,
        offered_load=bounds.offered_load,
        utilisation=_part(played.busy_ms, played.gpus * played.makespan_ms),
        utilisation_bound=_part(bounds.gpu_ms, played.gpus * bounds.makespan_ms),
        utilisation_arrival=_part(played.busy_arrival_ms, played.gpus * bounds.arrival_ms),
        waits={name: spread(waits) for name, waits in by_size.items() if waits},
        loans_mean_gpus=_mean(loans),
        loans_most_gpus=max(loans, default=0.0),
        fragmented_part=_mean(parts),
        attempts=sum(line.attempts for line in lines),
        failures=played.failures,
        swaps=played.swaps,
        lost_gpu_ms=played.busy_ms - useful_ms,
        held_by=dict(sorted(Counter(reason for line in lines for reason in line.held_by).items())),
        seconds=played.seconds,
    )


def _part(amount: float, of: float) -> float:
    return amount / of if of else 0.0


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
