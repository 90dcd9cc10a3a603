"""The LedgerTable port: memory, SQLite and PostgreSQL keep the same promises."""

import pytest
from msgspec import structs

from raysched.core.model import JobId, ShareId, UserId
from raysched.store.errors import StoreFailed
from raysched.store.ports import About
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

    a, vision = About(job=JobId("a")), About(share=ShareId("vision"))
    assert [version for version, _ in ledger.rows(a)] == [1, 4]
    assert [version for version, _ in ledger.rows(About(user=UserId("ann")))] == [1, 3]
    assert [version for version, _ in ledger.rows(vision)] == [1, 2]
    assert ledger.rows(About(user=UserId("ann"), share=ShareId("speech"))) == [(3, claimed("c", "ann", "speech"))]
    assert ledger.rows(a, after=1) == [(4, released("a"))]
    assert ledger.rows(vision, limit=1) == [(1, claimed("a", "ann", "vision"))]
    assert ledger.rows(About(job=JobId("nobody"))) == []


def test_rows_are_found_by_when_they_were_decided(backend: Backend) -> None:
    ledger = backend.ledger()
    # A claim of samples.py is decided at 5, a commit at 6, a release at 7.
    ledger.append(None, 1, [claimed("a"), committed("a"), released("a"), claimed("b", "bob")], first_version=1)

    def found(about: About) -> list[int]:
        return [version for version, _ in ledger.rows(about)]

    assert found(About(since_ms=6)) == [2, 3]
    assert found(About(until_ms=6)) == [1, 4]
    assert found(About(since_ms=6, until_ms=7)) == [2]
    assert found(About(user=UserId("ann"), since_ms=5, until_ms=6)) == [1]
    assert found(About(user=UserId("ann"), since_ms=6)) == []
    assert found(About()) == [1, 2, 3, 4]


def test_rows_in_a_window_come_in_the_order_of_their_versions(backend: Backend) -> None:
    ledger = backend.ledger()
    later, sooner = structs.replace(claimed("a"), at_ms=9), structs.replace(claimed("b"), at_ms=8)
    ledger.append(None, 1, [later, sooner, later], first_version=1)
    window = About(user=UserId("ann"), since_ms=1, until_ms=10)
    assert [version for version, _ in ledger.rows(window)] == [1, 2, 3]
    assert [version for version, _ in ledger.rows(window, limit=2)] == [1, 2]
    assert [version for version, _ in ledger.rows(window, after=2)] == [3]


def test_a_ledger_that_was_cut_begins_with_its_books_and_goes_on(backend: Backend) -> None:
    ledger = backend.ledger()
    ledger.append("p1", 1, [claimed(job) for job in "abcde"], first_version=1)
    assert ledger.opening() is None

    books = backend.cut(3)

    for seen in (ledger, backend.ledger()):
        assert (seen.opening(), seen.last_version(), seen.epoch()) == (books, 5, 0)
        assert [version for version, _ in seen.read()] == [version for version, _ in seen.rows(About())] == [4, 5]
        assert seen.read(after=1, limit=1) == [(4, claimed("d"))]
        assert seen.rows(About(job=JobId("b"))) == []
        assert seen.verify_chain() == []
    again = backend.ledger()
    again.append("p2", 1, [claimed("f")], first_version=6)
    assert [version for version, _ in again.read(after=4)] == [5, 6]
    assert again.verify_chain() == []
    assert again.remembered("p1") == (1, 5)


def test_the_writer_does_not_notice_a_cut(backend: Backend) -> None:
    ledger = backend.ledger()
    ledger.append(None, 1, [claimed(job) for job in "abc"], first_version=1)
    backend.cut(2)
    ledger.append("p", 1, [claimed("d")], first_version=4)
    backend.cut(4)
    ledger.append("q", 1, [claimed("e")], first_version=5)
    assert (ledger.read(), ledger.verify_chain()) == ([(5, claimed("e"))], [])


def test_a_ledger_of_which_nothing_is_left_but_books_goes_on(backend: Backend) -> None:
    first = backend.ledger()
    first.append(None, 1, [claimed("a"), claimed("b")], first_version=1)
    books = backend.cut(2)

    ledger = backend.ledger()

    assert (ledger.opening(), ledger.read(), ledger.last_version(), ledger.verify_chain()) == (books, [], 2, [])
    ledger.append("p", 1, [claimed("c")], first_version=3)
    assert (ledger.read(), ledger.verify_chain()) == ([(3, claimed("c"))], [])


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
