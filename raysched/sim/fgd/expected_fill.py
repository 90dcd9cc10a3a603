"""Our own packing: place where the GPU that typical pods can still be expected to fill shrinks least.

FGD asks what the next pod could not use; this asks what will be in use once many pods have come. A GPU with r
thousandths left takes a random typical pod that fits, then another into what that leaves, and so on, and at every
step there is a chance that none will come:

    fill(r) = sum over typical pods m that fit of p(m) x (m + fill(r - m)) / (sum of their p(m) + NONE_COMES)

CPU is not a second dimension but has a price: at price c a pod is worth m - c x its CPU (and is passed over when that
is negative), and a node's value is the least, over a few prices, of c x its free CPU + the fill of its GPUs at c. At a
high price that is what its CPU can serve, at price 0 what its GPUs can. The score of a node is by how much the pod
lowers this value, in steps of STEP, so that differences that mean nothing leave the choice to the order of nodes and
nodes are filled one after another. Whole numbers throughout, in millionths of a GPU thousandth."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from raysched.sim.fgd.fleet import Fleet, Ints, Rows
from raysched.sim.fgd.policies import Scored
from raysched.sim.fgd.workload import Shape, TypicalPod
from raysched.sim.traces.openb import MOST_GPUS

UNIT = 1_000_000
GRAIN = 10  # thousandths of a GPU between two entries of the table; all shares in the trace are multiples of it
STEP = 20 * UNIT  # 2 % of a GPU
NONE_COMES = 0.03  # against the shares of pods that fit: a gap that only 3 % of the pods fit is filled half the time
# Thousandths of a GPU per thousandth of a core. A typical whole-GPU pod asks 11,300 for its 1,000, which is 0.09.
PRICES = (0.0, 0.005, 0.012, 0.025, 0.055, 0.12, 0.27, 0.6)

Floats = npt.NDArray[np.float64]


class ExpectedFill:
    """The policy. Per node it keeps CPU and GPU at each price, and the least of it, the node's value."""

    keeps = True

    def __init__(self, fleet: Fleet, typical: Sequence[TypicalPod]) -> None:
        self.fleet = fleet
        self.prices: Ints = np.array([round(price * UNIT) for price in PRICES], np.int64)
        tables = [fills(typical, model) for model in fleet.models]
        self.part: Ints = np.array([part for part, _ in tables])  # by model, GRAINs left, price
        self.whole: Ints = np.array([whole for _, whole in tables])  # by model, wholly free GPUs, price
        self.worth: Ints = np.zeros((len(fleet), len(PRICES)), np.int64)
        self.value: Ints = np.zeros(len(fleet), np.int64)
        for row in range(len(fleet)):
            self._reckon(row)

    def score(self, shape: Shape, rows: Rows) -> Scored:
        model, whole = self.fleet.model[rows], self.fleet.whole[rows]
        after = self.worth[rows] - self.prices * shape.cpu_milli
        if not shape.is_share:
            after += self.whole[model, whole - shape.gpus] - self.whole[model, whole]
            return self._stepped(after.min(axis=1), rows), np.zeros(len(rows), np.intp)
        left = self.fleet.gpu_milli[rows]
        fits = left >= shape.gpu_milli
        taken = np.where(fits, left - shape.gpu_milli, 0) // GRAIN
        change = self.part[model[:, None], taken]
        breaks = (self.whole[model, whole - 1] - self.whole[model, whole])[:, None]
        before = -self.part[model[:, None], left // GRAIN]
        change += np.where((left == 1000)[..., None], breaks, before)
        values = np.where(fits, (after[:, None] + change).min(axis=2), np.iinfo(np.int64).min // 2)
        devices = values.argmax(axis=1)
        return self._stepped(values[np.arange(len(rows)), devices], rows), devices

    def placed(self, shape: Shape, row: int) -> None:
        self._reckon(row)

    def _reckon(self, row: int) -> None:
        """Anew what a node is worth at each price."""
        model, left = self.fleet.model[row], self.fleet.gpu_milli[row]
        parts = self.part[model, left[left < 1000] // GRAIN].sum(axis=0)
        worth = self.prices * self.fleet.cpu_milli[row] + parts + self.whole[model, self.fleet.whole[row]]
        self.worth[row] = worth
        self.value[row] = worth.min()

    def _stepped(self, after: Ints, rows: Rows) -> Floats:
        return ((after - self.value[rows]) // STEP).astype(np.float64)


def fills(typical: Sequence[TypicalPod], model: str) -> tuple[Ints, Ints]:
    """Expected fill on GPUs of one model, by price: of a GPU with so many GRAINs left, and of so many free GPUs."""
    served = [pod for pod in typical if pod.shape.gpus and pod.shape.allows(model)]
    total = sum(pod.count for pod in typical)
    part = _fill_of_shares(served, total)
    whole = _fill_of_whole(served, total, part[-1])
    return _whole_numbers(part), _whole_numbers(whole)


def _fill_of_shares(pods: Sequence[TypicalPod], total: int) -> Floats:
    """By what is left on a GPU, 0 to 1000 in steps of GRAIN, and by price. `total`: all typical pods."""
    single = [pod for pod in pods if pod.shape.gpus == 1]
    steps = np.array([-(-pod.shape.gpu_milli // GRAIN) for pod in single], np.int64)
    shares = np.array([pod.count / total for pod in single], np.float64)[:, None]
    worth = _worth(single)
    fill = np.zeros((1000 // GRAIN + 1, len(PRICES)))
    for left in range(1, len(fill)):
        fit = steps <= left
        each = worth[fit] + fill[left - steps[fit]]
        wanted = shares[fit] * (each > 0)
        fill[left] = np.maximum(fill[left - 1], (wanted * each).sum(axis=0) / (wanted.sum(axis=0) + NONE_COMES))
    return fill


def _fill_of_whole(pods: Sequence[TypicalPod], total: int, one: Floats) -> Floats:
    """By the number of wholly free GPUs and by price; `one`: the fill of a single one."""
    several = [pod for pod in pods if pod.shape.gpus > 1]
    singles = sum(pod.count for pod in pods if pod.shape.gpus == 1) / total
    worth = _worth(several)
    fill = np.zeros((MOST_GPUS + 1, len(PRICES)))
    for left in range(1, len(fill)):
        alone = fill[left - 1] + one
        sums, shares = singles * alone, singles
        for pod, value in zip(several, worth, strict=True):
            if pod.shape.gpus <= left:
                sums = sums + pod.count / total * (value + fill[left - pod.shape.gpus])
                shares += pod.count / total
        fill[left] = np.maximum(alone, sums / shares) if shares else alone
    return fill


def _worth(pods: Sequence[TypicalPod]) -> Floats:
    """By pod and price: its GPU less the price of its CPU."""
    gpu = np.array([pod.shape.total_milli for pod in pods], np.float64)[:, None]
    cpu = np.array([pod.shape.cpu_milli for pod in pods], np.float64)[:, None]
    worth: Floats = gpu - cpu * np.array(PRICES)
    return worth


def _whole_numbers(fill: Floats) -> Ints:
    return np.round(fill * UNIT).astype(np.int64)
