"""What people and programs read of the state and the books: plain values, amounts raw. Nothing is changed here."""

from typing import Any

import msgspec

from raysched.config import limits_to_keys
from raysched.core.admission import contention
from raysched.core.books import ReservationBook
from raysched.core.explain import explain, standing
from raysched.core.ledger import Ledger
from raysched.core.loans import lent, loans
from raysched.core.model import ACTIVE, Limits, Share, placement_nodes
from raysched.core.pools import Node
from raysched.core.remedy import cheapest_change
from raysched.core.state import Job, State
from raysched.core.units import GPU, Amounts, add_into
from raysched.runtime.inbox import Inbox

View = dict[str, Any]


def plain(value: object) -> Any:
    """A core value as JSON-able data."""
    return msgspec.to_builtins(value)


def job_view(state: State, ledger: Ledger, job: Job) -> View:
    """One job as lists and pages show it."""
    record = ledger.records.get(job.job)
    claim = ledger.claims.get(job.job)
    stands = standing(state, ledger, job)
    return {
        "job": job.job,
        "user": job.user,
        "share": job.share,
        "workload": job.spec.workload,
        "workspace": job.spec.workspace,
        "priority": job.priority,
        "tags": dict(job.spec.tags),
        "state": job.state,
        "reason": stands.reason,
        "admission": stands.admission,
        "contention": record.contention_state if record is not None else None,
        "attempt": job.attempt,
        "pool": job.pool,
        "model": job.model,
        "nodes": list(placement_nodes(job.placement)),
        "devices": {placed.node: list(placed.devices) for placed in job.placement if placed.devices},
        "bundles": [plain(bundle) for bundle in job.bundles],
        "amounts": dict(claim.amounts) if claim is not None else job.spec.amounts(job.model),
        "submitted_ms": job.submitted_ms,
        "claimed_ms": job.claimed_ms,
        "started_ms": job.started_ms,
        "ended_ms": job.ended_ms,
        "exit_code": job.exit_code,
        "detail": job.detail,
        "result": job.result,
        "cross_pool": job.cross_pool,
    }


def explain_view(state: State, ledger: Ledger, job: Job, now_ms: int) -> View:
    """The blocker chain of one job."""
    change = cheapest_change(state, ledger, job, now_ms)
    return {**plain(explain(state, ledger, job, now_ms)), "change": None if change is None else plain(change)}


def share_view(state: State, ledger: Ledger, share: Share, lending: dict[Any, Amounts]) -> View:
    """One share with what it uses, owns, borrows and lends, per pool and kind."""
    used: dict[str, Amounts] = {}
    borrowed: dict[str, Amounts] = {}
    given: dict[str, Amounts] = {}
    for pool in ledger.pool_order():
        account = ledger.quota.account(share.share, pool)
        if account.used:
            used[pool] = {kind: amount for kind, amount in account.used.items() if amount}
        owed = {kind: account.borrowed(kind) for kind in account.nominal if account.borrowed(kind)}
        if owed:
            borrowed[pool] = owed
        if lending.get((share.share, pool)):
            given[pool] = lending[share.share, pool]
    queued = sum(1 for _ in state.pending.orders(share.share))
    return {
        "share": share.share,
        "description": share.description,
        "cohort": share.cohort,
        "state": "stopped" if share.stopped else "open",
        "weight": share.weight,
        "preset": share.preset,
        "nominal": {pool: dict(amounts) for pool, amounts in share.nominal.items()},
        "owned": _summed(share.nominal),
        "used": _summed(used),
        "borrowed": _summed(borrowed),
        "lent": _summed(given),
        "by_pool": {
            pool: {
                "owned": dict(share.nominal.get(pool, {})),
                "used": used.get(pool, {}),
                "borrowed": borrowed.get(pool, {}),
                "lent": given.get(pool, {}),
            }
            for pool in ledger.pool_order()
            if pool in share.nominal or pool in used
        },
        "strategy": share.sharing.strategy,
        "queue": share.queue,
        "workloads": list(share.workloads),
        "workspaces": list(share.workspaces),
        "admins": list(share.admins),
        "limits_enabled": share.limits.enabled,
        "jobs": {"running": sum(claim.share == share.share for claim in ledger.claims.values()), "queued": queued},
        "version": ledger.changed.get(f"share {share.share}", 0),
    }


