"""Packing by expected fill: what is expected, the tables against the experiment's, and the ranking against a plain look
at every node."""

from random import Random

import numpy as np
import pytest
from msgspec import structs

from raysched.core.check import check
from raysched.core.demand import FULL, LEAST, Demand, Typical, Wanted, wanted_of
from raysched.core.events import AnyEvent, AttemptStarted
from raysched.core.fill import Fill
from raysched.core.model import Bundle, JobId, JobSpec, NodeId, NodeSpec, PlacedBundle, PoolId, ShareId, UserId
from raysched.core.room import Room
from raysched.core.state import State
from raysched.core.stock import Stock, fits, left_of
from raysched.core.transitions import apply
from raysched.core.units import MILLI
from raysched.sim.fgd.expected_fill import fills
from raysched.sim.fgd.workload import Shape, TypicalPod
from tests.core.language import Story, cluster, job

JOB = JobId("j")
SIZES = (130, 250, 500, 770, 1_000, 2_000, 4_000, 8_000)


def asking(*bundles: Bundle, model: str | None = None) -> JobSpec:
    return JobSpec(JOB, UserId("ana"), ShareId("s"), bundles, model=model)


# ── what is expected ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_expected_before_enough_was_asked_for() -> None:
    demand = Demand()
    for _ in range(LEAST - 1):
        demand.add(asking(Bundle(500)))
    assert (demand.edition, demand.typical, demand.is_simple("H100", 0)) == (0, (), True)
    demand.add(asking(Bundle(500)))
    assert (demand.edition, demand.typical) == (1, (Typical(Wanted(500, 0, ""), LEAST),))


def test_rare_asks_are_not_typical_and_old_ones_fade() -> None:
    demand = Demand()
    for number in range(LEAST):
        demand.add(asking(Bundle(4_000 if number < 5 else 1_000)))
    assert [each.wanted.gpu_milli for each in demand.typical] == [1_000]
    for _ in range(20 * FULL):
        demand.add(asking(Bundle(250)))
    assert [each.wanted.gpu_milli for each in demand.typical] == [250]
    assert demand.total <= 2 * FULL


def test_best_fit_is_enough_while_whole_gpus_run_out_before_cores() -> None:
    demand = Demand()
    for _ in range(LEAST):
        demand.add(asking(Bundle(2_000, 16_000), model="H100"))
    assert demand.is_simple("H100", cores_milli=8_000)
    assert not demand.is_simple("H100", cores_milli=7_999)
    assert demand.is_simple("A100", cores_milli=0), "nobody asks for that model"


