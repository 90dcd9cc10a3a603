"""The state: every job and node as the journal tells it, with the indexes that keep a tick small.

`transitions.apply` is the only mutator. Indexes here are derived: `check.check` rebuilds and compares them."""

from bisect import bisect_left, insort
from typing import Final

from msgspec import Struct, field

from raysched.core.events import AlertRaised, AttemptEnded, StopOrdered
from raysched.core.model import (
    Bundle,
    Health,
    JobId,
    JobSpec,
    JobState,
    NodeId,
    NodeSpec,
    PlacedBundle,
    Placement,
    PoolId,
    ShareId,
    UserId,
    gang_amounts,
)
from raysched.core.room import Room
from raysched.core.units import Amounts, add_into

DOWN: Final = frozenset({"failed", "validating", "quarantined"})
TOPOLOGY_LABELS: Final = ("nvlink_domain", "rack")  # narrowest first
ClassKey = tuple[PoolId | None, str | None, bool, bool, str]
OrderKey = tuple[int, int, int, int, JobId]


class Fact(Struct):
    """A latch that is closed: since when, and what was seen."""

    since_ms: int
    detail: str


class Node(Struct):
    """One host identity. `present`: Ray lists it alive; `reported`: its agent has ever spoken. `first_bad_ms` is when
    it first became abnormal without `healthy_after` clean in between (semantics 9.2)."""

    node: NodeId
    ray_id: str
    spec: NodeSpec
    pool: PoolId
    labels: dict[str, str]
    room: Room
    health: Health = "unknown"
    why: str = "never reported"
    cordoned: str | None = None
    present: bool = True
    reported: bool = False
    measured: bool = False
    boot_id: str | None = None
    silent_ms: int | None = None
    stale: bool = False
    disputed: str | None = None
    fatal: dict[str, Fact] = field(default_factory=dict)
    degraded: dict[str, Fact] = field(default_factory=dict)
    first_bad_ms: int | None = None
    clean_ms: int | None = None
    suspect_ms: int | None = None
    suspect_signal: str = ""
    failed_ms: int | None = None
    swapped: bool = False
    reset_seen: bool = False
    jobs: set[JobId] = field(default_factory=set)

    @property
    def usable(self) -> bool:
        """Whether new work may be placed here and its room counts as capacity (pools are looked at by the caller)."""
        return (
            self.health == "healthy"
            and self.present
            and self.cordoned is None
            and not self.bad
            and not self.stale
            and self.disputed is None
        )

    @property
    def bad(self) -> bool:
        """Whether anything is abnormal now."""
        return bool(self.fatal) or self.silent_ms is not None

    @property
    def dubious(self) -> str | None:
        """Why the node's room is not evidence, when nothing else is wrong with it: DISPUTED, STALE or UNKNOWN."""
        if self.fatal or self.cordoned is not None or self.health in DOWN:
            return None
        if not self.reported:
            return "UNKNOWN"
        if self.disputed is not None:
            return "DISPUTED"
        return "STALE" if self.stale or self.silent_ms is not None else None


class Job(Struct):
    """One job and its current attempt. `gang` follows the attempt's placement group; `held` is an attempt that ended
    because of its node, while its claim waits for that node or for a swap."""

    spec: JobSpec
    bundles: tuple[Bundle, ...]
    share: ShareId
    priority: int
    cross_pool: bool
    submitted_ms: int
    number: int
    state: JobState = "queued"
    front: bool = False
    attempt: int = 0
    pool: PoolId | None = None
    model: str | None = None
    placement: Placement = ()
    gang: str = "none"
    started: bool = False
    ended: AttemptEnded | None = None
    stop: StopOrdered | None = None
    held: bool = False
    unfenced: tuple[NodeId, ...] = ()
    cancel: UserId | None = None
    resized: bool = False
    claimed_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    gone_ms: int | None = None
    retry_ms: int = 0
    never_made: int = 0
    failures: int = 0
    preemptions: int = 0
    detail: str = ""
    exit_code: int | None = None
    result: str | None = None

    @property
    def job(self) -> JobId:
        return self.spec.job

    @property
    def user(self) -> UserId:
        """Who is charged: the owner, whoever operates it (semantics 2.12)."""
        return self.spec.user

    def order(self) -> OrderKey:
        """The queue key: priority, requeued by an infrastructure failure first, submit time, then the order of
        arrival and the id (semantics 5.2)."""
        return (self.priority, 0 if self.front else 1, self.submitted_ms, self.number, self.spec.job)

    def class_key(self) -> ClassKey:
        """Jobs with the same key have the same choice of pools and models."""
        spec = self.spec
        return (spec.pool, spec.model, spec.uses_gpu, self.cross_pool, spec.workload)


