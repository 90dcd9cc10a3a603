"""The journal and the ledger in memory, for the simulator and for tests.

What outlives a crash is a `MemoryDisk`: a second journal or ledger on the same disk takes over from the first, as on
a database. With `through_codec` every event and entry goes through its stored form, so that the two cannot drift."""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec import Struct, field

from raysched.core.entries import AnyEntry
from raysched.core.events import AnyEvent
from raysched.core.snapshot import Snapshot
from raysched.store.codec import decode_entry, decode_event, encode
from raysched.store.errors import StoreFailed
from raysched.store.ledger_rows import columns
from raysched.store.ports import About


class MemoryDisk(Struct):
    """What is durable. `broken`: why nothing more can be written (a full disk), None while it can. `entries` follow
    the books of `opening`."""

    events: list[AnyEvent] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    entries: list[AnyEntry] = field(default_factory=list)
    opening: Snapshot | None = None
    plans: dict[str, tuple[int, int]] = field(default_factory=dict)
    epoch: int = 0
    journal_writer: int = 0
    ledger_writer: int = 0
    broken: str | None = None

    def check(self) -> None:
        """Raises StoreFailed while the disk is broken."""
        if self.broken is not None:
            raise StoreFailed(f"memory: {self.broken}; nothing was kept")

    @property
    def archived(self) -> int:
        """The last version that is not among `entries` any more."""
        return 0 if self.opening is None else self.opening.version

    def cut(self, books: Snapshot) -> None:
        """As `store.cut.cut`: the ledger begins with `books`, the rows up to them go."""
        self.check()
        del self.entries[: books.version - self.archived]
        self.opening = books


class MemoryJournal:
    """Implements `runtime.ports.Journal`."""

    def __init__(self, disk: MemoryDisk | None = None, through_codec: bool = False) -> None:
        self._disk = MemoryDisk() if disk is None else disk
        self._through_codec = through_codec
        self._disk.journal_writer += 1
        self._writer = self._disk.journal_writer

    def append(self, events: Sequence[AnyEvent]) -> int:
        """As `SqlJournal.append`."""
        kept = [decode_event(0, encode(event)) for event in events] if self._through_codec else events
        if kept:
            self._disk.check()
            if self._writer != self._disk.journal_writer:
                raise _fenced("journal", self._writer, self._disk.journal_writer)
            self._disk.events.extend(kept)
        return len(self._disk.events)

    def read(self, after: int = 0) -> Iterator[tuple[int, AnyEvent]]:
        """As `SqlJournal.read`."""
        return enumerate(islice(self._disk.events, after, None), after + 1)

    def last_seq(self) -> int:
        """The number of the last event; 0 for an empty journal."""
        return len(self._disk.events)

    def put_blob(self, data: bytes) -> str:
        """As `SqlJournal.put_blob`."""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._disk.blobs:
            self._disk.check()
            self._disk.blobs[digest] = bytes(data)
        return digest

    def get_blob(self, digest: str) -> bytes | None:
        """The bytes with this SHA-256, or None."""
        return self._disk.blobs.get(digest)

    def close(self) -> None:
        """Nothing to give back."""


class MemoryLedgerStore:
    """Implements `store.ports.LedgerTable`. Nobody can edit memory behind its back, so it keeps no chain."""

    def __init__(self, disk: MemoryDisk | None = None, through_codec: bool = False, keep_plans: int = 1_000) -> None:
        self._disk = MemoryDisk() if disk is None else disk
        self._through_codec = through_codec
        self._keep_plans = keep_plans
        self._disk.ledger_writer += 1
        self._writer = self._disk.ledger_writer

    def append(self, plan_id: str | None, epoch: int, entries: Sequence[AnyEntry], first_version: int) -> None:
        """As `LedgerStore.append`."""
        kept = [decode_entry(0, encode(entry)) for entry in entries] if self._through_codec else entries
        if not kept:
            return
        self._check_writable()
        last = self.last_version()
        if first_version != last + 1:
            raise StoreFailed(f"the ledger ends at version {last}, the batch starts at {first_version}")
        if plan_id is not None:
            self._remember(plan_id, first_version, last + len(kept))
        self._disk.entries.extend(kept)

    def opening(self) -> Snapshot | None:
        """As `LedgerStore.opening`."""
        return self._disk.opening

    def read(self, after: int = 0, limit: int = 10_000) -> list[tuple[int, AnyEntry]]:
        """As `LedgerStore.read`."""
        return list(islice(self._after(after), limit))

    def rows(self, about: About, after: int = 0, limit: int = 10_000) -> list[tuple[int, AnyEntry]]:
        """As `LedgerStore.rows`."""
        return list(islice(((version, entry) for version, entry in self._after(after) if _is(entry, about)), limit))

    def _after(self, after: int) -> Iterator[tuple[int, AnyEntry]]:
        begun = self._disk.archived
        after = max(after, begun)
        return enumerate(islice(self._disk.entries, after - begun, None), after + 1)

    def remembered(self, plan_id: str) -> tuple[int, int] | None:
        """As `LedgerStore.remembered`."""
        return self._disk.plans.get(plan_id)

    def open_epoch(self) -> int:
        """As `LedgerStore.open_epoch`."""
        self._check_writable()
        self._disk.epoch += 1
        return self._disk.epoch

    def epoch(self) -> int:
        """The last epoch opened; 0 before the first."""
        return self._disk.epoch

    def last_version(self) -> int:
        """The version of the last entry; 0 for an empty ledger."""
        return self._disk.archived + len(self._disk.entries)

    def verify_chain(self) -> list[int]:
        """Always empty."""
        return []

    def close(self) -> None:
        """Nothing to give back."""

    def _check_writable(self) -> None:
        self._disk.check()
        if self._writer != self._disk.ledger_writer:
            raise _fenced("ledger", self._writer, self._disk.ledger_writer)

    def _remember(self, plan_id: str, first: int, last: int) -> None:
        known = self._disk.plans
        if plan_id in known:
            raise StoreFailed(f"plan {plan_id} already made versions {known[plan_id]}; nothing was kept")
        known[plan_id] = (first, last)
        while len(known) > self._keep_plans:
            del known[next(iter(known))]


def _is(entry: AnyEntry, about: About) -> bool:
    said = columns(entry)
    asked = (("job", about.job), ("user_id", about.user), ("share", about.share))
    if any(wanted is not None and said[name] != wanted for name, wanted in asked):
        return False
    not_before, before = about.since_ms is None or entry.at_ms >= about.since_ms, about.until_ms
    return not_before and (before is None or entry.at_ms < before)


def _fenced(stream: str, writer: int, now: int) -> StoreFailed:
    return StoreFailed(f"fenced: {stream} now belongs to writer {now}, this is {writer}; nothing was kept")
