"""How a share may be changed, shrunk and deleted (semantics 3.5 to 3.7). Each refusal says the numbers."""

from raysched.core.ledger import Ledger
from raysched.core.model import FINAL, PoolId, Share, ShareId
from raysched.core.state import Job, State
from raysched.core.units import Kind, format_amount

# What `resize: when_stopped` protects; names, descriptions, people, limits and workspaces change any time.
PROTECTED = ("nominal", "instances", "workloads", "weight", "sharing", "queue", "preemption", "reclaim")


def unfinished(state: State, share: ShareId) -> list[Job]:
    """Jobs of a share that have not ended."""
    return [job for job in state.jobs.values() if job.share == share and job.state not in FINAL]


def refuses_change(state: State, ledger: Ledger, old: Share, new: Share) -> str | None:
    """Why `old` may not become `new` now; None when it may."""
    changed = [name for name in PROTECTED if getattr(old, name) != getattr(new, name)]
    if changed and old.resize == "when_stopped" and not old.stopped:
        return f"share {old.share} must be stopped before its {', '.join(changed)} can change"
    resized = _new_size(old, new)
    if resized is not None:
        jobs = unfinished(state, old.share)
        queued = sum(job.state == "queued" for job in jobs)
        if jobs:
            return (
                f"share {old.share}: the instance size in pool {resized} can change only without jobs: "
                f"{len(jobs) - queued} running and {queued} queued"
            )
    return refuses_size(state, ledger, old, new)


def _new_size(old: Share, new: Share) -> PoolId | None:
    for pool, instances in new.instances.items():
        before = old.instances.get(pool)
        if before is not None and before.size != instances.size:
            return pool
    return None


def refuses_size(state: State, ledger: Ledger, old: Share | None, new: Share) -> str | None:
    """Why a share may not have the nominal of `new`: over what the pool has left, or below the shrink floor."""
    for pool, nominal in new.nominal.items():
        before = old.nominal.get(pool, {}) if old is not None else {}
        for kind, amount in nominal.items():
            if not new.overbook and amount > before.get(kind, 0):
                why = _over_pool(state, ledger, new, pool, kind, before.get(kind, 0))
                if why is not None:
                    return why
    if old is None or new.shrink_floor == "none":
        return None
    for pool, before in old.nominal.items():
        for kind, amount in before.items():
            wanted = new.nominal.get(pool, {}).get(kind, 0)
            if wanted < amount:
                why = _under_floor(state, ledger, new, pool, kind, wanted)
                if why is not None:
                    return why
    return None


def _over_pool(state: State, ledger: Ledger, new: Share, pool: PoolId, kind: Kind, before: int) -> str | None:
    total = state.pool_room(pool).total.get(kind, 0)
    left = max(0, total - ledger.quota.nominal_in_pool(pool).get(kind, 0))
    wanted = new.nominal[pool][kind]
    if wanted <= before + left:
        return None
    instances = new.instances.get(pool)
    each = instances.per_instance.get(kind, 0) if instances is not None else 0
    if instances is not None and each:
        counts = f"{left // each} left, at most {(before + left) // each}"
        return f"share {new.share}: pool {pool} has {counts} instances {instances.size}, asked {instances.count}"
    counts = f"{format_amount(kind, left)} left, at most {format_amount(kind, before + left)}"
    return f"share {new.share}: pool {pool} has {counts} {kind}, asked {format_amount(kind, wanted)}"


def _under_floor(state: State, ledger: Ledger, new: Share, pool: PoolId, kind: Kind, wanted: int) -> str | None:
    """Allocated counts loans; the largest single queued job is what the share must still be able to hold."""
    allocated = ledger.quota.account(new.share, pool).used.get(kind, 0)
    queued = [job for job in unfinished(state, new.share) if job.state == "queued"]
    largest = max((job.spec.amounts(None).get(kind, 0) for job in queued), default=0)
    floor = min(allocated, largest) if new.shrink_floor == "smaller" else max(allocated, largest)
    if wanted >= floor:
        return None
    return (
        f"share {new.share}: {format_amount(kind, wanted)} {kind} in pool {pool} is below its floor of "
        f"{format_amount(kind, floor)} (allocated {format_amount(kind, allocated)}, largest queued job "
        f"{format_amount(kind, largest)})"
    )


def refuses_delete(state: State, share: Share) -> str | None:
    """Why a share may not be deleted; None when it may."""
    jobs = unfinished(state, share.share)
    if jobs:
        return f"share {share.share} has {len(jobs)} unfinished jobs"
    if not share.stopped:
        return f"share {share.share} must be stopped before it can be deleted"
    return None
