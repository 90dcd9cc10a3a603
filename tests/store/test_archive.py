"""Old rows go into an archive: the ledger goes on without them, and everything can still be verified."""

import gzip
import sqlite3
import threading
from pathlib import Path

import pytest
from msgspec import structs

from raysched.core.entries import ShareSet
from raysched.core.model import UserId
from raysched.core.snapshot import forget, snapshot
from raysched.runtime.quota_book import QuotaBook
from raysched.store.archiving import Archived, archive
from raysched.store.audit import audit
from raysched.store.database import Database
from raysched.store.errors import CorruptStore, StoreFailed
from raysched.store.ledger_store import LedgerStore
from tests.model.digest import ledger_digest
from tests.store.ledgers import audited, edit_store, entries, is_sound, parted, post, stored, tables
from tests.store.samples import claimed


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return tmp_path / "old.jsonl.gz"


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    return tmp_path / "newer.jsonl.gz"


def cut_at(version: int) -> int:
    """Where a ledger that shall be archived up to `version` is really cut."""
    return version - 1 if version == parted() else version


def test_archive_and_ledger_together_are_the_ledger_that_was(any_url: str, old: Path) -> None:
    stored(any_url, entries())
    before = audited(any_url)

    done = archive(any_url, old, version=100)

    assert (done.first, done.last, done.swept) == (1, 100, 100)
    after, live = audited(any_url, old), audited(any_url)
    assert is_sound(before) and after == before
    assert is_sound(live) and (live.archived, live.rows) == (100, before.rows - 100)


def test_a_writer_at_work_goes_on(any_url: str, old: Path, newer: Path) -> None:
    posted = entries()
    stored(any_url, posted[:90])
    table = LedgerStore(any_url)
    archive(any_url, old, version=50)
    post(table, posted[90:120])
    archive(any_url, newer, version=110)
    post(table, posted[120:])
    assert (table.read()[0][0], table.last_version()) == (111, len(posted))
    assert is_sound(audited(any_url, old, newer))


def test_a_quota_actor_that_starts_on_the_books_is_the_one_that_read_every_row(any_url: str, old: Path) -> None:
    stored(any_url, entries())
    whole = QuotaBook(LedgerStore(any_url))
    archive(any_url, old, version=len(entries()) - 20)

    book = QuotaBook(LedgerStore(any_url))

    forget(whole.ledger)
    forget(book.ledger)
    assert ledger_digest(book.ledger) == ledger_digest(whole.ledger)
    assert snapshot(book.ledger) == snapshot(whole.ledger)
    first = book.read(0)[0]
    assert first.version == len(entries()) - 19


def test_archives_lead_to_one_another(any_url: str, old: Path, newer: Path, tmp_path: Path) -> None:
    stored(any_url, entries())
    archive(any_url, old, version=60)
    archive(any_url, newer, version=90)
    archive(any_url, tmp_path / "last.gz", version=len(entries()))
    files = [tmp_path / "last.gz", old, newer]
    found = audited(any_url, *files)
    assert is_sound(found) and (found.rows, found.archived) == (len(entries()), 0)
    assert is_sound(audited(any_url, *files[:1])), "an archive begins with its own books"
    assert audited(any_url).rows == 0
    for some, said in (((old,), "ends at version 60"), ((old, files[0]), "does not follow from there: it follows 90")):
        (wrong,) = audited(any_url, *some).disagreements
        assert said in wrong.what


def test_archives_are_verified_without_their_ledger(url: str, old: Path, newer: Path) -> None:
    stored(url, entries())
    archive(url, old, version=60)
    archive(url, newer, version=90)
    found = audit(None, [newer, old])
    assert (found.rows, found.chain, found.disagreements) == (90, None, [])


def test_rows_from_before_a_date_are_archived(any_url: str, old: Path) -> None:
    posted = entries()
    stored(any_url, posted)
    kept = next(version for version in range(120, 200) if posted[version].at_ms > posted[version - 1].at_ms)
    done = archive(any_url, old, before_ms=posted[kept].at_ms)
    assert done.last == cut_at(kept)


def test_a_release_and_the_claim_that_continues_it_stay_together(any_url: str, old: Path) -> None:
    stored(any_url, entries())
    assert archive(any_url, old, version=parted()).last == parted() - 1
    assert is_sound(audited(any_url, old))


