"""Nodes as Ray lists them: who joined, who died, what a node declares."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import ray

from raysched.core.events import AlertRaised, AnyEvent, NodeGone, NodeJoined
from raysched.core.model import NodeId, NodeSpec, PoolId
from raysched.core.units import MILLI
from raysched.runtime.local_cluster import HEAD, MODEL_LABEL, NODE_LABEL, ROLE_LABEL

_BUILT_IN: Final = ("node:", "accelerator_type:", "bundle_group_")
_NOT_ATTACHED: Final = frozenset({"CPU", "GPU", "memory", "object_store_memory"})


def list_nodes() -> list[dict[str, Any]]:
    """Ray's rows of all nodes, dead ones included (1 ms)."""
    rows: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return rows


def identity(row: Mapping[str, Any]) -> NodeId | None:
    """The host identity of a node: its label, else its host name. None for the head, which takes no jobs."""
    labels = row["Labels"]
    if NODE_LABEL in labels:
        return NodeId(labels[NODE_LABEL])
    if labels.get(ROLE_LABEL) == HEAD or "node:__internal_head__" in row["Resources"]:
        return None
    return NodeId(row["NodeManagerHostname"])


def declared(row: Mapping[str, Any]) -> NodeSpec:
    """The spec that a node's start options declare."""
    amounts = row["Resources"]
    attach = {
        name: int(amount)
        for name, amount in amounts.items()
        if name not in _NOT_ATTACHED and not name.startswith(_BUILT_IN) and "_group_" not in name
    }
    return NodeSpec(
        gpu=int(amounts.get("GPU", 0)),
        gpu_model=row["Labels"].get(MODEL_LABEL) or _accelerator(amounts),
        cpu_milli=round(amounts.get("CPU", 0) * MILLI),
        memory_bytes=int(amounts.get("memory", 0)),
        attach=attach,
    )


def _accelerator(amounts: Mapping[str, float]) -> str | None:
    """The GPU model that Ray itself detected."""
    found = [name.partition(":")[2] for name in sorted(amounts) if name.startswith("accelerator_type:")]
    return found[0] if found else None


class NodeWatch:
    """Compares Ray's list with the last one. `dead`: ids of Ray nodes that are dead; an id never comes back."""

    def __init__(self, pool_of: Callable[[Mapping[str, str]], PoolId]) -> None:
        self.dead: set[str] = set()
        self.alive: dict[NodeId, str] = {}
        self._gone: set[NodeId] = set()
        self._clashes: set[str] = set()
        self._pool_of = pool_of

    def compare(self, rows: list[dict[str, Any]], at_ms: int) -> list[AnyEvent]:
        """What has changed."""
        events: list[AnyEvent] = []
        self.dead = {row["NodeID"] for row in rows if not row["Alive"]}
        named = {row["NodeID"]: name for row in rows if (name := identity(row)) is not None}
        for node, ray_id in sorted(self.alive.items()):
            if ray_id not in named or ray_id in self.dead:
                events.append(self._went(node, at_ms))
        for row in rows:
            if row["Alive"] and row["NodeID"] in named:
                events += self._came(named[row["NodeID"]], row, at_ms)
        for row in rows:
            name = named.get(row["NodeID"])
            if name is not None and not row["Alive"] and name not in self.alive and name not in self._gone:
                events.append(self._went(name, at_ms))  # died while nobody watched
        return events

    def _went(self, node: NodeId, at_ms: int) -> NodeGone:
        self.alive.pop(node, None)
        self._gone.add(node)
        return NodeGone(at_ms=at_ms, node=node, detail="Ray lists the node as dead")

    def _came(self, node: NodeId, row: Mapping[str, Any], at_ms: int) -> list[AnyEvent]:
        ray_id, known = row["NodeID"], self.alive.get(node)
        if known == ray_id:
            return []
        if known is not None:
            return self._clash(node, known, ray_id, at_ms)
        self.alive[node] = ray_id
        self._gone.discard(node)
        labels = {name: value for name, value in row["Labels"].items() if not name.startswith("ray.io/")}
        joined = NodeJoined(
            at_ms=at_ms,
            node=node,
            ray_id=ray_id,
            spec=declared(row),
            pool=self._pool_of(labels),
            labels=labels,
        )
        return [joined]

    def _clash(self, node: NodeId, known: str, ray_id: str, at_ms: int) -> list[AnyEvent]:
        """A second Ray node with the name of a live one waits: it is a restarted raylet whose first life is not yet
        declared dead, or two hosts with one name."""
        if ray_id in self._clashes:
            return []
        self._clashes.add(ray_id)
        text = f"Ray nodes {known[:8]} and {ray_id[:8]} are both named {node}; the second waits for the first to die"
        return [AlertRaised(at_ms=at_ms, alert="node_name_twice", subject=node, text=text)]
