"""Where gangs go: never over a node's room, all or nothing, GPU jobs packed, CPU jobs spread, one domain where it must
be (semantics 6)."""

from random import Random

import pytest

from raysched.core.model import Bundle, JobId, NodeId, NodeSpec, PoolId
from raysched.core.placement import Ground, Placed, Unplaced, place
from raysched.core.pools import Node
from raysched.core.room import Room
from raysched.core.state import State
from raysched.core.units import add_into
from tests.core.language import cluster, job

POOL = PoolId("main")
GI = 1 << 30


def test_gpu_jobs_are_packed_on_the_node_with_the_least_room_that_fits() -> None:
    c = cluster(nodes=3).share("a", nominal=24).started(job("first", gpus=5))
    c.started(job("second", gpus=3), job("third", gpus=1))
    assert (c.where("first"), c.where("second"), c.where("third")) == (["n0"], ["n0"], ["n1"])


def test_cpu_jobs_are_spread_and_leave_gpu_nodes_to_gpu_jobs() -> None:
    c = cluster(nodes=2, gpus=8).share("a")
    c.started(job("one", gpus=0, cpus=8), job("two", gpus=0, cpus=8))
    assert sorted(c.where("one") + c.where("two")) == ["n0", "n1"]

    c = cluster(nodes=1, gpus=8).pool("cpu", 1, gpus=0).share("a", nominal={"main": 8, "cpu": 1})
    c.started(job("three", gpus=0, cpus=8, pool="cpu"))
    assert c.where("three") == ["cpu0"]


def test_fractions_share_one_device_before_a_free_one_is_broken() -> None:
    c = cluster(nodes=2).share("a", nominal=16).started(job("whole", gpus=1))
    c.started(job("half", gpus=0.5), job("third", gpus=0.3))
    [half], [third] = c.job("half").placement, c.job("third").placement
    assert (half.node, half.devices) == (third.node, third.devices)
    c.started(job("big", gpus=0.4))
    [big] = c.job("big").placement
    assert big.devices != half.devices


def test_a_gang_that_does_not_fit_whole_takes_nothing() -> None:
    c = cluster(nodes=2).share("a", nominal=100)
    c.submit(job("wide", gpus=8, bundles=3, confirm=True))
    assert c.state("wide") == "queued"
    assert [c.node(name).room.whole for name in ("n0", "n1")] == [8, 8]


def test_a_gang_takes_the_fewest_nodes() -> None:
    c = cluster(nodes=3).share("a", nominal=24).started(job("small", gpus=4))
    c.submit(job("gang", gpus=2, bundles=4))
    assert len(set(c.where("gang"))) == 1


def test_a_required_topology_waits_for_one_domain_and_a_preferred_one_does_not() -> None:
    c = cluster(nodes=4, racks=2).share("a", nominal=32)
    for name in ("n0", "n1"):
        c.admin("cordon", node=name)
    c.submit(job("strict", gpus=8, bundles=2, topology="required"))
    assert c.reason("strict") == "FRAGMENTED"
    c.submit(job("loose", gpus=8, bundles=2))
    assert c.where("loose") == ["n2", "n3"]
    c.ask("cancel", "loose", "ann")
    c.admin("uncordon", node="n0")
    c.run(1)
    assert {c.node(node).labels["rack"] for node in c.where("strict")} == {"r0"}


def test_a_gang_prefers_one_rack() -> None:
    c = cluster(nodes=4, racks=2).share("a", nominal=32)
    c.submit(job("gang", gpus=8, bundles=2))
    assert len({c.node(node).labels["rack"] for node in c.where("gang")}) == 1


def test_nothing_is_placed_on_a_spare() -> None:
    c = cluster(nodes=1).pool("spare", 1, role="standby").share("a", nominal=16)
    c.submit(job("one", gpus=8), job("two", gpus=8, confirm=True))
    assert c.states("one", "two") == ["claimed", "queued"]
    assert c.submit(job("three", pool="spare")) == ["STANDBY_POOL"]


def test_nothing_new_is_placed_on_a_node_that_turns_bad_in_the_same_plan() -> None:
    c = cluster(nodes=1).share("a")
    c.settle()
    c.sim.cluster.fail(NodeId("n0"), "gpu_lost")
    c.submit(job("one"))
    assert c.state("one") == "queued"


# ── any nodes, any bundles ────────────────────────────────────────────────────────────────────────────────────────


def grown(rng: Random) -> State:
    state = State()
    for i in range(rng.randint(1, 6)):
        spec = NodeSpec(
            rng.choice((0, 2, 4, 8)), None, rng.randint(4, 64) * 1_000, 256 * GI, {"disks": rng.randint(0, 4)}
        )
        spec = NodeSpec(spec.gpu, "H100" if spec.gpu else None, spec.cpu_milli, spec.memory_bytes, spec.attach)
        labels = {"rack": f"r{i % 2}"} if rng.random() < 0.5 else {}
        node = Node(NodeId(f"n{i}"), f"ray{i}", spec, POOL, labels, Room.of(spec), "healthy", reported=True)
        state.nodes[node.node] = node
        state.index(node)
    return state


def wanted(rng: Random) -> tuple[Bundle, ...]:
    gpu, cpu = (0, 250, 500, 700, 1_000, 1_000, 2_000, 4_000), (0, 1_000, 6_000)
    disks = {"disks": 1} if rng.random() < 0.2 else {}
    many = range(rng.randint(1, 3))
    return tuple(Bundle(rng.choice(gpu), rng.choice(cpu), 0, disks, rng.randint(1, 4)) for _ in many)


@pytest.mark.parametrize("part", range(4))
def test_any_gangs_on_any_nodes_are_whole_and_never_more_than_a_node_has(part: int) -> None:
    for seed in range(part, 400, 4):
        rng = Random(seed)
        state = grown(rng)
        placed: list[tuple[Bundle, ...]] = []
        left = {name: node.spec.amounts() for name, node in state.nodes.items()}
        for number in range(8):
            bundles = wanted(rng)
            model = "H100" if any(bundle.gpu_milli for bundle in bundles) else None
            found = place(state, Ground(POOL, model), bundles)
            if isinstance(found, Unplaced):
                assert 0 <= found.fit < found.asked == sum(bundle.count for bundle in bundles), seed
                continue
            for index, bundle in enumerate(bundles):
                entries = [entry for entry in found.placement if entry.bundle == index]
                assert sum(entry.count for entry in entries) == bundle.count, seed
                for entry in entries:
                    add_into(left[entry.node], bundle.amounts(state.nodes[entry.node].spec.gpu_model), -entry.count)
                    assert len(entry.devices) == (1 if bundle.is_fraction else bundle.whole_gpus * entry.count), seed
            state.hold(JobId(f"j{number}"), found.placement, bundles)
            placed.append(bundles)
        assert all(amount >= 0 for amounts in left.values() for amount in amounts.values()), seed
        for node in state.nodes.values():
            assert all(0 <= n <= 1_000 for n in node.room.devices), seed


def test_placing_changes_nothing() -> None:
    for seed in range(50):
        rng = Random(seed)
        state = grown(rng)
        before = {name: node.room.copied() for name, node in state.nodes.items()}
        bundles = wanted(rng)
        assert isinstance(place(state, Ground(POOL, "H100"), bundles), Placed | Unplaced)
        assert {name: node.room for name, node in state.nodes.items()} == before
