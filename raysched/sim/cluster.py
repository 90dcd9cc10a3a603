"""A simulated cluster and its agents behind the port that Ray has in production.

Groups are ready 100 ms after they are ordered, attempts run 200 ms later (`Delays`) and for as long as the simulation
says; a stopped attempt uses its whole grace unless it was cancelled or resized. A node can fail by a signal, fall
silent, or die; agents report on every change and count as reporting every 5 s in between."""

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from itertools import count

from msgspec import Struct, field

from raysched.core import events as ev
from raysched.core.decisions import CreateGang, Decision, RemoveGang, StartAttempt, StopAttempt
from raysched.core.model import JobId, NodeId, NodeSpec, Placement, PoolId, placement_nodes
from raysched.runtime.inbox import Report
from raysched.runtime.ports import Gang

CREATE_DEADLINE_MS = 5_000
DEATHS = ("ray_dead", "power_off", "node_dead", "node_lost")  # signals that end everything on the node at once


class Delays(Struct, frozen=True):
    """How long the cluster takes until a group that was ordered is ready, until an attempt that was started runs, and
    until a group is removed."""

    ready_ms: int = 100
    start_ms: int = 200
    remove_ms: int = 50


class SimClock:
    """The time of the simulation, in milliseconds since the epoch."""

    def __init__(self, start_ms: int) -> None:
        self.at_ms = start_ms

    def now_ms(self) -> int:
        return self.at_ms


class SimNode(Struct):
    """A host. `alive`: its Ray node is; `reporting`: its agent is."""

    node: NodeId
    pool: PoolId
    spec: NodeSpec
    labels: dict[str, str]
    alive: bool = True
    reporting: bool = True
    signals: dict[str, str] = field(default_factory=dict)
    boots: int = 1
    joins: int = 1  # a reset alone gives it no new Ray id

    @property
    def speaks(self) -> bool:
        return self.alive and self.reporting

    def report(self) -> Report:
        """What its agent tells: its whole state."""
        evidence = [
            {"signal": signal, "class": "FATAL", "detail": detail, "gpu": None, "since_ms": 0}
            for signal, detail in sorted(self.signals.items())
        ]
        return {
            "node": self.node,
            "boot_id": f"boot-{self.boots}",
            "spec": {"gpu_model": self.spec.gpu_model},
            "measured": True,
            "evidence": evidence,
            "attempts": [],
        }


class SimAttempt(Struct):
    """An attempt as the cluster has it."""

    order: CreateGang
    ready: bool = False
    started: bool = False
    failed: ev.GangFailed | None = None
    ended: ev.AttemptEnded | None = None
    began_ms: int = 0


