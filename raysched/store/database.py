"""One database by URL: a SQLite file or PostgreSQL, opened so that a commit is durable, with errors by name.

SQLite: write-ahead log, synchronous=FULL, so a commit is one fsync. PostgreSQL: the same tables and statements."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table, create_engine, event, insert, inspect, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from raysched.store import heads
from raysched.store.errors import CorruptStore, SchemaTooNew, StoreFailed
from raysched.store.migration import upgrade
from raysched.store.schema import SCHEMA_VERSION, meta, metadata

BUSY_MS: Final = 30_000  # a working directory of some hundred MiB may be on its way into the same file
CHECKPOINT_PAGES: Final = 8_000  # 32 MiB of log: at the default 4 MiB every third large batch would pay a checkpoint
CONNECT_S: Final = 5  # a database that does not answer must become a StoreFailed, not a frozen tick
LOG_TRIES: Final = 20  # one of the contenders gets through in each; more than 20 at once is not a cluster starting
SETUP_LOCK: Final = 0x7261_7973  # "rays": two processes that create the tables at once


class Database:
    """Connections to `url`. A reader takes over nothing, creates nothing and cannot write."""

    def __init__(self, url: str, writer: bool) -> None:
        """Open; a writer creates missing tables. Raises StoreFailed, SchemaTooNew, CorruptStore."""
        self._url = _parsed(url)
        self._where = self._url.render_as_string(hide_password=True)
        self._is_sqlite = self._url.get_backend_name() == "sqlite"
        self.schema = SCHEMA_VERSION
        if self._is_sqlite and not writer and not Path(str(self._url.database)).exists():
            raise StoreFailed(f"{self._where}: there is no store to read")
        self._engine = _engine(self._url, self._is_sqlite, writer)
        # The same pool, marked: `_sqlite_begin` takes the write lock at once; a read that becomes a write could fail.
        self._writing = self._engine.execution_options(raysched_writes=True)
        try:
            self._prepare(writer)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """One transaction: all of it is durable after the block, or nothing of it exists. Raises StoreFailed."""
        with self._named_errors("nothing was kept"), self._writing.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A short look at what is committed. Raises StoreFailed, CorruptStore."""
        with self._named_errors("nothing was read"), self._engine.connect() as connection:
            yield connection

    def insert_new(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """An insert that leaves a row alone whose key is there already."""
        if self._is_sqlite:
            return sqlite.insert(table).on_conflict_do_nothing()
        return postgresql.insert(table).on_conflict_do_nothing()

    def free_pages(self) -> int:
        """Pages of a SQLite file that hold nothing; 0 on PostgreSQL."""
        with self.read() as connection:
            return int(connection.exec_driver_sql("PRAGMA freelist_count").scalar() or 0) if self._is_sqlite else 0

    def give_back(self) -> None:
        """Give the free pages of a SQLite file back to the disk; if it was made before schema 2, new rows take them."""
        self._script("PRAGMA incremental_vacuum")

    def fold_log(self) -> None:
        """Fold SQLite's log into the file, which then has the size it says; a reader at work only puts that off."""
        self._script("PRAGMA wal_checkpoint(TRUNCATE)")

    def _script(self, statement: str) -> None:
        if not self._is_sqlite:
            return
        with self._named_errors("nothing was given back"), closing(self._engine.raw_connection()) as raw:
            # Only a script runs such a statement to its end: the driver's `execute` takes one step, which is one page.
            driver: Any = raw.driver_connection
            driver.executescript(statement)

    @property
    def file(self) -> Path | None:
        """Where SQLite keeps the store; None on PostgreSQL."""
        return Path(str(self._url.database)) if self._is_sqlite else None

    def close(self) -> None:
        """Closes every connection; the last one folds SQLite's log into the file."""
        self._engine.dispose()

    def _prepare(self, writer: bool) -> None:
        if not writer:
            with self.read() as connection:
                found = inspect(connection).has_table(meta.name)
                self._check_version(connection if found else None)
            return
        with self.write() as connection:
            if not self._is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": SETUP_LOCK})
            if inspect(connection).has_table(meta.name):
                self._check_version(connection)
            metadata.create_all(connection)
            if self._stored_version(connection) is None:
                connection.execute(insert(meta).values(key="schema_version", value=str(SCHEMA_VERSION)))
                heads.create(connection)
            if self.schema < SCHEMA_VERSION:
                upgrade(connection)
                self.schema = SCHEMA_VERSION

    def _check_version(self, connection: Connection | None) -> None:
        if connection is None:
            raise StoreFailed(f"{self._where}: there is no store to read")
        found = self._stored_version(connection)
        if found is not None and not found.isdecimal():
            raise CorruptStore("meta", None, f"schema_version is {found!r}, not a number")
        if found is not None and int(found) > SCHEMA_VERSION:
            raise SchemaTooNew(
                f"{self._where}: written with schema {found}, this raysched knows {SCHEMA_VERSION}; upgrade raysched"
            )
        self.schema = SCHEMA_VERSION if found is None else int(found)

    def _stored_version(self, connection: Connection) -> str | None:
        return connection.scalar(select(meta.c.value).where(meta.c.key == "schema_version"))

    @contextmanager
    def _named_errors(self, outcome: str) -> Iterator[None]:
        try:
            yield
        except (SQLAlchemyError, OSError, OverflowError, UnicodeEncodeError) as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            if getattr(cause, "sqlite_errorname", "") in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
                raise CorruptStore(self._where, None, str(cause)) from error
            raise StoreFailed(f"{self._where}: {' '.join(str(cause).split())}; {outcome}") from error


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        shown = url.rpartition("@")[2]  # never the part that could hold a password
        raise StoreFailed(f"{shown!r} is not a store URL (want sqlite:///path or postgresql://…)") from error
    if parsed.get_backend_name() == "sqlite":
        if parsed.database in (None, "", ":memory:"):
            raise StoreFailed(f"{url}: SQLite needs a file; for a store in memory use raysched.store.memory")
        return parsed
    if parsed.drivername in ("postgres", "postgresql", "postgresql+psycopg"):
        return parsed.set(drivername="postgresql+psycopg")
    raise StoreFailed(f"{parsed.drivername!r} is not a supported store (want sqlite:///path or postgresql://…)")


def _engine(url: URL, is_sqlite: bool, writer: bool) -> Engine:
    if is_sqlite:
        engine = create_engine(url, connect_args={"timeout": BUSY_MS / 1000})
        event.listen(engine, "connect", _sqlite_writer if writer else _sqlite_reader)
        event.listen(engine, "begin", _sqlite_begin)
        return engine
    settings = {"connect_timeout": CONNECT_S, "tcp_user_timeout": CONNECT_S * 1000, "client_encoding": "utf8"}
    engine = create_engine(url, pool_pre_ping=True, connect_args=settings)
    event.listen(engine, "connect", _postgres_writer if writer else _postgres_reader)
    return engine


def _sqlite_reader(connection: Any, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver must not begin transactions behind our back
    connection.text_factory = _text
    connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
    connection.execute("PRAGMA query_only=ON")


def _sqlite_writer(connection: Any, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None
    connection.text_factory = _text
    connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
    # Only a file that has no tables yet takes this: pages of rows that were archived can be given back in small steps.
    connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
    _sqlite_log(connection)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")


def _sqlite_log(connection: Any) -> None:
    """Turn on the write-ahead log. SQLite does not wait by itself for somebody else who is doing the same."""
    for _ in range(LOG_TRIES):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            # This does wait for the other; whatever it did, asking again is harmless.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode=WAL")


def _text(raw: bytes) -> str:
    # A row of broken bytes must reach the codec, which knows its number, instead of failing in the driver.
    return raw.decode("utf-8", "surrogateescape")


def _sqlite_begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("raysched_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _postgres_writer(connection: Any, _: ConnectionPoolEntry) -> None:
    # A server that answers before its disk does would break every promise above; stronger settings are left alone.
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
    connection.commit()


def _postgres_reader(connection: Any, _: ConnectionPoolEntry) -> None:
    connection.read_only = True
