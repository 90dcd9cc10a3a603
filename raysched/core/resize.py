"""Resizing a job: the new amount is checked in place of the old, for the owner (semantics 2.12).

A queued job's resize changes its bundles. An active one is charged anew in one entry and goes on as its next attempt,
since a placement group cannot change its bundles; if the new size does not fit, there is an error and it runs on."""

from msgspec import Struct, structs

from raysched.core import entries as e
from raysched.core import events as ev
from raysched.core.accounts import Ask
from raysched.core.books import describe
from raysched.core.diagnosis import diagnose
from raysched.core.draft import Draft
from raysched.core.ledger import Ledger
from raysched.core.model import Bundle, PoolId, UserId, gang_amounts, placement_nodes
from raysched.core.placement import Ground, Placed, Unplaced, place
from raysched.core.state import Job, State


class Resize(Struct, frozen=True):
    """What a resize amounts to."""

    entries: list[e.AnyEntry]
    events: list[ev.AnyEvent]


def resize(
    state: State, ledger: Ledger, job: Job, bundles: tuple[Bundle, ...], now_ms: int, by: UserId
) -> Resize | tuple[str, str]:
    """The change, or (code, message) why it cannot be. Nothing is changed here; a resize cannot be confirmed."""
    if job.state == "queued":
        spec = structs.replace(job.spec, bundles=bundles, confirm=False)
        blocking = [finding for finding in diagnose(state, ledger, spec, now_ms) if finding.severity == "block"]
        blocking = [finding for finding in blocking if finding.kind.startswith("OVER_")]
        if blocking:
            return blocking[0].kind, "; ".join(f"{finding.kind}: {finding.text}" for finding in blocking)
        return Resize([], [ev.BundlesChanged(at_ms=now_ms, job=job.job, bundles=bundles, by=by)])
    claim = ledger.claims.get(job.job)
    if claim is None or job.held or job.stop is not None or job.pool is None:
        return "NOT_NOW", f"job {job.job} is {job.state} and cannot be resized now"
    amounts = gang_amounts(bundles, claim.model)
    draft = Draft(state, ledger)
    draft.release(job.job)
    try:
        ask = Ask(claim.share, claim.user, claim.pool, claim.workload, amounts)
        for row in ledger.quota.rows(ask):
            grown = row.request > claim.amounts.get(row.kind, 0)
            if grown and row.request > row.remaining + row.override:
                return row.reason, describe(row)
        found = _room(state, job, job.pool, claim.model, bundles)
    finally:
        draft.rollback()
    if not isinstance(found, Placed):
        return (
            "NO_CAPACITY",
            f"NO_CAPACITY: {found.fit} of {found.asked} bundles of the new size fit in pool {job.pool}",
        )
    placement = found.placement
    return Resize(
        [e.Resized(at_ms=now_ms, job=job.job, amounts=amounts, placement=placement, by=by, bundles=bundles)],
        [ev.BundlesChanged(at_ms=now_ms, job=job.job, bundles=bundles, by=by, placement=placement)],
    )


def _room(state: State, job: Job, pool: PoolId, model: str | None, bundles: tuple[Bundle, ...]) -> Placed | Unplaced:
    """Where it is now if that has room, else anywhere in its pool."""
    here = frozenset(placement_nodes(job.placement))
    found = place(state, Ground(pool, model, within=here), bundles)
    if isinstance(found, Placed):
        return found
    return place(state, Ground(pool, model), bundles, job.spec.topology == "required")
