"""Everything that can happen to the state. Past tense: an event has happened, it cannot be refused.

The first group comes from people, nodes and Ray, and is journaled before it is folded. The second group is what our
own plan decided; it is journaled too, after its ledger entries were posted, so that a replay needs no planning."""

from typing import Literal

from msgspec import Struct, field

from raysched.core.model import (
    Bundle,
    Health,
    JobId,
    JobSpec,
    NodeId,
    NodeSpec,
    Placement,
    PoolId,
    ShareId,
    UserId,
)

Outcome = Literal["succeeded", "failed", "stopped", "node_lost", "never_started"]
StopReason = Literal["cancelled", "max_runtime", "node_failed", "resized", "preempted", "reclaimed"]


class Event(Struct, frozen=True, gc=False, tag=True, omit_defaults=True, kw_only=True):
    """`at_ms`: when it was noticed, by the clock of whoever journaled it."""

    at_ms: int


# ── people ────────────────────────────────────────────────────────────────────────────────────────────────────────


class JobSubmitted(Event, frozen=True):
    """A job was accepted. `priority` is the one resolved from the share's rules."""

    spec: JobSpec
    priority: int


class JobRefused(Event, frozen=True):
    """A submission was refused; nothing remains but this line. `errors` in the order of semantics 8.1."""

    spec: JobSpec
    errors: tuple[str, ...]


class CancelRequested(Event, frozen=True):
    job: JobId
    by: UserId


class PriorityChanged(Event, frozen=True):
    job: JobId
    priority: int
    by: UserId


class CrossPoolChanged(Event, frozen=True):
    job: JobId
    value: bool
    by: UserId


class BundlesChanged(Event, frozen=True):
    """A resize: of a queued job, or of an active one whose ledger charge was changed in the same post."""

    job: JobId
    bundles: tuple[Bundle, ...]
    by: UserId
    placement: Placement | None = None


class JobMoved(Event, frozen=True):
    """The job is charged to another share from now on."""

    job: JobId
    share: ShareId
    by: UserId


class AdminActed(Event, frozen=True):
    """Who changed which book, from what to what (JSON); the change itself is in the ledger."""

    by: UserId
    action: str
    subject: str
    before: str | None = None
    after: str | None = None
    version: int = 0


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class NodeJoined(Event, frozen=True):
    """A host identity is in Ray (again) under `ray_id`. `pool` counts only the first time it is seen; `measured`:
    the inventory was read from NVML, not declared."""

    node: NodeId
    ray_id: str
    spec: NodeSpec
    pool: PoolId
    labels: dict[str, str] = field(default_factory=dict)
    boot_id: str | None = None
    measured: bool = False


class NodeGone(Event, frozen=True):
    """Ray lists the node as dead."""

    node: NodeId
    detail: str = ""


class NodeRemoved(Event, frozen=True):
    """An operator or the provider took the node out for good."""

    node: NodeId
    by: UserId


class NodeFresh(Event, frozen=True):
    """The agent reports (again)."""

    node: NodeId


class NodeSilent(Event, frozen=True):
    """No report for `silent_after`."""

    node: NodeId


class NodeStale(Event, frozen=True):
    """The last report is older than `evidence_max_age`."""

    node: NodeId


class FatalSeen(Event, frozen=True):
    """A latch of class FATAL closed: gpu_lost, xid_79, repair_task, ray_dead, …"""

    node: NodeId
    signal: str
    detail: str = ""


class FatalCleared(Event, frozen=True):
    node: NodeId
    signal: str


class DegradedSeen(Event, frozen=True):
    """A latch of class DEGRADED closed: no new gang is placed here, nothing is swapped."""

    node: NodeId
    signal: str
    detail: str = ""


class DegradedCleared(Event, frozen=True):
    node: NodeId
    signal: str


class NodeReset(Event, frozen=True):
    """A new boot id or a finished GPU reset was seen; the precondition of validation after a repair."""

    node: NodeId
    boot_id: str | None = None


class UseDisagrees(Event, frozen=True):
    """The node's observed use and the books differ (or agree again): its evidence is DISPUTED meanwhile."""

    node: NodeId
    disagrees: bool
    detail: str = ""


class AgentsSilenced(Event, frozen=True):
    """Every agent fell silent within one report interval (True), or reports are back (False): timers stand still."""

    silenced: bool


