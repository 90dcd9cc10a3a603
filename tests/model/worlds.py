"""Random clusters for the histories: a few nodes, pools and shares, with loans, limits, queues and a spare."""

from random import Random

from msgspec import Struct

from raysched.config import ClusterConfig
from raysched.core.model import (
    BorrowLimit,
    CohortId,
    GroupId,
    LimitRule,
    Limits,
    NodeSpec,
    Pool,
    PoolId,
    Settings,
    Share,
    ShareId,
    Sharing,
    UserId,
)

GI = 1 << 30
GPU_NODE = NodeSpec(4, "H100", 32_000, 256 * GI, {"disks": 2})
CPU_NODE = NodeSpec(0, None, 16_000, 64 * GI, {"disks": 1})
USERS = ("ann", "bob", "cem")
WORK = ("notebook", "training", "service")
MAIN, SIDE, SPARE = PoolId("main"), PoolId("side"), PoolId("spare")


class World(Struct):
    """What a history starts with: the configuration, and hosts as (name, pool, spec)."""

    config: ClusterConfig
    hosts: tuple[tuple[str, PoolId, NodeSpec], ...]


def world(seed: int) -> World:
    """The cluster of a seed."""
    rng = Random(seed)
    apart = Random(seed * 7_919 + 1)
    on_main, on_side = (limits(apart) if apart.random() < 0.25 else None for _ in range(2))
    pools = (Pool(MAIN, 0, limits=on_main), Pool(SIDE, 1, limits=on_side), Pool(SPARE, 2, role="standby"))
    shares = tuple(_share(rng, ShareId(name)) for name in ("a", "b", "c", "d")[: rng.randint(2, 4)])
    hosts = [(f"m{i}", MAIN, GPU_NODE) for i in range(rng.randint(2, 3))]
    hosts += [("m9", MAIN, CPU_NODE)] if rng.random() < 0.5 else []
    hosts += [("s0", SIDE, GPU_NODE), ("x0", SPARE, GPU_NODE)]
    groups: dict[str, tuple[str, ...]] = {"ml": USERS[:2]}
    settings = Settings(validate_for_ms=120_000, max_creating=rng.choice((4, 256)))
    return World(ClusterConfig(settings=settings, pools=pools, groups=groups, shares=shares), tuple(hosts))


def _share(rng: Random, name: ShareId) -> Share:
    rich = name == "a"  # somebody must own what the others borrow
    nominal = {MAIN: _nominal(rng, 8 if rich else 3)}
    if rng.random() < 0.6:
        nominal[SIDE] = _nominal(rng, 4)
    return Share(
        share=name,
        nominal=nominal,
        cohort=CohortId(rng.choice(("main", "main", "main", "other"))),
        weight=rng.choice((None, rng.randint(1, 100))),
        sharing=sharing(rng),
        queue=rng.choice(("strict_fifo", "fifo_within_priority", "any_fit")),
        limits=limits(rng),
    )


def _nominal(rng: Random, most: int) -> dict[str, int]:
    amounts = {"gpu": rng.randint(most // 2, most) * 1_000}
    if rng.random() < 0.2:
        amounts["cpu"] = rng.randint(4, 40) * 1_000
    if rng.random() < 0.1:
        amounts["gpu:H100"] = rng.randint(0, 8) * 1_000
    return amounts


def sharing(rng: Random) -> Sharing:
    """Any strategy with any limits."""
    borrow = (
        BorrowLimit(),
        BorrowLimit(),
        BorrowLimit(percent=50),
        BorrowLimit(amounts={"gpu": rng.randint(0, 4) * 1_000}),
    )
    lent = {MAIN: {"gpu": rng.randint(0, 6) * 1_000}} if rng.random() < 0.3 else None
    accepted = tuple(sorted(rng.sample(WORK, rng.randint(1, 2)))) if rng.random() < 0.3 else None
    strategy = rng.choice(("reserve", "lend", "borrow", *("lend_and_borrow",) * 6))
    return Sharing(strategy, rng.choice(borrow), lent, accepted)  # type: ignore[arg-type]


def limits(rng: Random) -> Limits:
    """No limits, or a rule of each sort."""
    if rng.random() < 0.5:
        return Limits()
    rules = (
        LimitRule(gpu=rng.randint(0, 6) * 1_000, user=UserId("ann")),
        LimitRule(gpu=rng.randint(0, 6) * 1_000, group=GroupId("ml"), cpu=rng.choice((None, 20_000))),
        LimitRule(gpu=rng.randint(0, 8) * 1_000, group=GroupId("ml"), mode="total"),
    )
    kept = tuple(rule for rule in rules if rng.random() < 0.5)
    return Limits(
        enabled=True,
        resolve=rng.choice(("smallest_gpu", "largest_each", "smallest_each")),
        on_exceed=rng.choice(("reject", "confirm")),
        default=LimitRule(gpu=rng.randint(1, 6) * 1_000) if rng.random() < 0.5 else None,
        rules=kept,
    )
