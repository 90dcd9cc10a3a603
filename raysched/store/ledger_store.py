"""The ledger on a database: entries in versions, chained by digests, with the plans that posted them.

Rules are `core.ledger`'s. Here a batch is durable as a whole or does not exist, and history is never rewritten."""

import threading
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, Select, delete, func, insert, select

from raysched.core.entries import AnyEntry
from raysched.core.model import JobId, ShareId, UserId
from raysched.store import chain, heads
from raysched.store.chain import link
from raysched.store.codec import decode_entry, encode
from raysched.store.database import Database
from raysched.store.errors import CorruptStore, StoreFailed
from raysched.store.heads import CHAIN_START, EPOCH, LEDGER
from raysched.store.ledger_rows import Value, columns
from raysched.store.schema import ledger, plans

KEEP_PLANS: Final = 1_000  # a plan is asked again right after a broken call: minutes of ticks are plenty


class LedgerStore:
    """Implements `store.ports.LedgerTable`. Safe to use from several threads."""

    def __init__(self, url: str, writer: bool = True, keep_plans: int = KEEP_PLANS) -> None:
        """Open, and as a writer take over. Raises StoreFailed, CorruptStore, SchemaTooNew."""
        self._database = Database(url, writer)
        self._lock = threading.Lock()
        self._keep_plans = keep_plans
        self._writer = 0
        self._last = 0
        self._digest = CHAIN_START
        try:
            self._open(writer)
        except BaseException:
            self._database.close()
            raise

    def append(self, plan_id: str | None, epoch: int, entries: Sequence[AnyEntry], first_version: int) -> None:
        """Make `entries` durable as versions from `first_version` on, in one commit, and remember `plan_id` for them.

        Without entries nothing is written or remembered. Raises StoreFailed: nothing was kept."""
        payloads = [encode(entry) for entry in entries]
        if not payloads:
            return
        with self._lock:
            if not self._writer:
                raise StoreFailed("the ledger was opened for reading only")
            if first_version != self._last + 1:
                raise StoreFailed(f"the ledger ends at version {self._last}, the batch starts at {first_version}")
            rows = self._rows_of(entries, payloads, epoch)
            with self._database.write() as connection:
                self._check_head(connection)
                connection.execute(insert(ledger), rows)
                heads.advance(connection, LEDGER, self._last + len(rows), str(rows[-1]["digest"]))
                if plan_id is not None:
                    self._remember(connection, plan_id, epoch, first_version, self._last + len(rows))
            self._last += len(rows)
            self._digest = str(rows[-1]["digest"])

    def read(self, after: int = 0, limit: int = 10_000) -> list[tuple[int, AnyEntry]]:
        """(version, entry) with a version above `after`, in order, at most `limit`. Raises CorruptStore."""
        found = self._fetch(_page(after, limit))
        for expected, (version, _) in enumerate(found, after + 1):
            if version != expected:
                raise CorruptStore("ledger", expected, f"is missing, the next one is {version}")
        return [(version, decode_entry(version, payload)) for version, payload in found]

    def rows(
        self,
        job: JobId | None = None,
        user: UserId | None = None,
        share: ShareId | None = None,
        after: int = 0,
        limit: int = 10_000,
    ) -> list[tuple[int, AnyEntry]]:
        """As `read`, but only entries that name this job, user and share (commits and releases name the job alone)."""
        query = _page(after, limit)
        for column, wanted in ((ledger.c.job, job), (ledger.c.user_id, user), (ledger.c.share, share)):
            if wanted is not None:
                query = query.where(column == wanted)
        return [(version, decode_entry(version, payload)) for version, payload in self._fetch(query)]

    def remembered(self, plan_id: str) -> tuple[int, int] | None:
        """The first and last version `plan_id` made; None if it made none or is older than the plans kept."""
        with self._database.read() as connection:
            query = select(plans.c.first_version, plans.c.last_version).where(plans.c.plan_id == plan_id)
            row = connection.execute(query).one_or_none()
            return None if row is None else (row.first_version, row.last_version)

    def open_epoch(self) -> int:
        """A number higher than every epoch before, durable. Raises StoreFailed."""
        with self._lock, self._database.write() as connection:
            heads.owned(connection, LEDGER, self._writer)
            epoch = heads.find(connection, EPOCH).last + 1
            heads.advance(connection, EPOCH, epoch)
            return epoch

    def epoch(self) -> int:
        """The last epoch opened; 0 before the first."""
        return self._end(EPOCH)

    def last_version(self) -> int:
        """The version of the last entry; 0 for an empty ledger."""
        return self._last if self._writer else self._end(LEDGER)

    def verify_chain(self) -> list[int]:
        """Versions that are missing or are not what was appended: payload, a column, or the digest was changed.

        Reads everything. An empty list: the ledger is as it was written."""
        return chain.broken_versions(self._database)

    def close(self) -> None:
        """Give the connections back; the ledger stays as it is."""
        self._database.close()

    def _open(self, writer: bool) -> None:
        if not writer:
            return
        with self._database.write() as connection:
            head = heads.take_over(connection, LEDGER)
            self._check_end(connection, head.last)
        self._writer, self._last, self._digest = head.writer, head.last, head.digest

    def _check_end(self, connection: Connection, expected: int) -> None:
        found = connection.scalar(select(func.max(ledger.c.version))) or 0
        if found != expected:
            raise CorruptStore("ledger", min(found, expected) + 1, f"the last of {expected} entries is {found}")

    def _check_head(self, connection: Connection) -> None:
        head = heads.owned(connection, LEDGER, self._writer)
        if head.last < self._last:
            raise StoreFailed(f"the ledger ends at {head.last}, but {self._last} entries were acknowledged")
        if head.last > self._last:
            # The connection broke during our last commit. That batch was answered with StoreFailed: it goes.
            connection.execute(delete(ledger).where(ledger.c.version > self._last))
            connection.execute(delete(plans).where(plans.c.last_version > self._last))

    def _rows_of(self, entries: Sequence[AnyEntry], payloads: list[str], epoch: int) -> list[dict[str, Value]]:
        digest, rows = self._digest, []
        for version, (entry, payload) in enumerate(zip(entries, payloads, strict=True), self._last + 1):
            digest = link(digest, payload)
            row = columns(entry)
            row.update(version=version, epoch=epoch, payload=payload, digest=digest)
            rows.append(row)
        return rows

    def _remember(self, connection: Connection, plan_id: str, epoch: int, first: int, last: int) -> None:
        connection.execute(insert(plans).values(first_version=first, last_version=last, plan_id=plan_id, epoch=epoch))
        newest = select(plans.c.first_version).order_by(plans.c.first_version.desc())
        oldest_dropped = newest.offset(self._keep_plans).limit(1).scalar_subquery()
        connection.execute(delete(plans).where(plans.c.first_version <= oldest_dropped))

    def _end(self, stream: str) -> int:
        with self._database.read() as connection:
            return heads.find(connection, stream).last

    def _fetch(self, query: Select[int, str]) -> list[tuple[int, str]]:
        with self._database.read() as connection:
            return [(version, payload) for version, payload in connection.execute(query)]


def _page(after: int, limit: int) -> Select[int, str]:
    query = select(ledger.c.version, ledger.c.payload).where(ledger.c.version > after)
    return query.order_by(ledger.c.version).limit(limit)
