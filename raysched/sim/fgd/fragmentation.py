"""FGD: place where fragmentation grows least (Weng et al., USENIX ATC 2023).

Fragmentation of a node is what of its free GPU a typical pod could not use, summed over typical pods by their count.
It is kept as a whole number times the number of typical pods, so that no rounding can shift a floored score."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from raysched.sim.fgd.fleet import Flags, Fleet, Ints, Rows
from raysched.sim.fgd.policies import Scored
from raysched.sim.fgd.workload import Shape, TypicalPod

Floats = npt.NDArray[np.float64]


class Fragmentation:
    """FGD's policy. Per node and typical pod it keeps how many GPUs would fit and how much GPU these have left."""

    keeps = True

    def __init__(self, fleet: Fleet, typical: Sequence[TypicalPod]) -> None:
        self.fleet = fleet
        shapes = [pod.shape for pod in typical]
        self.counts: Floats = np.array([pod.count for pod in typical], np.float64)
        self.total = float(self.counts.sum())
        self.cpu: Ints = np.array([shape.cpu_milli for shape in shapes], np.int64)
        # A pod without GPUs can use none of what is left: it asks for more GPUs than any node has.
        self.gpus: Ints = np.array([shape.gpus or 99 for shape in shapes], np.int64)
        self.allowed: Flags = np.array([fleet.allowed(shape) for shape in shapes]).T
        left, milli = np.arange(1001)[:, None], np.array([shape.gpu_milli or 1 for shape in shapes])
        self.fit_of: Ints = (left >= milli).astype(np.int64)  # by milli left on a GPU
        self.usable_of: Ints = np.where(left >= milli, left, 0).astype(np.int64)
        self.fit: Ints = self.fit_of[fleet.gpu_milli].sum(axis=1)
        self.usable: Ints = self.usable_of[fleet.gpu_milli].sum(axis=1)
        everywhere = np.arange(len(fleet))
        self.now: Floats = self._waste(
            self.fit, self.usable, self._served(everywhere, 0), fleet.free_milli.astype(np.float64)
        )

    def fragmented_milli(self) -> float:
        """Of the whole fleet."""
        return float(self.now.sum()) / self.total

    def score(self, shape: Shape, rows: Rows) -> Scored:
        fit, usable = self.fit[rows], self.usable[rows]
        served = self._served(rows, shape.cpu_milli)
        free = (self.fleet.free_milli[rows] - shape.total_milli).astype(np.float64)
        if not shape.is_share:
            fit = fit - shape.gpus * self.fit_of[1000]
            usable = usable - shape.gpus * self.usable_of[1000]
            waste = self._waste(fit, usable, served, free)
            return self._floored(self.now[rows], waste), np.zeros(len(rows), np.intp)
        before = self.fleet.gpu_milli[rows]
        fits = before >= shape.gpu_milli
        after = np.where(fits, before - shape.gpu_milli, before)
        fit = fit[:, None] + self.fit_of[after] - self.fit_of[before]
        usable = usable[:, None] + self.usable_of[after] - self.usable_of[before]
        waste = self._waste(fit, usable, served[:, None], free[:, None])
        scores = np.where(fits, self._floored(self.now[rows][:, None], waste), -1.0)
        devices = scores.argmax(axis=1)
        return scores[np.arange(len(rows)), devices], devices

    def placed(self, shape: Shape, row: int) -> None:
        gpus = self.fleet.gpu_milli[row]
        self.fit[row] = self.fit_of[gpus].sum(axis=0)
        self.usable[row] = self.usable_of[gpus].sum(axis=0)
        rows = np.array([row])
        free = self.fleet.free_milli[rows].astype(np.float64)
        self.now[row] = self._waste(self.fit[rows], self.usable[rows], self._served(rows, 0), free)[0]

    def _served(self, rows: Rows, cpu_milli: int) -> Flags:
        """Per node and typical pod: would CPU (less `cpu_milli`) and model do?"""
        served: Flags = (self.fleet.cpu_milli[rows] - cpu_milli)[:, None] >= self.cpu
        return served & self.allowed[self.fleet.model[rows]]

    def _waste(self, fit: Ints, usable: Ints, served: Flags, free: Floats) -> Floats:
        """Free GPU that typical pods could not use, times their count."""
        used = np.where(served & (fit >= self.gpus), usable, 0).astype(np.float64)
        return free * self.total - used @ self.counts

    def _floored(self, before: Floats, after: Floats) -> Floats:
        change: Floats = (before - after) / (self.total * 1000)
        return np.floor(100 / (1 + np.exp(-change)))
