"""The state: every job and node as the journal tells it, with the indexes that keep a tick small.

`transitions.apply` is the only mutator. Indexes here are derived: `check.check` rebuilds and compares them."""

from msgspec import Struct

from raysched.core.agenda import Agenda
from raysched.core.demand import Demand
from raysched.core.events import AlertRaised, AttemptEnded, StopOrdered
from raysched.core.fill import Fill
from raysched.core.lines import ClassKey, OrderKey, Queues, class_key
from raysched.core.model import (
    Bundle,
    JobId,
    JobSpec,
    JobState,
    NodeId,
    PlacedBundle,
    Placement,
    PoolId,
    ShareId,
    UserId,
    gang_amounts,
)
from raysched.core.pools import DOWN, TOPOLOGY_LABELS, Node, PoolRoom, spec_key
from raysched.core.room import Hold, Room
from raysched.core.units import Amounts, add_into


class Job(Struct, gc=False):
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

    # Of the spec, kept here because everything asks for them. The user is who is charged: the owner, whoever operates
    # the job (semantics 2.12).
    job: JobId = JobId("")
    user: UserId = UserId("")

    def __post_init__(self) -> None:
        self.job, self.user = self.spec.job, self.spec.user

    def order(self) -> OrderKey:
        """The queue key: priority, requeued by an infrastructure failure first, submit time, then the order of
        arrival and the id (semantics 5.2)."""
        return (self.priority, 0 if self.front else 1, self.submitted_ms, self.number, self.spec.job)

    def class_key(self) -> ClassKey:
        """Jobs with the same key have the same choice of pools and models."""
        return class_key(self.spec, self.cross_pool)


Given = tuple[Node, PlacedBundle, Bundle, tuple[int, Hold] | None, bool]


