"""kill -9 in the middle of appends: every acknowledged batch is there, and no half of one."""

import random
import subprocess
import sys

import pytest

from raysched.store.journal import SqlJournal
from raysched.store.ledger_store import LedgerStore
from tests.store.appender import whole_entry_batches, whole_event_batches
from tests.store.samples import alert, committed

ROUNDS = 5


def acknowledged_before_kill(url: str, table: str, seed: int) -> int:
    """Run the appender, kill it after some acknowledgements; the last number it was told is durable."""
    command = [sys.executable, "-m", "tests.store.appender", url, table, str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(random.Random(seed).randint(1, 40)):
            line = process.stdout.readline()
            assert line, "the appender ended by itself"
        process.kill()
        # What it still said before it died counts: it was answered.
        lines = [line, *process.stdout.read().splitlines()]
    return int([each for each in lines if each.strip()][-1])


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_acknowledged_events_survive_and_batches_stay_whole(any_url: str, seed: int) -> None:
    acknowledged = [acknowledged_before_kill(any_url, "journal", seed * 10 + life) for life in range(2)]

    journal = SqlJournal(any_url)
    events = [event for _, event in journal.read()]

    assert acknowledged[0] < acknowledged[1] <= len(events) == journal.last_seq()
    assert whole_event_batches(events)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_acknowledged_plans_survive_and_batches_stay_whole(any_url: str, seed: int) -> None:
    acknowledged = [acknowledged_before_kill(any_url, "ledger", seed * 10 + life) for life in range(2)]

    ledger = LedgerStore(any_url)
    entries = [entry for _, entry in ledger.read(limit=10**9)]

    assert acknowledged[0] < acknowledged[1] <= len(entries) == ledger.last_version()
    assert whole_entry_batches(entries)
    assert ledger.verify_chain() == []
    first_of_last = ledger.last_version() - int(entries[-1].job) + 1  # type: ignore[union-attr]
    assert ledger.remembered(f"plan{first_of_last}") == (first_of_last, ledger.last_version())


def test_the_check_for_whole_batches_can_fail() -> None:
    assert whole_event_batches([alert("1/2"), alert("2/2"), alert("1/1")])
    assert not whole_event_batches([alert("1/2"), alert("2/2"), alert("1/2")])
    assert not whole_entry_batches([committed("2", attempt=2)])
