"""The places a store can be on, so that one suite of tests runs on all of them."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec import structs
from sqlalchemy import select

from raysched.core.ledger import Ledger
from raysched.core.snapshot import Snapshot, snapshot
from raysched.runtime.ports import Journal
from raysched.store import openings
from raysched.store.cut import cut, sweep
from raysched.store.database import Database
from raysched.store.journal import SqlJournal
from raysched.store.ledger_store import LedgerStore
from raysched.store.memory import MemoryDisk, MemoryJournal, MemoryLedgerStore
from raysched.store.ports import LedgerTable
from raysched.store.schema import ledger
from tests.store.postgres_server import shared_server

NAMES = ("memory", "memory through codec", "sqlite", "postgres")


class Backend:
    """Opens journals and ledgers on one place; each opening is a new writer, as after a restart."""

    def __init__(self, name: str, folder: Path) -> None:
        self.url = _url(name, folder)
        self._through_codec = "codec" in name
        self._disk = MemoryDisk()
        self._open = ExitStack()

    def journal(self) -> Journal:
        """A journal that has taken over."""
        if self.url is None:
            return MemoryJournal(self._disk, self._through_codec)
        journal = SqlJournal(self.url)
        self._open.callback(journal.close)
        return journal

    def ledger(self, keep_plans: int = 1_000) -> LedgerTable:
        """A ledger that has taken over."""
        if self.url is None:
            return MemoryLedgerStore(self._disk, self._through_codec, keep_plans)
        ledger = LedgerStore(self.url, keep_plans=keep_plans)
        self._open.callback(ledger.close)
        return ledger

    def cut(self, version: int) -> Snapshot:
        """Let the ledger begin after `version`, with books of nothing, as if its rows were in an archive."""
        books = structs.replace(snapshot(Ledger()), version=version)
        if self.url is None:
            self._disk.cut(books)
            return books
        database = Database(self.url, writer=True)
        self._open.callback(database.close)
        with database.read() as connection:
            begun = openings.archived(connection)
            digest = connection.scalar(select(ledger.c.digest).where(ledger.c.version == version))
        cut(database, begun, books, str(digest))
        sweep(database)
        return books

    def close(self) -> None:
        """Closes whatever was opened."""
        self._open.close()


def backend_fixture(request: pytest.FixtureRequest, folder: Path) -> Iterator[Backend]:
    """The body of the `backend` fixtures."""
    backend = Backend(request.param, folder)
    yield backend
    backend.close()


def postgres_url() -> str:
    """An empty PostgreSQL database; skips the test where there is no server to be had."""
    server = shared_server()
    if server is None:
        pytest.skip("PostgreSQL is not installed here: no pg_ctl in /usr/lib/postgresql/*/bin or PATH")
    return server.new_database()


def _url(name: str, folder: Path) -> str | None:
    match name:
        case "sqlite":
            return f"sqlite:///{folder}/store.db"
        case "postgres":
            return postgres_url()
        case _:
            return None
