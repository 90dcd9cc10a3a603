"""Somebody or something changed the file behind our back: it is said, with the number of the row."""

import sqlite3
from pathlib import Path

import pytest

from raysched.store.errors import CorruptStore
from raysched.store.journal import SqlJournal
from raysched.store.ledger_store import LedgerStore
from tests.store.samples import alerts, claimed, committed


def edit(file: Path, statement: str, *values: object) -> None:
    """Change the store as a person with a SQL prompt would."""
    connection = sqlite3.connect(file)
    with connection:
        connection.execute(statement, values)
    connection.close()


@pytest.fixture
def journal_file(file: Path, url: str) -> Path:
    """A journal of nine events, closed."""
    journal = SqlJournal(url)
    journal.append(alerts(9))
    journal.close()
    return file


@pytest.mark.parametrize("broken", ['{"type":"Exploded"}', '{"type":"Al', "", b"\xff\xfe", 5])
def test_events_before_a_broken_row_are_read_and_the_row_is_named(journal_file: Path, url: str, broken: object) -> None:
    edit(journal_file, "UPDATE journal SET payload = ? WHERE seq = 7", broken)
    read = []
    with pytest.raises(CorruptStore, match="journal row 7"):
        for seq, _ in SqlJournal(url).read():
            read.append(seq)
    assert read == [1, 2, 3, 4, 5, 6]


def test_text_of_broken_bytes_is_named_with_its_row(journal_file: Path, url: str) -> None:
    edit(journal_file, "UPDATE journal SET payload = CAST(x'7bff' AS TEXT) WHERE seq = 2")
    with pytest.raises(CorruptStore, match="journal row 2"):
        list(SqlJournal(url).read())


def test_a_row_missing_in_the_middle_is_found_on_reading(journal_file: Path, url: str) -> None:
    edit(journal_file, "DELETE FROM journal WHERE seq = 4")
    with pytest.raises(CorruptStore, match="journal row 4: is missing, the next one is 5"):
        list(SqlJournal(url).read())


def test_rows_missing_at_the_end_are_found_on_opening(journal_file: Path, url: str) -> None:
    edit(journal_file, "DELETE FROM journal WHERE seq > 6")
    with pytest.raises(CorruptStore, match="journal row 7: the last of 9 events is 6"):
        SqlJournal(url)
    assert len(list(SqlJournal(url, writer=False).read())) == 6


def test_a_changed_blob_is_not_handed_out(journal_file: Path, url: str) -> None:
    journal = SqlJournal(url)
    digest = journal.put_blob(b"weights")
    edit(journal_file, "UPDATE blobs SET data = x'00'")
    with pytest.raises(CorruptStore, match=digest):
        journal.get_blob(digest)


def test_a_file_that_is_no_database_is_said_to_be_none(file: Path, url: str) -> None:
    file.write_bytes(b"not a database at all, but long enough to be read as one" * 20)
    with pytest.raises(CorruptStore, match="not a database"):
        SqlJournal(url)
    assert file.read_bytes().startswith(b"not a database"), "what was there must not be overwritten"


@pytest.fixture
def ledger_file(file: Path, url: str) -> Path:
    """A ledger of nine entries, closed."""
    ledger = LedgerStore(url)
    for version in range(1, 10):
        ledger.append(f"p{version}", 1, [claimed(f"job{version}")], first_version=version)
    ledger.close()
    return file


def broken_versions(url: str) -> list[int]:
    """What an auditor finds, without taking over."""
    ledger = LedgerStore(url, writer=False)
    found = ledger.verify_chain()
    ledger.close()
    return found


@pytest.mark.parametrize(
    ("statement", "broken"),
    [
        ("UPDATE ledger SET payload = replace(payload, '8000', '9000') WHERE version = 4", [4]),
        ("UPDATE ledger SET share = 'speech' WHERE version = 5", [5]),
        ("UPDATE ledger SET at_ms = at_ms + 1 WHERE version = 1", [1]),
        ("UPDATE ledger SET request_quantity = 1 WHERE version IN (2, 9)", [2, 9]),
        ("UPDATE ledger SET payload = 'gone' WHERE version = 9", [9]),
        ("UPDATE ledger SET payload = CAST(x'ff' AS TEXT) WHERE version = 3", [3]),
        ("UPDATE ledger SET digest = substr(digest, 2) || 'x' WHERE version = 6", [6, 7]),
        ("DELETE FROM ledger WHERE version IN (3, 4)", [3, 4, 5]),
        ("DELETE FROM ledger WHERE version > 7", [8, 9]),
        ("DELETE FROM ledger", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ],
)
def test_a_hand_edited_ledger_is_found_with_its_versions(
    ledger_file: Path, url: str, statement: str, broken: list[int]
) -> None:
    assert broken_versions(url) == []
    edit(ledger_file, statement)
    assert broken_versions(url) == broken


def test_a_changed_last_row_with_a_fitting_digest_is_found(ledger_file: Path, url: str) -> None:
    other = LedgerStore(f"sqlite:///{ledger_file.with_name('other.db')}")
    other.append(None, 1, [claimed(f"job{version}") for version in range(1, 9)] + [committed("forged")], 1)
    other.close()
    connection = sqlite3.connect(ledger_file)
    connection.execute("ATTACH ? AS other", (str(ledger_file.with_name("other.db")),))
    with connection:
        connection.execute("DELETE FROM ledger WHERE version = 9")
        connection.execute("INSERT INTO ledger SELECT * FROM other.ledger WHERE version = 9")
    connection.close()
    assert broken_versions(url) == [9]


def test_a_ledger_row_missing_in_the_middle_is_found_on_reading(ledger_file: Path, url: str) -> None:
    edit(ledger_file, "DELETE FROM ledger WHERE version = 4")
    with pytest.raises(CorruptStore, match="ledger row 4: is missing, the next one is 5"):
        LedgerStore(url).read()


def test_ledger_rows_missing_at_the_end_are_found_on_opening(ledger_file: Path, url: str) -> None:
    edit(ledger_file, "DELETE FROM ledger WHERE version = 9")
    with pytest.raises(CorruptStore, match="ledger row 9: the last of 9 entries is 8"):
        LedgerStore(url)
