"""Room on nodes, whatever quota says: what of a job would fit now, what would make room, and when, as far as run times
and the windows of reservations are known."""

from msgspec import Struct, structs

from raysched.core import reservation
from raysched.core.admission import Option, assess, decide, find_room
from raysched.core.draft import Draft
from raysched.core.placement import Ground, Placed, place
from raysched.core.record import AdmissionRecord, Reason
from raysched.core.state import Job

MOST_AHEAD = 200  # moments that are looked at; a pool of thousands of jobs must not make a question slow
SHOWN = 5
ROOM: frozenset[Reason | None] = frozenset({"RESERVED", "RESERVATION_HOLD", "NO_CAPACITY", "FRAGMENTED"})


class Outlook(Struct, frozen=True):
    """Why there is no room, on this record (quota left out); what frees it, and when."""

    reason: Reason
    record: AdmissionRecord
    freed_by: str | None
    freed_at_ms: int | None


def outlook(draft: Draft, job: Job, option: Option, now_ms: int) -> Outlook | None:
    """None when there is room. Nothing is left changed."""
    record = _record(draft, job, option, now_ms)
    reason = decide(record).reason
    if reason is None or reason not in ROOM:
        return None
    mark, ended, over = draft.mark(), list[str](), list[str]()
    try:
        for at_ms, what, name in _ahead(draft, job, option, now_ms)[:MOST_AHEAD]:
            if what == "job":
                draft.release(draft.state.jobs[name].job)  # type: ignore[index]
                ended.append(name)
            else:
                over.append(name)
            if decide(_record(draft, job, option, at_ms)).reason not in ROOM:
                return Outlook(reason, record, _by(ended, over), at_ms)
    finally:
        draft.rollback(mark)
    return Outlook(reason, record, _by(_holders(draft, job, option), _keepers(draft, job, option, now_ms)), None)


def _record(draft: Draft, job: Job, option: Option, at_ms: int) -> AdmissionRecord:
    """The decision without its ceilings: is there room?"""
    pool, model = option
    record = assess(draft, job, option, at_ms).record
    keep = reservation.kept(draft.ledger, job.spec, job.share, pool, at_ms)
    found = find_room(draft, job, option, keep)
    alone = found
    if keep.bundles and not isinstance(found, Placed):
        alone = place(draft.state, Ground(pool, model), job.bundles, job.spec.topology == "required")
    fit, unreserved = (record.bundles_asked if isinstance(each, Placed) else each.fit for each in (found, alone))
    return structs.replace(
        record, quota_rows=(), evidence="VALID", bundles_fit=fit, bundles_fit_unreserved=max(fit, unreserved)
    )


def _ahead(draft: Draft, job: Job, option: Option, now_ms: int) -> list[tuple[int, str, str]]:
    """What will give room in the pool, and when: ends of jobs that have a longest run time, ends of reservations."""
    found: list[tuple[int, str, str]] = []
    for claim in draft.ledger.claims.values():
        other = draft.state.jobs[claim.job]
        if claim.pool == option[0] and other.started_ms is not None and other.spec.max_runtime_ms is not None:
            found.append((other.started_ms + other.spec.max_runtime_ms, "job", other.job))
    for name in _keepers(draft, job, option, now_ms):
        expiry_ms = draft.ledger.reservations[name].reservation.expiry_ms  # type: ignore[index]
        if expiry_ms is not None:
            found.append((expiry_ms, "reservation", name))
    return sorted(found)


def _keepers(draft: Draft, job: Job, option: Option, now_ms: int) -> list[str]:
    """Reservations in the pool that may keep room from the job."""
    named = job.spec.reservation
    return [
        name
        for name, book in sorted(draft.ledger.reservations.items())
        if (name == named and book.state(now_ms) == "on_hold")
        or (
            book.reservation.pool == option[0]
            and book.state(now_ms) in ("active", "coming", "on_hold")
            and not reservation.owns(book, job.spec, job.share)
        )
    ]


def _holders(draft: Draft, job: Job, option: Option) -> list[str]:
    claims = [claim for claim in draft.ledger.claims.values() if claim.pool == option[0]]
    return [claim.job for claim in sorted(claims, key=lambda claim: (claim.admitted_ms, claim.job))]


def _by(jobs: list[str], reservations: list[str]) -> str | None:
    parts = [", ".join(jobs[:SHOWN])] if jobs else []
    parts += [f"reservation {name}" for name in reservations[:SHOWN]]
    return f"the end of {', '.join(parts)}" if parts else None
