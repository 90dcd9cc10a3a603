"""The three books brought together: one request, now, decided on this evidence (semantics 7).

`assess` gathers every field of the decision into a record; `decide` computes the verdict from that record alone, so a
stored row can be decided again (`raysched ledger verify`)."""

from msgspec import Struct, structs

from raysched.core import reservation
from raysched.core.accounts import Ask
from raysched.core.draft import Draft
from raysched.core.ledger import Ledger
from raysched.core.model import NodeId, Placement, PoolId, ShareId, UserId
from raysched.core.placement import Ground, Placed, Unplaced, place
from raysched.core.record import (
    AdmissionRecord,
    AdmissionState,
    CapacityRow,
    ContentionState,
    Evidence,
    QuotaRow,
    Reason,
)
from raysched.core.state import Job, State
from raysched.core.units import CPU, GPU, Amounts

Option = tuple[PoolId, str | None]


class Verdict(Struct, frozen=True, gc=False):
    """What is decided, the first blocker, and the authority when an exception was needed."""

    state: AdmissionState
    reason: Reason | None = None
    override_used: bool = False


class Assessment(Struct, frozen=True, gc=False):
    """A decided request: its record, and where it goes if it is admitted."""

    record: AdmissionRecord
    ask: Ask
    placement: Placement | None
    drawing: reservation.Drawing


def decide(record: AdmissionRecord) -> Verdict:
    """The verdict from the record's fields alone, in the order evidence → limit → quota → loan → reservation → nodes
    (semantics 7.2 and 7.4)."""
    if record.refused:
        return Verdict("REJECTED")
    if record.evidence == "UNKNOWN":
        return Verdict("UNKNOWN", "EVIDENCE_UNKNOWN")
    if record.evidence == "STALE":
        return Verdict("STALE", "EVIDENCE_STALE")
    if record.evidence == "DISPUTED":
        return Verdict("DISPUTED", "EVIDENCE_DISPUTED")
    override_used = False
    for row in record.quota_rows:
        if row.request <= row.remaining:
            continue
        if row.request > row.remaining + row.override:
            if row.request <= row.remaining + row.override + row.unauthorised:
                return Verdict("BLOCKED", "OVERRIDE_BLOCKED")
            return Verdict("QUEUED", row.reason)
        override_used = True
    if record.reservation_lifecycle == "on_hold":
        return Verdict("HOLD", "RESERVATION_HOLD")
    for capacity in record.capacity_rows:
        if capacity.allocatable is None:
            return Verdict("UNKNOWN", "EVIDENCE_UNKNOWN")
        left = capacity.allocatable - capacity.reserved_by_others
        if left < capacity.request <= capacity.allocatable:
            if capacity.request <= left + capacity.held_by_reservation:
                return Verdict("HOLD", "RESERVATION_HOLD")
            return Verdict("QUEUED", "RESERVED")
    if record.bundles_fit < record.bundles_asked:
        if record.bundles_fit_unreserved >= record.bundles_asked:
            return Verdict("QUEUED", "RESERVED")
        short = any(row.allocatable is not None and row.request > row.allocatable for row in record.capacity_rows)
        return Verdict("QUEUED", "NO_CAPACITY" if short else "FRAGMENTED")
    return Verdict("ADMITTED_OVERRIDE" if override_used else "ADMITTED", None, override_used)


