"""After submitting: why a job waits, as the whole chain of blockers in order (semantics 8.3)."""

from msgspec import Struct, field

from raysched.core.admission import Option, assess, decide
from raysched.core.books import Claim, describe
from raysched.core.draft import Draft
from raysched.core.ledger import Ledger
from raysched.core.model import JobId
from raysched.core.outlook import Outlook, outlook
from raysched.core.queue import is_behind_alike, is_behind_head, options
from raysched.core.record import AdmissionRecord, AdmissionState, QuotaRow, Reason
from raysched.core.state import Job, State
from raysched.core.units import format_amount


class Blocker(Struct, frozen=True):
    """One thing in the way. `numbers` are raw amounts; `freed_by`: what would free it; `freed_at_ms`: when, as far as
    run times are known."""

    reason: Reason
    scope: str
    text: str
    numbers: dict[str, int] = field(default_factory=dict)
    freed_by: str | None = None
    freed_at_ms: int | None = None


class Explanation(Struct, frozen=True):
    """Why a job is where it is. `blockers` is empty for a job that does not wait."""

    job: JobId
    state: str
    reason: Reason | None
    text: str
    blockers: tuple[Blocker, ...]


class Standing(Struct, frozen=True):
    """What lists show of a job that waits."""

    admission: AdmissionState | None
    reason: Reason | None


def standing(state: State, ledger: Ledger, job: Job) -> Standing:
    """The admission state and the one reason shown in lists: of a job that is held by its node NODE_SUSPECT; of a
    queued one the first blocker in the order evidence → limit → quota → loan → reservation → nodes → policy. A job
    behind a blocked head, or behind one that asks for the same, has no record of its own: its reason is derived here,
    and BEHIND_HEAD comes last."""
    record = ledger.records.get(job.job)
    if job.state != "queued":
        reason: Reason | None = "NODE_SUSPECT" if job.state == "starting" and job.held else None
        return Standing(record.admission_state if record is not None else None, reason)
    behind_head = is_behind_head(state, ledger, job) is not None
    if not behind_head and not is_behind_alike(state, job):
        waits = record is not None and record.reason is not None
        return Standing(record.admission_state, record.reason) if record and waits else Standing("QUEUED", None)
    for option in options(state, ledger, job.share, job.class_key()):
        verdict = decide(assess(Draft(state, ledger), job, option, ledger.now_ms).record)
        if verdict.reason is not None:
            return Standing(verdict.state, verdict.reason)
        break
    return Standing("QUEUED", "BEHIND_HEAD" if behind_head else None)


def explain(state: State, ledger: Ledger, job: Job, now_ms: int) -> Explanation:
    """The chain of blockers of one job on the present state and books; nothing is changed."""
    if job.state == "starting" and job.held:
        nodes = ", ".join(dict.fromkeys(placed.node for placed in job.placement))
        blocker = Blocker("NODE_SUSPECT", "nodes", f"waits until its nodes are healthy or failed: {nodes}")
        return Explanation(job.job, job.state, "NODE_SUSPECT", blocker.text, (blocker,))
    if job.state != "queued":
        return Explanation(job.job, job.state, None, job.detail or f"the job is {job.state}", ())
    blockers = _blockers(state, ledger, job, now_ms)
    if not blockers:
        return Explanation(job.job, job.state, None, "nothing is in the way: it starts with the next plan", ())
    return Explanation(job.job, job.state, blockers[0].reason, blockers[0].text, tuple(blockers))


def _blockers(state: State, ledger: Ledger, job: Job, now_ms: int) -> list[Blocker]:
    if job.share not in ledger.shares:
        return []
    choice = options(state, ledger, job.share, job.class_key())
    draft = Draft(state, ledger)
    found: list[Blocker] = []
    for option in choice:
        assessed = assess(draft, job, option, now_ms)
        if assessed.placement is not None:
            found = []
            break
        if not found:
            found = _of_record(draft, job, option, assessed.record, now_ms)
    if not choice:
        found = [Blocker("SHARE_QUOTA", f"share {job.share}", f"share {job.share} owns nothing in any pool")]
    head = is_behind_head(state, ledger, job)
    if head is not None:
        text = f"behind {head.job} in the queue of share {job.share} ({ledger.shares[job.share].queue})"
        found.append(Blocker("BEHIND_HEAD", f"queue {job.share}", text, {}, f"the start of {head.job}"))
    return found


