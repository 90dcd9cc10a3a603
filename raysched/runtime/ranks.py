"""From a gang to its rank actors: their options, their orders, and what their answers or deaths mean."""

import json
from typing import Any, Final

import ray
from msgspec import json as codec
from ray.experimental import internal_kv
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from raysched.core.decisions import CreateGang
from raysched.core.model import CommandRun, NodeId, Run
from raysched.core.units import MILLI
from raysched.runtime import context
from raysched.runtime.job_runner import NAMESPACE, Identity, Order, RankActor, RankInfo
from raysched.runtime.placement_groups import Layout, RankPlace, nodes_of

AGENT: Final = "raysched:agent:{node}"

_rank_class: Any = ray.remote(max_restarts=0, max_task_retries=0)(RankActor)


def identity_of(cluster: str, log_root: str, create: CreateGang, place: RankPlace) -> Identity:
    """Who the rank is."""
    return Identity(
        cluster=cluster,
        job=create.job,
        attempt=create.attempt,
        rank=place.rank,
        share=create.share,
        user=create.user,
        node=place.node,
        log_root=log_root,
    )


def make_rank(identity: Identity, place: RankPlace, group: PlacementGroup, run: Run | None) -> Any:
    """Start one rank's actor in its bundle; the one of that name if it exists."""
    bundle = place.bundle
    options: dict[str, Any] = {
        "name": identity.name,
        "namespace": NAMESPACE.decode(),
        "lifetime": "detached",
        # No CPU for the actor itself: the group holds the bundle's cores, and what the job starts in Ray uses them.
        "num_cpus": 0,
        "num_gpus": bundle.gpu_milli / MILLI,
        "resources": dict(bundle.attach) or None,
        "scheduling_strategy": PlacementGroupSchedulingStrategy(
            group, place.ray_bundle, placement_group_capture_child_tasks=True
        ),
    }
    if run is not None and run.runtime_env is not None:
        options["runtime_env"] = json.loads(run.runtime_env)
    try:
        return _rank_class.options(**options).remote(identity)
    except ValueError as problem:
        if "already" not in str(problem):
            raise
        return find_rank(identity.name)


def find_rank(name: str) -> Any | None:
    """The actor of that name; None if there is none alive."""
    try:
        return ray.get_actor(name, namespace=NAMESPACE.decode())
    except ValueError:
        return None


def order_of(create: CreateGang, plan: Layout, place: RankPlace, group: str, first: RankInfo | None) -> Order:
    """What one rank is to run. `first`: rank 0's answer; None in a gang of one, which is its own rank 0."""
    run = create.spec.run
    assert run is not None
    nodes = nodes_of(plan)
    local = [other.rank for other in plan.ranks if other.node == place.node]
    env = {
        "RANK": str(place.rank),
        "WORLD_SIZE": str(len(plan.ranks)),
        "LOCAL_RANK": str(local.index(place.rank)),
        "LOCAL_WORLD_SIZE": str(len(local)),
        "NODE_RANK": str(nodes.index(place.node)),
        "OMP_NUM_THREADS": str(max(1, place.bundle.cpu_milli // MILLI)),
        context.NODES: ",".join(nodes),
        context.GROUP: group,
    }
    if first is not None:
        env |= {"MASTER_ADDR": first.ip, "MASTER_PORT": str(first.port)}
    return Order(run.argv if isinstance(run, CommandRun) else None, env, run.env)


def payload_digest(run: Run) -> str | None:
    """The stored blob that every rank needs: the function, or the working directory if there is one."""
    return run.working_dir if isinstance(run, CommandRun) else run.payload


def devices_by_entry(plan: Layout, infos: list[RankInfo]) -> tuple[tuple[int, ...], ...]:
    """The true GPU indices, one tuple per entry of the placement, in rank order."""
    found: dict[int, tuple[int, ...]] = {}
    for place, info in zip(plan.ranks, infos, strict=True):
        found[place.entry] = found.get(place.entry, ()) + info.devices
    return tuple(found[entry] for entry in sorted(found))


# ── what outlives a scheduler, in Ray's key-value store ─────────────────────────────────────────────────────────────


def note_start(mark: str) -> None:
    """Remember that the ranks of the attempt were told to run, before they are."""
    internal_kv._internal_kv_put(_start_key(mark), b"1", namespace=NAMESPACE)


def was_started(mark: str) -> bool:
    """Whether the ranks of the attempt may have run."""
    return bool(internal_kv._internal_kv_exists(_start_key(mark), namespace=NAMESPACE))


def kept_info(name: str) -> RankInfo | None:
    """What a rank said of itself when it came up; None if it has not come up."""
    data = internal_kv._internal_kv_get(name, namespace=NAMESPACE)
    return None if data is None else codec.decode(data, type=RankInfo)


def forget(mark: str) -> None:
    """Drop what was kept of the attempt."""
    internal_kv._internal_kv_del(_start_key(mark), namespace=NAMESPACE)
    internal_kv._internal_kv_del(f"raysched:{mark}/rank", del_by_prefix=True, namespace=NAMESPACE)


def _start_key(mark: str) -> str:
    return f"raysched:{mark}/started"


def rank_names(cluster: str) -> list[str]:
    """The names of all rank actors of ours that are alive or being made."""
    prefix = f"raysched:{cluster}:"
    found = ray.util.list_named_actors(all_namespaces=True)
    return sorted(actor["name"] for actor in found if actor["name"].startswith(prefix) and "/rank" in actor["name"])


def agent_of(node: NodeId) -> Any | None:
    """The node's agent; None if there is none."""
    return find_rank(AGENT.format(node=node))


def kill(actors: list[Any]) -> None:
    """Kill rank actors; dead ones do not matter."""
    for actor in actors:
        ray.kill(actor)
