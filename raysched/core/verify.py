"""Deciding every stored row again: does the verdict follow from the row, and the row from the books before it?

Walks the ledger in order. A record whose fields were edited contradicts itself or the books as they were; one that was
edited consistently is found by the store's chain of digests."""

from collections.abc import Iterable

from msgspec import Struct

from raysched.core import entries as e
from raysched.core.admission import decide
from raysched.core.ledger import Ledger
from raysched.core.model import JobId
from raysched.core.quota import Ask
from raysched.core.record import AdmissionRecord, QuotaRow

# Entries of one plan: the books a record was decided on are those before it, if only these lie between.
PLANNED = (e.Claimed, e.Recorded, e.Released, e.Committed, e.Voided, e.Expired)


class Disagreement(Struct, frozen=True):
    """A row that does not agree: its version, the job, and what differs."""

    version: int
    job: JobId
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
        record = entry.record if isinstance(entry, e.Claimed | e.Recorded) else None
        if record is not None:
            continues = isinstance(entry, e.Claimed) and entry.continues
            self._decide(version, record)
            if not continues and not record.refused and self._last_foreign <= record.books_version:
                self._compare(version, entry, record)
        if not isinstance(entry, PLANNED):
            self._last_foreign = version
        self.ledger.fold(entry)

    def _decide(self, version: int, record: AdmissionRecord) -> None:
        self.decided += 1
        verdict = decide(record)
        told = (record.admission_state, record.reason)
        if (verdict.state, verdict.reason) != told:
            again = f"{verdict.state} {verdict.reason or ''}".strip()
            self._differs(version, record, f"says {told[0]} {told[1] or ''}, decided again it is {again}")
        row = next((r for r in record.quota_rows if (r.scope, r.kind) == (record.scope, record.kind)), None)
        headline = (record.quota_limit, record.quota_used, record.quota_remaining, record.request_quantity)
        if row is not None and headline != (row.limit, row.used, row.remaining, row.request):
            shown = (row.limit, row.used, row.remaining, row.request)
            self._differs(version, record, f"headline {headline} is not its row {shown}")

    def _compare(self, version: int, entry: e.AnyEntry, record: AdmissionRecord) -> None:
        if record.pool is None or record.share not in self.ledger.shares:
            return
        self.compared += 1
        self.ledger.advance(entry.at_ms)
        for row in record.quota_rows:
            now = self._row(record, row)
            if now is None:
                self._differs(version, record, f"{row.scope} bounds no {row.kind} in the books")
            elif (now.limit, now.used, now.override) != (row.limit, row.used, row.override):
                books = f"limit {now.limit}, used {now.used}, override {now.override}"
                told = f"limit {row.limit}, used {row.used}, override {row.override}"
                self._differs(version, record, f"{row.scope} {row.kind}: {told}; the books say {books}")
        if isinstance(entry, e.Claimed) and entry.amounts != _asked(record):
            self._differs(version, record, f"claims {entry.amounts}, the record asked {_asked(record)}")

    def _row(self, record: AdmissionRecord, row: QuotaRow) -> QuotaRow | None:
        assert record.pool is not None
        ask = Ask(record.share, record.user, record.pool, record.workload, _asked(record))
        return next(
            (now for now in self.ledger.quota.rows(ask) if (now.scope, now.kind) == (row.scope, row.kind)), None
        )

    def _differs(self, version: int, record: AdmissionRecord, what: str) -> None:
        self.found.append(Disagreement(version, record.job, what))


def verify(rows: Iterable[tuple[int, e.AnyEntry]]) -> Verifier:
    """All rows in order of version; see `Verifier`."""
    verifier = Verifier()
    for version, entry in rows:
        verifier.entry(version, entry)
    return verifier


def _asked(record: AdmissionRecord) -> dict[str, int]:
    return {row.kind: row.request for row in record.capacity_rows}
