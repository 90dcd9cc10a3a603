"""One scheduler under a virtual clock: the real service, loop, books and core over a simulated cluster.

`step` jumps to the next moment at which anything can happen; a pass follows every event."""

from collections.abc import Callable

from msgspec import Struct

from raysched.config import ClusterConfig
from raysched.core.model import JobId, NodeId, NodeSpec, PoolId
from raysched.runtime.inbox import Inbox
from raysched.runtime.loop import Loop
from raysched.runtime.ports import Journal
from raysched.runtime.quota_book import QuotaBook
from raysched.runtime.service import Service
from raysched.sim.cluster import Delays, SimClock, SimCluster, SimNode
from raysched.sim.crash import CrashCluster, Crashed, CrashJournal, CrashPoint, CrashQuota, CrashStep
from raysched.store.memory import MemoryDisk, MemoryJournal, MemoryLedgerStore
from raysched.store.ports import LedgerTable

REPORT_EVERY_MS = 5_000
ROUNDS = 200  # ticks at one moment before something must be wrong: a plan that never comes to rest


class Runtime(Struct):
    """How long a job runs in all and how often it checkpoints; `done_ms` is what it would resume from."""

    runtime_ms: int | None
    checkpoint_every_ms: int | None = None
    done_ms: int = 0


class Stores(Struct):
    """How journal and ledger are opened, at the start and after each crash, when not `Simulation.disk` keeps them."""

    journal: Callable[[], Journal]
    ledger: Callable[[], LedgerTable]


