"""What events of nodes and their health do to the state (see transitions.py)."""

from raysched.core import events as ev
from raysched.core.model import NodeId
from raysched.core.pools import Fact, Node
from raysched.core.room import Room
from raysched.core.state import State

REPORT_INTERVAL_MS = 5_000  # agents report at least this often: all silent within one interval is our own fault


def node_joined(state: State, event: ev.NodeJoined) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        node = Node(event.node, event.ray_id, event.spec, event.pool, dict(event.labels), Room.of(event.spec))
        node.measured, node.boot_id = event.measured, event.boot_id
        state.nodes[event.node] = node
        state.index(node)
        state.watched.add(node.node)
        return
    state.unindex(node)
    if node.spec != event.spec:
        if node.jobs:
            node.degraded["spec_changed"] = Fact(event.at_ms, f"joined as {event.spec}, jobs hold it as {node.spec}")
        else:
            node.spec, node.room = event.spec, Room.of(event.spec)
    rebooted = None not in (event.boot_id, node.boot_id) and event.boot_id != node.boot_id
    if node.ray_id != event.ray_id or rebooted:
        node.reset_seen = True
        _swept_by_reset(state, node)
    node.ray_id, node.boot_id, node.measured = event.ray_id, event.boot_id or node.boot_id, event.measured
    node.labels, node.present = dict(event.labels), True
    node.fatal.pop("ray_dead", None)
    _judge(state, node, event.at_ms)
    state.index(node)


def _swept_by_reset(state: State, node: Node) -> None:
    """Nothing of an attempt outlives the Ray node or the boot it ran in: the node is fenced for every job it held."""
    for job_id in node.jobs:
        job = state.jobs[job_id]
        job.unfenced = tuple(name for name in job.unfenced if name != node.node)


def node_changed(
    state: State,
    event: ev.NodeGone
    | ev.NodeFresh
    | ev.NodeSilent
    | ev.NodeStale
    | ev.FatalSeen
    | ev.FatalCleared
    | ev.DegradedSeen
    | ev.DegradedCleared
    | ev.NodeReset
    | ev.UseDisagrees
    | ev.NodeCordoned
    | ev.NodeUncordoned
    | ev.NodeRepooled
    | ev.HealthChanged,
) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        return
    state.unindex(node)
    match event:
        case ev.NodeGone():
            node.present = False
            node.fatal.setdefault("ray_dead", Fact(event.at_ms, event.detail or "Ray lists the node as dead"))
        case ev.NodeFresh():
            node.reported, node.silent_ms, node.stale = True, None, False
        case ev.NodeSilent():
            node.silent_ms = event.at_ms
        case ev.NodeStale():
            node.stale = True
        case ev.FatalSeen():
            node.fatal.setdefault(event.signal, Fact(event.at_ms, event.detail))
        case ev.FatalCleared():
            node.fatal.pop(event.signal, None)
        case ev.DegradedSeen():
            node.degraded.setdefault(event.signal, Fact(event.at_ms, event.detail))
        case ev.DegradedCleared():
            node.degraded.pop(event.signal, None)
        case ev.NodeReset():
            node.reset_seen, node.boot_id = True, event.boot_id or node.boot_id
        case ev.UseDisagrees():
            node.disputed = event.detail or "use disagrees" if event.disagrees else None
        case ev.NodeCordoned():
            node.cordoned = event.reason or f"cordoned by {event.by}"
        case ev.NodeUncordoned():
            node.cordoned = None
        case ev.NodeRepooled():
            node.pool = event.pool
        case ev.HealthChanged():
            _health_changed(node, event)
    _judge(state, node, event.at_ms)
    state.index(node)


def _judge(state: State, node: Node, now_ms: int) -> None:
    """Start or stop the node's clocks after a change of fact; `health.assess` reads them."""
    if node.bad:
        node.clean_ms = None
        if node.first_bad_ms is None:
            node.first_bad_ms = now_ms
    elif node.first_bad_ms is not None and node.clean_ms is None:
        node.clean_ms = now_ms
    if node.health == "healthy" and not node.bad and not node.degraded:
        state.watched.discard(node.node)
    else:
        state.watched.add(node.node)


def _health_changed(node: Node, event: ev.HealthChanged) -> None:
    before, node.health, node.why = node.health, event.health, event.why
    match event.health:
        case "healthy" | "degraded":
            node.first_bad_ms = node.clean_ms = node.failed_ms = node.suspect_ms = None
            node.swapped = node.reset_seen = False
        case "suspect":
            if before != "suspect":
                node.suspect_ms = event.at_ms
                node.suspect_signal = next(iter(sorted(node.fatal)), "agent_silent")
        case "failed":
            node.failed_ms = event.at_ms if node.failed_ms is None else node.failed_ms
            node.reset_seen = False
        case "validating":
            node.clean_ms = event.at_ms
        case _:
            pass


def node_removed(state: State, event: ev.NodeRemoved) -> None:
    node = state.nodes.pop(event.node, None)
    if node is None:
        return
    state.unindex(node)
    state.watched.discard(event.node)
    state.unsettled.update(node.jobs)


def node_swapped(state: State, event: ev.NodeSwapped) -> None:
    state.swaps.append(event.at_ms)
    for node_id, pool in ((event.failed, event.standby_pool), (event.spare, event.pool)):
        node = state.nodes.get(node_id)
        if node is not None:
            state.unindex(node)
            node.pool = pool
            node.swapped = node_id == event.failed
            state.index(node)


def restarted(state: State, event: ev.Restarted) -> None:
    """Open timers start again, and missing evidence counts only from now (semantics 9.6)."""
    state.restarted_ms = event.at_ms
    for node in state.nodes.values():
        if node.health == "suspect":
            node.first_bad_ms = event.at_ms if node.bad else node.first_bad_ms
            node.clean_ms = None if node.bad else event.at_ms


def silenced(state: State, event: ev.AgentsSilenced) -> None:
    """While every agent is silent, timers stand still: on the way out they are moved by the time they stood."""
    if event.silenced:
        state.silenced_ms = event.at_ms
        return
    if state.silenced_ms is None:
        return
    stood, state.silenced_ms = event.at_ms - state.silenced_ms, None
    for node in state.nodes.values():
        if node.first_bad_ms is not None:
            node.first_bad_ms += stood
        state.watched.add(node.node)


def all_silent(state: State, now_ms: int) -> NodeId | None:
    """The first node of a cluster in which every agent that ever reported fell silent within one interval."""
    if any(node.reported and node.silent_ms is None for node in state.nodes.values()):
        return None  # a failed node that speaks shows that the way to the agents is open
    spoke = [node for node in state.nodes.values() if node.reported and node.health not in ("failed", "validating")]
    times = [node.silent_ms for node in spoke]
    if len(spoke) < 2 or any(at is None for at in times):
        return None
    known = [at for at in times if at is not None]
    return spoke[0].node if max(known) - min(known) <= REPORT_INTERVAL_MS and now_ms >= max(known) else None
