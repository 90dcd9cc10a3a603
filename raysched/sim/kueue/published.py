"""What Kueue publishes of its three generators, to compare with. Its runs take real time, ours virtual time.

Means: the comments of configs/baseline/rangespec.yaml, and pull request 11422 for large-scale (19 runs of its CI).
Maxima: the limits of the rangespec.yaml files; those of tas are provisional there and say nothing (1,000 s each)."""

from typing import Final

from msgspec import Struct


class Published(Struct, frozen=True):
    """Mean wall time of a full run in seconds; mean time to admission and its allowed maximum by class, in ms."""

    wall_s: float
    mean_ms: dict[str, int]
    most_ms: dict[str, int]


PUBLISHED: Final[dict[str, Published]] = {
    "baseline": Published(
        351.1,
        {"small": 215_468, "medium": 76_768, "large": 6_666},
        {"small": 260_000, "medium": 90_000, "large": 11_000},
    ),
    "large-scale": Published(
        1_179.4,
        {"small": 700_379, "medium": 256_413, "large": 98_803},
        {"small": 841_000, "medium": 308_000, "large": 119_000},
    ),
    "tas": Published(
        401.5,
        {},
        {
            f"{size}-{how}-rack": 1_000_000
            for size in ("small", "medium", "large")
            for how in ("required", "preferred", "balanced")
        },
    ),
}
