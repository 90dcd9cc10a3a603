"""Law 10: journal and ledger, read again in order, give the same state and the same plans, byte for byte."""

import msgspec

from raysched.core import events as ev
from raysched.core.ledger import Ledger
from raysched.core.plan import plan
from raysched.core.state import State
from raysched.core.transitions import apply
from raysched.store.memory import MemoryDisk


class Replay:
    """A second scheduler that only reads. At each TickStarted it folds the ledger up to that tick's version and plans:
    the entries must be those that follow in the ledger, the events those that follow in the journal."""

    def __init__(self, disk: MemoryDisk) -> None:
        self.disk = disk
        self.state, self.ledger = State(), Ledger()
        self.plans = 0
        self.differences: list[str] = []

    def run(self) -> "Replay":
        for number, event in enumerate(self.disk.events):
            if isinstance(event, ev.TickStarted):
                self._tick(number, event)
            apply(self.state, event)
        self._fold(len(self.disk.entries))
        return self

    def _fold(self, version: int) -> None:
        for entry in self.disk.entries[self.ledger.version : version]:
            self.ledger.fold(entry)

    def _tick(self, number: int, tick: ev.TickStarted) -> None:
        self._fold(tick.ledger_version)
        if self.ledger.version != tick.ledger_version:
            self.differences.append(f"event {number} was planned on version {tick.ledger_version}")
            return
        made = plan(self.state, self.ledger, tick.at_ms)
        self.plans += 1
        version = tick.ledger_version
        self._same(number, "entries", made.entries, tuple(self.disk.entries[version : version + len(made.entries)]))
        self._same(number, "events", made.events, tuple(self.disk.events[number + 1 : number + 1 + len(made.events)]))

    def _same(self, number: int, what: str, planned: tuple[object, ...], kept: tuple[object, ...]) -> None:
        if msgspec.json.encode(planned) != msgspec.json.encode(kept):
            self.differences.append(f"event {number}: {what} planned {planned}, kept {kept}")
