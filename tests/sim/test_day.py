"""The ledger of a simulated day: every row decided again, live and from a database, and one edited row found."""

from pathlib import Path

import pytest
from msgspec import structs

from raysched.core.check import check
from raysched.core.entries import Claimed, Recorded
from raysched.core.verify import verify
from raysched.sim.simulation import Simulation
from raysched.store.ledger_store import LedgerStore
from tests.sim.day import day


def states(sim: Simulation) -> set[tuple[str, str | None]]:
    """Every verdict of the day."""
    records = [entry.record for entry in sim.disk.entries if isinstance(entry, Claimed | Recorded)]
    return {(record.admission_state, record.reason) for record in records}


def agrees(sim: Simulation, tmp_path: Path) -> int:
    """Verify the day; returns how many decisions were made again."""
    entries = list(enumerate(sim.disk.entries, 1))
    found = verify(entries)
    assert found.found == []
    assert check(sim.service.state, sim.service.ledger) == []
    table = LedgerStore(f"sqlite:///{tmp_path}/day.db")
    for first in range(0, len(entries), 5_000):
        table.append(f"plan-{first}", 1, [entry for _, entry in entries[first : first + 5_000]], first + 1)
    assert table.verify_chain() == []
    table.close()
    middle = next(n for n, (_, entry) in enumerate(entries) if n > len(entries) // 2 and isinstance(entry, Claimed))
    version, claim = entries[middle]
    assert isinstance(claim, Claimed)
    record = structs.replace(claim.record, quota_used=claim.record.quota_used + 1)
    entries[middle] = (version, structs.replace(claim, record=record))
    assert [each.version for each in verify(entries).found] == [version]
    return found.decided


def test_a_small_day_agrees(tmp_path: Path) -> None:
    sim = day(jobs=250)
    assert agrees(sim, tmp_path) > 200
    assert {state for state, _ in states(sim)} >= {"ADMITTED", "QUEUED"}


@pytest.mark.slow
def test_a_day_of_ten_thousand_jobs_agrees(tmp_path: Path) -> None:
    sim = day(jobs=10_000)
    assert agrees(sim, tmp_path) > 9_000
    reasons = {reason for _, reason in states(sim)}
    assert reasons >= {"USER_LIMIT", "SHARE_QUOTA", "BORROW_LIMIT", "NO_LENDER", "RESERVED", "NO_CAPACITY"}
