"""What the GPUs left on a node can still be expected to serve: our own packing.

FGD asks what the next job could not use; this asks what will be in use once many have come. A GPU with r thousandths
left takes a random typical ask that fits, then another into what that leaves, and at every step there is a chance that
none will come:

    fill(r) = sum over typical asks m that fit of p(m) x (m + fill(r - m)) / (sum of their p(m) + NONE_COMES)

Cores are not a second dimension but have a price: at price c an ask is worth m - c x its cores (and is passed over when
that is negative), and a node's value is the least, over a few prices, of c x its free cores + the fill of its GPUs at
c. The best node is the one whose value an ask lowers least, in steps of STEP: differences that mean nothing leave the
choice to the order of nodes, and nodes are filled one after another. All in millionths of a GPU thousandth."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from raysched.core.demand import Typical
from raysched.core.units import MILLI

UNIT: Final = 1_000_000
GRAIN: Final = 10  # thousandths of a GPU between two entries of a table
STEP: Final = 20 * UNIT  # 2 % of a GPU
NONE_COMES: Final = 0.03  # against the shares of asks that fit: a gap that only 3 % of them fit is filled half the time
# Thousandths of a GPU per thousandth of a core. A typical ask for a whole GPU has 11 cores to its 1,000: 0.09.
PRICES: Final = (0.0, 0.005, 0.012, 0.025, 0.055, 0.12, 0.27, 0.6)
AT: Final = range(len(PRICES))
PRICES_UNIT: Final = tuple(round(price * UNIT) for price in PRICES)

Row = list[float]
Whole = tuple[int, ...]


class Left(Struct, frozen=True, order=True):
    """What is left on a node, as far as it decides where a bundle goes: two nodes with the same are alike. `parts`: of
    partly used devices, rising."""

    whole: int
    parts: tuple[int, ...]
    cpu_milli: int
    memory_bytes: int
    attach: tuple[tuple[str, int], ...]


class Fill:
    """The tables of one GPU model for what is typical now, up to `most` GPUs per node."""

    def __init__(self, typical: Sequence[Typical], total: int, most: int) -> None:
        served = [(each.wanted.gpu_milli, each.wanted.cpu_milli, each.count / total) for each in typical]
        part = _of_parts([ask for ask in served if ask[0] <= MILLI])
        self.part: list[Whole] = [_whole_numbers(row) for row in part]
        self.whole: list[Whole] = [_whole_numbers(row) for row in _of_whole(served, part[-1], most)]
        self._values: dict[tuple[int, tuple[int, ...], int], int] = {}

    def value(self, whole: int, parts: tuple[int, ...], cpu_milli: int) -> int:
        """What such a node can still be expected to serve."""
        key = (whole, parts, cpu_milli)
        found = self._values.get(key)
        if found is None:
            rows = [self.whole[whole], *[self.part[left // GRAIN] for left in parts]]
            found = min([PRICES_UNIT[at] * cpu_milli + sum([row[at] for row in rows]) for at in AT])
            if len(self._values) > 100_000:
                self._values.clear()
            self._values[key] = found
        return found

    def score(self, left: Left, gpu_milli: int, cpu_milli: int) -> int:
        """By how many STEPs an ask lowers the value of a node it fits on; 0 is best, lower is worse."""
        whole, parts = after(left, gpu_milli)
        before = self.value(left.whole, left.parts, left.cpu_milli)
        return (self.value(whole, parts, left.cpu_milli - cpu_milli) - before) // STEP


def after(left: Left, gpu_milli: int) -> tuple[int, tuple[int, ...]]:
    """Whole GPUs and parts once an ask is placed: a fraction goes to the fullest device that fits, as with Ray."""
    if gpu_milli >= MILLI:
        return left.whole - gpu_milli // MILLI, left.parts
    parts = list(left.parts)
    at = next((i for i, part in enumerate(parts) if part >= gpu_milli), None)
    whole = left.whole - (at is None)
    rest = (MILLI if at is None else parts.pop(at)) - gpu_milli
    return whole, tuple(sorted([*parts, rest] if rest else parts))


def _of_parts(asks: list[tuple[int, int, float]]) -> list[Row]:
    """By what is left on a GPU, 0 to 1000 in GRAINs, and by price."""
    steps = [(-(-gpu // GRAIN), _worth(gpu, cpu), share) for gpu, cpu, share in asks]
    fill: list[Row] = [[0.0] * len(PRICES)]
    for left in range(1, MILLI // GRAIN + 1):
        fits = [ask for ask in steps if ask[0] <= left]
        row = []
        for at in AT:
            got = shares = 0.0
            for step, worth, share in fits:
                each = worth[at] + fill[left - step][at]
                if each > 0:
                    got += share * each
                    shares += share
            row.append(max(fill[left - 1][at], got / (shares + NONE_COMES)))
        fill.append(row)
    return fill


def _of_whole(asks: list[tuple[int, int, float]], one: Row, most: int) -> list[Row]:
    """By the number of wholly free GPUs and by price; `one`: the fill of a single one."""
    several = [(gpu // MILLI, _worth(gpu, cpu), share) for gpu, cpu, share in asks if gpu > MILLI]
    singles = sum(share for gpu, _, share in asks if gpu <= MILLI)
    fill: list[Row] = [[0.0] * len(PRICES)]
    for left in range(1, most + 1):
        fits = [ask for ask in several if ask[0] <= left]
        shares = singles + sum(share for _, _, share in fits)
        row = []
        for at in AT:
            alone = fill[left - 1][at] + one[at]
            got = singles * alone + sum(share * (worth[at] + fill[left - gpus][at]) for gpus, worth, share in fits)
            row.append(max(alone, got / shares) if shares else alone)
        fill.append(row)
    return fill


def _worth(gpu_milli: int, cpu_milli: int) -> Row:
    """By price: its GPU less the price of its cores."""
    return [gpu_milli - cpu_milli * price for price in PRICES]


def _whole_numbers(row: Row) -> Whole:
    return tuple(round(value * UNIT) for value in row)
