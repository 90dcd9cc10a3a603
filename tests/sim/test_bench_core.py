"""The benches of the core do real work: what they count as decided is in the books, and a restart finds it all."""

from pathlib import Path

import pytest

from raysched.core.check import check
from raysched.sim.bench_core import measure, measure_apart
from raysched.sim.bench_picture import draw_growth
from raysched.sim.bench_restart import restart
from raysched.sim.bench_world import World
from raysched.store.memory import MemoryLedgerStore


def test_a_full_small_world_keeps_balanced_books() -> None:
    world = World(50, 400, 5, 40, MemoryLedgerStore())
    decided, _ = world.tick()
    world.end(20)
    world.tick()
    assert decided >= len(world.state.active) > 50
    assert check(world.state, world.ledger) == []


def test_as_much_is_admitted_on_disk_as_in_memory_and_in_a_process_of_its_own(tmp_path: Path) -> None:
    here, there = measure(50, 300, ticks=2), measure_apart(50, 300, tmp_path, ticks=2)
    assert here.admitted == there.admitted > 50
    assert (here.store, there.store) == ("memory", "disk")
    assert there.job_bytes > 0


def test_a_restart_finds_every_running_job(tmp_path: Path) -> None:
    found = restart(500, 100, tmp_path)
    assert found.running >= 100
    assert found.events > 500


def test_growth_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw_growth([measure(nodes, 300, ticks=1) for nodes in (50, 60)], tmp_path / "growth.svg")
    assert "<svg" in (tmp_path / "growth.svg").read_text()
