"""Deciding every stored row again: does the verdict follow from the row, and the row from the books before it?

Walks the ledger in order. A record whose fields were edited contradicts itself, its claim, or the books as they were;
an entry that the books before it would have refused was never posted like that. What was edited consistently is found
by the store's chain of digests."""

from collections.abc import Iterable

from msgspec import Struct

from raysched.core import entries as e
from raysched.core.accounts import Ask
from raysched.core.admission import authority, decide
from raysched.core.ledger import Ledger
from raysched.core.model import JobId, ReservationId
from raysched.core.record import AdmissionRecord, QuotaRow
from raysched.core.reservation import part
from raysched.core.units import Amounts

# Entries of one plan: the books a record was decided on are those before it, if only these lie between.
PLANNED = (e.Claimed, e.Recorded, e.Released, e.Committed, e.Voided, e.Expired)
OF_CLAIM = (e.Committed, e.Voided, e.Expired, e.Released, e.Moved, e.Resized)


class Disagreement(Struct, frozen=True):
    """A row that does not agree: its version, the job if it is of one, and what differs."""

    version: int
    job: JobId | None
    what: str


class Verifier:
    """Feed it every entry in order. `decided`: records decided again; `compared`: those compared with the books too."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.decided = 0
        self.compared = 0
        self.found: list[Disagreement] = []
        self._last_foreign = 0

    def entry(self, version: int, entry: e.AnyEntry) -> None:
        """Check one entry, then fold it."""
        self.ledger.advance(entry.at_ms)
        if isinstance(entry, e.Claimed | e.Recorded):
            self._decide(version, entry.record)
            if not (isinstance(entry, e.Claimed) and entry.continues):
                self._compare(version, entry, entry.record)
        if isinstance(entry, e.Claimed):
            self._claim(version, entry)
        if not isinstance(entry, PLANNED):
            self._last_foreign = version
        self._fold(version, entry)

    def _fold(self, version: int, entry: e.AnyEntry) -> None:
        """Every entry was checked on just these books when it was posted, so it must pass once more."""
        failing, _ = self.ledger.try_post([entry])
        if not failing:
            return
        self._differs(version, getattr(entry, "job", None), f"could not have been posted: {failing[0][1]}")
        if self._can_fold(entry):
            self.ledger.fold(entry)
        else:
            self.ledger.version += 1

    def _can_fold(self, entry: e.AnyEntry) -> bool:
        if isinstance(entry, e.Claimed):
            return entry.job not in self.ledger.claims and entry.share in self.ledger.shares
        if isinstance(entry, OF_CLAIM):
            known = not isinstance(entry, e.Moved) or entry.share in self.ledger.shares
            return entry.job in self.ledger.claims and known
        return not isinstance(entry, e.ReservationReleased) or entry.reservation in self.ledger.reservations

    # ── the record by itself ──────────────────────────────────────────────────────────────────────────────────────

    def _decide(self, version: int, record: AdmissionRecord) -> None:
        self.decided += 1
        verdict = decide(record)
        told = (record.admission_state, record.reason)
        if (verdict.state, verdict.reason) != told:
            again = f"{verdict.state} {verdict.reason or ''}".strip()
            self._differs(version, record.job, f"says {told[0]} {told[1] or ''}, decided again it is {again}")
        self._headline(version, record)
        asked = _asked(record)
        for row in record.quota_rows:
            if row.request != asked.get(row.kind):
                self._differs(version, record.job, f"{row.scope} is asked {row.request} {row.kind}, the nodes {asked}")

    def _headline(self, version: int, record: AdmissionRecord) -> None:
        """The fields for people and for SQL repeat the rows."""
        row = next((r for r in record.quota_rows if (r.scope, r.kind) == (record.scope, record.kind)), None)
        told = (record.quota_limit, record.quota_used, record.quota_remaining, record.request_quantity)
        if row is not None and told != (row.limit, row.used, row.remaining, row.request):
            shown = (row.limit, row.used, row.remaining, row.request)
            self._differs(version, record.job, f"headline {told} is not its row {shown}")
        elif row is None and record.quota_remaining != record.quota_limit - record.quota_used:
            self._differs(version, record.job, f"headline {told}: the rest is not limit − used")
        room = next((r for r in record.capacity_rows if r.kind == record.kind), None)
        free = (record.capacity_allocatable, record.reserved_by_others)
        if room is not None and free != (room.allocatable, room.reserved_by_others):
            self._differs(
                version, record.job, f"headline {free} is not its row {room.allocatable, room.reserved_by_others}"
            )

    # ── the record and its claim ──────────────────────────────────────────────────────────────────────────────────

    def _claim(self, version: int, entry: e.Claimed) -> None:
        record = entry.record
        told = [record.job, record.attempt, record.user, record.pool, record.model, record.workload]
        charged = [entry.job, entry.attempt, entry.user, entry.pool, entry.model, entry.workload]
        if not entry.continues:
            # What was admitted may have been moved and resized since; then the next attempt repeats the old record.
            told += [record.share, _asked(record), *self._drawing(record)]
            charged += [entry.share, entry.amounts, entry.reservation, entry.draws]
        if told != charged:
            self._differs(version, entry.job, f"claims {charged}, its record says {told}")

    def _drawing(self, record: AdmissionRecord) -> tuple[ReservationId | None, Amounts]:
        """What the books let a claim take from the reservation that its record names."""
        book = None if record.reservation is None else self.ledger.reservations.get(record.reservation)
        if book is None or book.state(record.decided_at_ms) != "active" or book.reservation.pool != record.pool:
            return None, {}
        kept = book.reservation
        mine = kept.share == record.share if kept.share is not None else kept.user == record.user
        draws = part(book, _asked(record)) if mine else {}
        return (record.reservation if draws else None), draws

    # ── the record and the books ──────────────────────────────────────────────────────────────────────────────────

    def _compare(self, version: int, entry: e.Claimed | e.Recorded, record: AdmissionRecord) -> None:
        if record.decided_at_ms != entry.at_ms:
            self._differs(version, record.job, f"was decided at {record.decided_at_ms}, posted at {entry.at_ms}")
        if record.pool is None or not record.quota_rows or record.share not in self.ledger.shares:
            return
        if not self._last_foreign <= record.books_version < version:
            seen = f"books of version {record.books_version}, they were changed in {self._last_foreign}"
            self._differs(version, record.job, f"was decided on {seen}")
            return
        self.compared += 1
        self._rows(version, record)
        self._exceptions(version, record)

    def _rows(self, version: int, record: AdmissionRecord) -> None:
        assert record.pool is not None
        ask = Ask(record.share, record.user, record.pool, record.workload, _asked(record))
        books = {(row.scope, row.kind): row for row in self.ledger.quota.rows(ask)}
        told = {(row.scope, row.kind): row for row in record.quota_rows}
        for scope, kind in {**books, **told}:
            if _facts(books.get((scope, kind))) != _facts(told.get((scope, kind))):
                was, now = _said(told.get((scope, kind))), _said(books.get((scope, kind)))
                self._differs(version, record.job, f"{scope} {kind}: {was}; the books say {now}")

    def _exceptions(self, version: int, record: AdmissionRecord) -> None:
        """The reservation it draws on, and who allowed an override."""
        book = None if record.reservation is None else self.ledger.reservations.get(record.reservation)
        lifecycle = "none" if book is None else book.state(record.decided_at_ms)
        if record.reservation_lifecycle != lifecycle:
            told = f"reservation {record.reservation} is {record.reservation_lifecycle}"
            self._differs(version, record.job, f"{told}; the books say {lifecycle}")
        assert record.pool is not None
        names = None
        if record.admission_state == "ADMITTED_OVERRIDE":
            names = authority(self.ledger, record.user, record.share, record.pool, record.decided_at_ms)
        if record.override_authority != names:
            self._differs(version, record.job, f"allowed by {record.override_authority}; the books say {names}")

    def _differs(self, version: int, job: JobId | None, what: str) -> None:
        self.found.append(Disagreement(version, job, what))


def verify(rows: Iterable[tuple[int, e.AnyEntry]]) -> Verifier:
    """All rows in order of version; see `Verifier`."""
    verifier = Verifier()
    for version, entry in rows:
        verifier.entry(version, entry)
    return verifier


def _asked(record: AdmissionRecord) -> dict[str, int]:
    return {row.kind: row.request for row in record.capacity_rows}


def _facts(row: QuotaRow | None) -> tuple[object, ...]:
    """What the books say of a ceiling."""
    return () if row is None else (row.limit, row.used, row.override, row.unauthorised, row.reason)


def _said(row: QuotaRow | None) -> str:
    if row is None:
        return "no such ceiling"
    return f"limit {row.limit}, used {row.used}, override {row.override}, unauthorised {row.unauthorised}, {row.reason}"