@pytest.mark.parametrize(("version", "said"), [(10_000, "cannot be archived up to 10000"), (50, "nothing to archive")])
def test_what_cannot_be_archived_is_said(any_url: str, old: Path, newer: Path, version: int, said: str) -> None:
    stored(any_url, entries())
    archive(any_url, old, version=50)
    with pytest.raises(StoreFailed, match=said):
        archive(any_url, newer, version=version)
    assert not newer.exists()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ledger SET payload = replace(payload, 'at_ms', 'at_ms ') WHERE version = 30",
        "UPDATE ledger SET payload = CAST(x'7bff' AS TEXT) WHERE version = 30",
        "DELETE FROM ledger WHERE version = 30",
        "DELETE FROM ledger WHERE version = 1",
        "DELETE FROM ledger WHERE version = 60",
    ],
)
def test_an_edited_ledger_is_not_archived(url: str, file: Path, old: Path, statement: str) -> None:
    stored(url, entries())
    edit_store(file, statement)
    before = tables(file)
    with pytest.raises(CorruptStore):
        archive(url, old, version=60)
    assert tables(file) == before and not old.exists()


def test_rows_that_disagree_with_their_books_are_not_archived(url: str, file: Path, old: Path) -> None:
    """The chain says that they were appended; they still are nothing to lose sight of."""
    stored(url, [*entries()[:20], claimed("forged", share="a"), *entries()[20:]])
    before = tables(file)
    with pytest.raises(CorruptStore, match="row 21"):
        archive(url, old, version=60)
    assert tables(file) == before


def test_an_archive_of_another_ledger_is_not_cut_from_this_one(url: str, file: Path, old: Path, tmp_path: Path) -> None:
    posted = entries()
    share = next(entry.share for entry in posted if isinstance(entry, ShareSet))
    edit = ShareSet(at_ms=posted[58].at_ms, by=UserId("eve"), share=share)
    stored(url, posted)
    stored(f"sqlite:///{tmp_path}/other.db", [*posted[:59], edit])
    archive(f"sqlite:///{tmp_path}/other.db", old, version=60)
    before = tables(file)
    with pytest.raises(StoreFailed, match="the archive ends at version 60 with digest"):
        archive(url, old, version=60)
    assert tables(file) == before


def test_the_file_gets_smaller(url: str, file: Path, old: Path) -> None:
    # Rows about a job that nobody has: what is decided does not matter here, only that they are many.
    stored(url, entries())
    table = LedgerStore(url)
    share = next(entry.share for entry in entries() if isinstance(entry, ShareSet))
    for _ in range(4):
        post(table, [ShareSet(at_ms=table_ms(table), by=UserId("ann"), share=share)] * 1_000)
    table.close()
    done = archive(url, old, version=4_000)
    assert done.before_bytes is not None and done.after_bytes is not None
    assert done.after_bytes < done.before_bytes / 3 and done.kept_pages == 0
    assert done.after_bytes >= file.stat().st_size
    assert is_sound(audited(url, old))


def table_ms(table: LedgerStore) -> int:
    """The time of the last row."""
    return table.read(after=table.last_version() - 1)[0][1].at_ms


def test_a_file_of_an_older_schema_keeps_its_room_and_says_so(tmp_path: Path, old: Path) -> None:
    file = tmp_path / "older.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE already (there)")
    connection.close()
    stored(f"sqlite:///{file}", entries())
    done = archive(f"sqlite:///{file}", old, version=len(entries()))
    assert done.kept_pages > 0
    assert is_sound(audited(f"sqlite:///{file}", old))


def test_an_archive_can_be_read_without_raysched(url: str, old: Path) -> None:
    stored(url, entries())
    archive(url, old, version=60)
    lines = gzip.decompress(old.read_bytes()).decode().splitlines()
    assert lines[0].startswith('{"format":"raysched ledger archive 1","after":0')
    assert lines[1].startswith('{"version":1,"epoch":1,"entry":{"type":')
    assert len(lines) == 62 and lines[-1].startswith('{"end":60')


def test_posts_and_an_archive_at_the_same_time(any_url: str, old: Path) -> None:
    """A writer that does not stop is not stopped, and what it posts meanwhile is in the chain."""
    posted = entries()
    stored(any_url, posted[:150])
    table, failed = LedgerStore(any_url), list[Exception]()

    def write() -> None:
        for entry in posted[150:]:
            try:
                post(table, [entry])
            except StoreFailed as problem:
                failed.append(problem)

    writing = threading.Thread(target=write)
    writing.start()
    done = archive(any_url, old, version=140)
    writing.join()
    assert (failed, done.last, table.last_version()) == ([], cut_at(140), len(posted))
    assert is_sound(audited(any_url, old))


