"""`raysched bench core`: decisions per second of the real plan, books and fold, at sizes nobody runs by hand.

First the empty cluster is filled from a long queue in one tick; then, tick by tick, CHURN jobs (at most a tenth of
those that run) end, as many are submitted, and others take their place. A decision is an admission or a recorded
refusal, with evidence, limits, quota, loans, reservations, placement and record, checked again when it is posted."""

import gc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from msgspec import Struct

from raysched.runtime.memory import loading, settle_in
from raysched.sim.bench_world import SHARES, USERS, World
from raysched.store.ledger_store import LedgerStore
from raysched.store.memory import MemoryLedgerStore
from raysched.store.ports import LedgerTable

CHURN = 200  # jobs that end between two ticks
TICKS = 50
PAGE = 4_096


class Measured(Struct):
    """One size. Rates are decisions per second: while the cluster is filled, and afterwards over all ticks. Ticks in
    milliseconds; bytes are of resident memory, per node and per waiting job."""

    nodes: int
    waiting: int
    store: str
    admitted: int = 0
    filling: float = 0.0
    steady: float = 0.0
    tick_p50_ms: float = 0.0
    tick_p99_ms: float = 0.0
    node_bytes: int = 0
    job_bytes: int = 0


def measure(
    nodes: int,
    waiting: int,
    *,
    ticks: int = TICKS,
    directory: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Measured:
    """Measure one size in this process. With `directory` the ledger is on disk there."""
    tell(f"{nodes} nodes: building")
    table: LedgerTable = (
        MemoryLedgerStore() if directory is None else LedgerStore(f"sqlite:///{directory}/bench-{nodes}.db")
    )
    found = Measured(nodes, waiting, "memory" if directory is None else "disk")
    before = _resident()
    with loading():
        world = World(nodes, 0, SHARES, USERS, table)
        gc.collect()
        found.node_bytes = (_resident() - before) // nodes
        before = _resident()
        for number in range(waiting):
            world.submit(number)
        found.job_bytes = (_resident() - before) // max(1, waiting)
    settle_in()
    tell(f"{nodes} nodes: filling")
    decisions, seconds = world.tick()
    found.admitted, found.filling = len(world.state.active), decisions / seconds
    _churn(world, found, ticks, tell)
    return found


def _churn(world: World, found: Measured, ticks: int, tell: Callable[[str], None]) -> None:
    decisions, times, submitted = 0, list[float](), found.waiting
    for number in range(ticks):
        ended = min(CHURN, max(1, len(world.state.active) // 10))
        world.end(ended)
        for _ in range(ended):
            world.submit(submitted)
            submitted += 1
        made, seconds = world.tick()
        decisions += made
        times.append(seconds)
        tell(f"{found.nodes} nodes: tick {number + 1} of {ticks}")
    if times:
        times.sort()
        found.steady = decisions / sum(times)
        found.tick_p50_ms = times[len(times) // 2] * 1_000
        found.tick_p99_ms = times[min(len(times) - 1, len(times) * 99 // 100)] * 1_000


def measure_apart(nodes: int, waiting: int, directory: Path | None = None, ticks: int = TICKS) -> Measured:
    """`measure` in a process of its own, so that sizes do not share memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(measure, nodes, waiting, directory=directory, ticks=ticks).result()


def _resident() -> int:
    """Bytes of memory this process holds."""
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * PAGE
