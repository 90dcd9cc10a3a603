"""Health, and what follows from it: which attempts wait for their node, which spare takes a failed node's place.

A node fails as a whole: when every attempt on it is gone and it is fenced, one plan swaps the node and restarts all
its gangs, each on the same placement but for the lost nodes (semantics 9.3, 9.3a)."""

from collections.abc import Iterable

from raysched.core import events as ev
from raysched.core.health import assess
from raysched.core.making import Making
from raysched.core.model import NodeId, Placement, placement_nodes
from raysched.core.node_changes import all_silent
from raysched.core.placement import Ground, fit_rest
from raysched.core.pools import Node
from raysched.core.state import Job

BREAKER_WINDOW_MS = 300_000  # nodes that went bad within it count together
BREAKER_LEAST = 3  # one or two nodes at once are bad luck, not a common cause
SWAP_WINDOW_MS = 60_000  # a swap counts against the budget this long
RUNNING = ("claimed", "starting", "running")


def heal(making: Making) -> None:
    """Assess every node that is watched, resume or swap what hangs on it."""
    frozen = _silence(making)
    for node_id in sorted(making.state.watched):
        node = making.state.nodes[node_id]
        found = assess(node, making.ledger.settings, making.now_ms, frozen)
        making.wake(found.again_ms)
        if found.health != node.health:
            making.events.append(
                ev.HealthChanged(at_ms=making.now_ms, node=node_id, health=found.health, why=found.why)
            )
    if not frozen:
        _stop_on_failed(making)
        _swap(making)


def _silence(making: Making) -> bool:
    """Notice that every agent is silent, or that reports are back; returns whether timers stand still."""
    state = making.state
    silent = any(state.nodes[node].silent_ms is not None for node in state.watched)
    everyone = silent and all_silent(state, making.now_ms) is not None
    if everyone and state.silenced_ms is None:
        making.events.append(ev.AgentsSilenced(at_ms=making.now_ms, silenced=True))
        making.alert("agents_silent", "cluster", "every agent is silent: timers stand still, nothing is failed")
        return True
    if state.silenced_ms is not None and _anyone_speaks(making):
        making.events.append(ev.AgentsSilenced(at_ms=making.now_ms, silenced=False))
        making.alert("agents_silent", "cluster", None)
        return True
    return state.silenced_ms is not None


def _anyone_speaks(making: Making) -> bool:
    return any(node.reported and node.silent_ms is None for node in making.state.nodes.values())


def _stop_on_failed(making: Making) -> None:
    for node in _failed(making):
        for job_id in sorted(node.jobs):
            job = making.state.jobs[job_id]
            if job.state in RUNNING and job.ended is None and job.stop is None and not job.held:
                making.stop(job, "node_failed", 0)


def _failed(making: Making) -> list[Node]:
    """Failed nodes in whose place nothing stands yet, by id."""
    state, pools = making.state, making.ledger.pools
    found = [state.nodes[node] for node in sorted(state.watched)]
    return [
        node
        for node in found
        if node.health == "failed" and not node.swapped and node.pool in pools and pools[node.pool].role == "normal"
    ]


def _swap(making: Making) -> None:
    open_nodes = {node.node: node for node in _failed(making)}
    waiting = _not_ready(making, open_nodes)
    ready = [node for name, node in open_nodes.items() if name not in waiting]
    spares = _choose(making, ready)
    resumed: set[NodeId] = set()
    for job_id in sorted(making.state.held):
        job = making.state.jobs[job_id]
        lost = _lost(making, job)
        if job.cancel is not None:
            making.end(job, "cancelled", f"cancelled by {job.cancel}")
        elif not making.fenced(job):
            continue
        elif not lost:
            if all(_well(making.state.nodes[node]) for node in placement_nodes(job.placement)):
                making.go_on(job, job.placement, "its node is healthy again")
        elif not lost & waiting and not _unsure(making, job):
            moved = {node: spares[node] for node in lost if node in spares}
            if len(moved) == len(lost):
                making.go_on(job, _moved(making, job, moved), f"swapped {', '.join(sorted(lost))}")
                resumed |= lost
            else:
                making.requeue(job, f"node {', '.join(sorted(lost))} failed and no equal spare is free", front=True)


def _moved(making: Making, job: Job, spares: dict[NodeId, NodeId]) -> Placement:
    assert job.pool is not None
    return fit_rest(making.state, Ground(job.pool, job.model), job.bundles, job.placement, spares)


