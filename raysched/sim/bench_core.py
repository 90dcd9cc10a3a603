"""`raysched bench core`: decisions per second of the real plan, books and fold, at sizes nobody runs by hand.

A cluster of N nodes, 50 shares, 2,000 users with limits, borrowing on, and a long queue. First the empty cluster is
filled, then jobs end and others take their place. Each admission passes evidence, limits, quota, loans, reservations
and placement, and is posted, recorded and folded, as live."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random

from msgspec import Struct

from raysched.config import entries as book_entries
from raysched.config import parse_config
from raysched.core import events as ev
from raysched.core.decisions import CreateGang, Decision
from raysched.core.entries import AnyEntry
from raysched.core.ledger import Ledger
from raysched.core.model import Bundle, JobId, JobSpec, NodeId, NodeSpec, PoolId, ShareId, UserId
from raysched.core.plan import plan
from raysched.core.state import State
from raysched.core.transitions import apply
from raysched.runtime.loop import Loop
from raysched.runtime.ports import Gang, Posted
from raysched.runtime.quota_book import QuotaBook
from raysched.runtime.wall_clock import WallClock
from raysched.store.journal import SqlJournal
from raysched.store.ledger_store import LedgerStore
from raysched.store.memory import MemoryLedgerStore
from raysched.store.ports import LedgerTable

NODE = NodeSpec(8, "H100", 96_000, 1 << 40)
SIZES = ((1, 50), (2, 20), (4, 15), (8, 15))  # GPUs of a job, and how many of a hundred


class Measured(Struct):
    """One size. Times in seconds; `tick_p99_ms` is the 99th percentile of a whole tick."""

    nodes: int
    pending: int
    store: str
    decisions: int = 0
    seconds: float = 0.0
    ticks: int = 0
    tick_p99_ms: float = 0.0

    @property
    def per_second(self) -> float:
        """Decisions per second: admissions and recorded refusals, planned, posted and folded."""
        return self.decisions / self.seconds if self.seconds else 0.0


class World:
    """State, books and queue of one size."""

    def __init__(
        self,
        nodes: int,
        pending: int,
        shares: int,
        users: int,
        table: LedgerTable,
        journal: list[ev.AnyEvent] | None = None,
        seed: int = 1,
    ) -> None:
        self.random, self.journal = Random(seed), journal
        self.state, self.book = State(), QuotaBook(table)
        self.ledger, self.epoch, self.now_ms = Ledger(), self.book.open_epoch(), 1_000
        self.plans = 0
        self.shares, self.users = shares, users
        self._books(nodes)
        self._nodes(nodes)
        for number in range(pending):
            self.submit(number)

    def _books(self, nodes: int) -> None:
        each = nodes * 8 // self.shares
        share = {
            "nominal": {"main": {"gpu": each}},
            "sharing": {"strategy": "lend_and_borrow", "borrow_limit": "100%"},
            "queue": {"policy": "fifo_within_priority"},
            "limits": {"enabled": True, "default": {"gpu": max(64, each // 8)}},
        }
        config = parse_config(
            {
                "version": 1,
                "cluster": "bench",
                "defaults": {"max_creating": 1_000_000},
                "node_specs": {"h100": {"gpu": 8, "gpu_model": "H100", "cpu": 96, "memory": "1Ti"}},
                "pools": {"main": {"match": {"pool": "main"}}},
                "shares": {f"s{i}": dict(share) for i in range(self.shares)},
            }
        )
        self.post(book_entries(config, self.now_ms, "bench"))

    def _nodes(self, nodes: int) -> None:
        for number in range(nodes):
            name = NodeId(f"n{number:06d}")
            joined = ev.NodeJoined(at_ms=self.now_ms, node=name, ray_id=f"r{number}", spec=NODE, pool=PoolId("main"))
            self.fold(joined)
            self.fold(ev.NodeFresh(at_ms=self.now_ms, node=name))
            self.fold(ev.HealthChanged(at_ms=self.now_ms, node=name, health="healthy", why="bench"))

    def fold(self, event: ev.AnyEvent) -> None:
        """Fold an event, and keep it for a journal if one is kept."""
        if self.journal is not None:
            self.journal.append(event)
        apply(self.state, event)

    def submit(self, number: int) -> None:
        """One more job in the queue."""
        gpus = self.random.choices([size for size, _ in SIZES], [weight for _, weight in SIZES])[0]
        user = self.random.randrange(self.users)
        spec = JobSpec(
            job=JobId(f"j{number}"),
            user=UserId(f"u{user}"),
            share=ShareId(f"s{user % self.shares}"),
            bundles=(Bundle(gpus * 1_000, gpus * 8_000, gpus << 36),),
        )
        priority = self.random.randrange(3, 7)
        self.fold(ev.JobSubmitted(at_ms=self.now_ms + number, spec=spec, priority=priority))

    def post(self, posted: list[AnyEntry] | tuple[AnyEntry, ...]) -> None:
        """Post and fold, as the loop does."""
        self.plans += 1
        answer = self.book.post(posted, self.ledger.version, self.epoch, f"p{self.plans}")
        assert isinstance(answer, Posted), answer
        for change in answer.changes:
            self.ledger.fold(change.entry)

    def tick(self) -> tuple[int, float]:
        """One plan, posted and folded: (decisions, seconds)."""
        self.now_ms += 1_000
        begun = time.perf_counter()
        made = plan(self.state, self.ledger, self.now_ms)
        self.post(made.entries)
        self.state.unsettled.clear()
        for event in made.events:
            self.fold(event)
        return sum(
            type(entry).__name__ in ("Claimed", "Recorded") for entry in made.entries
        ), time.perf_counter() - begun

    def end(self, jobs: int) -> float:
        """Let that many running jobs start and end; returns the seconds of folding and settling them."""
        names = self.random.sample(sorted(self.state.active), min(jobs, len(self.state.active)))
        begun = time.perf_counter()
        for name in names:
            for event in self._life(name):
                self.fold(event)
        return time.perf_counter() - begun

    def _life(self, name: JobId) -> Iterator[ev.AnyEvent]:
        job = self.state.jobs[name]
        key = {"at_ms": self.now_ms, "job": name, "attempt": job.attempt}
        if job.gang == "creating":
            yield ev.GangReady(**key)  # type: ignore[arg-type]
            yield ev.StartOrdered(**key)  # type: ignore[arg-type]
            yield ev.AttemptStarted(**key)  # type: ignore[arg-type]
        yield ev.AttemptEnded(**key, outcome="succeeded", exit_code=0)  # type: ignore[arg-type]
        yield ev.RemoveOrdered(**key)  # type: ignore[arg-type]
        yield ev.GangRemoved(**key)  # type: ignore[arg-type]


def measure(
    nodes: int,
    pending: int,
    *,
    shares: int = 50,
    users: int = 2_000,
    ticks: int = 20,
    directory: Path | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Measured:
    """Fill the cluster, then let a hundredth of its jobs end per tick. With `directory` the ledger is on disk."""
    tell(f"{nodes} nodes: building")
    table: LedgerTable = (
        MemoryLedgerStore() if directory is None else LedgerStore(f"sqlite:///{directory}/bench-{nodes}.db")
    )
    world = World(nodes, pending, shares, users, table)
    found = Measured(nodes, pending, "memory" if directory is None else "disk")
    times: list[float] = []
    tell(f"{nodes} nodes: filling")
    for number in range(ticks):
        decisions, seconds = world.tick()
        found.decisions += decisions
        found.seconds += seconds
        times.append(seconds)
        world.end(max(1, len(world.state.active) // 100))
        tell(f"{nodes} nodes: tick {number + 1} of {ticks}")
    found.ticks = len(times)
    found.tick_p99_ms = sorted(times)[min(len(times) - 1, len(times) * 99 // 100)] * 1_000
    return found


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
    world = World(nodes, jobs, 50, 2_000, LedgerStore(url), journal)
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
