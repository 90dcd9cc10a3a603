"""Journal and ledger on disk that measure themselves: time inside them, commits, rows, claims of each post.

Each commit waits for the disk: `bare_sync_ms` is the yardstick of that in the same run."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

from msgspec import Struct, field

from raysched.core.entries import AnyEntry, Claimed
from raysched.core.events import AnyEvent
from raysched.store.journal import SqlJournal
from raysched.store.ledger_store import LedgerStore

SYNCS: Final = 100
PAGE: Final = bytes(4_096)  # what a commit writes at least


class Meter(Struct):
    """What the stores did: seconds inside them, commits, rows, and how many claims each post of the ledger carried."""

    seconds: float = 0.0
    commits: int = 0
    rows: int = 0
    claims: list[int] = field(default_factory=list)

    @contextmanager
    def commit(self, rows: int) -> Iterator[None]:
        """Count one commit and time it."""
        begun = perf_counter()
        yield
        self.seconds += perf_counter() - begun
        self.commits += 1
        self.rows += rows


class MeteredJournal(SqlJournal):
    """The journal on disk, with a meter."""

    def __init__(self, url: str, meter: Meter) -> None:
        self.meter = meter
        super().__init__(url)

    def append(self, events: Sequence[AnyEvent]) -> int:
        with self.meter.commit(len(events)):
            return super().append(events)


class MeteredLedger(LedgerStore):
    """The ledger on disk, with a meter."""

    def __init__(self, url: str, meter: Meter) -> None:
        self.meter = meter
        super().__init__(url)

    def append(self, plan_id: str | None, epoch: int, entries: Sequence[AnyEntry], first_version: int) -> None:
        with self.meter.commit(len(entries)):
            super().append(plan_id, epoch, entries, first_version)
        claims = sum(isinstance(entry, Claimed) for entry in entries)
        if claims:
            self.meter.claims.append(claims)


def bare_sync_ms(directory: Path) -> float:
    """Mean time of appending a page to a file in `directory` and waiting until it is durable."""
    with (directory / "sync").open("ab", buffering=0) as file:
        begun = perf_counter()
        for _ in range(SYNCS):
            file.write(PAGE)
            os.fdatasync(file.fileno())
        return (perf_counter() - begun) * 1_000 / SYNCS
