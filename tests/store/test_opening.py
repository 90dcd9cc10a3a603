"""Opening a store: what is created, who may write, and what is refused."""

import sqlite3
import threading
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from raysched.store.errors import SchemaTooNew, StoreFailed
from raysched.store.journal import SqlJournal
from raysched.store.ledger_store import LedgerStore
from raysched.store.schema import SCHEMA_VERSION
from tests.store.backends import postgres_url
from tests.store.samples import alerts, claimed


def execute(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run one statement on the database, outside the store."""
    if url.startswith("sqlite"):
        connection = sqlite3.connect(str(make_url(url).database), isolation_level=None)
        found = connection.execute(statement).fetchall()
        connection.close()
        return found
    with psycopg.connect(url, autocommit=True) as session:
        cursor = session.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_a_newer_schema_is_refused_by_every_opening(any_url: str) -> None:
    SqlJournal(any_url).close()
    execute(any_url, f"UPDATE meta SET value = '{SCHEMA_VERSION + 1}' WHERE key = 'schema_version'")

    for store in (SqlJournal, LedgerStore):
        for writer in (True, False):
            with pytest.raises(
                SchemaTooNew, match=f"schema {SCHEMA_VERSION + 1}, this raysched knows {SCHEMA_VERSION}"
            ):
                store(any_url, writer)


def test_a_refused_store_is_left_as_it_was(any_url: str) -> None:
    SqlJournal(any_url).close()
    execute(any_url, "UPDATE meta SET value = '99'")
    before = execute(any_url, "SELECT * FROM heads")
    with pytest.raises(SchemaTooNew):
        SqlJournal(any_url)
    assert execute(any_url, "SELECT * FROM heads") == before


def test_a_reader_sees_everything_and_fences_nobody(any_url: str) -> None:
    journal, ledger = SqlJournal(any_url), LedgerStore(any_url)
    journal.append(alerts(2))
    ledger.append("p1", 1, [claimed("a")], 1)
    reader, auditor = SqlJournal(any_url, writer=False), LedgerStore(any_url, writer=False)

    assert (reader.last_seq(), auditor.last_version(), auditor.remembered("p1")) == (2, 1, (1, 1))
    assert auditor.verify_chain() == []
    assert journal.append(alerts(1)) == 3
    assert reader.last_seq() == 3


def test_a_reader_cannot_write(any_url: str) -> None:
    SqlJournal(any_url).close()
    LedgerStore(any_url).close()
    reader, auditor = SqlJournal(any_url, writer=False), LedgerStore(any_url, writer=False)

    with pytest.raises(StoreFailed, match="reading only"):
        reader.append(alerts(1))
    with pytest.raises(StoreFailed, match="reading only"):
        auditor.append("p", 1, [claimed("a")], 1)
    with pytest.raises(StoreFailed):
        reader.put_blob(b"abc")
    with pytest.raises(StoreFailed):
        auditor.open_epoch()
    assert (reader.last_seq(), auditor.last_version(), auditor.epoch()) == (0, 0, 0)


def test_a_reader_creates_no_file(file: Path, url: str) -> None:
    with pytest.raises(StoreFailed, match="there is no store to read"):
        SqlJournal(url, writer=False)
    assert not file.exists()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("no url", "'no url' is not a store URL"),
        ("postgres//ann:secret@db", "'db' is not a store URL"),
        ("sqlite://", "SQLite needs a file"),
        ("sqlite:///:memory:", "SQLite needs a file"),
        ("mysql://localhost/x", "'mysql' is not a supported store"),
        ("sqlite:////nowhere/at/all/store.db", "unable to open database file"),
        ("postgresql://nobody:secret@127.0.0.1:1/store", "127.0.0.1"),
    ],
)
def test_a_url_that_leads_nowhere_is_a_clear_error(wrong: str, message: str) -> None:
    with pytest.raises(StoreFailed, match=message) as caught:
        SqlJournal(wrong)
    assert "secret" not in str(caught.value)


def test_of_many_that_open_an_empty_store_at_once_exactly_one_may_write(any_url: str) -> None:
    opened: list[SqlJournal] = []
    start = threading.Barrier(8)

    def open_one() -> None:
        start.wait()
        opened.append(SqlJournal(any_url))

    threads = [threading.Thread(target=open_one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(opened) == 8
    assert sorted(_try_append(journal) for journal in opened) == ["fenced"] * 7 + ["kept"]


def test_threads_of_one_journal_share_its_numbers(any_url: str) -> None:
    journal = SqlJournal(any_url)
    answers: list[int] = []

    def append_some() -> None:
        for _ in range(20):
            answers.append(journal.append(alerts(3)))
            journal.put_blob(str(len(answers)).encode())

    threads = [threading.Thread(target=append_some) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(seq for seq, _ in journal.read()) == list(range(1, 241))
    assert max(answers) == 240


def test_a_commit_is_made_durable_by_the_database(any_url: str) -> None:
    journal = SqlJournal(any_url)
    with journal._database.write() as connection:
        if any_url.startswith("sqlite"):
            asked = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")]
            assert asked == ["wal", 2]
        else:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


def test_a_database_that_answers_before_its_disk_is_told_not_to() -> None:
    url = postgres_url()
    execute(url, f"ALTER DATABASE {make_url(url).database} SET synchronous_commit = off")
    with SqlJournal(url)._database.write() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


def _try_append(journal: SqlJournal) -> str:
    try:
        journal.append(alerts(1))
    except StoreFailed as error:
        assert "fenced" in str(error)
        return "fenced"
    return "kept"