class SimCluster:
    """Implements runtime.ports.Cluster. `runtime_ms` says how long an attempt that begins now will run (None: until it
    is told to end); `ran` is told how long one has run; `muting` is called before a node falls silent. `mute`:
    the nodes whose agents do not speak."""

    def __init__(
        self,
        clock: SimClock,
        tell: Callable[[list[Report]], None],
        runtime_ms: Callable[[JobId], int | None],
        ran: Callable[[JobId, int], None],
        delays: Delays = Delays(),
        muting: Callable[[], None] = lambda: None,
    ) -> None:
        self.clock, self.tell, self.runtime_ms, self.ran = clock, tell, runtime_ms, ran
        self.delays, self.muting = delays, muting
        self.nodes: dict[NodeId, SimNode] = {}
        self.mute: set[NodeId] = set()
        self.attempts: dict[tuple[JobId, int], SimAttempt] = {}
        self._removed: dict[tuple[JobId, int], Placement] = {}
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = count()
        self._news: list[ev.AnyEvent] = []

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def next_ms(self) -> int | None:
        """When the next thing will happen by itself."""
        return self._heap[0][0] if self._heap else None

    def advance(self) -> None:
        """Let everything happen that is due."""
        while self._heap and self._heap[0][0] <= self.clock.at_ms:
            heappop(self._heap)[2]()

    def _later(self, ms: int, what: Callable[[], None]) -> None:
        heappush(self._heap, (self.clock.at_ms + ms, next(self._count), what))

    # ── the port ──────────────────────────────────────────────────────────────────────────────────────────────────

    def perform(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            key = (decision.job, decision.attempt)
            match decision:
                case CreateGang():
                    if key not in self.attempts:
                        self.attempts[key] = SimAttempt(decision)
                        self._later(self.delays.ready_ms, lambda key=key: self._ready(key))  # type: ignore[misc]
                case StartAttempt():
                    self._later(self.delays.start_ms, lambda key=key: self._start(key))  # type: ignore[misc]
                case StopAttempt(grace_ms=grace_ms, why=why):
                    wait = 0 if why in ("cancelled", "resized", "node_failed") else grace_ms
                    self._later(wait, lambda key=key: self._end(key, "stopped"))  # type: ignore[misc]
                case RemoveGang():
                    self._later(self.delays.remove_ms, lambda key=key: self._remove(key))  # type: ignore[misc]

    @property
    def has_news(self) -> bool:
        """Whether `poll` would tell anything."""
        return bool(self._news)

    def poll(self) -> list[ev.AnyEvent]:
        news, self._news = self._news, []
        return news

    def observe(self) -> list[Gang]:
        return [
            Gang(job, attempt, found.ready, found.started and not found.ended)
            for (job, attempt), found in sorted(self.attempts.items())
        ]

    def adopt(self, gangs: Iterable[CreateGang]) -> None:
        """News that came while nobody listened is told again."""
        for gang in gangs:
            found = self.attempts.get((gang.job, gang.attempt))
            if found is None:
                continue
            at_ms = self.clock.at_ms
            if found.ready:
                self._news.append(ev.GangReady(at_ms=at_ms, job=gang.job, attempt=gang.attempt))
            if found.started and not found.ended:
                self._news.append(ev.AttemptStarted(at_ms=at_ms, job=gang.job, attempt=gang.attempt))
            if found.failed is not None:
                self._news.append(found.failed)
            if found.ended is not None:
                self._news.append(found.ended)

    def announce(self) -> None:
        """Tell a new listener of every node, as Ray's node table does."""
        for node in self.nodes.values():
            self._joined(node)
            if not node.alive:
                self._news.append(ev.NodeGone(at_ms=self.clock.at_ms, node=node.node, detail="node_dead"))

    # ── attempts ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_dead_node(self, order: CreateGang) -> bool:
        return any(n not in self.nodes or not self.nodes[n].alive for n in placement_nodes(order.placement))

    def _ready(self, key: tuple[JobId, int]) -> None:
        found = self.attempts.get(key)
        if found is None or found.ended:
            return
        job, attempt = key
        if self._on_dead_node(found.order):
            late = max(0, CREATE_DEADLINE_MS - self.delays.ready_ms)
            self._later(late, lambda: self._never(key, "a node of the placement is gone"))
            return
        found.ready = True
        self._news.append(ev.GangReady(at_ms=self.clock.at_ms, job=job, attempt=attempt))

    def _never(self, key: tuple[JobId, int], detail: str) -> None:
        found = self.attempts.get(key)
        if found is not None and not found.ended and not found.ready:
            found.failed = ev.GangFailed(at_ms=self.clock.at_ms, job=key[0], attempt=key[1], detail=detail)
            self._news.append(found.failed)

    def _start(self, key: tuple[JobId, int]) -> None:
        found = self.attempts.get(key)
        if found is None or found.started or found.ended or not found.ready:
            return
        if self._on_dead_node(found.order):
            self._end(key, "node_lost")
            return
        found.started, found.began_ms = True, self.clock.at_ms
        devices = tuple(placed.devices for placed in found.order.placement)
        self._news.append(ev.AttemptStarted(at_ms=self.clock.at_ms, job=key[0], attempt=key[1], devices=devices))
        runtime_ms = self.runtime_ms(key[0])
        if runtime_ms is not None:
            self._later(runtime_ms, lambda: self._end(key, "succeeded"))

    def _end(self, key: tuple[JobId, int], outcome: ev.Outcome, detail: str = "") -> None:
        found = self.attempts.get(key)
        if found is None or found.ended:
            return
        if found.started:
            self.ran(key[0], self.clock.at_ms - found.began_ms)
        code = {"succeeded": 0, "failed": 1}.get(outcome)
        found.ended = ev.AttemptEnded(
            at_ms=self.clock.at_ms, job=key[0], attempt=key[1], outcome=outcome, exit_code=code, detail=detail
        )
        self._news.append(found.ended)

    def finish(self, job: JobId, ok: bool) -> bool:
        """End the job's running attempt; False if none runs."""
        for key, found in self.attempts.items():
            if key[0] == job and found.started and not found.ended:
                self._end(key, "succeeded" if ok else "failed", "" if ok else "exit status 1")
                return True
        return False

    def _remove(self, key: tuple[JobId, int]) -> None:
        found = self.attempts.pop(key, None)
        if found is not None:
            self._removed[key] = found.order.placement
        nodes = placement_nodes(self._removed.get(key, ()))
        unfenced = tuple(n for n in nodes if n not in self.nodes or not self.nodes[n].speaks)
        self._news.append(ev.GangRemoved(at_ms=self.clock.at_ms, job=key[0], attempt=key[1], unfenced=unfenced))

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, node: SimNode) -> None:
        """A host joins."""
        self.nodes[node.node] = node
        self._heed(node)
        self._joined(node)
        self._report(node)

    def _joined(self, node: SimNode) -> None:
        self._news.append(
            ev.NodeJoined(
                at_ms=self.clock.at_ms,
                node=node.node,
                ray_id=f"ray-{node.node}-{node.joins}",
                spec=node.spec,
                pool=node.pool,
                labels=node.labels,
                boot_id=f"boot-{node.boots}",
                measured=node.reporting,
            )
        )

    def _report(self, node: SimNode) -> None:
        if node.speaks:
            self.tell([node.report()])

    def _heed(self, node: SimNode) -> None:
        """Note whether its agent speaks."""
        if node.speaks:
            self.mute.discard(node.node)
        else:
            self.mute.add(node.node)

    def keep_alive(self) -> list[NodeId]:
        """Nodes whose agents speak: their regular reports say nothing new."""
        return [name for name in self.nodes if name not in self.mute]

    def fail(self, name: NodeId, signal: str) -> None:
        """A signal appears; one of DEATHS takes the whole node down."""
        node = self.nodes[name]
        if signal in DEATHS:
            self.muting()
            node.alive = False
            self._heed(node)
            self._news.append(ev.NodeGone(at_ms=self.clock.at_ms, node=name, detail=signal))
            for key, found in sorted(self.attempts.items()):
                if found.ready and name in placement_nodes(found.order.placement):
                    self._end(key, "node_lost", f"node {name}: {signal}")
            return
        node.signals[signal] = f"simulated {signal}"
        self._report(node)

    def silence(self, name: NodeId) -> None:
        """Its agent stops reporting."""
        self.muting()
        self.nodes[name].reporting = False
        self._heed(self.nodes[name])

    def recover(self, name: NodeId, repaired: bool) -> None:
        """Undo `fail` and `silence`; `repaired`: the host was reset for it."""
        node = self.nodes[name]
        dead, node.alive, node.reporting = not node.alive, True, True
        self._heed(node)
        node.signals = {s: d for s, d in node.signals.items() if s == "repair_task"}
        if repaired or dead:
            node.boots += 1
        if dead:
            node.joins += 1
            self._joined(node)
        elif repaired:
            self._news.append(ev.NodeReset(at_ms=self.clock.at_ms, node=name, boot_id=f"boot-{node.boots}"))
        self._report(node)

    def repair_task(self, name: NodeId, is_open: bool) -> None:
        """The provider opens or closes a repair task on the machine."""
        node = self.nodes[name]
        if is_open:
            node.signals["repair_task"] = "repair task open"
        else:
            node.signals.pop("repair_task", None)
        self._report(node)

    def remove(self, name: NodeId) -> None:
        """The host is gone for good; what ran there is lost."""
        for key, found in sorted(self.attempts.items()):
            if found.ready and name in placement_nodes(found.order.placement):
                self._end(key, "node_lost", f"node {name} was removed")
        self.muting()
        self.nodes.pop(name, None)
        self.mute.discard(name)
