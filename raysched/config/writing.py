"""Core values back to the keys of the file: reading what is written here gives the same values again."""

from collections.abc import Mapping
from typing import Final

from raysched.core.model import BorrowLimit, LimitRule, Limits, Share
from raysched.core.units import CPU, GPU, MEMORY, format_amount

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000))


def share_to_keys(share: Share) -> dict[str, object]:
    """All keys of a share as the file writes them, every setting explicit."""
    keys: dict[str, object] = {
        "preset": share.preset,
        "description": share.description,
        "cohort": share.cohort,
        "nominal": _nominal(share),
        "workloads": list(share.workloads),
        "workspaces": list(share.workspaces),
        "admins": list(share.admins),
        "weight": share.weight,
        "sharing": _sharing(share),
        "queue": {"policy": share.queue},
        "priority": {
            "default": f"P{share.priority_default}",
            "rules": [{"tags": dict(rule.tags), "priority": f"P{rule.priority}"} for rule in share.priority_rules],
        },
        "preemption": {
            "in_share": share.preemption.in_share,
            "default": share.preemption.default,
            "workloads": dict(share.preemption.workloads),
            "grace": duration_text(share.preemption.grace_ms),
            "max_preemptions": share.preemption.max_preemptions,
        },
        "reclaim": {"policy": share.reclaim.policy, "grace": duration_text(share.reclaim.grace_ms)},
        "resize": share.resize,
        "overbook": share.overbook,
        "shrink_floor": share.shrink_floor,
        "limits": limits_to_keys(share.limits),
        "state": "stopped" if share.stopped else "open",
    }
    return keys


def limits_to_keys(limits: Limits) -> dict[str, object]:
    """The keys of `limits:`."""
    return {
        "enabled": limits.enabled,
        "resolve": limits.resolve,
        "on_exceed": limits.on_exceed,
        "default": None if limits.default is None else _rule(limits.default),
        "rules": [_rule(rule) for rule in limits.rules],
        "max_rules": limits.max_rules,
    }


def amounts_to_keys(amounts: Mapping[str, int]) -> dict[str, object]:
    """Amounts as people write them: `{gpu: 8, cpu: 1.5, memory: 512Gi}`."""
    return {kind: _quantity(kind, amount) for kind, amount in amounts.items()}


def duration_text(ms: int) -> str:
    """A duration in its largest exact unit."""
    return next((f"{ms // size}{unit}" for unit, size in _UNITS if ms and ms % size == 0), f"{ms}ms" if ms else "0s")


def _quantity(kind: str, amount: int) -> int | str:
    text = format_amount(kind, amount)
    return int(text) if text.isdigit() else text


def _nominal(share: Share) -> dict[str, object]:
    found: dict[str, object] = {}
    for pool, amounts in share.nominal.items():
        instances = share.instances.get(pool)
        if instances is None:
            found[pool] = amounts_to_keys(amounts)
        else:
            found[pool] = {"size": instances.size, "count": instances.count}
    return found


def _sharing(share: Share) -> dict[str, object]:
    sharing, lent = share.sharing, share.sharing.lend_limit
    return {
        "strategy": sharing.strategy,
        "borrow_limit": _borrow_limit(sharing.borrow_limit),
        "lend_limit": None if lent is None else {pool: amounts_to_keys(each) for pool, each in lent.items()},
        "lend_workloads": None if sharing.lend_workloads is None else list(sharing.lend_workloads),
    }


def _borrow_limit(limit: BorrowLimit) -> object:
    if limit.percent is not None:
        return f"{limit.percent}%"
    return -1 if limit.amounts is None else amounts_to_keys(limit.amounts)


def _rule(rule: LimitRule) -> dict[str, object]:
    keys: dict[str, object] = {}
    if rule.user is not None:
        keys["user"] = rule.user
    if rule.group is not None:
        keys["group"] = rule.group
    keys["gpu"] = _quantity(GPU, rule.gpu)
    if rule.cpu is not None:
        keys["cpu"] = _quantity(CPU, rule.cpu)
    if rule.memory is not None:
        keys["memory"] = _quantity(MEMORY, rule.memory)
    if rule.mode != "each":
        keys["mode"] = rule.mode
    return keys
