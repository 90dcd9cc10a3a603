"""The FGD experiment: scores on nodes made by hand, the rules of arrival, and one seed next to the published means."""

import math
from itertools import pairwise

import numpy as np
import pytest

from raysched.sim.fgd.expected_fill import NONE_COMES, UNIT, ExpectedFill, fills
from raysched.sim.fgd.experiment import POLICIES, Scores, run
from raysched.sim.fgd.fleet import Fleet
from raysched.sim.fgd.fragmentation import Fragmentation
from raysched.sim.fgd.live import LIVE
from raysched.sim.fgd.policies import BestFit, Clustering, DotProduct, Packing
from raysched.sim.fgd.workload import Shape, TypicalPod, Workload, arrivals, reordered, typical_pods, workload_of
from raysched.sim.traces import openb, published
from raysched.sim.traces.openb import OpenbNode
from tests.sim.traces_at import TRACES, needs_traces

HALF = Shape(1_000, 0, 1, 500, ())
ONE = Shape(1_000, 0, 1, 1000, ())
TWO = Shape(2_000, 0, 2, 1000, ())
CORES = Shape(8_000, 0, 0, 0, ())
T4_ONLY = Shape(1_000, 0, 1, 1000, ("T4",))


def fleet(*gpus: int, cpu_milli: int = 64_000, model: str = "T4") -> Fleet:
    """Nodes with so many GPUs each."""
    return Fleet([OpenbNode(f"n{i}", cpu_milli, 1024, count, model) for i, count in enumerate(gpus)])


def typical(*shapes: Shape) -> tuple[TypicalPod, ...]:
    return tuple(TypicalPod(shape, 1) for shape in shapes)


def rows(of: Fleet) -> np.ndarray:
    return np.arange(len(of))


# ── the rules of arrival ─────────────────────────────────────────────────────────────────────────────────────────────


def test_typical_pods_are_the_most_frequent_until_the_share_is_covered() -> None:
    asked = [HALF] * 6 + [ONE] * 3 + [TWO]
    assert typical_pods(asked, 0.9) == (TypicalPod(HALF, 6), TypicalPod(ONE, 3))
    assert [pod.shape for pod in typical_pods(asked, 0.91)] == [HALF, ONE, TWO]


def test_of_equally_frequent_pods_the_larger_is_typical() -> None:
    assert typical_pods([ONE, TWO, CORES], 0.3) == (TypicalPod(CORES, 1),)  # the most CPU


def test_every_pod_arrives_once_and_then_draws_stop_below_the_limit() -> None:
    workload = Workload("w", (HALF, TWO), (0, 1, 0), ())
    order = arrivals(workload, 10_000, np.random.default_rng(1), asked=1.3)
    assert sorted(order[:3]) == [0, 0, 1]
    asked = [workload.shapes[shape].total_milli for shape in order]
    assert sum(asked) > 13_000 - 1000  # one more pod was drawn, and its share of one GPU would have passed the limit
    assert sum(asked[:-1]) + workload.shapes[order[-1]].gpu_milli <= 13_000


def test_a_workload_that_asks_for_more_is_cut_at_the_limit() -> None:
    workload = Workload("w", (ONE,), (0,) * 20, ())
    assert len(arrivals(workload, 10_000, np.random.default_rng(1), asked=1.3)) == 13


def test_a_window_lets_the_largest_ask_go_first_and_loses_nobody() -> None:
    workload = Workload("w", (HALF, ONE, TWO), (), ())
    order = [0, 0, 2, 1, 0, 2]
    assert reordered(workload, order, 1) == order
    assert reordered(workload, order, 3) == [2, 1, 0, 2, 0, 0]
    assert reordered(workload, order, 99) == [2, 2, 1, 0, 0, 0]


# ── room ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_room_is_cpu_memory_model_and_gpus() -> None:
    nodes = fleet(1, 2, cpu_milli=2_000)

    def fitting(shape: Shape) -> list[bool]:
        return list(nodes.fits(shape, nodes.allowed(shape), rows(nodes)))

    assert fitting(TWO) == [False, True]
    assert fitting(CORES) == [False, False]
    assert fitting(Shape(1, 2048, 0, 0, ())) == [False, False]
    assert fitting(T4_ONLY) == [True, True]
    assert fitting(Shape(1, 0, 1, 1000, ("A10",))) == [False, False]
    nodes.place(HALF, 0, 0)
    assert fitting(HALF) == [True, True]
    assert fitting(ONE) == [False, True]


