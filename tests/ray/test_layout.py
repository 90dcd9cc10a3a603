"""How a placement becomes Ray bundles and ranks. Needs no Ray cluster."""

from raysched.core.model import Bundle
from raysched.runtime.placement_groups import Layout, deadline_ms, layout, parse_name
from tests.ray.shell import gpus, on


def ranks(plan: Layout) -> list[tuple[str, int, int]]:
    return [(place.node, place.entry, place.ray_bundle) for place in plan.ranks]


def test_whole_bundles_on_one_node_are_one_ray_bundle() -> None:
    plan = layout((on("a", 0, 2), on("b", 0, 1), on("a", 1, 1)), [gpus(2), gpus(0, cpus=4)])
    assert plan.bundles == ({"GPU": 4, "CPU": 6}, {"GPU": 2, "CPU": 1})
    assert plan.nodes == ("a", "b")
    assert ranks(plan) == [("a", 0, 0), ("a", 0, 0), ("b", 1, 1), ("a", 2, 0)]


def test_each_fraction_is_a_ray_bundle_of_its_own() -> None:
    plan = layout((on("a"), on("a", 1), on("a")), [gpus(0.5), gpus(1)])
    assert plan.bundles == ({"GPU": 0.5, "CPU": 1}, {"GPU": 1, "CPU": 1}, {"GPU": 0.5, "CPU": 1})
    assert ranks(plan) == [("a", 0, 0), ("a", 1, 1), ("a", 2, 2)]


def test_memory_and_attachables_are_bundled_too() -> None:
    plan = layout((on("a", 0, 2),), [Bundle(memory_bytes=2**30, attach={"disks": 1})])
    assert plan.bundles == ({"memory": 2**31, "disks": 2},)


def test_thousandths_add_up_exactly() -> None:
    plan = layout((on("a", 0, 3),), [gpus(0, cpus=0.1)])
    assert plan.bundles == ({"CPU": 0.3},)


def test_a_bundle_of_nothing_is_still_a_bundle() -> None:
    assert layout((on("a"),), [Bundle()]).bundles == ({"CPU": 0.001},)


def test_names_lead_back_to_the_attempt_of_their_own_cluster() -> None:
    assert parse_name("c", "raysched/c/job-1/team/ann/p5#12") == ("job-1", 12)
    assert parse_name("other", "raysched/c/job-1/team/ann/p5#12") is None
    assert parse_name("c", "somebody's") is None


def test_a_group_behind_many_bundles_has_more_time() -> None:
    assert (deadline_ms(1), deadline_ms(100)) == (5_050, 10_000)
