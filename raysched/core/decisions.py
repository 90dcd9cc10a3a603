"""What the plan wants done to the world. Each is idempotent by (job, attempt) and answered by events."""

from msgspec import Struct

from raysched.core.events import StopReason
from raysched.core.model import JobId, JobSpec, NodeId, Placement, ShareId, UserId


class CreateGang(Struct, frozen=True, gc=False, tag=True):
    """Make the placement group of an attempt. `ray_ids` are the current Ray ids of the placement's nodes.

    Answered by GangReady or GangFailed."""

    job: JobId
    attempt: int
    user: UserId
    share: ShareId
    priority: int
    spec: JobSpec
    placement: Placement
    ray_ids: dict[NodeId, str]


class StartAttempt(Struct, frozen=True, gc=False, tag=True):
    """Start the ranks inside the group. Answered by AttemptStarted, then AttemptEnded."""

    job: JobId
    attempt: int


class StopAttempt(Struct, frozen=True, gc=False, tag=True):
    """Notice, `grace_ms` to checkpoint, then kill. Answered by AttemptEnded (also when nothing ran)."""

    job: JobId
    attempt: int
    grace_ms: int
    why: StopReason


class RemoveGang(Struct, frozen=True, gc=False, tag=True):
    """Kill what is left of the attempt, remove its group, sweep its processes. Answered by GangRemoved."""

    job: JobId
    attempt: int


Decision = CreateGang | StartAttempt | StopAttempt | RemoveGang
