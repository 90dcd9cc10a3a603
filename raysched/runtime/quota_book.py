"""The ledger with its store: the quota port. The quota actor wraps one; the simulator and the tests use it as it is.

It alone posts. Answers are remembered by plan id, because calls are re-run after a crash; an older epoch is fenced,
because an old scheduler survives the start of a new one."""

from collections import deque
from collections.abc import Sequence

from raysched.core.entries import AnyEntry
from raysched.core.ledger import Ledger
from raysched.runtime.ports import Answer, Change, Posted, Refused, Stale, StoreFailed
from raysched.store.ports import LedgerTable

RECENT = 50_000  # changes kept in memory for schedulers that are a little behind


class QuotaBook:
    """Implements runtime.ports.Quota."""

    def __init__(self, table: LedgerTable) -> None:
        self.table, self.ledger = table, Ledger()
        self._recent: deque[Change] = deque(maxlen=RECENT)
        after = 0
        while True:
            rows = list(table.read(after, 10_000))
            for version, entry in rows:
                self._fold(version, entry)
            if not rows:
                break
            after = rows[-1][0]
        self._epoch = table.epoch()

    def _fold(self, version: int, entry: AnyEntry) -> None:
        self.ledger.fold(entry)
        assert self.ledger.version == version, f"ledger row {version} follows version {self.ledger.version - 1}"
        self._recent.append(Change(version, entry))

    def open_epoch(self) -> int:
        """See ports.Quota."""
        self._epoch = self.table.open_epoch()
        return self._epoch

    def post(self, entries: Sequence[AnyEntry], version: int, epoch: int, plan_id: str) -> Answer:
        """See ports.Quota."""
        if epoch < self._epoch:
            return Refused(
                "FENCED", f"epoch {epoch} is over: a scheduler of epoch {self._epoch} runs", self.ledger.version
            )
        if self.table.remembered(plan_id) is not None:
            return Posted(self.ledger.version, self.read(version))
        before = self.ledger.version
        failing, undo = self.ledger.try_post(entries)
        if failing:
            return Stale(before, tuple(failing), self.read(version))
        if entries:
            try:
                self.table.append(plan_id, epoch, entries, before + 1)
            except StoreFailed as failed:
                undo()
                return Refused("STORE", str(failed), before)
            self._recent.extend(Change(before + 1 + i, entry) for i, entry in enumerate(entries))
        return Posted(self.ledger.version, self.read(version))

    def read(self, after: int = 0, limit: int = 1_000_000) -> tuple[Change, ...]:
        """See ports.Quota."""
        if after >= self.ledger.version:
            return ()
        if self._recent and self._recent[0].version <= after + 1:
            skip = after + 1 - self._recent[0].version
            return tuple(self._recent[i] for i in range(skip, min(len(self._recent), skip + limit)))
        return tuple(Change(version, entry) for version, entry in self.table.read(after, limit))
