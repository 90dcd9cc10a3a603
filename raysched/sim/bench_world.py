"""A cluster of any size for measurements: N nodes, 50 shares, 2,000 users with limits, borrowing on, and a long queue.

Jobs ask for 1, 2, 4 or 8 GPUs at four priorities. A tick is a real one: plan, post with all checks, fold in the books
of the quota actor and of the scheduler, apply the events. Only Ray and the journal are left out."""

import time
from collections.abc import Iterator
from random import Random

from raysched.config import entries as book_entries
from raysched.config import parse_config
from raysched.core import events as ev
from raysched.core.entries import AnyEntry, Claimed, Recorded
from raysched.core.ledger import Ledger
from raysched.core.model import Bundle, JobId, JobSpec, NodeId, NodeSpec, PoolId, ShareId, UserId
from raysched.core.plan import drafted
from raysched.core.state import State
from raysched.core.transitions import apply
from raysched.runtime.ports import Posted
from raysched.runtime.quota_book import QuotaBook
from raysched.store.ports import LedgerTable

NODE = NodeSpec(8, "H100", 96_000, 1 << 40)
SIZES = ((1, 50), (2, 20), (4, 15), (8, 15))  # GPUs of a job, and how many of a hundred
SHARES, USERS = 50, 2_000


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
        for entry in posted:
            self.ledger.fold(entry)

    def tick(self) -> tuple[int, float]:
        """One plan, posted and folded: (decisions, seconds)."""
        self.now_ms += 1_000
        begun = time.perf_counter()
        made, draft = drafted(self.state, self.ledger, self.now_ms)
        self.plans += 1
        answer = self.book.post(made.entries, self.ledger.version, self.epoch, f"p{self.plans}")
        assert isinstance(answer, Posted), answer
        draft.keep()
        for entry in made.entries:
            self.ledger.fold_kept(entry)
        self.state.unsettled.clear()
        for event in made.events:
            self.fold(event)
        seconds = time.perf_counter() - begun
        return sum(isinstance(entry, Claimed | Recorded) for entry in made.entries), seconds

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