def _of_record(draft: Draft, job: Job, option: Option, record: AdmissionRecord, now_ms: int) -> list[Blocker]:
    """Evidence, then every ceiling that is too low, then room: not only what the decision stopped at."""
    found: list[Blocker] = []
    verdict = decide(record)
    if record.evidence != "VALID" and verdict.reason is not None:
        found.append(_of_evidence(record, verdict.reason))
    for row in record.quota_rows:
        if row.request > row.remaining + row.override:
            found.append(_of_row(draft.state, draft.ledger, record, row))
    room = outlook(draft, job, option, now_ms)
    if room is not None:
        found.append(_of_room(room))
    return found


def _of_evidence(record: AdmissionRecord, reason: Reason) -> Blocker:
    outside = record.evidence == "DISPUTED" and record.evidence_ref.startswith("reserved total")
    freed_by = f"a matching report or a reconcile of pool {record.pool}" if outside else "reports of these nodes"
    text = f"evidence is {record.evidence}: {record.evidence_ref}"
    return Blocker(reason, f"pool {record.pool}", text, {}, freed_by)


def _of_row(state: State, ledger: Ledger, record: AdmissionRecord, row: QuotaRow) -> Blocker:
    covered = row.request <= row.remaining + row.override + row.unauthorised
    reason: Reason = "OVERRIDE_BLOCKED" if covered else row.reason
    numbers = {
        "limit": row.limit + row.override,
        "used": row.used,
        "requested": row.request,
        "excess": row.request - row.remaining - row.override,
    }
    holders = [claim for claim in ledger.claims.values() if _counts(claim, record, row)]
    freed = _freed_at(state, holders, row.kind, numbers["excess"])
    by = ", ".join(claim.job for claim in sorted(holders, key=lambda c: c.admitted_ms)[:5]) or None
    text = describe(row) + (" (an override without authority would cover it)" if covered else "")
    return Blocker(reason, row.scope, text, numbers, f"the end of {by}" if by else None, freed)


def _counts(claim: Claim, record: AdmissionRecord, row: QuotaRow) -> bool:
    if row.reason == "USER_LIMIT" and claim.user != record.user:
        return False
    if row.reason in ("USER_LIMIT", "GROUP_LIMIT", "SHARE_QUOTA", "BORROW_LIMIT"):
        return claim.share == record.share and row.kind in claim.amounts
    return claim.pool == record.pool and row.kind in claim.amounts


def _of_room(room: Outlook) -> Blocker:
    record, reason = room.record, room.reason
    numbers = {"bundles_asked": record.bundles_asked, "bundles_fit": record.bundles_fit}
    parts = []
    for row in record.capacity_rows:
        numbers[f"{row.kind}_free"], numbers[f"{row.kind}_asked"] = row.allocatable or 0, row.request
        if row.reserved_by_others:
            numbers[f"{row.kind}_reserved"] = row.reserved_by_others
        free = "unknown" if row.allocatable is None else format_amount(row.kind, row.allocatable)
        reserved = f" ({format_amount(row.kind, row.reserved_by_others)} reserved)" if row.reserved_by_others else ""
        parts.append(f"{free} {row.kind} free{reserved}, asked {format_amount(row.kind, row.request)}")
    fit = f"{record.bundles_fit} of {record.bundles_asked} bundles fit on the nodes of pool {record.pool}"
    text = f"{reason}: {fit}; {'; '.join(parts)}"
    return Blocker(reason, f"pool {record.pool}", text, numbers, room.freed_by, room.freed_at_ms)


def _freed_at(state: State, holders: list[Claim], kind: str, excess: int) -> int | None:
    """When enough of what holds the kind will have ended, if run times say so."""
    ends: list[tuple[int, int]] = []
    for claim in holders:
        job = state.jobs.get(claim.job)
        if job is not None and job.spec.max_runtime_ms is not None and job.started_ms is not None:
            ends.append((job.started_ms + job.spec.max_runtime_ms, claim.amounts.get(kind, 0)))
    for end, amount in sorted(ends):
        excess -= amount
        if excess <= 0:
            return end
    return None