class Simulation:
    """A cluster with its scheduler. `disk` is what outlives a crash of either actor, unless `stores` keep it."""

    def __init__(
        self,
        config: ClusterConfig,
        start_ms: int,
        through_codec: bool = False,
        stores: Stores | None = None,
        delays: Delays = Delays(),
    ) -> None:
        self.config, self.start_ms = config, start_ms
        self.clock = SimClock(start_ms)
        self.disk = MemoryDisk()
        self.stores = stores or Stores(
            lambda: MemoryJournal(self.disk, through_codec), lambda: MemoryLedgerStore(self.disk, through_codec)
        )
        self.runtimes: dict[JobId, Runtime] = {}
        self.crash = CrashPoint()
        self.cluster = SimCluster(self.clock, self._tell, self._runtime_ms, self._ran, delays, self._keep_alive)
        self.quota = QuotaBook(self.stores.ledger())
        self.service = self._start()
        self.service.fill(config)
        self._due_ms: int | None = start_ms
        self._at_rest: tuple[int, int] | None = None

    def _start(self) -> Service:
        journal = CrashJournal(self.stores.journal(), self.crash)
        quota, cluster = CrashQuota(self.quota, self.crash), CrashCluster(self.cluster, self.crash)
        loop = Loop(self.clock, journal, quota, cluster)
        loop.recover()
        return Service(loop, self.config, self.start_ms)

    # ── crashes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def restart_scheduler(self) -> None:
        """Kill the scheduler and start another from journal and ledger; nodes and agents report to the new one."""
        self.service = self._start()
        self._due_ms = self.clock.now_ms()
        self.cluster.announce()
        for node in self.cluster.nodes.values():
            if node.speaks:
                self._tell([node.report()])

    def restart_quota(self) -> None:
        """Kill the quota actor and start another from its store."""
        self.quota = QuotaBook(self.stores.ledger())
        self.service.loop.quota = CrashQuota(self.quota, self.crash)

    def crash_at(self, step: CrashStep) -> None:
        """Crash the scheduler, and start another, after `step` of the next tick in which that step does something."""
        self.crash.step = step

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        """Let everything happen that follows at this moment."""
        for _ in range(ROUNDS):
            self.cluster.advance()
            self._listen()
            if (self._tick() or not self._has_news()) and not self._is_due():
                self._at_rest = self._told()
                return
        raise RuntimeError(f"the plan does not come to rest at {self.clock.now_ms()} ms")

    def next_ms(self) -> int | None:
        """When the next thing will happen by itself; None: never, if nobody does anything."""
        if self._is_stirred():
            return self.clock.now_ms()
        return min((at for at in (self._due_ms, self.cluster.next_ms()) if at is not None), default=None)

    def _told(self) -> tuple[int, int]:
        return self.service.state.seq, self.service.ledger.version

    def _has_news(self) -> bool:
        """Whether another tick at this moment would hear anything; a plan has nothing to add to its last by itself."""
        return self.cluster.has_news or self.service.loop.inbox.has_news

    def _is_stirred(self) -> bool:
        """Whether anything was told or done since the last rest."""
        return self._at_rest != self._told() or self._has_news() or self._is_due()

    def _tick(self) -> bool:
        """One tick; returns whether nothing came of it."""
        before = self.service.state.seq
        try:
            self._due_ms = self._needed(self.service.tick())
        except Crashed:
            self.restart_scheduler()
            return False
        finally:
            self.crash.in_tick = False
        return self.service.state.seq == before

    def _is_due(self) -> bool:
        due = (self._due_ms, self.cluster.next_ms())
        return any(at is not None and at <= self.clock.now_ms() for at in due)

    def _needed(self, due_ms: int | None) -> int | None:
        """When to tick again. The inbox asks for every node's next report; while all nodes speak, or what their silence
        means is known, nothing would come of it: then only the plan's own time counts, and a year passes quickly."""
        loop = self.service.loop
        if loop.last is None or loop.store_error is not None or due_ms is None or due_ms <= self.clock.now_ms():
            return due_ms
        for name in self.cluster.mute:
            known = loop.state.nodes.get(name)
            if known is not None and known.reported and not (known.silent_ms and known.stale):
                return due_ms
        return loop.last.wake_ms

    def run_until(self, until_ms: int) -> None:
        """Go on to `until_ms`, stopping wherever something happens."""
        self.go_to(until_ms)
        self._keep_alive()

    def go_to(self, until_ms: int) -> None:
        """As `run_until`, but when nodes last reported is not brought up to date for readers: that costs a look at
        every node."""
        if self._is_stirred():
            self.settle()
        while (next_ms := self.next_ms()) is not None and next_ms < until_ms:
            self.clock.at_ms = max(next_ms, self.clock.at_ms + 1)
            self.settle()
        self.clock.at_ms = max(until_ms, self.clock.at_ms)
        if self._is_stirred():
            self.settle()

    def _listen(self) -> None:
        """Agents that speak have reported, as far as it matters: where silence would now become a fact."""
        due_ms = self.service.loop.inbox.next_due_ms()
        if due_ms is not None and due_ms <= self.clock.now_ms():
            self._keep_alive()

    def _keep_alive(self) -> None:
        inbox: Inbox = self.service.loop.inbox
        inbox.heard(self.cluster.keep_alive(), self.clock.now_ms() // REPORT_EVERY_MS * REPORT_EVERY_MS)

    # ── nodes and jobs ────────────────────────────────────────────────────────────────────────────────────────────

    def add_node(self, name: str, pool: str, spec: NodeSpec, reporting: bool = True) -> None:
        """A host joins in `pool`."""
        self.cluster.add(SimNode(NodeId(name), PoolId(pool), spec, {"pool": pool}, reporting=reporting))

    def _tell(self, reports: list[dict[str, object]]) -> None:
        self.service.report(reports)

    def _runtime_ms(self, job: JobId) -> int | None:
        found = self.runtimes.get(job)
        if found is None or found.runtime_ms is None:
            return None
        return max(0, found.runtime_ms - found.done_ms)

    def _ran(self, job: JobId, ms: int) -> None:
        found = self.runtimes.get(job)
        if found is not None and found.checkpoint_every_ms:
            whole = (found.done_ms + ms) // found.checkpoint_every_ms
            found.done_ms = whole * found.checkpoint_every_ms
