"""Kueue's objects in our words: ClusterQueue → share, cohort → cohort, workload → job of one kind of bundle.

Kueue's queues are BestEffortFIFO and make room for the higher priority by preemption. Here nothing is stopped yet for
`in_share` and `restore`, and `fifo_within_priority` comes nearest: small workloads do not pass a large one for ever."""

from collections.abc import Iterator
from typing import Any, Final

from raysched.config import ClusterConfig, parse_config
from raysched.core.model import JobId, NodeId, NodeSpec, PoolId, QueuePolicy
from raysched.sim.cluster import SimNode
from raysched.sim.kueue.generators import Arrival, Generator, cohort_queues

POOL: Final = "main"
NODE_MEMORY: Final = 1 << 40  # of the one node that stands for "no nodes"; nothing asks for memory


def job_of(arrival: Arrival) -> JobId:
    """Kueue's names are unique in a queue's namespace, ours in the cluster."""
    return JobId(f"{arrival.queue}.{arrival.name}")


def priorities(generator: Generator) -> dict[int, int]:
    """Kueue's priorities (more is higher) on our scale (0 is the highest): the highest is 0, the next 1, and so on."""
    falling = sorted({each.priority for each in generator.sets}, reverse=True)
    return {priority: rank for rank, priority in enumerate(falling)}


def spec_of(arrival: Arrival, ranks: dict[int, int]) -> dict[str, Any]:
    """The job as the service takes it; `ranks` are the `priorities` of its generator."""
    return {
        "job": job_of(arrival),
        "user": arrival.queue,
        "share": arrival.queue,
        "bundles": [{"cpu_milli": arrival.set.pod_cpu_milli, "count": arrival.set.pods}],
        "priority": ranks[arrival.set.priority],
        # A balanced gang may spread its slices over racks; all of them in one rack is stricter.
        "topology": "required" if arrival.set.constraint in ("required", "balanced") else "preferred",
    }


def config_of(generator: Generator, policy: QueuePolicy) -> ClusterConfig:
    """One pool, and a share for each queue."""
    spec = _node_spec(generator)
    cohorts: dict[str, Any] = {f"cohort-{number}": {} for number in range(generator.cohorts)}
    shares = {
        queue: {
            "cohort": cohort,
            "nominal": {POOL: {"cpu": f"{generator.nominal_milli}m"}},
            "sharing": {
                "strategy": "lend_and_borrow",
                "borrow_limit": {"cpu": f"{generator.borrowing_milli}m"},
            },
            "queue": {"policy": policy},
            "preemption": {"in_share": True, "grace": "0s"},  # withinClusterQueue: LowerPriority
            "reclaim": {"policy": "restore", "grace": "0s"},  # reclaimWithinCohort: Any
        }
        for cohort, queue in cohort_queues(generator)
    }
    return parse_config(
        {
            "version": 1,
            "cluster": generator.name,
            "cohorts": cohorts,
            # Kueue has no such ceiling, and the simulated cluster needs none.
            "defaults": {"max_creating": 1_000_000},
            "node_specs": {"node": {"cpu": f"{spec.cpu_milli}m", "memory": spec.memory_bytes}},
            "pools": {POOL: {"match": {"pool": POOL}}},
            "shares": shares,
        }
    )


def nodes_of(generator: Generator) -> Iterator[SimNode]:
    """The generator's nodes, by Kueue's names; one that holds every quota where it has none."""
    spec, racks = _node_spec(generator), generator.racks
    if racks is None:
        yield SimNode(NodeId("node"), PoolId(POOL), spec, {"pool": POOL})
        return
    for rack in range(racks.count):
        for number in range(racks.nodes):
            labels = {"pool": POOL, "rack": f"rack-{rack}"}
            yield SimNode(NodeId(f"node-b0-r{rack}-n{number}"), PoolId(POOL), spec, labels)


def _node_spec(generator: Generator) -> NodeSpec:
    if generator.racks is not None:
        return NodeSpec(0, None, generator.racks.node_cpu_milli, generator.racks.node_memory_bytes)
    # Kueue runs these without nodes: one that holds every quota leaves quota as the only limit.
    return NodeSpec(0, None, generator.cohorts * generator.queues * generator.nominal_milli, NODE_MEMORY)
