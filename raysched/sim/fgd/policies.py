"""How nodes are scored: the port of a policy, and five of the six published ones (FGD: fragmentation.py).

A score is for nodes on which the shape fits; the highest wins, ties go to the lowest row. Scores are whole numbers in
the published simulator, and its results depend on that: a tie is decided by the fixed order of the nodes."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from raysched.sim.fgd.fleet import Fleet, Ints, Rows, least_room
from raysched.sim.fgd.workload import Shape

MOST_CPU_MILLI = 128_000  # of any node, by which the published scores are scaled
MOST_GPU_MILLI = 8_000

Scored = tuple[npt.NDArray[np.float64], Rows]  # score and, for a share, GPU per row


class Policy(Protocol):
    """What the experiment asks of a policy."""

    keeps: bool  # a node's score holds until something is placed on it

    def score(self, shape: Shape, rows: Rows) -> Scored:
        """Of nodes on which the shape fits."""

    def placed(self, shape: Shape, row: int) -> None:
        """A pod was placed on `row`; the fleet shows it already."""


class BestFit:
    """Least CPU and GPU left."""

    keeps = True

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    def score(self, shape: Shape, rows: Rows) -> Scored:
        cpu = (self.fleet.cpu_milli[rows] - shape.cpu_milli) / MOST_CPU_MILLI
        gpu = (self.fleet.free_milli[rows] - shape.total_milli) / MOST_GPU_MILLI
        return np.floor(100 * (1 - 0.5 * cpu - 0.5 * gpu)), least_room(self.fleet, shape, rows)

    def placed(self, shape: Shape, row: int) -> None:
        """Nothing is kept."""


class DotProduct(BestFit):
    """Smallest product of what is left and what is asked."""

    def score(self, shape: Shape, rows: Rows) -> Scored:
        cpu = self.fleet.cpu_milli[rows] * (shape.cpu_milli / MOST_CPU_MILLI**2)
        gpu = self.fleet.free_milli[rows] * (shape.total_milli / MOST_GPU_MILLI**2)
        return np.floor(100 * (1 - (cpu + gpu) / 2)), least_room(self.fleet, shape, rows)


class Packing(BestFit):
    """Used GPUs first, then free GPUs on used nodes, then idle nodes, the smallest first."""

    def score(self, shape: Shape, rows: Rows) -> Scored:
        devices = least_room(self.fleet, shape, rows)
        if not shape.gpus:
            return np.zeros(len(rows)), devices
        whole = self.fleet.whole[rows]
        idle = np.maximum(33 - whole, whole)
        on_free: Ints = np.full(len(rows), max(50 - shape.gpus, 33), np.int64)
        if shape.is_share:
            left = self.fleet.gpu_milli[rows, devices]
            on_used = np.maximum(100 - (left * 100 // 1000) // 10, 50)
            on_free = np.where(left == 1000, on_free, on_used)
        return np.where(whole == self.fleet.gpus[rows], idle, on_free).astype(np.float64), devices


class Clustering(BestFit):
    """Nodes with only pods of the same kind first (a share, one GPU, two GPUs, …), the fullest of them."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self.kinds: npt.NDArray[np.bool_] = np.zeros((len(fleet), 10), np.bool_)

    def score(self, shape: Shape, rows: Rows) -> Scored:
        devices = least_room(self.fleet, shape, rows)
        if not shape.gpus:
            return np.zeros(len(rows)), devices
        kinds = self.kinds[rows]
        count, has = kinds.sum(axis=1), kinds[:, _kind(shape)]
        fullness = 25 * (MOST_GPU_MILLI - self.fleet.free_milli[rows]) // MOST_GPU_MILLI
        bonus = np.where(has, np.where(count == 1, 75, 50), np.where(count == 0, 25, 0))
        return (fullness + bonus).astype(np.float64), devices

    def placed(self, shape: Shape, row: int) -> None:
        if shape.gpus:
            self.kinds[row, _kind(shape)] = True


class Random:
    """Any node that fits, any GPU on it that fits."""

    keeps = False

    def __init__(self, fleet: Fleet, rng: np.random.Generator) -> None:
        self.fleet, self.rng = fleet, rng

    def score(self, shape: Shape, rows: Rows) -> Scored:
        gpus = self.fleet.gpu_milli[rows]
        drawn = np.where(gpus >= max(shape.gpu_milli, 1), self.rng.random(gpus.shape), -1.0)
        return self.rng.random(len(rows)), drawn.argmax(axis=1)

    def placed(self, shape: Shape, row: int) -> None:
        """Nothing is kept."""


def _kind(shape: Shape) -> int:
    return 0 if shape.is_share else shape.gpus