def assess(
    draft: Draft, job: Job, option: Option, now_ms: int, skip_room: bool = False, ask: Ask | None = None
) -> Assessment:
    """Decide one job in one pool and model on the draft as it stands. Nothing is charged or placed.

    `skip_room`: the job will be asked again as a borrower, so nobody looks where it would go now. `ask`: what it asks
    there, if the caller has it."""
    state, ledger = draft.state, draft.ledger
    pool, model = option
    if ask is None:
        ask = Ask(job.share, job.user, pool, job.spec.workload, state.amounts(job, model))
    amounts = ask.amounts
    quota_rows = ledger.quota.rows(ask)
    keep, draws = reservation.NOTHING_KEPT, reservation.NOTHING_DRAWN
    if ledger.reservations or job.spec.reservation is not None:
        keep = reservation.kept(ledger, job.spec, job.share, pool, now_ms)
        draws = reservation.drawing(ledger, job.spec, job.share, pool, amounts, now_ms)
    blocked = first_over(quota_rows) is not None
    skip = (blocked or skip_room) and not state.pool_room(pool).dubious
    asked = job.bundles[0].count if len(job.bundles) == 1 else sum(bundle.count for bundle in job.bundles)
    found: Placed | Unplaced = Unplaced(0, asked) if skip else find_room(draft, job, option, keep)
    unreserved = found
    evidence: Evidence = "VALID"
    cited = ""
    if isinstance(found, Unplaced):
        if keep.bundles and not skip:
            unreserved = place(state, Ground(pool, model), job.bundles, job.spec.topology == "required")
        evidence, cited = evidence_of(draft, job, option)
    if evidence == "VALID" and ledger.reported and disputed(ledger, pool, amounts, now_ms):
        evidence, cited = "DISPUTED", f"reserved total of pool {pool} reported from outside"
    fit = asked if isinstance(found, Placed) else found.fit
    record = _record(draft, job, option, ask, quota_rows, keep, draws, evidence, cited, asked, fit, unreserved, now_ms)
    verdict = decide(record)
    # The record is completed here, before anybody has seen it.
    structs.force_setattr(record, "admission_state", verdict.state)
    structs.force_setattr(record, "reason", verdict.reason)
    if verdict.override_used:
        allowed = authority(ledger, job.user, job.share, pool, now_ms)
        structs.force_setattr(record, "override_authority", allowed)
    placement = found.placement if verdict.reason is None and isinstance(found, Placed) else None
    return Assessment(record, ask, None if skip_room else placement, draws)


def first_over(rows: tuple[QuotaRow, ...]) -> QuotaRow | None:
    """The first ceiling that does not let the request pass."""
    for row in rows:
        if row.request > row.limit - row.used + row.override:
            return row
    return None


def find_room(draft: Draft, job: Job, option: Option, keep: reservation.Kept) -> Placed | Unplaced:
    """A placement that leaves room for the bundles of other owners' reservations."""
    pool, model = option
    ground = Ground(pool, model)
    required = job.spec.topology == "required"
    if not keep.bundles:
        return place(draft.state, ground, job.bundles, required)
    mark = draft.mark()
    kept_room = place(draft.state, ground, keep.bundles)
    if isinstance(kept_room, Placed):
        draft.hold(job.job, kept_room.placement, keep.bundles)
    found = place(draft.state, ground, job.bundles, required)
    draft.rollback(mark)
    return found


def evidence_of(draft: Draft, job: Job, option: Option) -> tuple[Evidence, str]:
    """The evidence verdict for a request that found no room on the nodes that count (semantics 7.10): would it, if
    disputed, stale or never-reported nodes counted?"""
    pool, model = option
    room = draft.state.pool_room(pool)
    if not room.dubious:
        return ("UNKNOWN", f"no node of pool {pool} ever reported") if not room.reported else ("VALID", "")
    kinds: dict[str, list[NodeId]] = {}
    for node_id in sorted(room.dubious):
        why = draft.state.nodes[node_id].dubious
        if why is not None:
            kinds.setdefault(why, []).append(node_id)
    trials: list[tuple[Evidence, list[NodeId]]] = []
    words: tuple[Evidence, ...] = ("DISPUTED", "STALE", "UNKNOWN")
    trials += [(word, kinds[word]) for word in words if word in kinds]
    trials.append((trials[0][0], sorted(room.dubious)))
    for word, nodes in trials:
        if isinstance(place(draft.state, Ground(pool, model, tuple(nodes)), job.bundles), Placed):
            return word, f"nodes {', '.join(nodes[:8])}"
    return ("VALID", "") if room.reported else ("UNKNOWN", f"no node of pool {pool} ever reported")


