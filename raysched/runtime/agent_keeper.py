"""Keeps one node agent on every node that Ray lists alive, also on nodes that join later."""

import contextlib
import logging
from collections.abc import Callable
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from raysched_agent.node_agent import AgentOptions, NamedSink, as_actor

from raysched.core.model import NodeId
from raysched.runtime.node_watch import declared, identity, list_nodes
from raysched.runtime.ranks import AGENT

NAMESPACE: Final = "raysched"
SINK: Final = "raysched:scheduler"

log = logging.getLogger("raysched.agents")


class AgentKeeper:
    """`options_of(node, labels)` says how the agent of a node is tuned. Call `keep` every second or two."""

    def __init__(self, options_of: Callable[[NodeId, dict[str, str]], AgentOptions]) -> None:
        self._options_of = options_of
        self._class = as_actor()
        self._kept: dict[NodeId, tuple[str, Any]] = {}

    def keep(self) -> None:
        """Start agents that are missing, and forget those of nodes that died: their names must become free."""
        rows = list_nodes()
        alive = {row["NodeID"] for row in rows if row["Alive"]}
        for node, (ray_id, actor) in list(self._kept.items()):
            if ray_id not in alive:
                with contextlib.suppress(Exception):
                    ray.kill(actor)
                del self._kept[node]
        for row in rows:
            node_id = identity(row)
            if row["Alive"] and node_id is not None and node_id not in self._kept:
                self._start(node_id, row)

    def _start(self, node: NodeId, row: dict[str, Any]) -> None:
        ray_id, spec = row["NodeID"], declared(row)
        told = {
            "gpu": spec.gpu,
            "gpu_model": spec.gpu_model,
            "cpu_milli": spec.cpu_milli,
            "memory_bytes": spec.memory_bytes,
            "attach": dict(spec.attach),
        }
        name = AGENT.format(node=node)
        if not self._is_free(name, ray_id):
            return
        options = {
            "name": name,
            "namespace": NAMESPACE,
            "lifetime": "detached",
            "get_if_exists": True,
            "max_restarts": -1,
            "max_task_retries": 0,
            "num_cpus": 0,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(ray_id, soft=False),
        }
        tuned = self._options_of(node, dict(row["Labels"]))
        actor = self._class.options(**options).remote(node, ray_id, told, tuned, NamedSink(SINK, NAMESPACE))
        self._kept[node] = (ray_id, actor)
        log.info("agent of %s started on %s", node, ray_id[:8])

    def _is_free(self, name: str, ray_id: str) -> bool:
        """Whether the name may be used: an agent pinned to a former life of the node is ended first."""
        try:
            old = ray.get_actor(name, namespace=NAMESPACE)
        except ValueError:
            return True
        pinned: Any = None
        try:
            pinned = ray.get(old.ray_id.remote(), timeout=2.0)
        except Exception:
            log.info("the agent %s of a former life does not answer", name)
        if pinned == ray_id:
            return True
        with contextlib.suppress(Exception):
            ray.kill(old)
        return False

    def stop(self) -> None:
        """End every agent."""
        for _, actor in self._kept.values():
            with contextlib.suppress(Exception):
                ray.kill(actor)
        self._kept.clear()
