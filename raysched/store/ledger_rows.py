"""A ledger entry as a row: the columns people filter by. They only repeat what the payload says."""

from typing import Final, assert_never

from raysched.core.entries import (
    AnyEntry,
    Claimed,
    Committed,
    Expired,
    GroupSet,
    Moved,
    OverrideSet,
    PoolDeleted,
    PoolSet,
    Reconciled,
    Recorded,
    Released,
    ReservationReleased,
    ReservationSet,
    ReservedReported,
    Resized,
    SettingsSet,
    ShareDeleted,
    ShareSet,
    Voided,
)
from raysched.core.record import AdmissionRecord

Value = str | int | None
Columns = dict[str, Value]

_NONE: Final[Columns] = dict.fromkeys(
    ("job", "attempt", "share", "user_id", "pool", "admission_state", "reason", "kind", "request_quantity", "acted_by")
)


def columns(entry: AnyEntry) -> Columns:
    """The plain columns of the row that come from its entry; None where the entry has no such thing."""
    return _NONE | {"at_ms": entry.at_ms, "entry": type(entry).__name__} | _named(entry)


def _named(entry: AnyEntry) -> Columns:
    match entry:
        case Claimed() | Recorded():
            return _of_record(entry.record)
        case Committed() | Voided() | Expired() | Released():
            return {"job": entry.job, "attempt": entry.attempt}
        case Moved():
            return {"job": entry.job, "share": entry.share, "acted_by": entry.by}
        case Resized():
            return {"job": entry.job, "acted_by": entry.by}
        case _:
            return _of_book(entry) | {"acted_by": entry.by}


def _of_record(record: AdmissionRecord) -> Columns:
    return {
        "job": record.job,
        "attempt": record.attempt,
        "share": record.share,
        "user_id": record.user,
        "pool": record.pool,
        "admission_state": record.admission_state,
        "reason": record.reason,
        "kind": record.kind,
        "request_quantity": record.request_quantity,
    }


_Book = (
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
)


def _of_book(entry: _Book) -> Columns:
    match entry:
        case PoolSet():
            return {"pool": entry.pool.pool}
        case PoolDeleted() | ReservedReported() | Reconciled():
            return {"pool": entry.pool}
        case ShareSet():
            return {"share": entry.share.share}
        case ShareDeleted():
            return {"share": entry.share}
        case ReservationSet():
            kept = entry.reservation
            return {"pool": kept.pool, "share": kept.share, "user_id": kept.user}
        case OverrideSet():
            raised = entry.override
            return {"pool": raised.pool, "share": raised.share, "user_id": raised.user}
        case SettingsSet() | GroupSet() | ReservationReleased():
            return {}
        case _:
            assert_never(entry)
