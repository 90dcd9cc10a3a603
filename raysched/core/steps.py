"""Steps of an offered change: each is one call of the service, its method and its arguments as people write them.

Whoever follows the advice passes `params` to `method` with their own name as `by`; nothing has to be translated."""

from typing import Any

from msgspec import Struct

from raysched.core.model import Bundle, JobId, LimitRule, NodeId, PoolId, ReservationId, UserId
from raysched.core.state import Job
from raysched.core.units import CPU, GPU, MEMORY, Amounts, format_amount, format_amounts

Keys = dict[str, Any]


class Step(Struct, frozen=True):
    """One call of the service: `method` and its arguments, and the same in words."""

    text: str
    method: str
    params: Keys


# ── what the owner of a job can do ────────────────────────────────────────────────────────────────────────────────


def prioritised(job: JobId, priority: int, head: JobId) -> Step:
    text = f"raise the priority of {job} to P{priority}, before {head}"
    return Step(text, "set_priority", {"job": job, "priority": priority})


def crossing(job: JobId) -> Step:
    return Step(f"let {job} run in another pool that lends", "set_cross_pool", {"job": job, "value": True})


def resized(job: Job, bundles: tuple[Bundle, ...], asked: int) -> Step:
    fewer = sum(bundle.count for bundle in bundles)
    params = {"job": job.job, "bundles": [_bundle(bundle) for bundle in bundles]}
    return Step(f"ask for {fewer} bundles instead of {asked}", "resize", params)


def cancelled(job: JobId, user: UserId, why: str) -> Step:
    return Step(f"cancel {job} of {user}, {why}", "cancel", {"job": job})


# ── what an administrator can do ──────────────────────────────────────────────────────────────────────────────────


def overridden(job: JobId, who: dict[str, str], pool: PoolId | None, short: Amounts, authority: str, days: int) -> Step:
    """`who`: {user: …} or {share: …}."""
    ((what, name),) = who.items()
    keys: Keys = {
        **who,
        "amounts": {kind: format_amount(kind, amount) for kind, amount in short.items()},
        "for": f"{days}d",
        "reason": f"start {job}",
        "authority": authority,
    }
    if pool is not None:
        keys["pool"] = pool
    return _admin(f"an override of {format_amounts(short)} for {what} {name}", "override", keys)


def raised(place: str, name: str, group: str, ceiling: Amounts, rules: tuple[LimitRule, ...]) -> Step:
    """`place`: share or pool, whose limits get `rules`; all other keys of the limits stay."""
    scope = {"name": name} if place == "share" else {"pool": name}
    text = f"raise the total of group {group} in {place} {name} to {format_amounts(ceiling)}"
    return _admin(text, "set_limits", {**scope, "rules": [_rule(rule) for rule in rules]})


def reconciled(pool: PoolId) -> Step:
    return _admin(f"reconcile the reserved total of pool {pool}", "reconcile", {"pool": pool})


def released(reservation: ReservationId) -> Step:
    return _admin(f"release reservation {reservation}", "release", {"reservation": reservation})


def uncordoned(node: NodeId) -> Step:
    return _admin(f"uncordon {node}", "uncordon", {"node": node})


def _admin(text: str, action: str, params: Keys) -> Step:
    return Step(text, "admin", {"action": action, "params": params})


def _bundle(bundle: Bundle) -> Keys:
    amounts = {GPU: bundle.gpu_milli, CPU: bundle.cpu_milli, MEMORY: bundle.memory_bytes}
    keys: Keys = {kind: format_amount(kind, amount) for kind, amount in amounts.items() if amount}
    if bundle.attach:
        keys["attach"] = dict(bundle.attach)
    return {**keys, "count": bundle.count}


def _rule(rule: LimitRule) -> Keys:
    whom = {"user": rule.user} if rule.user is not None else {"group": rule.group}
    keys: Keys = {**whom, **{kind: format_amount(kind, amount) for kind, amount in rule.amounts().items()}}
    return keys if rule.mode == "each" else {**keys, "mode": rule.mode}