def test_whole_gpus_are_the_lowest_numbered_free_ones() -> None:
    nodes = fleet(4)
    nodes.place(HALF, 0, 1)
    nodes.place(TWO, 0, 0)
    assert list(nodes.gpu_milli[0, :4]) == [0, 500, 0, 1000]
    assert (nodes.whole[0], nodes.free_milli[0], nodes.cpu_milli[0]) == (1, 1500, 61_000)


def test_a_pod_that_fits_nowhere_is_refused_and_takes_nothing() -> None:
    nodes = fleet(1)
    scores = Scores(nodes, Workload("w", (ONE,), (0,), ()), BestFit(nodes))
    assert scores.place(0)
    assert not scores.place(0)
    assert nodes.free_milli[0] == 0


# ── published scores ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_best_fit_prefers_less_left() -> None:
    nodes = fleet(1, 8)
    scores, _ = BestFit(nodes).score(ONE, rows(nodes))
    assert list(scores) == [100 - 25, 100 - 25 - 44]  # 63 of 128 cores are 24.6 points, 7 of 8 GPUs 43.75


def test_dot_product_prefers_little_left_of_what_is_asked() -> None:
    nodes = fleet(1, 8)
    scores, _ = DotProduct(nodes).score(ONE, rows(nodes))
    assert list(scores) == [99, 93]


def test_packing_prefers_used_gpus_then_used_nodes_then_small_nodes() -> None:
    nodes = fleet(2, 4, 2)
    nodes.place(HALF, 0, 0)
    scores, devices = Packing(nodes).score(HALF, rows(nodes))
    assert (list(scores), devices[0]) == ([95, 29, 31], 0)
    scores, _ = Packing(nodes).score(ONE, rows(nodes))
    assert list(scores) == [49, 29, 31]
    assert list(Packing(nodes).score(CORES, rows(nodes))[0]) == [0, 0, 0]


def test_clustering_prefers_nodes_with_only_the_same_kind() -> None:
    nodes = fleet(8, 8, 8, 8)
    policy = Clustering(nodes)
    for shape, row in ((HALF, 0), (HALF, 1), (ONE, 1), (TWO, 2)):
        nodes.place(shape, row, 0)
        policy.placed(shape, row)
    assert list(policy.score(HALF, rows(nodes))[0]) == [75 + 1, 50 + 4, 0 + 6, 25 + 0]


def test_fragmentation_is_what_typical_pods_cannot_use() -> None:
    nodes = fleet(2)
    policy = Fragmentation(nodes, typical(HALF, ONE, CORES, TWO))
    assert policy.fragmented_milli() == 2000 / 4  # only the pod without GPUs can use none of it
    nodes.place(Shape(1_000, 0, 1, 600, ()), 0, 0)  # leaves 400 and 1000
    policy.placed(HALF, 0)
    # HALF and ONE cannot use the 400, TWO finds no two GPUs, CORES needs none.
    assert policy.fragmented_milli() == (400 + 400 + 1400 + 1400) / 4


def test_a_node_without_cpu_or_of_another_model_is_all_fragmented() -> None:
    assert Fragmentation(fleet(1, cpu_milli=999), typical(ONE)).fragmented_milli() == 1000
    assert Fragmentation(fleet(1, model="A10"), typical(T4_ONLY)).fragmented_milli() == 1000
    assert Fragmentation(fleet(1), typical(T4_ONLY)).fragmented_milli() == 0


def test_fgd_scores_the_change_on_the_best_gpu() -> None:
    nodes = fleet(2, 1)
    nodes.place(HALF, 0, 1)  # 1000 and 500 left on the first node, 1000 on the second
    policy = Fragmentation(nodes, typical(ONE))
    scores, devices = policy.score(HALF, rows(nodes))
    # Filling the used GPU takes 500 of fragments away; breaking a whole one adds 500.
    assert list(devices) == [1, 0]
    assert list(scores) == [math.floor(100 / (1 + math.exp(-0.5))), math.floor(100 / (1 + math.exp(0.5)))]


