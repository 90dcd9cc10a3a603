"""The database goes away and comes back; a commit whose answer was lost is not kept twice."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from raysched.store.errors import StoreFailed
from raysched.store.journal import SqlJournal
from raysched.store.ledger_store import LedgerStore
from tests.store.backends import postgres_url
from tests.store.postgres_server import PostgresServer, find_binaries
from tests.store.samples import alert, alerts, claimed, committed


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server of this test alone, as it will be stopped."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed here: no pg_ctl in /usr/lib/postgresql/*/bin or PATH")
    server = PostgresServer(binaries)
    yield server
    server.remove()


def test_a_database_that_is_away_fails_the_batch_and_goes_on_when_it_is_back(server: PostgresServer) -> None:
    url = server.new_database()
    journal, ledger = SqlJournal(url), LedgerStore(url)
    journal.append(alerts(2))
    ledger.append("p1", 1, [claimed("a")], 1)

    server.stop()
    for _ in range(2):
        with pytest.raises(StoreFailed, match="nothing was kept"):
            journal.append(alerts(7))
        with pytest.raises(StoreFailed, match="nothing was kept"):
            ledger.append("p2", 1, [claimed("b")], 2)
    server.start()

    assert journal.append(alerts(1, first=3)) == 3
    ledger.append("p2", 1, [committed("a")], 2)
    assert list(journal.read()) == list(enumerate(alerts(3), 1))
    assert ledger.read() == [(1, claimed("a")), (2, committed("a"))]
    assert ledger.verify_chain() == []


def test_a_connection_that_died_unused_costs_nothing() -> None:
    url = postgres_url()
    journal = SqlJournal(url)
    journal.append(alerts(1))
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert journal.append(alerts(1, first=2)) == 2


def test_events_that_landed_although_the_commit_was_not_answered_are_gone(file: Path, url: str) -> None:
    journal = SqlJournal(url)
    journal.append(alerts(2))
    connection = sqlite3.connect(file)
    with connection:
        connection.execute("INSERT INTO journal SELECT seq + 2, payload FROM journal")
        connection.execute("UPDATE heads SET last = 4 WHERE stream = 'journal'")
    connection.close()

    assert journal.append([alert("after")]) == 3
    assert list(journal.read()) == [*enumerate(alerts(2), 1), (3, alert("after"))]
    assert SqlJournal(url).last_seq() == 3


def test_a_plan_that_landed_although_the_commit_was_not_answered_can_be_posted_again(file: Path, url: str) -> None:
    ledger = LedgerStore(url)
    ledger.append("p1", 1, [claimed("a")], 1)
    # The connection of this writer broke after the commit: the rows are there, the writer does not know it.
    forgetful = ledger._last, ledger._digest
    ledger.append("p2", 1, [claimed("b"), claimed("c")], 2)
    ledger._last, ledger._digest = forgetful

    ledger.append("p2", 1, [claimed("b")], 2)

    assert ledger.read() == [(1, claimed("a")), (2, claimed("b"))]
    assert ledger.remembered("p2") == (2, 2)
    assert ledger.verify_chain() == []
    assert LedgerStore(url).last_version() == 2


def test_a_database_that_lost_acknowledged_events_is_not_written_to(file: Path, url: str) -> None:
    journal = SqlJournal(url)
    journal.append(alerts(5))
    connection = sqlite3.connect(file)
    with connection:
        connection.execute("DELETE FROM journal WHERE seq > 3")
        connection.execute("UPDATE heads SET last = 3 WHERE stream = 'journal'")
    connection.close()
    with pytest.raises(StoreFailed, match="ends at 3, but 5 events were acknowledged"):
        journal.append(alerts(1))
