"""The books as a value: whatever happened before, a restored ledger goes on as the one it was taken of."""

from random import Random
from typing import Any

import msgspec
import pytest

from raysched.core import entries as e
from raysched.core.accounts import Ask
from raysched.core.ledger import Ledger
from raysched.core.loans import loans
from raysched.core.model import JobId, PoolId, Reservation, ReservationId, ShareId, UserId
from raysched.core.overuse import overuse
from raysched.core.snapshot import Snapshot, continues, restore, snapshot
from raysched.core.verify import Verifier
from tests.model.histories import played

SEEDS = range(24)
CUTS = 3  # per history
Entries = list[e.AnyEntry]


def stored(books: Snapshot) -> Snapshot:
    """As the store keeps it."""
    return msgspec.json.decode(msgspec.json.encode(books), type=Snapshot)


def folded(entries: Entries) -> Ledger:
    ledger = Ledger()
    for entry in entries:
        ledger.fold(entry)
    return ledger


def seen(ledger: Ledger) -> dict[str, Any]:
    """All that can be asked of a ledger and that anything depends on."""
    names = ("version", "now_ms", "settings", "pools", "groups", "shares", "changed", "reservations", "overrides")
    found = {name: msgspec.to_builtins(getattr(ledger, name)) for name in (*names, "reported", "claims")}
    found["orders"] = [list(book) for book in (ledger.pools, ledger.shares, ledger.claims, ledger.reservations)]
    held = {job: record for job, record in ledger.records.items() if job in ledger.claims or record.reason}
    quota = ledger.quota
    return found | {
        "records": held,
        "loans": loans(ledger),
        "overuse": overuse(ledger),
        "used": quota.limits.used,
        "edge": ledger.next_edge_ms(ledger.now_ms),
        "active": ledger.active_overrides(ledger.now_ms),
        "ceilings": [quota.rows(claim.ask()) for claim in ledger.claims.values()],
        "room": {
            (share, pool): [
                quota.rows(Ask(share, claim.user, pool, work, {"gpu": 1_000})) for work in ("training", "x")
            ]
            for claim in ledger.claims.values()
            for share in ledger.shares
            for pool in ledger.pools
        },
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_restored_books_are_the_books(seed: int) -> None:
    entries, whole = played(seed).sim.disk.entries, Ledger()
    for at, entry in enumerate(entries, 1):
        whole.fold(entry)
        if at == len(entries) or not continues(entries[at]):
            assert seen(restore(stored(snapshot(whole)))) == seen(whole), (seed, at)


@pytest.mark.parametrize("seed", SEEDS)
def test_books_that_were_put_down_and_taken_up_go_on_as_if_nothing_had_been(seed: int) -> None:
    entries, rng = played(seed).sim.disk.entries, Random(seed)
    places = [at for at in range(1, len(entries) + 1) if at == len(entries) or not continues(entries[at])]
    for at in rng.sample(places, min(CUTS, len(places))):
        whole = folded(entries[:at])
        parted = restore(stored(snapshot(whole)))
        for entry in entries[at:]:
            assert seen(parted) == seen(whole), (seed, at, whole.version)
            # Through the front door: what was posted then must pass again.
            assert parted.try_post([entry])[0] == [], (seed, at, whole.version)
            whole.fold(entry)
        assert seen(parted) == seen(whole), (seed, at)
        assert snapshot(parted) == snapshot(whole)


def test_a_snapshot_does_not_change_with_its_ledger() -> None:
    entries = played(3).sim.disk.entries
    ledger = folded(entries[: len(entries) // 2])
    taken = snapshot(ledger)
    before = msgspec.json.encode(taken)
    for entry in entries[len(entries) // 2 :]:
        ledger.fold(entry)
    assert msgspec.json.encode(taken) == before
    assert snapshot(ledger) != taken


def test_the_histories_have_everything_that_books_can_hold() -> None:
    taken = [snapshot(folded(played(seed).sim.disk.entries[:at])) for seed in SEEDS for at in range(20, 200, 20)]
    for name in ("pools", "groups", "shares", "reservations", "overrides", "reported", "claims", "records"):
        assert any(getattr(books, name) for books in taken), name
    claims = [claim for books in taken for claim in books.claims]
    assert any(claim.bundles for claim in claims), "nobody was resized"
    assert any(claim.admitted_ms != claim.at_ms for claim in claims), "nobody was swapped"
    assert any(claim.draws for claim in claims), "nobody drew on a reservation"
    assert any(book.released_ms for books in taken for book in books.reservations), "none was released"


def test_a_reservation_keeps_all_that_ever_happened_to_it() -> None:
    kept = Reservation(
        reservation=ReservationId("r"), pool=PoolId("p"), amounts={"gpu": 1_000}, start_ms=0, share=ShareId("s")
    )
    edits = [e.ReservationSet(at_ms=at_ms, by=UserId("ann"), reservation=kept) for at_ms in (1, 5)]
    gone = e.ReservationReleased(at_ms=9, by=UserId("bob"), reservation=kept.reservation)
    for entries in (edits, [*edits, gone]):
        whole = folded([*entries, e.Reconciled(at_ms=20, by=UserId("ann"), pool=PoolId("p"))])
        assert restore(stored(snapshot(whole))).reservations == whole.reservations
    assert whole.reservations[kept.reservation].words(20) == ["created", "changed", "released"]


def test_decisions_of_jobs_that_are_over_are_left_to_the_rows() -> None:
    ended = folded(played(1).sim.disk.entries)
    books = snapshot(ended)
    assert len(books.records) < len(ended.records)
    assert all(record.job in ended.claims or record.reason for record in books.records)


def test_rows_are_decided_again_on_restored_books() -> None:
    entries = played(5).sim.disk.entries
    at = next(at for at in range(len(entries) // 2, len(entries)) if not continues(entries[at]))
    verifier = Verifier()
    verifier.ledger = restore(snapshot(folded(entries[:at])))
    for version, entry in enumerate(entries[at:], at + 1):
        verifier.entry(version, entry)
    assert (verifier.found, verifier.ledger.version) == ([], len(entries))


def test_a_claim_and_the_release_it_continues_are_not_parted() -> None:
    claims = [entry for seed in SEEDS for entry in played(seed).sim.disk.entries if isinstance(entry, e.Claimed)]
    assert {continues(entry) for entry in claims} == {True, False}
    assert not continues(e.Committed(at_ms=1, job=JobId("a"), attempt=1))
