"""The ledger with its store: the quota port. The quota actor wraps one; the simulator and the tests use it as it is.

It alone posts. Answers are remembered by plan id, because calls are re-run after a crash; an older epoch is fenced,
because an old scheduler survives the start of a new one."""

from collections.abc import Sequence

from raysched.core.entries import AnyEntry
from raysched.core.ledger import Ledger
from raysched.core.snapshot import Snapshot, restore
from raysched.runtime.memory import loading
from raysched.runtime.ports import About, Answer, Change, Posted, Refused, Stale, StoreFailed
from raysched.store.ports import LedgerTable


class QuotaBook:
    """Implements runtime.ports.Quota."""

    def __init__(self, table: LedgerTable) -> None:
        opening = table.opening()
        self.table, self.ledger = table, Ledger() if opening is None else restore(opening)
        with loading():
            while rows := list(table.read(self.ledger.version, 10_000)):
                for version, entry in rows:
                    self.ledger.fold(entry)
                    assert self.ledger.version == version, f"row {version} became version {self.ledger.version}"
        self._epoch = table.epoch()

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
        known = self.table.remembered(plan_id)
        if known is not None:
            return Posted(
                self.ledger.version, () if known == (version + 1, self.ledger.version) else self.read(version)
            )
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
        return Posted(self.ledger.version, () if before == version else self.read(version))

    def read(self, after: int = 0, limit: int = 1_000_000) -> tuple[Change, ...]:
        """See ports.Quota."""
        if after >= self.ledger.version:
            return ()
        return tuple(Change(version, entry) for version, entry in self.table.read(after, limit))

    def opening(self) -> Snapshot | None:
        """See ports.Quota."""
        return self.table.opening()

    def rows(self, about: About, after: int = 0, limit: int = 10_000) -> tuple[Change, ...]:
        """See ports.Quota."""
        return tuple(Change(version, entry) for version, entry in self.table.rows(about, after, limit))
