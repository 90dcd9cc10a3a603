"""Pieces that makers of workloads have in common: names, gangs of GPUs on whole nodes, the configuration."""

import re
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any, Final

from raysched.config import ClusterConfig, parse_config
from raysched.core.model import Bundle, JobId, NodeId, NodeSpec, PoolId
from raysched.core.units import MILLI
from raysched.sim.workloads.workload import WorkloadNode

POOL: Final = PoolId("main")
SPARES: Final = PoolId("spares")
NODE_GPUS: Final = 8
GPU_CPU_MILLI: Final = 8_000  # of each GPU of a trace that says nothing about CPU and memory: they never bind
GPU_MEMORY_BYTES: Final = 64 << 30
NODE: Final = NodeSpec(NODE_GPUS, "G", NODE_GPUS * GPU_CPU_MILLI, NODE_GPUS * GPU_MEMORY_BYTES)
# Simulated agents report for ever, and a year may pass between two events: nobody need watch for their silence.
NEVER: Final = "3650d"
_BAD: Final = re.compile(r"[^A-Za-z0-9_.-]+")


def job_id(*parts: object) -> JobId:
    """A name that the service takes, of whatever a trace calls the job."""
    return JobId(_BAD.sub("-", ".".join(str(part) for part in parts))[:63])


def gang(gpus: int, per_node: int = NODE_GPUS) -> tuple[Bundle, ...]:
    """Bundles for `gpus` whole GPUs: one on a node if it holds them, else whole nodes and what is left."""
    whole, rest = divmod(gpus, per_node)
    found = [_bundle(per_node, whole)] if whole else []
    return tuple([*found, _bundle(rest, 1)] if rest else found)


def _bundle(gpus: int, count: int) -> Bundle:
    return Bundle(gpus * MILLI, gpus * GPU_CPU_MILLI, gpus * GPU_MEMORY_BYTES, count=count)


def whole_nodes(gpus: float, per_node: int = NODE_GPUS) -> int:
    """How many nodes hold so many GPUs; at least one."""
    return max(1, ceil(gpus / per_node))


def nodes(count: int, pool: PoolId = POOL, spec: NodeSpec = NODE, prefix: str = "n") -> tuple[WorkloadNode, ...]:
    """`count` nodes of one spec."""
    width = len(str(max(0, count - 1)))
    return tuple(WorkloadNode(NodeId(f"{prefix}{number:0{width}}"), pool, spec) for number in range(count))


def share_keys(gpus: int, policy: str, strategy: str) -> dict[str, Any]:
    """A share that owns so many GPUs of the pool."""
    return {
        "nominal": {POOL: {"gpu": gpus}},
        "sharing": {"strategy": strategy},
        "queue": {"policy": policy},
    }


def config(name: str, shares: Mapping[str, dict[str, Any]], pools: Iterable[PoolId] = (POOL,)) -> ClusterConfig:
    """A cluster of these pools (`SPARES` is standby) and shares. Raises ConfigError."""
    roles = {pool: {"role": "standby"} if pool == SPARES else {} for pool in pools}
    return parse_config(
        {
            "version": 1,
            "cluster": job_id(name),
            # A real cluster makes no more groups than this at once; the simulated one makes all of them in 0.1 s.
            "defaults": {"silent_after": NEVER, "evidence_max_age": NEVER, "max_creating": 1_000_000},
            "pools": {pool: {"match": {"pool": pool}, **role} for pool, role in roles.items()},
            "shares": dict(shares),
        }
    )
