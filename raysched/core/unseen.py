"""What the ledger holds and the journal never heard: a scheduler crashed after its entries were posted and before its
events were journaled. Worked out from state and books alone, in the order in which it must be folded."""

from collections.abc import Iterator

from raysched.core import events as ev
from raysched.core.books import Claim
from raysched.core.ledger import Ledger
from raysched.core.making import Making
from raysched.core.model import NodeId, UserId
from raysched.core.settle import finish
from raysched.core.state import Job, State

BOOKS = UserId("raysched")  # who asked is in the ledger's entry


def unseen(state: State, ledger: Ledger, now_ms: int) -> list[ev.AnyEvent]:
    """The events that belong to entries posted last. Releases come first: a claim may stand on the room they gave."""
    claims = list(_claims(state, ledger))
    swaps = {swap.failed: swap for job, claim in claims for swap in _swaps(state, ledger, job, claim, now_ms)}
    admitted = [
        ev.Admitted(
            at_ms=now_ms,
            job=job.job,
            attempt=claim.attempt,
            pool=claim.pool,
            model=claim.model,
            placement=claim.placement,
        )
        for job, claim in claims
    ]
    return [*_commands(state, ledger, now_ms), *_releases(state, ledger, now_ms), *swaps.values(), *admitted]


def _commands(state: State, ledger: Ledger, now_ms: int) -> Iterator[ev.AnyEvent]:
    """Active jobs that were charged to another share or resized."""
    for job_id, claim in sorted(ledger.claims.items()):
        job = state.jobs.get(job_id)
        if job is None or job.attempt != claim.attempt:
            continue
        if job.share != claim.share:
            yield ev.JobMoved(at_ms=now_ms, job=job_id, share=claim.share, by=BOOKS)
        if claim.bundles and job.bundles != claim.bundles:
            yield ev.BundlesChanged(
                at_ms=now_ms, job=job_id, bundles=claim.bundles, by=BOOKS, placement=claim.placement
            )


def _claims(state: State, ledger: Ledger) -> Iterator[tuple[Job, Claim]]:
    for job_id, claim in sorted(ledger.claims.items()):
        job = state.jobs.get(job_id)
        if job is not None and job.attempt == claim.attempt - 1:
            yield job, claim


def _releases(state: State, ledger: Ledger, now_ms: int) -> list[ev.AnyEvent]:
    """What became of the jobs that no longer hold a claim: the same that was decided then, on the same state."""
    making = Making(state, ledger, now_ms)
    for job_id in sorted(state.active):
        job = state.jobs[job_id]
        if job_id in ledger.claims:
            continue
        if not job.held:
            finish(making, job)
        elif job.cancel is not None:
            making.end(job, "cancelled", f"cancelled by {job.cancel}")
        else:
            making.requeue(job, "its node failed and no equal spare was free", front=True)
    making.draft.rollback()
    return list(making.events)


def _swaps(state: State, ledger: Ledger, job: Job, claim: Claim, now_ms: int) -> Iterator[ev.NodeSwapped]:
    """Nodes that changed places with the claim: it goes on as it was, but for spares in the place of lost nodes."""
    moves: dict[NodeId, NodeId] = {
        before.node: after.node
        for before, after in zip(job.placement, claim.placement, strict=False)
        if before.node != after.node
    }
    for failed, spare in moves.items():
        node, stand_in = state.nodes.get(failed), state.nodes.get(spare)
        if node is None or stand_in is None or stand_in.pool not in ledger.pools:
            continue
        if ledger.pools[stand_in.pool].role == "standby":
            yield ev.NodeSwapped(at_ms=now_ms, failed=failed, spare=spare, pool=node.pool, standby_pool=stand_in.pool)
