"""Moving the oldest rows of a ledger into an archive, beside a writer at work, so that every row can still be verified.

1. the rows are written to the file, each checked against the chain; it is durable before it gets its name;
2. the file is read back: every row is decided again, and the books it leads to are worked out from what it holds;
3. `cut`: one commit makes those books, sealed into the chain, the beginning of the ledger;
4. `sweep`: rows that nobody looks at any more are deleted in small steps.

Broken off anywhere and called again with the same file, it goes on. Before 3 nothing in the ledger has changed."""

from pathlib import Path

from msgspec import Struct
from sqlalchemy import func, select

from raysched.core.snapshot import continues
from raysched.store import archive_file, heads, openings
from raysched.store.audit import read_back
from raysched.store.codec import decode_entry
from raysched.store.cut import Tell, cut, sweep
from raysched.store.database import Database
from raysched.store.errors import StoreFailed
from raysched.store.heads import LEDGER
from raysched.store.openings import Opening
from raysched.store.schema import ledger


class Archived(Struct):
    """Rows `first` to `last` are in the file. `swept`: rows deleted now. Sizes are those of the files, the store's with
    its log, None on PostgreSQL. `kept_pages`: free pages that a file from before schema 2 cannot give back."""

    first: int
    last: int
    swept: int
    archive_bytes: int
    before_bytes: int | None
    after_bytes: int | None
    kept_pages: int = 0


def archive(
    url: str, file: Path, version: int | None = None, before_ms: int | None = None, tell: Tell = lambda text: None
) -> Archived:
    """Move rows up to `version`, or those decided before `before_ms`, to `file`; one of the two is given.

    Raises StoreFailed, CorruptStore, OSError: then all rows are where they were, or both in the file and here."""
    Database(url, writer=False).close()  # a writer would create what is not there
    database = Database(url, writer=True)
    try:
        return _archive(database, file, version, before_ms, tell)
    finally:
        database.close()


def _archive(database: Database, file: Path, version: int | None, before_ms: int | None, tell: Tell) -> Archived:
    size, opening = _size(database), _opening(database)
    if not file.exists():
        last = _last(database, opening.version, version, before_ms)
        tell(f"writing rows {opening.version + 1} to {last}")
        archive_file.write(database, file, last)
    tell("reading the archive back and deciding its rows again")
    archive, books = read_back(file)
    if (archive.last, archive.digest) != (opening.version, opening.chain):
        tell(f"beginning the ledger with the books of version {archive.last}")
        cut(database, archive.after, books, archive.digest)
    tell("deleting the archived rows")
    return Archived(
        first=archive.after + 1,
        last=archive.last,
        swept=sweep(database, tell),
        archive_bytes=file.stat().st_size,
        before_bytes=size,
        after_bytes=_size(database),
        kept_pages=database.free_pages(),
    )


def _opening(database: Database) -> Opening:
    with database.read() as connection:
        return openings.find(connection)


def _last(database: Database, archived: int, version: int | None, before_ms: int | None) -> int:
    """The last version to archive: the one asked for, or the one before where it must not be parted from the next."""
    with database.read() as connection:
        head = heads.find(connection, LEDGER).last
        last = head if version is None else version
        if before_ms is not None:
            first_kept = connection.scalar(select(func.min(ledger.c.version)).where(ledger.c.at_ms >= before_ms))
            last = head if first_kept is None else first_kept - 1
        following = connection.scalar(select(ledger.c.payload).where(ledger.c.version == last + 1))
    if last > head:
        raise StoreFailed(f"the ledger ends at version {head}, cannot be archived up to {last}")
    if following is not None and continues(decode_entry(last + 1, following)):
        last -= 1
    if last <= archived:
        raise StoreFailed(f"the ledger begins with version {archived + 1}: there is nothing to archive up to {last}")
    return last


def _size(database: Database) -> int | None:
    if database.file is None:
        return None
    log = database.file.with_name(database.file.name + "-wal")
    return database.file.stat().st_size + (log.stat().st_size if log.exists() else 0)
