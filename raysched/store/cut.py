"""Cutting the ledger: rows that are in an archive go, and the books that they had made take their place.

`cut` is one short commit and all that changes: from then on nobody looks at rows before the opening. `sweep` deletes
them in small steps beside a writer at work, and gives the room back; broken off, it goes on when called again."""

import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, delete, func, insert, select, update

from raysched.core.snapshot import Snapshot
from raysched.store import heads, openings
from raysched.store.chain import link
from raysched.store.codec import encode_books
from raysched.store.database import Database
from raysched.store.errors import StoreFailed
from raysched.store.heads import LEDGER
from raysched.store.schema import ledger
from raysched.store.schema import openings as table

STEP_ROWS: Final = 1_000  # some 50 ms: a writer waits no longer than for one more append

Tell = Callable[[str], None]


def cut(database: Database, begun: int, books: Snapshot, chain: str) -> None:
    """Let the ledger begin with `books`. The archive of the rows up to them must be durable: it follows version `begun`
    and ends with the digest `chain`.

    Whoever writes the ledger goes on. Raises StoreFailed: nothing was cut."""
    with database.write() as connection:
        head = heads.find(connection, LEDGER, lock=True)
        _check(connection, begun, books.version, chain)
        text = encode_books(books)
        sealed = link(chain, text)
        connection.execute(delete(table).where(table.c.sealed_after < books.version))
        connection.execute(update(table).values(books=None))
        opening = {"version": books.version, "chain": chain, "books": text, "digest": sealed}
        connection.execute(insert(table).values(**opening, sealed_after=head.last))
        heads.advance(connection, LEDGER, head.last, link(head.digest, sealed))


def _check(connection: Connection, begun: int, last: int, chain: str) -> None:
    archived = openings.archived(connection)
    if archived != begun:
        raise StoreFailed(f"the archive follows version {begun}, but the ledger is archived up to {archived} already")
    found = connection.scalar(select(ledger.c.digest).where(ledger.c.version == last))
    if last <= begun or found != chain:
        raise StoreFailed(f"the archive ends at version {last} with digest {chain}, the ledger has {found} there")


def sweep(database: Database, tell: Tell = lambda text: None) -> int:
    """Delete what was archived and give the room back to the disk; returns how many rows were deleted.

    SQLite files from before schema 2 keep their size: the room is used for new rows. So does PostgreSQL, by itself."""
    swept, gone = 0, 1
    while gone:
        begun = time.monotonic()
        with database.write() as connection:
            gone = _delete_some(connection)
        # At once: to give back a page, SQLite walks the list of free ones, and with a million of them that takes hours.
        database.give_back()
        swept += gone
        tell(f"{swept} rows deleted")
        _let_others(begun)
    database.fold_log()
    return swept


def _delete_some(connection: Connection) -> int:
    first, archived = connection.scalar(select(func.min(ledger.c.version))), openings.archived(connection)
    if first is None or first > archived:
        return 0
    last = min(first + STEP_ROWS - 1, archived)
    return connection.execute(delete(ledger).where(ledger.c.version <= last)).rowcount


def _let_others(begun: float) -> None:
    """Stay away from the database as long as we have just held it: SQLite has no queue for its lock."""
    time.sleep(time.monotonic() - begun)
