"""What the experiment asks for: request shapes, the typical pods that policies may know, and the order of arrival."""

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import chain

import numpy as np
from msgspec import Struct

from raysched.sim.traces.openb import OpenbPod

ASKED = 1.3  # the experiment ends when this much of the GPU capacity has been asked for
TYPICAL_SHARE = 0.95  # of the pods that the typical pods stand for


class Shape(Struct, frozen=True, order=True):
    """What a pod asks. `gpu_milli` is per GPU; an empty `models`: any model will do."""

    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_milli: int
    models: tuple[str, ...]

    @property
    def is_share(self) -> bool:
        """Less than one GPU."""
        return self.gpus == 1 and self.gpu_milli < 1000

    @property
    def total_milli(self) -> int:
        return self.gpus * self.gpu_milli

    def allows(self, model: str) -> bool:
        return not self.models or model in self.models


class TypicalPod(Struct, frozen=True):
    """A group of like pods and how many of the workload's pods are in it. Memory plays no part."""

    shape: Shape
    count: int


class Workload(Struct, frozen=True):
    """The distinct shapes of a workload, and which of them each pod has, by pod name."""

    name: str
    shapes: tuple[Shape, ...]
    pods: tuple[int, ...]
    typical: tuple[TypicalPod, ...]


def workload_of(name: str, pods: Sequence[OpenbPod]) -> Workload:
    """Group the pods of a trace by what they ask."""
    asked = [Shape(pod.cpu_milli, pod.memory_mib, pod.gpus, pod.gpu_milli, pod.models) for pod in pods]
    shapes = tuple(sorted(set(asked)))
    index = {shape: i for i, shape in enumerate(shapes)}
    return Workload(name, shapes, tuple(index[shape] for shape in asked), typical_pods(asked))


def typical_pods(asked: Sequence[Shape], share: float = TYPICAL_SHARE) -> tuple[TypicalPod, ...]:
    """The most frequent groups of pods until they cover `share` of all; equal counts: the larger shape first."""
    counts = Counter(Shape(shape.cpu_milli, 0, shape.gpus, shape.gpu_milli, shape.models) for shape in asked)
    found: list[TypicalPod] = []
    covered = 0
    # The experiment's own key, which decides between equal counts: CPU, GPU share, GPUs, models.
    key = lambda pair: (pair[1], pair[0].cpu_milli, pair[0].gpu_milli, pair[0].gpus, pair[0].models)  # noqa: E731
    for shape, count in sorted(counts.items(), key=key, reverse=True):
        if covered >= share * len(asked):
            break
        found.append(TypicalPod(shape, count))
        covered += count
    return tuple(found)


def arrivals(workload: Workload, capacity_milli: int, rng: np.random.Generator, asked: float = ASKED) -> list[int]:
    """Shapes in order of arrival: every pod once, shuffled, then pods drawn with replacement, up to the limit.

    The pod that would pass it is not added; its share of one GPU, not its total, is what is compared. Two of the
    workloads pass the limit before all their pods have come."""
    order: list[int] = []
    total = 0
    for pod in chain(rng.permutation(len(workload.pods)), _draws(len(workload.pods), rng)):
        shape = workload.pods[int(pod)]
        if total + workload.shapes[shape].gpu_milli > asked * capacity_milli:
            break
        order.append(shape)
        total += workload.shapes[shape].total_milli
    return order


def _draws(count: int, rng: np.random.Generator) -> Iterator[np.int64]:
    while True:
        yield rng.integers(count)


def reordered(workload: Workload, order: Sequence[int], window: int) -> list[int]:
    """The same arrivals when a queue of `window` pods may try the largest GPU ask in it first; 1 changes nothing."""
    waiting: list[tuple[int, int, int]] = []
    result: list[int] = []
    for turn, shape in enumerate(order):
        heappush(waiting, (-workload.shapes[shape].total_milli, turn, shape))
        if len(waiting) >= window:
            result.append(heappop(waiting)[2])
    return result + [heappop(waiting)[2] for _ in range(len(waiting))]
