"""The recursion of core/quota.py against a plain reference that recomputes everything, on thousands of random trees."""

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from raysched.core.accounts import Ask
from raysched.core.model import PoolId, Share, ShareId, Sharing, UserId
from raysched.core.quota import QuotaTree
from tests.core import trees
from tests.core.reference import Books

TREES = 2_000
PARTS = 8  # so that a failure names a range of seeds


def history(seed: int) -> Iterator[tuple[Random, QuotaTree, Books]]:
    """One random tree after each of a few steps: charges, some of them unchecked, ends of jobs, and changed shares."""
    rng = Random(seed)
    tree, books = trees.tree(rng)
    yield rng, tree, books
    for _ in range(rng.randint(1, 6)):
        step, ask = rng.random(), trees.ask(rng, books)
        if step < 0.6:
            if not tree.charge(ask):
                books = books.plus(ask)
        elif step < 0.75:
            tree.charge(ask, check=False)
            books = books.plus(ask)
        elif step < 0.9 and books.claims:
            gone = rng.choice(books.claims)
            tree.uncharge(gone)
            kept = list(books.claims)
            kept.remove(gone)
            books = replace(books, claims=tuple(kept))
        else:
            books = replace(books, shares=trees.changed(rng, books))
            tree.set_shares(books.shares, books.pools)
        yield rng, tree, books


def seeds(part: int) -> range:
    return range(part, TREES, PARTS)


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_available_is_what_trying_finds(part: int) -> None:
    for seed in seeds(part):
        for rng, tree, books in history(seed):
            share, pool = rng.choice(sorted(books.shares)), rng.choice(books.pools)
            for kind in books.nominal(share, pool):
                assert tree.available(share, pool, kind) == books.available(share, pool, kind), (seed, share, kind)


@pytest.mark.parametrize("part", range(PARTS))
def test_a_charge_passes_exactly_when_the_reference_lets_it_pass(part: int) -> None:
    for seed in seeds(part):
        for rng, tree, books in history(seed):
            ask = trees.ask(rng, books)
            blocked = [row for row in tree.rows(ask) if row.request > row.remaining + row.override]
            assert (not blocked) == books.passes(ask), (seed, ask, blocked)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_short_way_to_the_first_blocker_ends_where_the_rows_do(part: int) -> None:
    for seed in seeds(part):
        for rng, tree, books in history(seed):
            ask = trees.ask(rng, books)
            row = next((row for row in tree.rows(ask) if row.request > row.remaining + row.override), None)
            reason = None if row is None else row.reason
            if row is not None and row.request <= row.remaining + row.override + row.unauthorised:
                reason = "OVERRIDE_BLOCKED"
            assert tree.first_block(ask) == reason, (seed, ask)


@pytest.mark.parametrize("part", range(PARTS))
def test_kept_sums_are_what_a_recount_gives(part: int) -> None:
    for seed in seeds(part):
        for _, tree, books in history(seed):
            fresh = trees.grown(books)
            assert sums(tree) == sums(fresh), seed
            for share in books.shares:
                for pool in books.pools:
                    kinds = {kind for claim in books.claims for kind in claim.amounts}
                    for kind in kinds:
                        assert tree.account(share, pool).used.get(kind, 0) == books.used(share, pool, kind), seed


def sums(tree: QuotaTree) -> object:
    accounts = {
        key: (
            {kind: n for kind, n in account.used.items() if n},
            {w: used for w, all_used in account.used_by_workload().items() if (used := _counted(all_used))},
        )
        for key, account in tree.accounts.items()
    }
    commons = {key: (common.lendable, common.taken) for key, common in tree.commons.items()}
    return {key: value for key, value in accounts.items() if value != ({}, {})}, commons, tree.limits.used


def _counted(amounts: dict[str, int]) -> dict[str, int]:
    return {kind: amount for kind, amount in amounts.items() if amount}


# ── what the random trees found ───────────────────────────────────────────────────────────────────────────────────


def test_a_loan_whose_lender_no_longer_accepts_its_work_does_not_stop_other_shares_from_using_their_own() -> None:
    main = PoolId("main")
    lender = Share(ShareId("lender"), {main: {"gpu": 8}}, sharing=Sharing("lend", lend_workloads=("training",)))
    owner = Share(ShareId("owner"), {main: {"gpu": 8}}, sharing=Sharing("lend", lend_workloads=("service",)))
    guest = Share(ShareId("guest"), {main: {"gpu": 0}}, sharing=Sharing("borrow"))
    tree = QuotaTree()
    shares = {share.share: share for share in (lender, owner, guest)}
    tree.set_shares(shares, [main])
    assert not tree.charge(Ask(guest.share, UserId("gus"), main, "training", {"gpu": 8}))

    closed = Share(lender.share, lender.nominal, sharing=Sharing("lend", lend_workloads=("service",)))
    tree.set_shares({**shares, lender.share: closed}, [main])

    assert not tree.charge(Ask(owner.share, UserId("olga"), main, "training", {"gpu": 8}))
