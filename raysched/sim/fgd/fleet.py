"""The nodes of the experiment as columns, one array per resource, in the order in which ties are decided."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from raysched.sim.fgd.workload import Shape
from raysched.sim.traces.openb import MOST_GPUS, OpenbNode

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.intp]


class Fleet:
    """What is left on each node. Columns of GPUs that a node does not have hold 0."""

    def __init__(self, nodes: Sequence[OpenbNode]) -> None:
        self.models = tuple(sorted({node.model for node in nodes}))
        self.model: Ints = np.array([self.models.index(node.model) for node in nodes], np.int64)
        self.gpus: Ints = np.array([node.gpus for node in nodes], np.int64)
        self.cpu_milli: Ints = np.array([node.cpu_milli for node in nodes], np.int64)
        self.memory_mib: Ints = np.array([node.memory_mib for node in nodes], np.int64)
        self.gpu_milli: Ints = np.where(np.arange(MOST_GPUS) < self.gpus[:, None], 1000, 0).astype(np.int64)
        self.free_milli: Ints = self.gpu_milli.sum(axis=1)
        self.whole: Ints = self.gpus.copy()
        self.changed_at: Ints = np.zeros(len(nodes), np.int64)
        self.placements = 0

    def __len__(self) -> int:
        return len(self.model)

    @property
    def capacity_milli(self) -> int:
        return int(self.gpus.sum()) * 1000

    def allowed(self, shape: Shape) -> Flags:
        """Per model: may the shape use it? A pod without GPUs may go to any node."""
        return np.array([not shape.gpus or shape.allows(model) for model in self.models])

    def fits(self, shape: Shape, allowed: Flags, rows: Rows) -> Flags:
        """Which of these nodes have room for one pod of this shape."""
        room: Flags = (self.cpu_milli[rows] >= shape.cpu_milli) & (self.memory_mib[rows] >= shape.memory_mib)
        if not shape.gpus:
            return room
        room &= allowed[self.model[rows]]
        if shape.gpu_milli == 1000:
            room &= self.whole[rows] >= shape.gpus
        else:
            room &= self.gpu_milli[rows].max(axis=1) >= shape.gpu_milli
        return room

    def place(self, shape: Shape, row: int, device: int) -> None:
        """Take a pod's room; `device` counts only for a share, whole GPUs are the lowest-numbered free ones."""
        self.placements += 1
        self.changed_at[row] = self.placements
        self.cpu_milli[row] -= shape.cpu_milli
        self.memory_mib[row] -= shape.memory_mib
        self.free_milli[row] -= shape.total_milli
        gpus = self.gpu_milli[row]
        if shape.is_share:
            gpus[device] -= shape.gpu_milli
        else:
            gpus[np.flatnonzero(gpus == 1000)[: shape.gpus]] = 0
        self.whole[row] = np.count_nonzero(gpus == 1000)


def least_room(fleet: Fleet, shape: Shape, rows: Rows) -> Rows:
    """Per node: the GPU with the least room that takes this share, the lowest number first."""
    gpus = fleet.gpu_milli[rows]
    devices: Rows = np.where(gpus >= shape.gpu_milli, gpus, 1001).argmin(axis=1)
    return devices