def _summed(by_pool: dict[Any, Amounts]) -> Amounts:
    total: Amounts = {}
    for amounts in by_pool.values():
        add_into(total, amounts)
    return total


def shares_view(
    state: State, ledger: Ledger, name: str | None = None, pool: str | None = None, workspace: str | None = None
) -> list[View]:
    """Shares by name; filtered by a part of the name, a pool they own quota in, a workspace they are linked to."""
    lending: dict[Any, Amounts] = dict(lent(ledger))
    return [
        share_view(state, ledger, share, lending)
        for _, share in sorted(ledger.shares.items())
        if (name is None or name in share.share)
        and (pool is None or pool in share.nominal)
        and (workspace is None or "*" in share.workspaces or workspace in share.workspaces)
    ]


def limits(found: Limits) -> View:
    """Limits with the keys of the configuration file."""
    return dict(limits_to_keys(found))


def usage_view(ledger: Ledger) -> View:
    """What shares, and users in shares, are charged now."""
    shares: dict[str, Amounts] = {}
    for (share, _), account in ledger.quota.accounts.items():
        add_into(shares.setdefault(share, {}), account.used)
    users: dict[str, dict[str, Amounts]] = {}
    for ((what, place), user), used in sorted(ledger.quota.limits.used.items()):
        if what == "share":
            users.setdefault(user, {})[place] = dict(used)
    return {"shares": {share: {k: n for k, n in used.items() if n} for share, used in shares.items()}, "users": users}


def loans_view(ledger: Ledger) -> list[View]:
    """Every loan that stands."""
    return [
        {
            "borrower": loan.borrower,
            "lender": loan.lender,
            "pool": loan.pool,
            "kind": loan.kind,
            "amount": loan.amount,
            "since_ms": loan.since_ms,
            "why": f"jobs beyond the own quota of {loan.borrower}: {', '.join(loan.jobs[:8])}",
            "jobs": list(loan.jobs),
        }
        for loan in loans(ledger)
    ]


def node_view(state: State, ledger: Ledger, inbox: Inbox, node: Node) -> View:
    """One node: what it is, how it is, and what is left of it."""
    pool = ledger.pools.get(node.pool)
    return {
        "node": node.node,
        "pool": node.pool,
        "role": pool.role if pool is not None else "normal",
        "health": node.health,
        "why": node.why,
        "cordoned": node.cordoned,
        "spec": plain(node.spec),
        "free": node.room.free(node.spec.gpu_model),
        "capacity": node.spec.amounts(),
        "attempts": [f"{job}/{state.jobs[job].attempt}" for job in sorted(node.jobs) if job in state.jobs],
        "ray_id": node.ray_id,
        "present": node.present,
        "measured": node.measured,
        "last_report_ms": inbox.last_ms(node.node),
        "use": inbox.latest(node.node).get("use"),
        "labels": dict(node.labels),
    }


def pool_view(state: State, ledger: Ledger, pool: str) -> View:
    """One pool: nodes and capacity count those that are not failed; free is what no claim holds of usable ones."""
    found = ledger.pools[pool]  # type: ignore[index]
    room = state.pool_room(found.pool)
    nodes = [node for node in room.nodes.values() if node.health not in ("failed", "validating", "quarantined")]
    return {
        "pool": pool,
        "region": found.region,
        "role": found.role,
        "nodes": len(nodes),
        "capacity": dict(room.total),
        "free": dict(room.free),
        "contention": contention(state, ledger, found.pool, GPU),
        "nominal": dict(ledger.quota.nominal_in_pool(found.pool)),
        "version": ledger.changed.get(f"pool {pool}", 0),
    }


