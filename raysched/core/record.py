"""The admission record: one decision with every field it was made from (semantics 7.3).

`admission.decide` computes the verdict from these rows alone, so a stored record can be decided again."""

from typing import Literal

from msgspec import Struct

from raysched.core.model import JobId, PoolId, ReservationId, ShareId, UserId

AdmissionState = Literal[
    "ADMITTED",
    "ADMITTED_OVERRIDE",
    "QUEUED",
    "REJECTED",
    "UNKNOWN",
    "STALE",
    "DISPUTED",
    "HOLD",
    "BLOCKED",
]
ContentionState = Literal["NORMAL", "ENTITLEMENT_OVERBOOKED"]
Reason = Literal[
    "USER_LIMIT",
    "GROUP_LIMIT",
    "SHARE_QUOTA",
    "BORROW_LIMIT",
    "NO_LENDER",
    "RESERVED",
    "NO_CAPACITY",
    "FRAGMENTED",
    "BEHIND_HEAD",
    "BACKFILL_WOULD_DELAY",
    "WAITING_RECLAIM",
    "EVIDENCE_UNKNOWN",
    "EVIDENCE_STALE",
    "EVIDENCE_DISPUTED",
    "RESERVATION_HOLD",
    "OVERRIDE_BLOCKED",
    "NODE_SUSPECT",
]
ReservationState = Literal["none", "coming", "active", "on_hold", "expired", "released"]
Evidence = Literal["VALID", "UNKNOWN", "STALE", "DISPUTED"]


class QuotaRow(Struct, frozen=True, gc=False, array_like=True):
    """One ceiling in one resource kind. `limit` and `used` are without the request; `override` is what active
    overrides with authority add, `unauthorised` what those without would add; `reason` is what a job waits
    for when this row is the one that blocks."""

    scope: str
    kind: str
    limit: int
    used: int
    request: int
    reason: Reason
    override: int = 0
    unauthorised: int = 0

    @property
    def remaining(self) -> int:
        """limit − used; negative after a cut."""
        return self.limit - self.used


class CapacityRow(Struct, frozen=True, gc=False, array_like=True):
    """What the pool's usable nodes have in one kind that no claim holds, and what reservations take off it.
    `allocatable` None: no node of the pool ever reported."""

    kind: str
    allocatable: int | None
    reserved_by_others: int
    held_by_reservation: int
    request: int


class AdmissionRecord(Struct, frozen=True, gc=False, omit_defaults=True):
    """One decision on one request. `bundles_fit` of `bundles_asked` could be placed on the usable nodes with
    reservations left whole; `bundles_fit_unreserved` if reservations did not exist. `refused`: the findings that
    refused a submission (then it is REJECTED). `books_version`: the ledger version the plan began with. The headline
    fields (`scope` … `request_quantity`) repeat the row that binds, for people and for SQL."""

    job: JobId
    attempt: int
    user: UserId
    share: ShareId
    pool: PoolId | None
    model: str | None
    scope: str
    kind: str
    quota_limit: int
    quota_used: int
    quota_remaining: int
    capacity_allocatable: int | None
    reserved_by_others: int
    request_quantity: int
    reservation_lifecycle: ReservationState
    contention_state: ContentionState
    admission_state: AdmissionState
    decided_at_ms: int
    evidence: Evidence
    evidence_ref: str
    bundles_asked: int
    bundles_fit: int
    bundles_fit_unreserved: int
    quota_rows: tuple[QuotaRow, ...] = ()
    capacity_rows: tuple[CapacityRow, ...] = ()
    reason: Reason | None = None
    reservation: ReservationId | None = None
    override_authority: str | None = None
    refused: tuple[str, ...] = ()
    books_version: int = 0
    workload: str = "training"
