"""What Ray's list of nodes says. Needs no Ray cluster."""

from typing import Any

from raysched.core.events import AlertRaised, NodeGone, NodeJoined
from raysched.core.model import NodeSpec, PoolId
from raysched.runtime.node_watch import NodeWatch


def row(name: str | None, ray_id: str, alive: bool = True, **amounts: float) -> dict[str, Any]:
    labels = {"ray.io/node-id": ray_id, "rack": "r1"}
    if name is not None:
        labels["raysched/node"] = name
    return {
        "NodeID": ray_id,
        "Alive": alive,
        "Labels": labels,
        "Resources": {"CPU": 4.0, "GPU": 8.0, "memory": 100.0, "node:10.0.0.1": 1.0, **amounts},
        "NodeManagerHostname": "host",
    }


def watch() -> NodeWatch:
    return NodeWatch(lambda labels: PoolId(labels.get("rack", "none")))


def kinds(events: list[Any]) -> list[tuple[type, str]]:
    return [(type(event), event.subject if isinstance(event, AlertRaised) else event.node) for event in events]


def test_a_new_node_joins_once_with_what_it_declares() -> None:
    nodes = watch()
    (joined,) = nodes.compare([row("a", "id1", disks=3.0, object_store_memory=5.0, GPU_group_abc=1.0)], 7)
    assert isinstance(joined, NodeJoined)
    assert joined.spec == NodeSpec(gpu=8, cpu_milli=4000, memory_bytes=100, attach={"disks": 3})
    assert (joined.ray_id, joined.pool, joined.at_ms) == ("id1", "r1", 7)
    assert joined.labels == {"rack": "r1", "raysched/node": "a"}
    assert nodes.compare([row("a", "id1")], 8) == []


def test_a_node_without_a_name_is_known_by_its_host() -> None:
    assert kinds(watch().compare([row(None, "id1")], 0)) == [(NodeJoined, "host")]


def test_the_head_takes_no_jobs() -> None:
    head = row(None, "id1") | {"Resources": {"node:__internal_head__": 1.0}}
    assert watch().compare([head], 0) == []


def test_a_dead_node_is_gone_once() -> None:
    nodes = watch()
    nodes.compare([row("a", "id1")], 0)
    assert kinds(nodes.compare([row("a", "id1", alive=False)], 1)) == [(NodeGone, "a")]
    assert nodes.compare([row("a", "id1", alive=False)], 2) == []
    assert nodes.dead == {"id1"}


def test_a_node_that_died_while_nobody_watched_is_gone() -> None:
    assert kinds(watch().compare([row("a", "id1", alive=False)], 0)) == [(NodeGone, "a")]


def test_a_restarted_raylet_is_the_same_node_under_a_new_id() -> None:
    nodes = watch()
    nodes.compare([row("a", "id1")], 0)
    events = nodes.compare([row("a", "id1", alive=False), row("a", "id2")], 1)
    assert kinds(events) == [(NodeGone, "a"), (NodeJoined, "a")]
    assert nodes.alive == {"a": "id2"}


def test_a_second_node_of_the_same_name_waits_for_the_first_to_die() -> None:
    nodes = watch()
    nodes.compare([row("a", "id1")], 0)
    both = [row("a", "id1"), row("a", "id2")]
    assert kinds(nodes.compare(both, 1)) == [(AlertRaised, "a")]
    assert nodes.compare(both, 2) == []
    assert kinds(nodes.compare([row("a", "id1", alive=False), row("a", "id2")], 3)) == [
        (NodeGone, "a"),
        (NodeJoined, "a"),
    ]