class State:
    """Everything the journal has told. `seq` counts folded events. `ahead`: jobs whose room is already as the next
    event of theirs will say, because the draft of the plan that made the event was kept."""

    def __init__(self) -> None:
        self.seq = 0
        self.jobs: dict[JobId, Job] = {}
        self.nodes: dict[NodeId, Node] = {}
        self.pools: dict[PoolId, PoolRoom] = {}
        self.pending = Queues()
        self.active: set[JobId] = set()
        self.unsettled: set[JobId] = set()
        self.held: set[JobId] = set()
        self.fencing: set[JobId] = set()
        self.watched: set[NodeId] = set()
        self.deadlines = Agenda()
        self.creating: dict[JobId, int] = {}
        self.alerts: dict[tuple[str, str], AlertRaised] = {}
        self.silenced_ms: int | None = None
        self.submitted = 0
        self.user_numbers: dict[UserId, int] = {}
        self.restarted_ms: int | None = None
        self.swaps: list[int] = []
        self.models_edition = 0
        self.ahead: set[JobId] = set()
        self.demand = Demand()
        self._fills: dict[tuple[PoolId, str | None], tuple[tuple[int, int, int], Fill | None]] = {}

    # ── pending jobs ──────────────────────────────────────────────────────────────────────────────────────────────

    def enqueue(self, job: Job) -> None:
        self.pending.add(job.share, job.spec, job.bundles, job.cross_pool, job.order())

    def dequeue(self, job: Job) -> None:
        """Before anything of its place in the queue changes."""
        self.pending.remove(job.spec.user, job.order())

    # ── room ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def pool_room(self, pool: PoolId) -> PoolRoom:
        room = self.pools.get(pool)
        if room is None:
            room = self.pools[pool] = PoolRoom()
        return room

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
        self._uncount(node)

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
        if node.spec.gpu:
            cores, model = node.spec.cpu_milli // node.spec.gpu, node.spec.gpu_model
            room.cores_per_gpu[model] = min(cores, room.cores_per_gpu.get(model, cores))
            room.most_gpus = max(room.most_gpus, node.spec.gpu)
        if node.usable:
            self._count(node)

    def _sum(self, room: PoolRoom, node: Node, sign: int) -> None:
        model = node.spec.gpu_model
        if model is not None:
            if model not in room.models:
                self.models_edition += 1
            room.models[model] = room.models.get(model, 0) + sign
            if not room.models[model]:
                del room.models[model]
                self.models_edition += 1
        if node.reported:
            room.reported += sign
            if node.health not in DOWN:
                add_into(room.total, node.spec.amounts(), sign)
                spec, key = node.spec, spec_key(node.spec)
                _, count = room.specs.get(key, (spec, 0))
                if count + sign:
                    room.specs[key] = (spec, count + sign)
                else:
                    del room.specs[key]

    def _count(self, node: Node) -> None:
        """Let a node's room count as free."""
        room = self.pool_room(node.pool)
        add_into(room.free, node.room.free(node.spec.gpu_model))
        node.indexed = True
        room.put(node)

    def _uncount(self, node: Node) -> None:
        if node.indexed:
            room = self.pool_room(node.pool)
            add_into(room.free, node.room.free(node.spec.gpu_model), -1)
            node.indexed = False
            room.put(node)

    def _moved(self, node: Node, bundle: Bundle, count: int) -> None:
        """`count` of these bundles went into (or out of) a node whose room counts."""
        room = self.pools[node.pool]
        free = room.free
        for kind, amount in bundle.amounts(node.spec.gpu_model).items():
            left = free.get(kind, 0) - amount * count
            if left:
                free[kind] = left
            else:
                free.pop(kind, None)
        room.put(node)

    def hold(self, job: JobId, placement: Placement, bundles: tuple[Bundle, ...]) -> None:
        """Take the room of a placement."""
        for placed in placement:
            node, bundle = self.nodes[placed.node], bundles[placed.bundle]
            node.room.take(job, placed, bundle)
            node.jobs.add(job)
            if node.indexed:
                self._moved(node, bundle, placed.count)

    def unhold(self, job: JobId, placement: Placement, bundles: tuple[Bundle, ...]) -> list[Given]:
        """Give the room of a placement back; nodes that were removed meanwhile are passed over. Returns what `rehold`
        needs to undo it."""
        given: list[Given] = []
        for placed in placement:
            node = self.nodes.get(placed.node)
            if node is None:
                continue
            bundle = bundles[placed.bundle]
            given.append((node, placed, bundle, node.room.give(job, placed, bundle), job in node.jobs))
            node.jobs.discard(job)
            if node.indexed:
                self._moved(node, bundle, -placed.count)
        return given

    def rehold(self, job: JobId, given: list[Given]) -> None:
        """Undo `unhold`, when nothing else of these nodes has changed since."""
        for node, placed, bundle, gave, was_there in reversed(given):
            node.room.undo_give(gave, placed, bundle)
            if was_there:
                node.jobs.add(job)
            if node.indexed:
                self._moved(node, bundle, placed.count)

    def rooms(self, placement: Placement) -> dict[NodeId, Room]:
        """Copies of the rooms a placement touches, for `restore`."""
        return {p.node: self.nodes[p.node].room.copied() for p in placement if p.node in self.nodes}

    def restore(self, rooms: dict[NodeId, Room]) -> None:
        """Put rooms back exactly as they were copied."""
        for name, room in rooms.items():
            node = self.nodes[name]
            counts = node.indexed
            self._uncount(node)
            node.room = room
            if counts:
                self._count(node)

    def correct(self, job: JobId, placed: PlacedBundle, true: tuple[int, ...]) -> None:
        """Replace the predicted device ids of one entry by the true ones."""
        node = self.nodes.get(placed.node)
        if node is None:
            return
        node.room.correct(job, placed, true)
        if node.indexed:
            self.pool_room(node.pool).put(node)

    def unreport(self, job: JobId, placement: Placement) -> None:
        """Ray has given the job's devices back: what a kept claim holds of them is a prediction again."""
        for name in {placed.node for placed in placement if placed.node in self.nodes}:
            for hold in self.nodes[name].room.holds:
                hold.reported = hold.reported and hold.job != job

    def amounts(self, job: Job, model: str | None) -> Amounts:
        """What a job as it is now (a resize counts) is charged on GPUs of `model`; worked out once for all alike."""
        group = self.pending.where.get(job.spec.job)
        if group is not None and group.bundles == job.bundles:
            return group.amounts(model)
        return gang_amounts(job.bundles, model)

    # ── packing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def fill(self, pool: PoolId, model: str | None) -> Fill | None:
        """The tables that say which node is best for one bundle; None where best fit does as well."""
        demand = self.demand
        if not demand.edition:
            return None
        room = self.pool_room(pool)
        cores = room.cores_per_gpu.get(model, 0)
        now = (demand.edition, room.most_gpus, cores)
        known = self._fills.get((pool, model))
        if known is None or known[0] != now:
            simple = demand.is_simple(model, cores)
            total = sum(each.count for each in demand.typical)
            made = None if simple else Fill(demand.served_by(model), total, room.most_gpus)
            known = self._fills[pool, model] = (now, made)
        return known[1]

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def models(self, pool: PoolId) -> list[str]:
        """GPU models of the pool's nodes, in name order."""
        return sorted(self.pool_room(pool).models)
