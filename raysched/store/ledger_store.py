"""The ledger on a database: entries in versions, chained by digests, with the plans that posted them.

Rules are `core.ledger`'s. Here a batch is durable as a whole or does not exist, and history is never rewritten."""

import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from sqlalchemy import ColumnElement, Connection, Select, bindparam, delete, func, insert, select

from raysched.core.entries import AnyEntry
from raysched.core.snapshot import Snapshot
from raysched.store import chain, heads, openings, prepared
from raysched.store.chain import Links, link
from raysched.store.codec import decode_books, decode_entry, encode
from raysched.store.database import Database
from raysched.store.errors import CorruptStore, StoreFailed
from raysched.store.heads import CHAIN_START, EPOCH, LEDGER
from raysched.store.ledger_rows import Value, columns
from raysched.store.openings import START, Opening
from raysched.store.ports import About
from raysched.store.schema import WITH_OPENINGS, ledger, plans

_INSERT: Final = insert(ledger)
_REMEMBER: Final = insert(plans)
_FORGET: Final = delete(plans).where(plans.c.first_version <= bindparam("upto"))
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
        # What the table has of plans that were acknowledged, oldest first: every post asks for one.
        self._plans: dict[str, tuple[int, int]] = {}
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
            with self._database.write() as connection:
                self._check_head(connection)
                rows = self._rows_of(entries, payloads, epoch)
                prepared.run(connection, _INSERT, rows)
                heads.advance(connection, LEDGER, self._last + len(rows), str(rows[-1]["digest"]))
                forgotten = self._remember(connection, plan_id, epoch, first_version, self._last + len(rows))
            self._last += len(rows)
            self._digest = str(rows[-1]["digest"])
            for old in forgotten:
                del self._plans[old]
            if plan_id is not None:
                self._plans[plan_id] = (first_version, self._last)

    def sealed(self) -> tuple[Opening, frozenset[str]]:
        """The opening as it is stored, and the digests of all openings that the chain covers from there on."""
        if self._database.schema < WITH_OPENINGS:
            return START, frozenset()
        with self._database.read() as connection:
            found = openings.find(connection)
            return found, frozenset(seal.digest for seal in openings.seals(connection, found.version))

    def opening(self) -> Snapshot | None:
        """The books with which the rows begin, if older ones were archived. Raises CorruptStore if they changed."""
        found, _ = self.sealed()
        if found is START:
            return None
        if link(found.chain, found.books) != found.digest:
            raise CorruptStore("openings", found.version, "its books are not those that were sealed")
        return decode_books(found.version, found.books)

    def read(self, after: int = 0, limit: int = 10_000) -> list[tuple[int, AnyEntry]]:
        """(version, entry) with a version above `after`, in order, at most `limit`; archived rows are not among them.

        Raises CorruptStore."""
        begun, found = self._fetch(after, limit)
        for expected, (version, _) in enumerate(found, max(after, begun) + 1):
            if version != expected:
                raise CorruptStore("ledger", expected, f"is missing, the next one is {version}")
        return [(version, decode_entry(version, payload)) for version, payload in found]

    def rows(self, about: About, after: int = 0, limit: int = 10_000) -> list[tuple[int, AnyEntry]]:
        """As `read`, but only entries about this."""
        _, found = self._fetch(after, limit, about)
        return [(version, decode_entry(version, payload)) for version, payload in found]

    def remembered(self, plan_id: str) -> tuple[int, int] | None:
        """The first and last version `plan_id` made; None if it made none or is older than the plans kept."""
        if self._writer:
            return self._plans.get(plan_id)
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
            kept = select(plans.c.plan_id, plans.c.first_version, plans.c.last_version).order_by(plans.c.first_version)
            self._plans = {plan_id: (first, last) for plan_id, first, last in connection.execute(kept)}
        self._writer, self._last, self._digest = head.writer, head.last, head.digest

    def _check_end(self, connection: Connection, expected: int) -> None:
        kept = connection.scalar(select(func.max(ledger.c.version))) or 0
        found = max(kept, openings.archived(connection))
        if found != expected:
            raise CorruptStore("ledger", min(found, expected) + 1, f"the last of {expected} entries is {found}")

    def _check_head(self, connection: Connection) -> None:
        head = heads.owned(connection, LEDGER, self._writer)
        if head.last < self._last:
            raise StoreFailed(f"the ledger ends at {head.last}, but {self._last} entries were acknowledged")
        if head.last > self._last:
            self._take_back(connection)
        else:
            # Another than ours if an opening was sealed after our last row.
            self._digest = head.digest

    def _take_back(self, connection: Connection) -> None:
        """The connection broke during our last commit. That batch was answered with StoreFailed: it goes."""
        opening = openings.find(connection)
        if opening.version > self._last:
            raise StoreFailed(
                f"the ledger ends at version {self._last}, but was archived up to {opening.version}: it must be opened "
                "again; nothing was kept"
            )
        connection.execute(delete(ledger).where(ledger.c.version > self._last))
        connection.execute(delete(plans).where(plans.c.last_version > self._last))
        openings.pull_back(connection, self._last)
        digest = connection.scalar(select(ledger.c.digest).where(ledger.c.version == self._last)) or opening.chain
        self._digest = Links(self._last, digest, openings.seals(connection, self._last)).previous()

    def _rows_of(self, entries: Sequence[AnyEntry], payloads: list[str], epoch: int) -> list[dict[str, Value]]:
        digest, rows = self._digest, []
        for version, (entry, payload) in enumerate(zip(entries, payloads, strict=True), self._last + 1):
            digest = link(digest, payload)
            row = columns(entry)
            row.update(version=version, epoch=epoch, payload=payload, digest=digest)
            rows.append(row)
        return rows

    def _remember(self, connection: Connection, plan_id: str | None, epoch: int, first: int, last: int) -> list[str]:
        """Keep the plan, and drop the oldest that are too many from the table; returns their ids."""
        if plan_id is None:
            return []
        row = {"first_version": first, "last_version": last, "plan_id": plan_id, "epoch": epoch}
        prepared.run(connection, _REMEMBER, row)
        forgotten = list(islice(self._plans, max(0, len(self._plans) + 1 - self._keep_plans)))
        if forgotten:
            prepared.run(connection, _FORGET, {"upto": self._plans[forgotten[-1]][0]})
        return forgotten

    def _end(self, stream: str) -> int:
        with self._database.read() as connection:
            return heads.find(connection, stream).last

    def _fetch(self, after: int, limit: int, about: About | None = None) -> tuple[int, list[tuple[int, str]]]:
        """The last archived version, and the rows found after it and `after`."""
        with self._database.read() as connection:
            while True:
                begun = self._archived(connection)
                rows = connection.execute(_query(max(after, begun), limit, about))
                found = [(version, payload) for version, payload in rows]
                if self._archived(connection) == begun:
                    return begun, found

    def _archived(self, connection: Connection) -> int:
        return openings.archived(connection) if self._database.schema >= WITH_OPENINGS else 0


def _query(after: int, limit: int, about: About | None) -> Select[int, str]:
    rows = select(ledger.c.version, ledger.c.payload).order_by(ledger.c.version)
    if about is None:
        return rows.where(ledger.c.version > after).limit(limit)
    # Versions first: they come from an index alone, and only the rows that are returned are read.
    wanted = select(ledger.c.version).where(ledger.c.version > after, *_named(about))
    return rows.where(ledger.c.version.in_(wanted.order_by(ledger.c.version).limit(limit)))


def _named(about: About) -> Iterator[ColumnElement[bool]]:
    for column, wanted in ((ledger.c.job, about.job), (ledger.c.user_id, about.user), (ledger.c.share, about.share)):
        if wanted is not None:
            yield column == wanted
    if about.since_ms is not None:
        yield ledger.c.at_ms >= about.since_ms
    if about.until_ms is not None:
        yield ledger.c.at_ms < about.until_ms