class PoolRoom(Struct):
    """One pool's nodes and the room of its usable ones. `models` counts nodes per GPU model; `total` is the capacity of
    the nodes that reported and are not failed. `by_whole[model][n]` are nodes with n wholly free GPUs in id
    order (n = 0 includes nodes without GPUs); `partial[model]` those with a partly used device."""

    nodes: dict[NodeId, Node] = field(default_factory=dict)
    models: dict[str, int] = field(default_factory=dict)
    total: Amounts = field(default_factory=dict)
    free: Amounts = field(default_factory=dict)
    by_whole: dict[str | None, dict[int, list[NodeId]]] = field(default_factory=dict)
    partial: dict[str | None, set[NodeId]] = field(default_factory=dict)
    reported: int = 0
    dubious: set[NodeId] = field(default_factory=set)
    domains: dict[str, dict[str, set[NodeId]]] = field(default_factory=dict)


class State:
    """Everything the journal has told. `seq` counts folded events."""

    def __init__(self) -> None:
        self.seq = 0
        self.jobs: dict[JobId, Job] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.pools: dict[PoolId, PoolRoom] = {}
        self.pending: dict[ShareId, dict[ClassKey, list[OrderKey]]] = {}
        self.active: set[JobId] = set()
        self.unsettled: set[JobId] = set()
        self.held: set[JobId] = set()
        self.fencing: set[JobId] = set()
        self.watched: set[NodeId] = set()
        self.deadlines: dict[JobId, int] = {}
        self.creating: dict[JobId, int] = {}
        self.alerts: dict[tuple[str, str], AlertRaised] = {}
        self.silenced_ms: int | None = None
        self.submitted = 0
        self.user_numbers: dict[UserId, int] = {}
        self.restarted_ms: int | None = None
        self.swaps: list[int] = []
        self.asked: dict[JobId, dict[str | None, tuple[tuple[Bundle, ...], Amounts]]] = {}

    # ── pending jobs ──────────────────────────────────────────────────────────────────────────────────────────────

    def enqueue(self, job: Job) -> None:
        insort(self.pending.setdefault(job.share, {}).setdefault(job.class_key(), []), job.order())

    def dequeue(self, job: Job) -> None:
        classes = self.pending[job.share]
        keys = classes[job.class_key()]
        index = bisect_left(keys, job.order())
        assert keys[index] == job.order(), f"job {job.job} is not in its queue"
        del keys[index]
        if not keys:
            del classes[job.class_key()]
            if not classes:
                del self.pending[job.share]

    # ── room ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def pool_room(self, pool: PoolId) -> PoolRoom:
        return self.pools.setdefault(pool, PoolRoom())

    def unindex(self, node: Node) -> None:
        """Take a node out of its pool's indexes; before anything of it changes."""
        room = self.pool_room(node.pool)
        room.nodes.pop(node.node, None)
        room.dubious.discard(node.node)
        self._sum(room, node, -1)
        for key in TOPOLOGY_LABELS:
            value = node.labels.get(key)
            if value is not None:
                room.domains[key][value].discard(node.node)
        if node.usable:
            self._count(room, node, -1)

    def index(self, node: Node) -> None:
        """Put a node into its pool's indexes; after it changed."""
        room = self.pool_room(node.pool)
        room.nodes[node.node] = node
        self._sum(room, node, 1)
        for key in TOPOLOGY_LABELS:
            value = node.labels.get(key)
            if value is not None:
                room.domains.setdefault(key, {}).setdefault(value, set()).add(node.node)
        if node.dubious is not None:
            room.dubious.add(node.node)
        if node.usable:
            self._count(room, node, 1)

    def _sum(self, room: PoolRoom, node: Node, sign: int) -> None:
        model = node.spec.gpu_model
        if model is not None:
            room.models[model] = room.models.get(model, 0) + sign
            if not room.models[model]:
                del room.models[model]
        if node.reported:
            room.reported += sign
            if node.health not in DOWN:
                add_into(room.total, node.spec.amounts(), sign)

    def _count(self, room: PoolRoom, node: Node, sign: int) -> None:
        model = node.spec.gpu_model
        add_into(room.free, node.room.free(model), sign)
        bucket = room.by_whole.setdefault(model, {}).setdefault(node.room.whole, [])
        if sign > 0:
            insort(bucket, node.node)
        else:
            del bucket[bisect_left(bucket, node.node)]
            if not bucket:
                del room.by_whole[model][node.room.whole]
        partly = node.room.gpu_milli != node.room.whole * 1000
        if sign > 0 and partly:
            room.partial.setdefault(model, set()).add(node.node)
        elif model in room.partial:
            room.partial[model].discard(node.node)

    def hold(self, job: JobId, placement: Placement, bundles: tuple[Bundle, ...]) -> None:
        """Take the room of a placement."""
        for placed in placement:
            node = self.nodes[placed.node]
            if node.usable:
                self._count(self.pool_room(node.pool), node, -1)
            node.room.take(job, placed, bundles[placed.bundle])
            node.jobs.add(job)
            if node.usable:
                self._count(self.pool_room(node.pool), node, 1)

    def unhold(self, job: JobId, placement: Placement, bundles: tuple[Bundle, ...]) -> None:
        """Give the room of a placement back; nodes that were removed meanwhile are passed over."""
        for placed in placement:
            node = self.nodes.get(placed.node)
            if node is None:
                continue
            if node.usable:
                self._count(self.pool_room(node.pool), node, -1)
            node.room.give(job, placed, bundles[placed.bundle])
            node.jobs.discard(job)
            if node.usable:
                self._count(self.pool_room(node.pool), node, 1)

    def rooms(self, placement: Placement) -> dict[NodeId, Room]:
        """Copies of the rooms a placement touches, for `restore`."""
        return {p.node: self.nodes[p.node].room.copied() for p in placement if p.node in self.nodes}

    def restore(self, rooms: dict[NodeId, Room]) -> None:
        """Put rooms back exactly as they were copied."""
        for name, room in rooms.items():
            node = self.nodes[name]
            if node.usable:
                self._count(self.pool_room(node.pool), node, -1)
            node.room = room
            if node.usable:
                self._count(self.pool_room(node.pool), node, 1)

    def correct(self, job: JobId, placed: PlacedBundle, true: tuple[int, ...]) -> None:
        """Replace the predicted device ids of one entry by the true ones."""
        node = self.nodes.get(placed.node)
        if node is None:
            return
        if node.usable:
            self._count(self.pool_room(node.pool), node, -1)
        node.room.correct(job, placed, true)
        if node.usable:
            self._count(self.pool_room(node.pool), node, 1)

    def unreport(self, job: JobId, placement: Placement) -> None:
        """Ray has given the job's devices back: what a kept claim holds of them is a prediction again."""
        for name in {placed.node for placed in placement if placed.node in self.nodes}:
            for hold in self.nodes[name].room.holds:
                hold.reported = hold.reported and hold.job != job

    def amounts(self, job: Job, model: str | None) -> Amounts:
        """What a job as it is now (a resize counts) is charged on GPUs of `model`; worked out once while it waits."""
        known = self.asked.setdefault(job.spec.job, {}).get(model)
        if known is None or known[0] is not job.bundles:
            known = self.asked[job.spec.job][model] = (job.bundles, gang_amounts(job.bundles, model))
        return known[1]

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def models(self, pool: PoolId) -> list[str]:
        """GPU models of the pool's nodes, in name order."""
        return sorted(self.pool_room(pool).models)
