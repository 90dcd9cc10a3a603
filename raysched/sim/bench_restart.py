"""`raysched bench restart`: from nothing to the first plan, on a journal and a ledger on disk (goal G8)."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from msgspec import Struct

from raysched.core import events as ev
from raysched.core.decisions import CreateGang, Decision
from raysched.core.plan import plan
from raysched.runtime.loop import Loop
from raysched.runtime.ports import Gang
from raysched.runtime.quota_book import QuotaBook
from raysched.runtime.wall_clock import WallClock
from raysched.sim.bench_world import SHARES, USERS, World
from raysched.store.journal import SqlJournal
from raysched.store.ledger_store import LedgerStore


class Restarted(Struct):
    """A scheduler that starts again: seconds until it has recovered, and until its first plan is made."""

    jobs: int
    running: int
    nodes: int
    events: int
    entries: int
    recovered_s: float
    planned_s: float


class Quiet:
    """A cluster of which nothing is left but its name; what it is told does not matter here."""

    def perform(self, decisions: Iterable[Decision]) -> None:
        """Nothing."""

    def poll(self) -> list[ev.AnyEvent]:
        return []

    def observe(self) -> list[Gang]:
        return []

    def adopt(self, gangs: Iterable[CreateGang]) -> None:
        """Nothing."""


def restart(jobs: int, running: int, directory: Path, tell: Callable[[str], None] = lambda text: None) -> Restarted:
    """Write a journal of so many jobs, so many of them running, to disk, and start a scheduler on it (goal G8)."""
    nodes = max(100, running * 3 // 8)
    journal: list[ev.AnyEvent] = []
    url = f"sqlite:///{directory}/restart.db"
    tell("building")
    world = World(nodes, jobs, SHARES, USERS, LedgerStore(url), journal)
    while len(world.state.active) < running and world.tick()[0]:
        pass
    tell("writing")
    SqlJournal(url).append(journal)
    tell("starting again")
    begun = time.perf_counter()
    loop = Loop(WallClock(world.now_ms), SqlJournal(url), QuotaBook(LedgerStore(url)), Quiet())
    loop.recover()
    recovered = time.perf_counter()
    plan(loop.state, loop.ledger, loop.clock.now_ms())
    return Restarted(
        jobs=jobs,
        running=len(loop.state.active),
        nodes=nodes,
        events=len(journal),
        entries=loop.ledger.version,
        recovered_s=recovered - begun,
        planned_s=time.perf_counter() - begun,
    )
