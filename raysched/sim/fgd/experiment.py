"""One run of the experiment: pods arrive in the seed's order and each is tried once."""

from collections.abc import Callable, Sequence
from time import perf_counter

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from raysched.sim.fgd.expected_fill import ExpectedFill
from raysched.sim.fgd.fleet import Flags, Fleet, Rows
from raysched.sim.fgd.fragmentation import Fragmentation
from raysched.sim.fgd.live import LIVE, Live
from raysched.sim.fgd.policies import BestFit, Clustering, DotProduct, Packing, Policy, Random
from raysched.sim.fgd.workload import Workload, arrivals, reordered
from raysched.sim.traces.openb import OpenbNode

Make = Callable[[Fleet, Workload, np.random.Generator], Policy]

POLICIES: dict[str, Make] = {
    "random": lambda fleet, workload, rng: Random(fleet, rng),
    "dot_product": lambda fleet, workload, rng: DotProduct(fleet),
    "clustering": lambda fleet, workload, rng: Clustering(fleet),
    "packing": lambda fleet, workload, rng: Packing(fleet),
    "best_fit": lambda fleet, workload, rng: BestFit(fleet),
    "fgd": lambda fleet, workload, rng: Fragmentation(fleet, workload.typical),
    "raysched": lambda fleet, workload, rng: ExpectedFill(fleet, workload.typical),
}
SEEDS = tuple(range(42, 52))  # the published ones
HELD_OUT = tuple(range(52, 62))  # not looked at while our own policy was chosen


class Run(Struct, frozen=True):
    """How a run went: arrivals, how many of them found no node, and GPU in use after each, in thousandths."""

    arrivals: int
    failed: int
    asked_milli: tuple[int, ...]
    used_milli: tuple[int, ...]
    capacity_milli: int
    seconds: float

    @property
    def allocation_percent(self) -> float:
        """At the end."""
        return 100 * self.used_milli[-1] / self.capacity_milli

    def curve(self) -> dict[int, float]:
        """Mean allocation in per cent by what had arrived, in per cent rounded to a whole number."""
        sums: dict[int, list[float]] = {}
        for asked, used in zip(self.asked_milli, self.used_milli, strict=True):
            arrived = round(100 * asked / self.capacity_milli)
            sums.setdefault(arrived, []).append(100 * used / self.capacity_milli)
        return {arrived: sum(values) / len(values) for arrived, values in sums.items()}


def run(workload: Workload, nodes: Sequence[OpenbNode], policy: str, seed: int, window: int = 1) -> Run:
    """Play one policy of POLICIES, or LIVE, with one seed. `window` above 1 lets the queue try the largest ask of so
    many pods first."""
    rng = np.random.default_rng(seed)
    ranked = [nodes[i] for i in rng.permutation(len(nodes))]
    fleet = Fleet(ranked)
    order = reordered(workload, arrivals(workload, fleet.capacity_milli, rng), window)
    start = perf_counter()
    scores: Scores | Live
    if policy == LIVE:
        scores = Live(ranked, workload)
    else:
        scores = Scores(fleet, workload, POLICIES[policy](fleet, workload, rng))
    asked, used, failed = 0, 0, 0
    asked_milli: list[int] = []
    used_milli: list[int] = []
    for index in order:
        total = workload.shapes[index].total_milli
        asked += total
        if scores.place(index):
            used += total
        else:
            failed += 1
        asked_milli.append(asked)
        used_milli.append(used)
    seconds = perf_counter() - start
    return Run(len(order), failed, tuple(asked_milli), tuple(used_milli), fleet.capacity_milli, seconds)


class Scores:
    """Each shape's scores over all nodes. Between two pods of a shape only few nodes change; only they are rescored."""

    def __init__(self, fleet: Fleet, workload: Workload, policy: Policy) -> None:
        self.fleet, self.shapes, self.policy = fleet, workload.shapes, policy
        self.scores: npt.NDArray[np.float64] = np.full((len(self.shapes), len(fleet)), -np.inf)
        self.devices: Rows = np.zeros((len(self.shapes), len(fleet)), np.intp)
        self.allowed: list[Flags] = [fleet.allowed(shape) for shape in self.shapes]
        self.seen = [-1] * len(self.shapes)

    def place(self, index: int) -> bool:
        """Place one pod on the best node; False when none fits."""
        self._refresh(index)
        scores = self.scores[index]
        row = int(scores.argmax())
        if scores[row] == -np.inf:
            return False
        shape = self.shapes[index]
        self.fleet.place(shape, row, int(self.devices[index, row]))
        self.policy.placed(shape, row)
        return True

    def _refresh(self, index: int) -> None:
        shape, scores = self.shapes[index], self.scores[index]
        rows = np.flatnonzero(self.fleet.changed_at > (self.seen[index] if self.policy.keeps else -1))
        self.seen[index] = self.fleet.placements
        fits = self.fleet.fits(shape, self.allowed[index], rows)
        scores[rows] = -np.inf
        rows = rows[fits]
        if len(rows):
            scores[rows], self.devices[index, rows] = self.policy.score(shape, rows)
