"""The values everything else speaks of: jobs and their bundles, nodes, pools, shares, limits, reservations, overrides.

Frozen values describe what somebody asked for or set. What is going on (`Job`, `Node`) is in state.py. Times are
milliseconds since the epoch; amounts are integers (units.py)."""

from typing import Final, Literal, NewType

from msgspec import Struct, field

from raysched.core.units import CPU, GPU, MEMORY, MILLI, Amounts, model_kind

JobId = NewType("JobId", str)
UserId = NewType("UserId", str)
GroupId = NewType("GroupId", str)
ShareId = NewType("ShareId", str)
CohortId = NewType("CohortId", str)
PoolId = NewType("PoolId", str)
NodeId = NewType("NodeId", str)
ReservationId = NewType("ReservationId", str)

WORKLOADS: Final = ("notebook", "training", "service", "batch", "evaluation")
DEFAULT_PRIORITY: Final = 5
LOWEST_PRIORITY: Final = 9

Strategy = Literal["reserve", "lend", "lend_and_borrow", "borrow"]
QueuePolicy = Literal["strict_fifo", "fifo_within_priority", "any_fit", "backfill"]
ReclaimPolicy = Literal["wait", "force", "unified", "restore"]
Resolve = Literal["smallest_gpu", "largest_each", "smallest_each"]
JobState = Literal[
    "queued", "claimed", "starting", "running", "stopping", "succeeded", "failed", "cancelled", "rejected"
]
ACTIVE: Final = frozenset({"claimed", "starting", "running", "stopping"})
FINAL: Final = frozenset({"succeeded", "failed", "cancelled", "rejected"})
Health = Literal["unknown", "healthy", "degraded", "suspect", "failed", "validating", "quarantined"]


class Bundle(Struct, frozen=True, gc=False, omit_defaults=True):
    """Resources that must be on one node, `count` times. GPU is whole or below 1."""

    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    attach: dict[str, int] = field(default_factory=dict)
    count: int = 1

    def amounts(self, model: str | None) -> Amounts:
        """What one of these bundles is charged, on GPUs of `model`; a job on a model is charged in both kinds."""
        total: Amounts = {}
        if self.gpu_milli:
            total[GPU] = self.gpu_milli
            if model is not None:
                total[model_kind(model)] = self.gpu_milli
        if self.cpu_milli:
            total[CPU] = self.cpu_milli
        if self.memory_bytes:
            total[MEMORY] = self.memory_bytes
        if self.attach:
            total.update({kind: amount for kind, amount in self.attach.items() if amount})
        return total

    @property
    def whole_gpus(self) -> int:
        """Whole GPUs of one bundle; 0 for a fraction or none."""
        return self.gpu_milli // MILLI

    @property
    def is_fraction(self) -> bool:
        """Whether one bundle asks for a part of a GPU."""
        return 0 < self.gpu_milli < MILLI


class CommandRun(Struct, frozen=True, tag="command", omit_defaults=True):
    """An entrypoint command. `working_dir` is the digest of a stored archive, unpacked where the job runs."""

    argv: tuple[str, ...]
    working_dir: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    runtime_env: str | None = None


class FunctionRun(Struct, frozen=True, tag="function", omit_defaults=True):
    """A Python function with its arguments: the digest of a stored cloudpickle of (function, args, kwargs)."""

    payload: str
    name: str
    env: dict[str, str] = field(default_factory=dict)
    runtime_env: str | None = None


Run = CommandRun | FunctionRun


