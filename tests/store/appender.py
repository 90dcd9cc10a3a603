"""A process that appends until it is killed, and says after each batch that it was acknowledged.

Usage: python -m tests.store.appender URL journal|ledger SEED"""

import random
import sys
from collections.abc import Sequence

from raysched.core.entries import AnyEntry
from raysched.core.events import AnyEvent
from raysched.store.journal import SqlJournal
from raysched.store.ledger_store import LedgerStore
from tests.store.samples import alert, committed


def append_events(url: str, sizes: random.Random) -> None:
    """Batches of 1 to 300 events, each event naming its place and the size of its batch."""
    journal = SqlJournal(url)
    while True:
        size = sizes.randint(1, 300)
        acknowledge(journal.append([alert(f"{place}/{size}") for place in range(1, size + 1)]))


def append_entries(url: str, sizes: random.Random) -> None:
    """Plans of 1 to 300 entries; the attempt is the place in the batch, the job its size."""
    ledger = LedgerStore(url)
    while True:
        size, first = sizes.randint(1, 300), ledger.last_version() + 1
        entries = [committed(str(size), attempt=place) for place in range(1, size + 1)]
        ledger.append(f"plan{first}", 1, entries, first)
        acknowledge(ledger.last_version())


def acknowledge(number: int) -> None:
    """Tell the parent, as an answer to a client would."""
    print(number, flush=True)


def whole_event_batches(events: Sequence[AnyEvent]) -> bool:
    """Whether the events are a row of batches, none of them cut."""
    return _whole([tuple(map(int, event.text.split("/"))) for event in events])  # type: ignore[union-attr]


def whole_entry_batches(entries: Sequence[AnyEntry]) -> bool:
    """Whether the entries are a row of batches, none of them cut."""
    return _whole([(entry.attempt, int(entry.job)) for entry in entries])  # type: ignore[union-attr]


def _whole(marks: Sequence[tuple[int, ...]]) -> bool:
    at = 0
    while at < len(marks):
        size = marks[at][1]
        if list(marks[at : at + size]) != [(place, size) for place in range(1, size + 1)]:
            return False
        at += size
    return True


if __name__ == "__main__":
    {"journal": append_events, "ledger": append_entries}[sys.argv[2]](sys.argv[1], random.Random(int(sys.argv[3])))