# ── the tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(10))
def test_the_tables_are_those_of_the_experiment(seed: int) -> None:
    """One written with numpy, one without it: the same numbers, but for the last digits of a sum."""
    rng = Random(seed)
    asks = {
        (rng.choice((130, 250, 500, 770, 1_000, 2_000, 4_000, 8_000)), rng.randrange(0, 64_000, 500)): rng.randint(
            1, 900
        )
        for _ in range(12)
    }
    pods = [
        TypicalPod(Shape(cpu, 0, max(1, gpu // MILLI), min(gpu, MILLI), ()), count)
        for (gpu, cpu), count in asks.items()
    ]
    part, whole = fills(pods, "any")
    ours = Fill([Typical(Wanted(gpu, cpu, ""), count) for (gpu, cpu), count in asks.items()], sum(asks.values()), 8)
    assert np.abs(np.array(ours.part) - part).max() <= 1
    assert np.abs(np.array(ours.whole) - whole[:9]).max() <= 8


# ── the ranking ───────────────────────────────────────────────────────────────────────────────────────────────────────


def plainly(rooms: dict[NodeId, Room], bundle: Bundle, fill: Fill) -> NodeId | None:
    """A look at every node."""
    found = [
        (-fill.score(left_of(room), bundle.gpu_milli, bundle.cpu_milli), name)
        for name, room in rooms.items()
        if room.fits(bundle)
    ]
    return min(found)[1] if found else None


@pytest.mark.parametrize("seed", range(20))
def test_the_ranking_finds_what_a_look_at_every_node_finds(seed: int) -> None:
    rng, stock = Random(seed), Stock()
    spec = NodeSpec(4, "H100", 48_000, 1 << 38, {"disks": 3})
    rooms = {NodeId(f"n{number:02d}"): Room.of(spec) for number in range(12)}
    for name, room in rooms.items():
        stock.put(name, room)
    bundles = [
        Bundle(
            rng.choice((200, 500, 700, 1_000, 2_000)), rng.randrange(0, 20_000, 2_000), 0, {"disks": rng.choice((0, 1))}
        )
        for _ in range(5)
    ]
    fill = Fill([Typical(Wanted(b.gpu_milli, b.cpu_milli, ""), 1 + i) for i, b in enumerate(bundles)], 20, 4)
    placed: list[tuple[NodeId, PlacedBundle, Bundle]] = []
    for turn in range(300):
        bundle = rng.choice(bundles)
        name = stock.best(bundle, fill, edition=turn // 100)
        assert name == plainly(rooms, bundle, fill)
        if name is not None and rng.random() < 0.7:
            devices = rooms[name].pick(bundle, 1)
            entry = PlacedBundle(name, 0, 1, devices, min(bundle.gpu_milli, MILLI))
            rooms[name].take(JOB, entry, bundle)
            placed.append((name, entry, bundle))
            stock.put(name, rooms[name])
        elif placed:
            name, entry, bundle = placed.pop(rng.randrange(len(placed)))
            rooms[name].give(JOB, entry, bundle)
            stock.put(name, rooms[name])
        assert all(fits(left_of(room), wanted_of(b)) == bool(room.fits(b)) for room in rooms.values() for b in bundles)


def test_a_node_that_does_not_count_is_not_found() -> None:
    stock, bundle = Stock(), Bundle(500)
    fill = Fill([Typical(Wanted(500, 0, ""), 1)], 1, 1)
    stock.put(NodeId("n0"), Room.of(NodeSpec(1)))
    stock.put(NodeId("n1"), Room.of(NodeSpec(1)))
    assert stock.best(bundle, fill, 1) == "n0"
    stock.put(NodeId("n0"), None)
    assert stock.best(bundle, fill, 1) == "n1"
    stock.put(NodeId("n1"), None)
    assert stock.best(bundle, fill, 1) is None


def test_a_job_without_cores_goes_where_no_core_is_left_for_the_gpus() -> None:
    """Best fit would put it on the node with fewer free GPUs, where cores are left to use the last one."""
    c = _with_demand(cluster(nodes=2, gpus=2, cpus=32).share("a", nominal=400))
    c.started(job("first", gpus=1, cpus=8), job("greedy", gpus=0, cpus=32))
    assert c.where("first") == ["n0"]
    assert c.where("greedy") == ["n1"]
    c.started(job("half", gpus=0.5, cpus=0))
    assert c.where("half") == ["n1"], "its GPUs can serve nobody else any more"


def _with_demand(c: Story) -> Story:
    """Let enough be asked for that packing knows what is typical: half GPUs with few cores, whole ones with many."""
    for number in range(LEAST):
        fraction = number % 2
        c.sim.service.state.demand.add(asking(Bundle(500 if fraction else 1_000, 4_000 if fraction else 16_000)))
    return c


def test_a_room_whose_predictions_have_still_to_make_way_is_not_packed() -> None:
    """Ray has reported other devices than predicted, for some jobs so far: what is left there is not known yet."""
    true = {"f": ((0,),), "k": ((0,),), "x": ((1,),), "g": ((2,),), "W": ()}
    c = _with_demand(cluster(nodes=1, gpus=4).share("a", nominal=16))
    poll = c.sim.cluster.poll

    def told() -> list[AnyEvent]:
        return [
            structs.replace(event, devices=true.get(event.job, event.devices))
            if isinstance(event, AttemptStarted)
            else event
            for event in poll()
        ]

    c.sim.cluster.poll = told  # type: ignore[method-assign]
    c.submit(job("f", gpus=0.4), job("g", gpus=0.6), job("x", gpus=0.7), job("k", gpus=0.2), job("W", gpus=2))
    c.run(1)
    c.submit(job("new", gpus=0.3))
    assert c.state("new") == "queued"
    assert check(c.sim.service.state, c.sim.service.ledger) == []


def test_nodes_with_fewer_cores_change_how_is_packed_at_once() -> None:
    c = cluster(nodes=2, cpus=96).share("a", nominal=64)
    c.submit(*[job(f"q{number}", gpus=8, cpus=80, confirm=True) for number in range(LEAST + 1)])
    state = c.sim.service.state
    assert state.fill(PoolId("main"), "H100") is None
    c.sim.add_node("small", "main", NodeSpec(8, "H100", 32_000, 1 << 40))
    c.settle()
    replayed = State()
    for event in c.sim.disk.events:
        apply(replayed, event)
    assert state.fill(PoolId("main"), "H100") is not None
    assert replayed.fill(PoolId("main"), "H100") is not None
