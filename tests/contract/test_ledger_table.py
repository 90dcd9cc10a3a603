"""The LedgerTable port: memory, SQLite and PostgreSQL keep the same promises."""

import pytest

from raysched.core.model import JobId, ShareId, UserId
from raysched.store.errors import StoreFailed
from tests.store.backends import Backend
from tests.store.samples import claimed, committed, released


def test_entries_come_back_in_order_under_their_versions(backend: Backend) -> None:
    ledger = backend.ledger()

    ledger.append("p1", 1, [claimed("a"), claimed("b")], first_version=1)
    ledger.append("p2", 1, [committed("a")], first_version=3)

    assert ledger.last_version() == 3
    assert ledger.read() == [(1, claimed("a")), (2, claimed("b")), (3, committed("a"))]


def test_reading_is_bounded_from_both_sides(backend: Backend) -> None:
    ledger = backend.ledger()
    ledger.append(None, 1, [committed(str(number)) for number in range(1, 6)], first_version=1)

    assert ledger.read(after=1, limit=2) == [(2, committed("2")), (3, committed("3"))]
    assert ledger.read(after=5) == []


def test_rows_are_found_by_what_they_name(backend: Backend) -> None:
    ledger = backend.ledger()
    ann, bob, other = claimed("a", "ann", "vision"), claimed("b", "bob", "vision"), claimed("c", "ann", "speech")
    ledger.append(None, 1, [ann, bob, other, released("a")], first_version=1)

    assert [version for version, _ in ledger.rows(job=JobId("a"))] == [1, 4]
    assert [version for version, _ in ledger.rows(user=UserId("ann"))] == [1, 3]
    assert [version for version, _ in ledger.rows(share=ShareId("vision"))] == [1, 2]
    assert ledger.rows(user=UserId("ann"), share=ShareId("speech")) == [(3, claimed("c", "ann", "speech"))]
    assert ledger.rows(job=JobId("a"), after=1) == [(4, released("a"))]
    assert ledger.rows(share=ShareId("vision"), limit=1) == [(1, claimed("a", "ann", "vision"))]
    assert ledger.rows(job=JobId("nobody")) == []


def test_a_plan_is_remembered_over_a_restart(backend: Backend) -> None:
    ledger = backend.ledger()
    ledger.append("p1", 1, [claimed("a")], first_version=1)
    ledger.append("p2", 1, [committed("a"), released("a")], first_version=2)

    after_restart = backend.ledger()

    assert after_restart.remembered("p1") == (1, 1)
    assert after_restart.remembered("p2") == (2, 3)
    assert after_restart.remembered("p3") is None


def test_only_the_last_plans_are_remembered(backend: Backend) -> None:
    ledger = backend.ledger(keep_plans=2)
    for number in range(1, 5):
        ledger.append(f"p{number}", 1, [committed(str(number))], first_version=number)

    assert [ledger.remembered(f"p{number}") for number in range(1, 5)] == [None, None, (3, 3), (4, 4)]
    assert ledger.last_version() == 4


def test_a_plan_without_entries_leaves_no_trace(backend: Backend) -> None:
    ledger = backend.ledger()
    ledger.append("p1", 1, [], first_version=1)
    assert ledger.last_version() == 0
    assert ledger.remembered("p1") is None


def test_the_same_plan_cannot_be_made_durable_twice(backend: Backend) -> None:
    ledger = backend.ledger()
    ledger.append("p1", 1, [claimed("a")], first_version=1)
    with pytest.raises(StoreFailed):
        ledger.append("p1", 1, [claimed("a")], first_version=2)
    assert ledger.read() == [(1, claimed("a"))]


def test_a_batch_that_does_not_follow_the_last_version_is_not_kept(backend: Backend) -> None:
    ledger = backend.ledger()
    ledger.append(None, 1, [claimed("a")], first_version=1)
    for wrong in (1, 3):
        with pytest.raises(StoreFailed, match=f"ends at version 1, the batch starts at {wrong}"):
            ledger.append("p", 1, [claimed("b")], first_version=wrong)
    assert ledger.last_version() == 1
    assert ledger.remembered("p") is None


def test_epochs_only_rise_also_over_a_restart(backend: Backend) -> None:
    ledger = backend.ledger()
    assert ledger.epoch() == 0
    assert [ledger.open_epoch(), ledger.open_epoch()] == [1, 2]

    after_restart = backend.ledger()

    assert after_restart.epoch() == 2
    assert after_restart.open_epoch() == 3


def test_the_second_writer_takes_over_and_the_first_is_fenced(backend: Backend) -> None:
    first = backend.ledger()
    first.append("p1", 1, [claimed("a")], first_version=1)
    second = backend.ledger()

    with pytest.raises(StoreFailed, match="fenced"):
        first.append("p2", 1, [claimed("b")], first_version=2)
    with pytest.raises(StoreFailed, match="fenced"):
        first.open_epoch()
    second.append("p3", 2, [claimed("c")], first_version=2)

    assert second.read() == [(1, claimed("a")), (2, claimed("c"))]
    assert second.remembered("p2") is None


def test_a_ledger_nobody_touched_has_an_unbroken_chain(backend: Backend) -> None:
    ledger = backend.ledger()
    assert ledger.verify_chain() == []
    for version in range(1, 20):
        ledger.append(f"p{version}", 1, [claimed(f"作业-{version}")], first_version=version)
    assert ledger.verify_chain() == []


def test_journal_and_ledger_share_a_database_without_fencing_each_other(backend: Backend) -> None:
    journal, ledger = backend.journal(), backend.ledger()
    journal.append([])
    ledger.append(None, 1, [claimed("a")], first_version=1)
    assert (len(list(journal.read())), ledger.last_version()) == (0, 1)