def disputed(ledger: Ledger, pool: PoolId, amounts: Amounts, now_ms: int) -> bool:
    """Whether an outside report of the reserved total differs from the sum active now in a kind asked for (7.11)."""
    reported = ledger.reported.get(pool)
    if reported is None:
        return False
    for kind, told in reported.items():
        active = sum(
            book.reservation.amounts.get(kind, 0)
            for book in ledger.reservations.values()
            if book.reservation.pool == pool and book.state(now_ms) in ("active", "on_hold")
        )
        if told != active and kind in amounts:
            return True
    return False


def contention(state: State, ledger: Ledger, pool: PoolId, kind: str) -> ContentionState:
    """ENTITLEMENT_OVERBOOKED while the sum of quotas in the pool is over its capacity (semantics 7.5)."""
    owned = ledger.quota.nominal_in_pool(pool).get(kind, 0)
    return "ENTITLEMENT_OVERBOOKED" if owned > state.pool_room(pool).total.get(kind, 0) else "NORMAL"


def _record(
    draft: Draft,
    job: Job,
    option: Option,
    ask: Ask,
    quota_rows: tuple[QuotaRow, ...],
    keep: reservation.Kept,
    draws: reservation.Drawing,
    evidence: Evidence,
    cited: str,
    asked: int,
    fit: int,
    unreserved: Placed | Unplaced,
    now_ms: int,
) -> AdmissionRecord:
    pool, model = option
    room = draft.state.pool_room(pool)
    free, others, on_hold = (room.free if room.reported else None), keep.by_others, keep.on_hold
    capacity = tuple(
        [
            CapacityRow(
                kind,
                None if free is None else free.get(kind, 0),
                others.get(kind, 0) if others else 0,
                on_hold.get(kind, 0) if on_hold else 0,
                amount,
            )
            for kind, amount in ask.amounts.items()
        ]
    )
    kind = GPU if GPU in ask.amounts else CPU if CPU in ask.amounts else next(iter(ask.amounts), GPU)
    row = _binding(quota_rows, kind, ask)
    facts: CapacityRow | None = None
    for facts in capacity:
        if facts.kind == row.kind:
            break
    else:
        facts = None
    return AdmissionRecord(
        job.job,
        job.attempt + 1,
        job.user,
        job.share,
        pool,
        model,
        row.scope,
        row.kind,
        quota_limit=row.limit,
        quota_used=row.used,
        quota_remaining=row.limit - row.used,
        capacity_allocatable=facts.allocatable if facts else None,
        reserved_by_others=facts.reserved_by_others if facts else 0,
        request_quantity=row.request,
        reservation_lifecycle=draws.state,
        contention_state=contention(draft.state, draft.ledger, pool, row.kind),
        admission_state="QUEUED",
        decided_at_ms=now_ms,
        evidence=evidence,
        evidence_ref=cited,
        bundles_asked=asked,
        bundles_fit=fit,
        bundles_fit_unreserved=asked if isinstance(unreserved, Placed) else max(fit, unreserved.fit),
        quota_rows=quota_rows,
        capacity_rows=capacity,
        reservation=draws.reservation,
        books_version=draft.ledger.version,
        workload=job.spec.workload,
    )


def _binding(rows: tuple[QuotaRow, ...], kind: str, ask: Ask) -> QuotaRow:
    """The row people want to see first: the first that blocks, else the tightest in the main kind."""
    tightest: QuotaRow | None = None
    least = 0
    for row in rows:
        left = row.limit - row.used + row.override
        if row.request > left:
            return row
        if row.kind == kind and (tightest is None or (left, row.scope) < (least, tightest.scope)):
            tightest, least = row, left
    return tightest or QuotaRow(f"share {ask.share}", kind, 0, 0, ask.amounts.get(kind, 0), "SHARE_QUOTA")


def authority(ledger: Ledger, user: UserId, share: ShareId, pool: PoolId, now_ms: int) -> str | None:
    """Who allowed the overrides that are active for this user and share."""
    names = [
        override.authority
        for override in ledger.active_overrides(now_ms)
        if override.authority is not None
        and override.pool in (None, pool)
        and (override.user == user or (override.user is None and override.share == share))
    ]
    return ", ".join(dict.fromkeys(names)) or None
