"""Kueue's three generators of load, by its files test/performance/scheduler/configs/*/generator.yaml.

A queue creates each of its sets of workloads by itself: it waits the interval, creates one workload, and so on, so
number i (from 0) comes at (i + 1) x interval. Amounts in thousandths of a core, bytes and milliseconds."""

from collections.abc import Iterator
from typing import Final, Literal

from msgspec import Struct, structs

Constraint = Literal["none", "required", "preferred", "balanced"]


class WorkloadSet(Struct, frozen=True):
    """`count` workloads of one class in every queue. `pods` of `pod_cpu_milli` each start together; `priority` is
    Kueue's, where more is higher. `slice_pods`: a balanced workload keeps so many of its pods in one rack."""

    name: str
    count: int
    interval_ms: int
    runtime_ms: int
    priority: int
    pod_cpu_milli: int
    pods: int = 1
    constraint: Constraint = "none"
    slice_pods: int = 0

    @property
    def cpu_milli(self) -> int:
        """What one workload is charged."""
        return self.pods * self.pod_cpu_milli

    @property
    def work(self) -> int:
        """Thousandths of a core x milliseconds of all of them in one queue."""
        return self.count * self.cpu_milli * self.runtime_ms


class Racks(Struct, frozen=True):
    """The nodes of a generator with topology."""

    count: int
    nodes: int
    node_cpu_milli: int
    node_memory_bytes: int


class Generator(Struct, frozen=True):
    """`cohorts` of `queues` ClusterQueues that are all alike. Without `racks` there are no nodes, only quota."""

    name: str
    cohorts: int
    queues: int
    nominal_milli: int
    borrowing_milli: int
    sets: tuple[WorkloadSet, ...]
    racks: Racks | None = None

    @property
    def workloads(self) -> int:
        """How many are created in all."""
        return self.cohorts * self.queues * sum(each.count for each in self.sets)

    def reduced(self, cohorts: int, queues: int) -> "Generator":
        """The same with fewer cohorts and queues: the load of each queue, and so the bound, stays."""
        return structs.replace(self, cohorts=min(cohorts, self.cohorts), queues=min(queues, self.queues))


class Arrival(Struct, frozen=True):
    """One workload when it is created. Names are Kueue's: class, set, number in the set, number in the template."""

    at_ms: int
    queue: str
    name: str
    set: WorkloadSet


def cohort_queues(generator: Generator) -> Iterator[tuple[str, str]]:
    """(cohort, queue) of every ClusterQueue, by Kueue's names."""
    for cohort in range(generator.cohorts):
        for queue in range(generator.queues):
            yield f"cohort-{cohort}", f"cq-0-{queue}-cohort-{cohort}"


def arrivals(generator: Generator) -> list[Arrival]:
    """Every workload, in order of time; those of one moment by queue and set."""
    queues = [queue for _, queue in cohort_queues(generator)]
    found = [
        Arrival((number + 1) * each.interval_ms, queue, f"{each.name}-{index}-{number}-0", each)
        for queue in queues
        for index, each in enumerate(generator.sets)
        for number in range(each.count)
    ]
    return sorted(found, key=lambda arrival: arrival.at_ms)


def bound_ms(generator: Generator) -> float:
    """No schedule ends sooner after the first arrival: all work at the whole quota, or the last to come alone.

    design/performance.md 4: max(max(r + p), min r + sum(p g) / G), counted from min r. All queues are alike and their
    quota is all there is, so one queue at its nominal stands for all."""
    sets = generator.sets
    last = max(each.count * each.interval_ms + each.runtime_ms for each in sets) - first_ms(generator)
    return max(last, sum(each.work for each in sets) / generator.nominal_milli)


def late_bound_ms(generator: Generator) -> float:
    """A tighter bound: from any arrival on, all work that has not come before it must still be done (r + the work that
    comes at r or later, at the whole quota). Early quota that nothing had come for is lost."""
    moments = {number * each.interval_ms for each in generator.sets for number in range(1, each.count + 1)}
    latest = max(at_ms + _work_from(generator, at_ms) / generator.nominal_milli for at_ms in moments)
    return max(bound_ms(generator), latest - first_ms(generator))


def first_ms(generator: Generator) -> int:
    """When the first workload is created."""
    return min(each.interval_ms for each in generator.sets)


def _work_from(generator: Generator, at_ms: int) -> int:
    """Work of one queue that comes at `at_ms` or later."""
    found = 0
    for each in generator.sets:
        before = min(each.count, (at_ms - 1) // each.interval_ms)
        found += (each.count - before) * each.cpu_milli * each.runtime_ms
    return found


def _classes(*counts: int) -> tuple[WorkloadSet, ...]:
    small, medium, large = counts
    return (
        WorkloadSet("small", small, 100, 200, 50, 1_000),
        WorkloadSet("medium", medium, 500, 500, 100, 5_000),
        WorkloadSet("large", large, 1_200, 1_000, 200, 20_000),
    )


def _tas_sets() -> tuple[WorkloadSet, ...]:
    shapes = (
        (WorkloadSet("small", 0, 100, 200, 50, 500, 2), (120, 120, 110)),
        (WorkloadSet("medium", 0, 500, 500, 100, 1_250, 4), (34, 33, 33)),
        (WorkloadSet("large", 0, 1_200, 1_000, 200, 2_500, 8), (17, 17, 16)),
    )
    constraints: tuple[Constraint, ...] = ("required", "preferred", "balanced")
    return tuple(
        structs.replace(
            shape,
            name=f"{shape.name}-{constraint}-rack",
            count=count,
            constraint=constraint,
            slice_pods=shape.pods // 2 if constraint == "balanced" else 0,
        )
        for shape, counts in shapes
        for constraint, count in zip(constraints, counts, strict=True)
    )


_LARGE_SCALE: Final = (
    WorkloadSet("small", 35, 60, 150, 50, 1_000),
    WorkloadSet("medium", 11, 300, 350, 100, 5_000),
    WorkloadSet("large", 4, 700, 700, 200, 20_000),
)

# The commits whose files these are: baseline and tas cc13fff8, large-scale f6517b0c.
GENERATORS: Final[dict[str, Generator]] = {
    "baseline": Generator("baseline", 5, 6, 20_000, 100_000, _classes(350, 100, 50)),
    "large-scale": Generator("large-scale", 10, 100, 20_000, 100_000, _LARGE_SCALE),
    "tas": Generator("tas", 5, 6, 20_000, 100_000, _tas_sets(), Racks(10, 64, 96_000, 256 << 30)),
}