def reservation_view(ledger: Ledger, book: ReservationBook, now_ms: int) -> View:
    """One reservation with its whole history; an expired one commits nothing."""
    state = book.state(now_ms)
    committed = (
        book.reservation.amounts if state in ("active", "on_hold") else dict.fromkeys(book.reservation.amounts, 0)
    )
    return {
        **plain(book.reservation),
        "state": state,
        "committed": dict(committed),
        "drawn": dict(book.drawn),
        "version": ledger.changed.get(f"reservation {book.reservation.reservation}", 0),
        "history": book.words(now_ms),
        "events": [{"what": word, "at_ms": at_ms} for word, at_ms in book.history],
    }


def quota_view(ledger: Ledger, user: str, share: Share) -> View:
    """A user's overview in one share: used, limit and idle per kind; None where no limit is set (semantics 8.2)."""
    place = ("share", str(share.share))
    limit = ledger.quota.limits.limit(place, user) or {}  # type: ignore[arg-type]
    used = ledger.quota.limits.held(place, user)  # type: ignore[arg-type]
    kinds = dict.fromkeys([*limit, *(kind for kind in used), "gpu", "cpu", "memory"])
    return {
        "share": share.share,
        "kinds": {
            kind: {
                "used": used.get(kind, 0),
                "limit": limit.get(kind),
                "idle": None if kind not in limit else max(0, limit[kind] - used.get(kind, 0)),
            }
            for kind in kinds
        },
    }


def samples(state: State, ledger: Ledger, ticks: int, tick_ms: float) -> list[View]:
    """Every figure that is watched, as samples: queue length, use per share and user, loans, nodes by health, swaps."""
    found: list[View] = []

    def put(name: str, value: float, kind: str = "gauge", **labels: str) -> None:
        found.append({"name": f"raysched_{name}", "labels": labels, "value": value, "kind": kind})

    states: dict[tuple[str, str], int] = {}
    for job in state.jobs.values():
        states[job.share, job.state] = states.get((job.share, job.state), 0) + 1
    for share in sorted(ledger.shares):
        put("queue_length", states.get((share, "queued"), 0), share=share)
        put("jobs_active", sum(states.get((share, name), 0) for name in ACTIVE), share=share)
    for (charged, name), number in sorted(states.items()):
        if name in ("succeeded", "failed", "cancelled"):
            put("jobs_ended_total", number, "counter", share=charged, state=name)
    for (owner, pool), account in sorted(ledger.quota.accounts.items()):
        for kind in sorted(account.nominal):
            put("share_owned", account.owned(kind), share=owner, pool=pool, kind=kind)
            put("share_used", account.used.get(kind, 0), share=owner, pool=pool, kind=kind)
    for user, places in usage_view(ledger)["users"].items():
        for place, amounts in places.items():
            for kind, amount in amounts.items():
                put("user_used", amount, user=user, share=place, kind=kind)
    for loan in loans(ledger):
        put("loan", loan.amount, borrower=loan.borrower, lender=loan.lender, pool=loan.pool, kind=loan.kind)
    health: dict[tuple[str, str], int] = {}
    for node in state.nodes.values():
        health[node.pool, node.health] = health.get((node.pool, node.health), 0) + 1
    for (pool_id, word), number in sorted(health.items()):
        put("nodes", number, pool=pool_id, health=word)
    for pool_id in ledger.pool_order():
        room = state.pool_room(pool_id)
        for kind, amount in sorted(room.total.items()):
            put("pool_capacity", amount, pool=pool_id, kind=kind)
            put("pool_free", room.free.get(kind, 0), pool=pool_id, kind=kind)
    put("swaps_total", len(state.swaps), "counter")
    put("alerts", len(state.alerts))
    put("ticks_total", ticks, "counter")
    put("tick_seconds", tick_ms / 1_000)
    put("ledger_version", ledger.version, "counter")
    return found
