"""Crashes of the scheduler after a named step of a tick, made at its ports: the loop itself knows nothing of them.

polled      the cluster's news were taken and are lost
journaled   they are in the journal; nothing was planned
planned     a plan exists in memory only
posted      its entries are in the ledger, which the scheduler never heard
folded      its events are in the journal, nothing was ordered
performed   its decisions were given to the cluster"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from raysched.core.decisions import CreateGang, Decision
from raysched.core.entries import AnyEntry
from raysched.core.events import AnyEvent
from raysched.core.snapshot import Snapshot
from raysched.runtime.ports import About, Answer, Change, Cluster, Gang, Journal, Quota

CrashStep = Literal["polled", "journaled", "planned", "posted", "folded", "performed"]


class Crashed(BaseException):
    """The scheduler's process is gone. Not an Exception: nothing on the way may take it for a failure and go on."""


class CrashPoint:
    """Where the next crash happens; `step` None = nowhere. It waits for a tick in which the step does something.

    `taking`: the tick takes in news, and has not come to its plan."""

    def __init__(self) -> None:
        self.step: CrashStep | None = None
        self.in_tick = False
        self.taking = False

    def passed(self, step: CrashStep) -> None:
        """Raises Crashed if this is the step, inside a tick: commands post and journal too, and are no pass."""
        if self.in_tick and step == self.step:
            self.step, self.in_tick = None, False
            raise Crashed(step)


class CrashJournal:
    """A journal with crash points."""

    def __init__(self, journal: Journal, point: CrashPoint) -> None:
        self._journal, self._point = journal, point

    def append(self, events: Sequence[AnyEvent]) -> int:
        last = self._journal.append(events)
        if self._point.taking:
            self._point.passed("journaled")
        return last

    def read(self, after: int = 0) -> Iterator[tuple[int, AnyEvent]]:
        return self._journal.read(after)

    def put_blob(self, data: bytes) -> str:
        return self._journal.put_blob(data)

    def get_blob(self, digest: str) -> bytes | None:
        return self._journal.get_blob(digest)


class CrashQuota:
    """The quota port with crash points."""

    def __init__(self, quota: Quota, point: CrashPoint) -> None:
        self._quota, self._point = quota, point

    def open_epoch(self) -> int:
        return self._quota.open_epoch()

    def post(self, entries: Sequence[AnyEntry], version: int, epoch: int, plan_id: str) -> Answer:
        self._point.taking = False
        if entries:
            self._point.passed("planned")
        answer = self._quota.post(entries, version, epoch, plan_id)
        if entries:
            self._point.passed("posted")
        return answer

    def read(self, after: int = 0, limit: int = 10_000) -> tuple[Change, ...]:
        return self._quota.read(after, limit)

    def opening(self) -> Snapshot | None:
        return self._quota.opening()

    def rows(self, about: About, after: int = 0, limit: int = 10_000) -> tuple[Change, ...]:
        return self._quota.rows(about, after, limit)


class CrashCluster:
    """The cluster port with crash points. A tick begins with `poll`."""

    def __init__(self, cluster: Cluster, point: CrashPoint) -> None:
        self._cluster, self._point = cluster, point

    def poll(self) -> list[AnyEvent]:
        news = self._cluster.poll()
        self._point.in_tick = self._point.taking = True
        if news:
            self._point.passed("polled")
        return news

    def perform(self, decisions: Iterable[Decision]) -> None:
        ordered = list(decisions)
        if ordered:
            self._point.passed("folded")
        self._cluster.perform(ordered)
        if ordered:
            self._point.passed("performed")

    def observe(self) -> list[Gang]:
        return self._cluster.observe()

    def adopt(self, gangs: Iterable[CreateGang]) -> None:
        self._cluster.adopt(gangs)
