"""When jobs come: a Poisson process whose rate has the shape of days and weeks, drawn by thinning.

Thinning (Lewis and Shedler, Simulation of nonhomogeneous Poisson processes by thinning, Naval Research Logistics
Quarterly 26, 1979): draw arrivals at the highest rate there is and keep each with probability rate / highest rate."""

from collections.abc import Iterator
from math import cos, pi
from random import Random
from typing import Final

from msgspec import Struct

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
WEEK_MS: Final = 7 * DAY_MS


class Shape(Struct, frozen=True):
    """The rate over a week as a multiple of its mean. By day it is 1 + depth × cos, highest at `peak_hour`; on days 6
    and 7 of each week it is `weekend` times that. `depth` 0 and `weekend` 1: no shape at all."""

    depth: float = 0.6
    peak_hour: float = 15.0
    weekend: float = 0.4

    def __post_init__(self) -> None:
        if not 0 <= self.depth <= 1:
            raise ValueError(f"depth {self.depth} is not between 0 and 1: the rate would fall below none")
        if self.weekend < 0:
            raise ValueError(f"weekend {self.weekend} is below 0")

    def at(self, ms: int) -> float:
        """The rate at a time, over the mean rate of a week."""
        day = 1 + self.depth * cos(2 * pi * (ms % DAY_MS / HOUR_MS - self.peak_hour) / 24)
        return day * (self.weekend if ms % WEEK_MS >= 5 * DAY_MS else 1.0) / self._mean

    @property
    def highest(self) -> float:
        """No rate is above this."""
        return (1 + self.depth) * max(1.0, self.weekend) / self._mean

    @property
    def _mean(self) -> float:
        # The cosine adds nothing over whole days.
        return (5 + 2 * self.weekend) / 7


def arrivals(rng: Random, shape: Shape, per_ms: float, span_ms: int) -> Iterator[int]:
    """Times from 0 up to `span_ms`, in order; `per_ms` is the mean rate over a week."""
    highest = per_ms * shape.highest
    at_ms = 0.0
    while highest > 0:
        at_ms += rng.expovariate(highest)
        if at_ms >= span_ms:
            return
        if rng.random() * shape.highest < shape.at(int(at_ms)):
            yield int(at_ms)