# ── a commit that was never answered, and a cut ───────────────────────────────────────────────────────────────────


def forgetting(table: LedgerStore, posted: list[object]) -> None:
    """The writer's connection breaks after a commit: the rows are there, the writer does not know it."""
    known = table._last, table._digest
    post(table, posted)  # type: ignore[arg-type]
    table._last, table._digest = known


def test_a_seal_after_rows_that_go_is_not_lost(any_url: str, old: Path) -> None:
    posted = entries()
    stored(any_url, posted[:100])
    table = LedgerStore(any_url)
    forgetting(table, [*posted[100:110]])
    archive(any_url, old, version=50)
    post(table, posted[100:])
    assert is_sound(audited(any_url, old))


def test_a_seal_before_a_commit_that_was_not_answered_is_not_lost(any_url: str, old: Path) -> None:
    posted = entries()
    stored(any_url, posted[:100])
    table = LedgerStore(any_url)
    archive(any_url, old, version=50)
    forgetting(table, [*posted[100:110]])
    post(table, posted[100:])
    assert is_sound(audited(any_url, old))


def test_rows_that_are_archived_are_not_taken_back(any_url: str, old: Path) -> None:
    posted = entries()
    stored(any_url, posted[:100])
    table = LedgerStore(any_url)
    forgetting(table, [*posted[100:110]])
    archive(any_url, old, version=cut_at(105))
    with pytest.raises(StoreFailed, match="must be opened again"):
        post(table, posted[100:])
    again = LedgerStore(any_url)
    assert again.last_version() == 110
    post(again, posted[110:])
    assert is_sound(audited(any_url, old))


def test_two_archives_at_once_are_not_both_cut(any_url: str, old: Path, newer: Path) -> None:
    """The second was written from the same beginning, and comes too late."""
    stored(any_url, entries())
    done: list[Archived] = []

    def meanwhile(step: str) -> None:
        if step.startswith("reading") and not done:
            done.append(archive(any_url, newer, version=80))

    with pytest.raises(StoreFailed, match="follows version 0, but the ledger is archived up to 80 already"):
        archive(any_url, old, version=60, tell=meanwhile)
    assert is_sound(audited(any_url, newer))


def test_a_reader_of_a_store_without_openings_sees_none(url: str, file: Path) -> None:
    stored(url, entries()[:30])
    edit_store(file, "UPDATE meta SET value = '1' WHERE key = 'schema_version'")
    connection = sqlite3.connect(file)
    connection.execute("DROP TABLE openings")
    connection.close()
    found = audited(url)
    assert is_sound(found) and found.rows == 30


def test_a_store_of_schema_1_is_brought_up_to_date_by_its_first_writer(any_url: str, old: Path) -> None:
    stored(any_url, entries())
    database = Database(any_url, writer=True)
    with database.write() as connection:
        connection.exec_driver_sql("DROP TABLE openings")
        for name in ("job", "user_id", "share", "acted_by"):
            connection.exec_driver_sql(f"DROP INDEX ledger_of_{name}")
        connection.exec_driver_sql("CREATE INDEX ledger_by_job ON ledger (job, version)")
        connection.exec_driver_sql("UPDATE meta SET value = '1' WHERE key = 'schema_version'")
    database.close()

    LedgerStore(any_url).close()

    database = Database(any_url, writer=False)
    names = "SELECT name FROM sqlite_master" if database.file else "SELECT indexname FROM pg_indexes"
    with database.read() as connection:
        indexes = {name for (name,) in connection.exec_driver_sql(names)}
    database.close()
    assert {"ledger_of_job", "ledger_of_share", "ledger_by_at_ms"} <= indexes and "ledger_by_job" not in indexes
    archive(any_url, old, version=50)
    assert is_sound(audited(any_url, old))


def test_a_sound_ledger_is_not_sound_by_an_empty_look(url: str, old: Path) -> None:
    """The helpers of these tests can fail."""
    stored(url, [*entries()[:20], structs.replace(claimed("forged"), at_ms=1)])
    assert not is_sound(audited(url))
