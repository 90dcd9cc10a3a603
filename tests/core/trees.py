"""Random share trees, small enough for the reference: cohorts of 1 to 6 shares, 1 to 3 pools, amounts below 10."""

from random import Random

from raysched.core.accounts import Ask
from raysched.core.model import (
    BorrowLimit,
    CohortId,
    GroupId,
    LimitRule,
    Limits,
    Override,
    PoolId,
    Share,
    ShareId,
    Sharing,
    UserId,
)
from raysched.core.quota import QuotaTree
from tests.core.reference import Books

KINDS = ("gpu", "gpu:H100", "gpu:A100", "cpu", "disks")
WORK = ("notebook", "training", "service")
USERS = tuple(UserId(name) for name in ("ann", "bob", "cem"))
GROUPS = {"ml": USERS[:2], "web": USERS[1:]}
STRATEGIES = ("reserve", "lend", "lend_and_borrow", "borrow", "lend_and_borrow")


def tree(rng: Random) -> tuple[QuotaTree, Books]:
    """The tree under test and the same books for the reference."""
    pools = tuple(PoolId(name) for name in ("p0", "p1", "p2")[: rng.randint(1, 3)])
    cohorts = [CohortId("main")] if rng.random() < 0.7 else [CohortId("main"), CohortId("other")]
    names = [ShareId(f"s{i}") for i in range(rng.randint(1, 6))]
    shares = {name: _share(rng, name, pools, rng.choice(cohorts)) for name in names}
    overrides = tuple(_override(rng, i, names, pools) for i in range(rng.choice((0, 0, 1, 3))))
    books = Books(shares, pools, (), overrides, dict(GROUPS))
    return grown(books), books


def grown(books: Books) -> QuotaTree:
    """A tree with the shares, overrides and claims of `books`."""
    made = QuotaTree()
    made.limits.set_groups({GroupId(group): members for group, members in books.groups.items()})
    made.set_shares(books.shares, books.pools)
    made.set_overrides(books.overrides)
    for claim in books.claims:
        made.charge(claim, check=False)
    return made


def ask(rng: Random, books: Books) -> Ask:
    """A request of one to three kinds, some of them governed by nobody."""
    kinds = rng.sample(KINDS, rng.choice((1, 1, 2, 3)))
    amounts = {kind: rng.randint(1, 6) for kind in kinds}
    share = rng.choice(sorted(books.shares))
    return Ask(share, rng.choice(USERS), rng.choice(books.pools), rng.choice(WORK), amounts)


def changed(rng: Random, books: Books) -> dict[ShareId, Share]:
    """One share with everything about it drawn anew: cuts below use, other lenders, another cohort."""
    name = rng.choice(sorted(books.shares))
    return {**books.shares, name: _share(rng, name, books.pools, CohortId(rng.choice(("main", "other"))))}


def _share(rng: Random, name: ShareId, pools: tuple[PoolId, ...], cohort: CohortId) -> Share:
    nominal = {pool: _amounts(rng) for pool in pools if rng.random() < 0.8}
    return Share(share=name, nominal=nominal, cohort=cohort, sharing=_sharing(rng, pools), limits=_limits(rng))


def _amounts(rng: Random) -> dict[str, int]:
    return {kind: rng.randint(0, 9) for kind in KINDS if rng.random() < (0.9 if kind == "gpu" else 0.3)}


def _sharing(rng: Random, pools: tuple[PoolId, ...]) -> Sharing:
    borrow = (
        BorrowLimit(),
        BorrowLimit(),
        BorrowLimit(percent=rng.choice((0, 50, 100, 250))),
        BorrowLimit(amounts={kind: rng.randint(0, 6) for kind in KINDS if rng.random() < 0.5}),
    )
    lend_limit = {pool: _amounts(rng) for pool in pools if rng.random() < 0.7} if rng.random() < 0.4 else None
    workloads = tuple(sorted(rng.sample(WORK, rng.randint(0, 2)))) if rng.random() < 0.4 else None
    return Sharing(rng.choice(STRATEGIES), rng.choice(borrow), lend_limit, workloads)  # type: ignore[arg-type]


def _limits(rng: Random) -> Limits:
    if rng.random() < 0.6:
        return Limits()
    rules = (
        LimitRule(gpu=rng.randint(0, 9), user=USERS[0], cpu=rng.choice((None, 5))),
        LimitRule(gpu=rng.randint(0, 9), group=GroupId("ml")),
        LimitRule(gpu=rng.randint(0, 12), group=GroupId("web"), mode="total"),
    )
    kept = tuple(rule for rule in rules if rng.random() < 0.6)
    default = LimitRule(gpu=rng.randint(0, 9)) if rng.random() < 0.5 else None
    return Limits(True, rng.choice(("smallest_gpu", "largest_each", "smallest_each")), default=default, rules=kept)


def _override(rng: Random, number: int, names: list[ShareId], pools: tuple[PoolId, ...]) -> Override:
    return Override(
        override=f"o{number}",
        amounts={kind: rng.randint(1, 4) for kind in KINDS if rng.random() < 0.6},
        start_ms=0,
        until_ms=1,
        reason="a deadline",
        authority=rng.choice(("cto", "cto", None)),
        share=rng.choice((*names, None)),
        user=rng.choice((None, None, *USERS)),
        pool=rng.choice((None, *pools)),
    )
