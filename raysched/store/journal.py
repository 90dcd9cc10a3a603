"""The journal: events in order, each durable before `append` returns, and the blobs they point to.

Numbers are contiguous from 1. There is one writer; opening the journal for writing takes over from the one before."""

import hashlib
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import Connection, delete, func, insert, select

from raysched.core.events import AnyEvent
from raysched.store import heads, prepared
from raysched.store.codec import decode_event, encode
from raysched.store.database import Database
from raysched.store.errors import CorruptStore, StoreFailed
from raysched.store.heads import JOURNAL
from raysched.store.schema import blobs, journal

_INSERT: Final = insert(journal)
READ_CHUNK: Final = 5_000  # some MiB of text; a transaction per chunk, so that SQLite can fold its log meanwhile


class SqlJournal:
    """Implements `runtime.ports.Journal` on a database. Safe to use from several threads."""

    def __init__(self, url: str, writer: bool = True) -> None:
        """Open, and as a writer take over. Raises StoreFailed, CorruptStore, SchemaTooNew."""
        self._database = Database(url, writer)
        self._lock = threading.Lock()
        self._writer = 0
        self._last = 0
        try:
            self._open(writer)
        except BaseException:
            self._database.close()
            raise

    def append(self, events: Sequence[AnyEvent]) -> int:
        """Make `events` durable in one commit; returns the number of the last one.

        Raises StoreFailed: none was kept."""
        payloads = [encode(event) for event in events]
        with self._lock:
            if payloads:
                self._insert(payloads)
            return self._last

    def read(self, after: int = 0) -> Iterator[tuple[int, AnyEvent]]:
        """Events with a number above `after`, in order. Raises CorruptStore with the number of the row."""
        while rows := self._chunk(after):
            for seq, payload in rows:
                if seq != after + 1:
                    raise CorruptStore("journal", after + 1, f"is missing, the next one is {seq}")
                yield seq, decode_event(seq, payload)
                after = seq

    def last_seq(self) -> int:
        """The number of the last event; 0 for an empty journal."""
        if self._writer:
            return self._last
        with self._database.read() as connection:
            return heads.find(connection, JOURNAL).last

    def put_blob(self, data: bytes) -> str:
        """Keep `data`; the same bytes are kept once. Returns their SHA-256 in hex. Raises StoreFailed."""
        digest = hashlib.sha256(data).hexdigest()
        known = select(blobs.c.digest).where(blobs.c.digest == digest)
        with self._database.read() as connection:
            if connection.scalar(known) is not None:
                return digest
        with self._database.write() as connection:
            # Again only if new: somebody may have stored the same bytes since the look.
            connection.execute(self._database.insert_new(blobs).values(digest=digest, data=data))
        return digest

    def get_blob(self, digest: str) -> bytes | None:
        """The bytes with this SHA-256, or None. Raises CorruptStore if they changed."""
        with self._database.read() as connection:
            data = connection.scalar(select(blobs.c.data).where(blobs.c.digest == digest))
        if data is not None and hashlib.sha256(data).hexdigest() != digest:
            raise CorruptStore("blobs", None, f"the {len(data)} bytes of {digest} have another SHA-256")
        return data

    def close(self) -> None:
        """Give the connections back; the journal stays as it is."""
        self._database.close()

    def _open(self, writer: bool) -> None:
        if not writer:
            return
        with self._database.write() as connection:
            head = heads.take_over(connection, JOURNAL)
            self._check_end(connection, head.last)
        self._writer, self._last = head.writer, head.last

    def _check_end(self, connection: Connection, expected: int) -> None:
        found = connection.scalar(select(func.max(journal.c.seq))) or 0
        if found != expected:
            raise CorruptStore("journal", min(found, expected) + 1, f"the last of {expected} events is {found}")

    def _insert(self, payloads: list[str]) -> None:
        if not self._writer:
            raise StoreFailed("the journal was opened for reading only")
        first, last = self._last + 1, self._last + len(payloads)
        with self._database.write() as connection:
            head = heads.owned(connection, JOURNAL, self._writer)
            if head.last < self._last:
                raise StoreFailed(f"the journal ends at {head.last}, but {self._last} events were acknowledged")
            if head.last > self._last:
                # The connection broke during our last commit. That batch was answered with StoreFailed: it goes.
                connection.execute(delete(journal).where(journal.c.seq > self._last))
            rows = [{"seq": seq, "payload": payload} for seq, payload in enumerate(payloads, first)]
            prepared.run(connection, _INSERT, rows)
            heads.advance(connection, JOURNAL, last)
        self._last = last

    def _chunk(self, after: int) -> Sequence[tuple[int, str]]:
        query = select(journal.c.seq, journal.c.payload).where(journal.c.seq > after).order_by(journal.c.seq)
        with self._database.read() as connection:
            return [(seq, payload) for seq, payload in connection.execute(query.limit(READ_CHUNK))]
