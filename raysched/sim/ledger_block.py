"""Many rows of a ledger, soon: a block that the real core decided, repeated later in time under other job names.

The block begins and ends with books that charge nobody, so what was decided in it holds in every repetition: each row
folds, and each decision can be made again. All that a repetition changes are job names, times and versions."""

from collections.abc import Iterator
from random import Random

from msgspec import Struct, structs

from raysched.core import entries as e
from raysched.core import events as ev
from raysched.core.model import FINAL, JobId, Share, UserId
from raysched.core.record import AdmissionRecord
from raysched.sim.bench_world import World
from raysched.store.memory import MemoryDisk, MemoryLedgerStore

YEAR_MS = 365 * 86_400_000
START_MS = 1_767_225_600_000  # 2026-01-01
NODES, SHARES, USERS = 250, 50, 400
WAITING = 400  # jobs in the queues of a full cluster: many are told why they wait
EDIT_EVERY = 20  # rounds between two edits of shares


class Block(Struct):
    """`books` come first and once, `body` is what repeats; `begun_ms` and `span_ms` of the body as it was decided."""

    books: list[e.AnyEntry]
    body: list[e.AnyEntry]
    begun_ms: int
    span_ms: int

    def rows(self, count: int, span_ms: int = YEAR_MS) -> Iterator[e.AnyEntry]:
        """`count` rows, spread over `span_ms` from START_MS."""
        yield from (structs.replace(entry, at_ms=START_MS) for entry in self.books[:count])
        left = count - len(self.books)
        period_ms = span_ms * len(self.body) // max(left, len(self.body))
        for copy in range(-(-left // len(self.body))):
            move = _Move(self, copy, period_ms)
            yield from map(move.entry, self.body[: left - copy * len(self.body)])


class _Move:
    """One repetition."""

    def __init__(self, block: Block, copy: int, period_ms: int) -> None:
        self._versions = copy * len(block.body)
        self._suffix = f"-{copy:04d}"
        self._from_ms, self._to_ms = block.begun_ms, START_MS + copy * period_ms
        self._span_ms, self._period_ms = max(1, block.span_ms), period_ms

    def entry(self, entry: e.AnyEntry) -> e.AnyEntry:
        at_ms = self._at(entry.at_ms)
        match entry:
            case e.Claimed():
                record = self._record(entry.record)
                return structs.replace(entry, at_ms=at_ms, job=record.job, record=record)
            case e.Recorded():
                return structs.replace(entry, at_ms=at_ms, record=self._record(entry.record))
            case e.Committed() | e.Released() | e.Voided():
                return structs.replace(entry, at_ms=at_ms, job=self._job(entry.job))
            case _:
                return structs.replace(entry, at_ms=at_ms)

    def _record(self, record: AdmissionRecord) -> AdmissionRecord:
        version, at_ms = record.books_version + self._versions, self._at(record.decided_at_ms)
        return structs.replace(record, job=self._job(record.job), decided_at_ms=at_ms, books_version=version)

    def _job(self, job: JobId) -> JobId:
        return JobId(job + self._suffix)

    def _at(self, ms: int) -> int:
        return self._to_ms + (ms - self._from_ms) * self._period_ms // self._span_ms


def decided(rows: int, seed: int = 1) -> Block:
    """A block of about so many rows: a full cluster with jobs that start, end and wait, and shares that are edited."""
    disk = MemoryDisk()
    world = World(NODES, 0, SHARES, USERS, MemoryLedgerStore(disk), seed=seed)
    books, begun_ms = len(disk.entries), world.now_ms
    churn = _Churn(world, Random(seed))
    while len(disk.entries) < books + rows:
        churn.round(submitting=True)
    churn.restore_shares()
    while any(job.state not in FINAL for job in world.state.jobs.values()):
        churn.round(submitting=False)
    body = disk.entries[books:]
    return Block(disk.entries[:books], body, begun_ms, body[-1].at_ms - begun_ms + 1_000)


class _Churn:
    """A cluster at work, in rounds."""

    def __init__(self, world: World, random: Random) -> None:
        self.world, self.random = world, random
        self.submitted = self.rounds = 0
        self.edited: dict[str, Share] = {}

    def round(self, submitting: bool) -> None:
        """Jobs arrive, the plan is made, groups become ready, jobs end."""
        world = self.world
        if submitting:
            for _ in range(WAITING - self._waiting()):
                self.submitted += 1
                world.submit(self.submitted)
            if self.rounds % EDIT_EVERY == 0:
                self._edit()
        self.rounds += 1
        world.tick()
        for name in sorted(world.state.active):
            self._go_on(name, 0.1 if submitting else 1.0)

    def _waiting(self) -> int:
        return sum(job.state == "queued" for job in self.world.state.jobs.values())

    def _go_on(self, name: JobId, ending: float) -> None:
        """What the cluster would tell of one attempt next."""
        job, now_ms = self.world.state.jobs[name], self.world.now_ms
        attempt = job.attempt
        if job.gang == "creating":
            self.world.fold(ev.GangReady(at_ms=now_ms, job=name, attempt=attempt))
        elif job.gang == "removing":
            self.world.fold(ev.GangRemoved(at_ms=now_ms, job=name, attempt=attempt))
        elif job.state == "starting":
            self.world.fold(ev.AttemptStarted(at_ms=now_ms, job=name, attempt=attempt))
        elif job.state == "running" and job.ended is None and self.random.random() < ending:
            ended = ev.AttemptEnded(at_ms=now_ms, job=name, attempt=attempt, outcome="succeeded", exit_code=0)
            self.world.fold(ended)

    def _edit(self) -> None:
        share = self.random.choice(sorted(self.world.ledger.shares.values(), key=lambda share: share.share))
        self.edited.setdefault(share.share, share)
        self._post(structs.replace(share, weight=self.random.randrange(1, 100)))

    def restore_shares(self) -> None:
        """Every share as it was in the beginning."""
        for _, share in sorted(self.edited.items()):
            self._post(share)

    def _post(self, share: Share) -> None:
        self.world.post([e.ShareSet(at_ms=self.world.now_ms, by=UserId("admin"), share=share)])
