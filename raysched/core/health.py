"""Evidence → health, with hysteresis: a node is failed when it is bad now and 60 s have passed since it first was
without 30 s clean in between (semantics 9.2). Pure: facts and clocks in, the next health word out."""

from msgspec import Struct

from raysched.core.model import Health, Settings
from raysched.core.pools import Node
from raysched.core.units import format_duration


class Assessment(Struct, frozen=True):
    """The health a node should have now and why; `again_ms` is when time alone could change it."""

    health: Health
    why: str
    again_ms: int | None = None


def assess(node: Node, settings: Settings, now_ms: int, frozen: bool) -> Assessment:
    """The health of `node` at `now_ms`. `frozen`: every agent is silent, so nothing becomes failed."""
    match node.health:
        case "unknown":
            return _unknown(node)
        case "healthy" | "degraded":
            return _well(node)
        case "suspect":
            return _suspect(node, settings, now_ms, frozen)
        case "failed":
            return _failed(node, settings, now_ms)
        case "validating":
            return _validating(node, settings, now_ms)
        case _:
            return Assessment(node.health, node.why)


def evidence(node: Node) -> str:
    """What is abnormal now, in words."""
    found = [f"{signal}: {fact.detail}" if fact.detail else signal for signal, fact in sorted(node.fatal.items())]
    if node.silent_ms is not None:
        found.append("agent silent")
    return "; ".join(found)


def _unknown(node: Node) -> Assessment:
    if node.bad:
        return Assessment("suspect", evidence(node))
    return _well(node) if node.reported else Assessment("unknown", "never reported")


def _well(node: Node) -> Assessment:
    if node.bad:
        return Assessment("suspect", evidence(node))
    if node.degraded:
        return Assessment("degraded", "; ".join(f"{s}: {f.detail}" for s, f in sorted(node.degraded.items())))
    return Assessment("healthy", "reports and nothing abnormal")


def _suspect(node: Node, settings: Settings, now_ms: int, frozen: bool) -> Assessment:
    if not node.bad:
        clean = now_ms if node.clean_ms is None else node.clean_ms
        done = clean + settings.healthy_after_ms
        if now_ms >= done:
            return _well(node)
        return Assessment("suspect", f"clean since {format_duration(now_ms - clean)}", done)
    if frozen:
        return Assessment("suspect", "every agent is silent: timers stand still")
    since = now_ms if node.first_bad_ms is None else node.first_bad_ms
    due = since + settings.failed_after_ms
    if now_ms >= due:
        return Assessment("failed", f"abnormal for {format_duration(now_ms - since)}: {evidence(node)}")
    return Assessment("suspect", evidence(node), due)


def _failed(node: Node, settings: Settings, now_ms: int) -> Assessment:
    """Repaired = nothing abnormal and a reset was seen; a node that was never replaced may also come back by being
    clean for as long as a validation takes, since nothing else stands in its place."""
    if node.bad or not node.present:
        return Assessment("failed", node.why)
    if node.reset_seen:
        return Assessment("validating", "repaired: reset seen and nothing abnormal")
    if node.swapped:
        return Assessment("failed", "replaced; waits for a reset or an operator's word that it is repaired")
    clean = now_ms if node.clean_ms is None else node.clean_ms
    due = clean + settings.healthy_after_ms
    if now_ms >= due:
        return Assessment("validating", f"clean for {format_duration(now_ms - clean)} and not replaced")
    return Assessment("failed", node.why, due)


def _validating(node: Node, settings: Settings, now_ms: int) -> Assessment:
    if node.bad:
        return Assessment("failed", f"abnormal in validation: {evidence(node)}")
    clean = now_ms if node.clean_ms is None else node.clean_ms
    due = clean + settings.validate_for_ms
    if now_ms >= due:
        return Assessment("healthy", f"validated: clean for {format_duration(now_ms - clean)}")
    return Assessment("validating", node.why, due)