class Restarted(Event, frozen=True):
    """The scheduler started again with this epoch: every open health timer starts again too."""

    epoch: int


class NodeCordoned(Event, frozen=True):
    node: NodeId
    by: UserId
    reason: str = ""


class NodeUncordoned(Event, frozen=True):
    node: NodeId
    by: UserId


class NodeRepooled(Event, frozen=True):
    """An operator moved the node to another pool."""

    node: NodeId
    pool: PoolId
    by: UserId


# ── Ray ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class GangReady(Event, frozen=True):
    """The placement group of the attempt is CREATED."""

    job: JobId
    attempt: int


class GangFailed(Event, frozen=True):
    """The placement group could not be made in time; it is being removed."""

    job: JobId
    attempt: int
    detail: str


class AttemptStarted(Event, frozen=True):
    """All ranks run. `devices` are the true GPU indices, one tuple per entry of the placement."""

    job: JobId
    attempt: int
    devices: tuple[tuple[int, ...], ...] = ()


class AttemptEnded(Event, frozen=True):
    """The attempt is over. `result`: digest of the stored result of a function, if it returned one."""

    job: JobId
    attempt: int
    outcome: Outcome
    exit_code: int | None = None
    detail: str = ""
    result: str | None = None


class GangRemoved(Event, frozen=True):
    """The group is gone, the attempt's processes are swept, and Ray's view shows the room. `unfenced` are nodes
    whose agent could not confirm that nothing of the attempt runs there."""

    job: JobId
    attempt: int
    unfenced: tuple[NodeId, ...] = ()


# ── our own decisions, folded after their entries were posted ─────────────────────────────────────────────────────


class TickStarted(Event, frozen=True):
    """A plan that decided something was made at `at_ms` on this ledger version."""

    ledger_version: int


class Admitted(Event, frozen=True):
    """The job holds a claim; its group is being made."""

    job: JobId
    attempt: int
    pool: PoolId
    model: str | None
    placement: Placement


class StartOrdered(Event, frozen=True):
    job: JobId
    attempt: int


class StopOrdered(Event, frozen=True):
    job: JobId
    attempt: int
    why: StopReason
    grace_ms: int


class RemoveOrdered(Event, frozen=True):
    job: JobId
    attempt: int


class GangHeld(Event, frozen=True):
    """The attempt ended because of its node; the claim stays until the node is well again or failed."""

    job: JobId
    attempt: int


class Requeued(Event, frozen=True):
    """Back in the queue with its submit time; `front` after a failure of the infrastructure."""

    job: JobId
    front: bool
    why: str


class JobEnded(Event, frozen=True):
    job: JobId
    state: Literal["succeeded", "failed", "cancelled"]
    detail: str = ""


class HealthChanged(Event, frozen=True):
    """`why` cites the evidence the assessment used."""

    node: NodeId
    health: Health
    why: str


class NodeSwapped(Event, frozen=True):
    """`spare` has taken the place of `failed` in `pool`; `failed` belongs to the pool the spare came from."""

    failed: NodeId
    spare: NodeId
    pool: PoolId
    standby_pool: PoolId


class AlertRaised(Event, frozen=True):
    """Something a person should know; one open alert per (alert, subject)."""

    alert: str
    subject: str
    text: str


class AlertCleared(Event, frozen=True):
    alert: str
    subject: str


AnyEvent = (
    JobSubmitted
    | JobRefused
    | CancelRequested
    | PriorityChanged
    | CrossPoolChanged
    | BundlesChanged
    | JobMoved
    | AdminActed
    | NodeJoined
    | NodeGone
    | NodeRemoved
    | NodeFresh
    | NodeSilent
    | NodeStale
    | FatalSeen
    | FatalCleared
    | DegradedSeen
    | DegradedCleared
    | NodeReset
    | UseDisagrees
    | AgentsSilenced
    | Restarted
    | NodeCordoned
    | NodeUncordoned
    | NodeRepooled
    | GangReady
    | GangFailed
    | AttemptStarted
    | AttemptEnded
    | GangRemoved
    | TickStarted
    | Admitted
    | StartOrdered
    | StopOrdered
    | RemoveOrdered
    | GangHeld
    | Requeued
    | JobEnded
    | HealthChanged
    | NodeSwapped
    | AlertRaised
    | AlertCleared
)