# ── our own ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_expected_fill_of_a_gpu() -> None:
    part, whole = fills(typical(HALF), "T4")
    once = 500 / (1 + NONE_COMES)
    assert list(part[[0, 49, 50, 99], 0]) == [0, 0, round(once * UNIT), round(once * UNIT)]
    assert part[100, 0] == round((500 + once) / (1 + NONE_COMES) * UNIT)
    assert list(whole[:, 0]) == [pytest.approx(k * part[100, 0], abs=9) for k in range(9)]


def test_a_gap_that_few_pods_fit_is_worth_little() -> None:
    pods = (TypicalPod(Shape(0, 0, 1, 100, ()), 1), TypicalPod(Shape(0, 0, 1, 1000, ()), 99))
    part, _ = fills(pods, "T4")
    # One pod in a hundred fits, and a step further again one in a hundred.
    assert part[10, 0] == round(100 * 0.01 / (0.01 + NONE_COMES) * UNIT)
    assert part[100, 0] > 0.9 * 1000 * UNIT


def test_pods_of_other_models_do_not_count() -> None:
    assert not fills(typical(T4_ONLY), "A10")[0].any()


def test_a_share_goes_where_it_leaves_a_gap_that_pods_fit() -> None:
    nodes = fleet(1, 1)
    nodes.place(Shape(0, 0, 1, 700, ()), 0, 0)
    policy = ExpectedFill(nodes, typical(HALF, Shape(1_000, 0, 1, 300, ())))
    scores, _ = policy.score(Shape(1_000, 0, 1, 300, ()), rows(nodes))
    assert scores[0] > scores[1]  # it fills the 300 that were left; on the idle GPU it would leave 700


def test_a_cpu_pod_goes_where_gpus_are_taken_already() -> None:
    nodes = fleet(2, 2, cpu_milli=16_000)
    nodes.place(TWO, 0, 0)
    policy = ExpectedFill(nodes, typical(Shape(8_000, 0, 1, 1000, ())))
    scores, _ = policy.score(CORES, rows(nodes))
    assert scores[0] > scores[1]


def test_a_share_breaks_no_whole_gpu_when_a_used_one_does() -> None:
    nodes = fleet(4)
    nodes.place(HALF, 0, 2)
    policy = ExpectedFill(nodes, typical(HALF, ONE))
    _, devices = policy.score(HALF, rows(nodes))
    assert devices[0] == 2


@pytest.mark.parametrize("name", [*POLICIES, LIVE])
def test_no_policy_places_more_than_there_is(name: str) -> None:
    nodes = [OpenbNode(f"n{i}", 16_000, 8_192, 1 + i % 4, "T4" if i % 2 else "A10") for i in range(12)]
    pods = [openb.OpenbPod(f"p{i}", 1_000, 512, 1, 100 * (1 + i % 10), ("T4",) if i % 3 else ()) for i in range(50)]
    pods += [openb.OpenbPod("q1", 500, 0, 2, 1000, ()), openb.OpenbPod("q2", 2_000, 64, 0, 0, ())]
    result = run(workload_of("made", pods), nodes, name, seed=7)
    assert 0 < result.used_milli[-1] <= result.capacity_milli
    assert 0 < result.failed < result.arrivals
    assert all(before <= after for before, after in pairwise(result.used_milli))
    again = run(workload_of("made", pods), nodes, name, seed=7)
    assert again.used_milli == result.used_milli


# ── the trace ────────────────────────────────────────────────────────────────────────────────────────────────────────


@needs_traces
@pytest.mark.parametrize("name", [*POLICIES, LIVE])
def test_one_seed_lies_near_the_published_mean(name: str) -> None:
    workload = workload_of("default", openb.read_pods(TRACES / openb.FOLDER, "default"))
    known = published.read_allocation(TRACES / published.FOLDER)
    result = run(workload, openb.read_nodes(TRACES / openb.FOLDER), name, seed=43)
    assert len(workload.typical) == 35
    if name == "raysched":
        assert result.allocation_percent > known["default", "fgd"] + 0.3
    elif name == LIVE:
        assert result.allocation_percent > known["default", "best_fit"] + 0.5
    else:
        # Single seeds of these policies deviate by up to 0.62 from their mean.
        assert result.allocation_percent == pytest.approx(known["default", name], abs=1.5)