class JobSpec(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a user asked for: one gang of bundles, an owner, a share to charge."""

    job: JobId
    user: UserId
    share: ShareId
    bundles: tuple[Bundle, ...]
    workload: str = "training"
    workspace: str | None = None
    priority: int | None = None
    tags: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    pool: PoolId | None = None
    cross_pool: bool = False
    confirm: bool = False
    max_runtime_ms: int | None = None
    checkpoint_every_ms: int | None = None
    reservation: ReservationId | None = None
    retries: int = 0
    grace_ms: int = 30_000
    topology: Literal["preferred", "required"] = "preferred"
    submitted_by: UserId | None = None
    run: Run | None = None

    def amounts(self, model: str | None) -> Amounts:
        """What the whole gang is charged on GPUs of `model`."""
        return gang_amounts(self.bundles, model)

    @property
    def uses_gpu(self) -> bool:
        """Whether any bundle asks for a GPU or a part of one."""
        return any(bundle.gpu_milli for bundle in self.bundles)


def gang_amounts(bundles: tuple[Bundle, ...], model: str | None) -> Amounts:
    """The sum over all bundles and their counts."""
    total: Amounts = {}
    for bundle in bundles:
        for kind, amount in bundle.amounts(model).items():
            total[kind] = total.get(kind, 0) + amount * bundle.count
    return total


class PlacedBundle(Struct, frozen=True, gc=False, array_like=True):
    """`count` bundles number `bundle` of the spec on one node. `devices` are the node's GPU indices they hold
    together, `milli` thousandths of each (1000 = whole); a fraction has count 1 and one device."""

    node: NodeId
    bundle: int
    count: int
    devices: tuple[int, ...] = ()
    milli: int = 0


Placement = tuple[PlacedBundle, ...]


def placement_nodes(placement: Placement) -> tuple[NodeId, ...]:
    """The nodes of a placement, each once, in rank order."""
    return tuple(dict.fromkeys(placed.node for placed in placement))


class NodeSpec(Struct, frozen=True, gc=False, omit_defaults=True):
    """What a node is. Two nodes have the same spec when all of it is equal. `gpu` counts whole devices."""

    gpu: int = 0
    gpu_model: str | None = None
    cpu_milli: int = 0
    memory_bytes: int = 0
    attach: dict[str, int] = field(default_factory=dict)

    def amounts(self) -> Amounts:
        """The node's whole capacity as a vector."""
        return Bundle(self.gpu * MILLI, self.cpu_milli, self.memory_bytes, self.attach).amounts(self.gpu_model)


class Pool(Struct, frozen=True, omit_defaults=True):
    """A set of nodes. `match` are the labels by which a node is placed here the first time it is seen.
    `index` is its place in the configuration, the order in which a job tries pools."""

    pool: PoolId
    index: int = 0
    region: str = "default"
    match: dict[str, str] = field(default_factory=dict)
    role: Literal["normal", "standby"] = "normal"
    limits: "Limits | None" = None


class LimitRule(Struct, frozen=True, omit_defaults=True):
    """A ceiling of one user, or of each member of a group (`mode: total`: of the group together).
    A kind that is None is unlimited."""

    gpu: int
    user: UserId | None = None
    group: GroupId | None = None
    cpu: int | None = None
    memory: int | None = None
    mode: Literal["each", "total"] = "each"

    def amounts(self) -> Amounts:
        """The limited kinds and their ceilings; an unlimited kind is absent."""
        found = {GPU: self.gpu, CPU: self.cpu, MEMORY: self.memory}
        return {kind: top for kind, top in found.items() if top is not None}


class Limits(Struct, frozen=True, omit_defaults=True):
    """Limits of users and groups behind a switch (semantics 2). `max_rules` None = unbounded."""

    enabled: bool = False
    resolve: Resolve = "smallest_gpu"
    on_exceed: Literal["reject", "confirm"] = "reject"
    default: LimitRule | None = None
    rules: tuple[LimitRule, ...] = ()
    max_rules: int | None = None


class BorrowLimit(Struct, frozen=True, omit_defaults=True):
    """How much a share may borrow: unlimited, a percentage of its nominal over all pools, or amounts per kind.
    It bounds the sum borrowed over all pools; a kind that the share owns nowhere, or that `amounts` does not list, is
    bounded by the lenders alone."""

    percent: int | None = None
    amounts: Amounts | None = None


class Sharing(Struct, frozen=True, omit_defaults=True):
    """Lending and borrowing of one share (semantics 4.1). `lend_limit` None = all that is idle; a pool or kind it
    does not list is lent in full. `lend_workloads` None = every workload kind is welcome."""

    strategy: Strategy = "reserve"
    borrow_limit: BorrowLimit = BorrowLimit()
    lend_limit: dict[PoolId, Amounts] | None = None
    lend_workloads: tuple[str, ...] | None = None

    @property
    def lends(self) -> bool:
        """Whether idle quota may be used by others."""
        return self.strategy in ("lend", "lend_and_borrow")

    @property
    def borrows(self) -> bool:
        """Whether the share may be charged beyond its nominal."""
        return self.strategy in ("borrow", "lend_and_borrow")


class PriorityRule(Struct, frozen=True):
    """Jobs that carry all of `tags` get `priority` (0 is the highest). The first matching rule wins."""

    tags: dict[str, str]
    priority: int


class Preemption(Struct, frozen=True, omit_defaults=True):
    """Who may be stopped for a higher priority (semantics 5.4). `workloads` overrides per workload kind."""

    in_share: bool = False
    default: bool = True
    workloads: dict[str, bool] = field(default_factory=dict)
    grace_ms: int = 30_000
    max_preemptions: int | None = None


class Reclaim(Struct, frozen=True, omit_defaults=True):
    """How a lender gets its quota back (semantics 4.5)."""

    policy: ReclaimPolicy = "restore"
    grace_ms: int = 30_000


class Instances(Struct, frozen=True):
    """Nominal written as an instance size times a count: `gpu` cards of `model` each."""

    size: str
    gpu: int
    count: int
    per_instance: Amounts


class Share(Struct, frozen=True, omit_defaults=True):
    """Owns quota and is charged by jobs. `nominal` per pool and kind; `instances` where it was written as a size
    times a count. Every setting is explicit here: presets are resolved at the door (config.py)."""

    share: ShareId
    nominal: dict[PoolId, Amounts]
    cohort: CohortId = CohortId("main")
    description: str = ""
    instances: dict[PoolId, Instances] = field(default_factory=dict)
    workloads: tuple[str, ...] = WORKLOADS
    workspaces: tuple[str, ...] = ("*",)
    admins: tuple[UserId, ...] = ()
    weight: int | None = None
    sharing: Sharing = Sharing()
    queue: QueuePolicy = "fifo_within_priority"
    priority_default: int = DEFAULT_PRIORITY
    priority_rules: tuple[PriorityRule, ...] = ()
    preemption: Preemption = Preemption()
    reclaim: Reclaim = Reclaim()
    limits: Limits = Limits()
    resize: Literal["any_time", "when_stopped"] = "any_time"
    overbook: bool = True
    shrink_floor: Literal["none", "smaller", "larger"] = "none"
    preset: str = "none"
    stopped: bool = False


class Settings(Struct, frozen=True, omit_defaults=True):
    """Cluster-wide numbers of the configuration (`defaults:`), in milliseconds where they are times."""

    cluster: str = "raysched"
    evidence_max_age_ms: int = 30_000
    silent_after_ms: int = 15_000
    failed_after_ms: int = 60_000
    healthy_after_ms: int = 30_000
    validate_for_ms: int = 600_000
    fence_wait_ms: int = 60_000
    reservation_horizon_ms: int = 7 * 86_400_000
    max_creating: int = 256
    swaps_in_flight: int = 8
    authorities: tuple[str, ...] | None = None
    admins: tuple[UserId, ...] = ()


class Reservation(Struct, frozen=True, omit_defaults=True):
    """Capacity kept for an owner in a window. Neither `expiry_ms` nor `release_condition` = on hold."""

    reservation: ReservationId
    pool: PoolId
    amounts: Amounts
    start_ms: int
    share: ShareId | None = None
    user: UserId | None = None
    expiry_ms: int | None = None
    release_condition: str | None = None
    bundles: tuple[Bundle, ...] = ()
    reason: str = ""


class Override(Struct, frozen=True, omit_defaults=True):
    """A recorded exception: raises the effective limit of its scope by `amounts` while its window is open.
    Without `authority` it blocks instead of admitting. `pool` None = every pool."""

    override: str
    amounts: Amounts
    start_ms: int
    until_ms: int
    reason: str
    authority: str | None
    share: ShareId | None = None
    user: UserId | None = None
    pool: PoolId | None = None