def _lost(making: Making, job: Job) -> set[NodeId]:
    """Nodes of the placement that are failed or were removed."""
    nodes = making.state.nodes
    return {n for n in placement_nodes(job.placement) if n not in nodes or nodes[n].health in ("failed", "validating")}


def _unsure(making: Making, job: Job) -> bool:
    """Whether a node of the placement is suspect: the gang waits until it is one or the other."""
    nodes = making.state.nodes
    kept = [
        nodes[n]
        for n in placement_nodes(job.placement)
        if n in nodes and nodes[n].health not in ("failed", "validating")
    ]
    return not all(_well(node) for node in kept)


def _well(node: Node) -> bool:
    return node.present and not node.bad and node.health in ("healthy", "degraded")


def _not_ready(making: Making, open_nodes: dict[NodeId, Node]) -> set[NodeId]:
    """Failed nodes that cannot be swapped yet: an attempt there is not gone, the node is not fenced, or a gang that
    also lost another node waits for that one."""
    state = making.state
    waiting = {
        name
        for name, node in open_nodes.items()
        if any(not state.jobs[job].held or not making.fenced(state.jobs[job]) for job in sorted(node.jobs))
    }
    while True:
        more = {
            name
            for name, node in open_nodes.items()
            if name not in waiting
            and any(_lost(making, state.jobs[job]) & waiting or _unsure(making, state.jobs[job]) for job in node.jobs)
        }
        if not more:
            return waiting
        waiting |= more


def _choose(making: Making, ready: Iterable[Node]) -> dict[NodeId, NodeId]:
    """A spare for each failed node that may be swapped now; says in an alert why one is not."""
    chosen: dict[NodeId, NodeId] = {}
    taken: set[NodeId] = set()
    recent = [at for at in making.state.swaps if at > making.now_ms - SWAP_WINDOW_MS]
    budget = making.ledger.settings.swaps_in_flight - len(recent)
    for node in ready:
        held = _breaker(making, node)
        spare = None if held else _spare(making, node, taken)
        if held:
            making.alert("swap_held", node.node, held)
        elif budget <= 0:
            swaps = len(recent) + len(chosen)
            making.alert("swap_held", node.node, f"{swaps} swaps in the last minute: waiting")
            making.wake(min(recent, default=making.now_ms) + SWAP_WINDOW_MS)
        elif spare is None:
            making.alert(
                "no_spare", node.node, f"{node.node} failed ({node.why}); no healthy spare of spec {node.spec}"
            )
        else:
            budget -= 1
            taken.add(spare.node)
            chosen[node.node] = spare.node
            making.alert("no_spare", node.node, None)
            making.alert("swap_held", node.node, None)
            making.events.append(
                ev.NodeSwapped(
                    at_ms=making.now_ms,
                    failed=node.node,
                    spare=spare.node,
                    pool=node.pool,
                    standby_pool=spare.pool,
                )
            )
    return chosen


def _spare(making: Making, failed: Node, taken: set[NodeId]) -> Node | None:
    """The first healthy node of exactly the same spec in a standby pool of the same region."""
    pools = making.ledger.pools
    region = pools[failed.pool].region
    for pool in making.ledger.pool_order():
        if pools[pool].role != "standby" or pools[pool].region != region:
            continue
        for name, node in sorted(making.state.pool_room(pool).nodes.items()):
            if name not in taken and node.usable and node.spec == failed.spec and not node.jobs:
                return node
    return None


def _breaker(making: Making, failed: Node) -> str | None:
    """Why swaps of the pool are held: more than half of it, and at least three nodes, went bad on one signal within
    five minutes. That is a common cause first, and spares would meet it too."""
    nodes = making.state.pool_room(failed.pool).nodes
    since = making.now_ms - BREAKER_WINDOW_MS
    same = [
        node
        for node in nodes.values()
        if node.suspect_ms is not None and node.suspect_ms > since and node.suspect_signal == failed.suspect_signal
    ]
    if len(same) < max(BREAKER_LEAST, len(nodes) // 2 + 1):
        return None
    making.wake(min(node.suspect_ms or 0 for node in same) + BREAKER_WINDOW_MS + 1)
    return f"{len(same)} of {len(nodes)} nodes of pool {failed.pool} went bad on {failed.suspect_signal} at once"
