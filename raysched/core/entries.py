"""The lines of the ledger. Whoever posts them is checked again on the present books (`ledger.post`).

Books (pools, groups, shares, reservations, overrides) are replaced as a whole and versioned by the ledger;
charges follow claim → commit → release, or claim → void | expire."""

from msgspec import Struct, field

from raysched.core.model import (
    Bundle,
    GroupId,
    JobId,
    Override,
    Placement,
    Pool,
    PoolId,
    Reservation,
    ReservationId,
    Settings,
    Share,
    ShareId,
    UserId,
)
from raysched.core.record import AdmissionRecord
from raysched.core.units import Amounts


class Entry(Struct, frozen=True, gc=False, tag=True, omit_defaults=True, kw_only=True):
    """`at_ms`: when it was decided."""

    at_ms: int


class Edit(Entry, frozen=True, kw_only=True):
    """A change of one book. `base`: the ledger version the editor saw; a change of the same thing since then makes the
    entry fail."""

    by: UserId
    base: int | None = None


class SettingsSet(Entry, frozen=True):
    settings: Settings
    by: UserId


class PoolSet(Edit, frozen=True):
    pool: Pool


class PoolDeleted(Entry, frozen=True):
    pool: PoolId
    by: UserId


class GroupSet(Edit, frozen=True):
    group: GroupId
    members: tuple[UserId, ...]


class ShareSet(Edit, frozen=True):
    share: Share


class ShareDeleted(Edit, frozen=True):
    share: ShareId


class ReservationSet(Edit, frozen=True):
    reservation: Reservation


class ReservationReleased(Edit, frozen=True):
    reservation: ReservationId


class OverrideSet(Entry, frozen=True):
    override: Override
    by: UserId


class ReservedReported(Entry, frozen=True):
    """A reserved total counted by somebody else's book; a difference makes the pool's kind DISPUTED."""

    pool: PoolId
    amounts: Amounts
    by: UserId


class Reconciled(Entry, frozen=True):
    pool: PoolId
    by: UserId


class Claimed(Entry, frozen=True):
    """The charge made when a job is admitted, before its placement group exists. `draws` is what it takes from the
    reservation `reservation`. `continues`: the next attempt of an admitted job, posted right after the
    release of the last one with the same amounts; quota that was cut meanwhile does not stop it (semantics 2.8)."""

    job: JobId
    attempt: int
    user: UserId
    share: ShareId
    pool: PoolId
    model: str | None
    workload: str
    priority: int
    amounts: Amounts
    placement: Placement
    record: AdmissionRecord
    reservation: ReservationId | None = None
    draws: Amounts = field(default_factory=dict)
    continues: bool = False


class Committed(Entry, frozen=True):
    job: JobId
    attempt: int


class Voided(Entry, frozen=True):
    """The group of the claim was never made."""

    job: JobId
    attempt: int
    why: str


class Expired(Entry, frozen=True):
    """The claim's deadline passed before its group was ready."""

    job: JobId
    attempt: int


class Released(Entry, frozen=True):
    job: JobId
    attempt: int
    why: str


class Moved(Entry, frozen=True):
    """The charge of an active job moves to another share; refused if that share cannot be charged."""

    job: JobId
    share: ShareId
    by: UserId


class Resized(Entry, frozen=True):
    """A running job is charged `amounts`, the sum of `bundles`, instead of what it was, in one step."""

    job: JobId
    amounts: Amounts
    placement: Placement
    by: UserId
    bundles: tuple[Bundle, ...] = ()


class Recorded(Entry, frozen=True):
    """A decision that admitted nobody: a refusal, or a change of why a job waits."""

    record: AdmissionRecord


AnyEntry = (
    SettingsSet
    | PoolSet
    | PoolDeleted
    | GroupSet
    | ShareSet
    | ShareDeleted
    | ReservationSet
    | ReservationReleased
    | OverrideSet
    | ReservedReported
    | Reconciled
    | Claimed
    | Committed
    | Voided
    | Expired
    | Released
    | Moved
    | Resized
    | Recorded
)
