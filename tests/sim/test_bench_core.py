"""The benches of the core do real work: what they count as decided is in the books, and a restart finds it all."""

from pathlib import Path

from raysched.core.check import check
from raysched.sim.bench_core import World, measure, restart
from raysched.store.memory import MemoryLedgerStore


def test_a_full_small_world_keeps_balanced_books() -> None:
    world = World(50, 400, 5, 40, MemoryLedgerStore())
    decided, _ = world.tick()
    world.end(20)
    world.tick()
    assert decided >= len(world.state.active) > 50
    assert check(world.state, world.ledger) == []


def test_every_decision_is_counted_on_disk_as_in_memory(tmp_path: Path) -> None:
    in_memory, on_disk = measure(50, 300, ticks=3), measure(50, 300, ticks=3, directory=tmp_path)
    assert in_memory.decisions == on_disk.decisions > 0


def test_a_restart_finds_every_running_job(tmp_path: Path) -> None:
    found = restart(500, 100, tmp_path)
    assert found.running >= 100
    assert found.events > 500
