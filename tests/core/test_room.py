"""One node, device by device: ids are predicted, and give way to the true ones that Ray reports (semantics 6.2)."""

from random import Random

import pytest

from raysched.core.model import Bundle, JobId, NodeId, NodeSpec, PlacedBundle
from raysched.core.room import Room

NODE = NodeId("n0")


def room(gpus: int) -> Room:
    return Room.of(NodeSpec(gpus, "H100", 64_000, 1 << 40))


def taken(room: Room, name: str, milli: int, count: int = 1) -> tuple[JobId, PlacedBundle, Bundle]:
    """Take what a job of so many bundles would be predicted to get."""
    bundle = Bundle(milli)
    entry = PlacedBundle(NODE, 0, count, room.pick(bundle, count), min(milli, 1_000))
    room.take(JobId(name), entry, bundle)
    return JobId(name), entry, bundle


def devices(room: Room, name: str) -> tuple[int, ...]:
    [hold] = [hold for hold in room.holds if hold.job == name]
    return hold.devices


def test_who_was_predicted_to_have_a_device_makes_way_for_who_has_it() -> None:
    node = room(4)
    first, entry, _ = taken(node, "first", 2_000)
    taken(node, "second", 2_000)
    node.correct(first, entry, (2, 3))
    assert (devices(node, "first"), devices(node, "second")) == ((2, 3), (0, 1))


def test_a_fraction_makes_way_too() -> None:
    node = room(2)
    taken(node, "half", 500)
    whole, entry, _ = taken(node, "whole", 1_000)
    node.correct(whole, entry, (0,))
    assert (devices(node, "half"), node.devices, node.whole) == ((1,), [0, 500], 0)


def test_who_made_way_is_still_corrected_by_its_own_report() -> None:
    node = room(3)
    first, first_entry, _ = taken(node, "first", 1_000)
    second, second_entry, _ = taken(node, "second", 1_000)
    node.correct(first, first_entry, (1,))
    node.correct(second, second_entry, (2,))
    assert (devices(node, "first"), devices(node, "second")) == ((1,), (2,))
    assert all(hold.reported for hold in node.holds)


def test_what_a_job_gives_back_is_what_it_really_had() -> None:
    node = room(4)
    first, entry, bundle = taken(node, "first", 2_000)
    taken(node, "second", 1_000)
    node.correct(first, entry, (2, 3))
    node.give(first, entry, bundle)
    assert (node.devices, node.whole, node.gpu_milli) == ([0, 1_000, 1_000, 1_000], 3, 3_000)


def test_a_report_of_the_wrong_size_is_ignored() -> None:
    node = room(4)
    first, entry, _ = taken(node, "first", 2_000)
    node.correct(first, entry, (3,))
    assert devices(node, "first") == (0, 1)


def test_a_node_is_not_overbooked() -> None:
    node = room(1)
    taken(node, "first", 1_000)
    with pytest.raises(AssertionError, match="overbooked by 1000 thousandths"):
        node.take(JobId("second"), PlacedBundle(NODE, 0, 1, (0,), 1_000), Bundle(1_000))


class Ray:
    """What really happens on the node: groups get devices of Ray's choice in any order."""

    def __init__(self, gpus: int, rng: Random) -> None:
        self.left, self.rng = [1_000] * gpus, rng

    def choose(self, entry: PlacedBundle) -> tuple[int, ...] | None:
        fitting = [index for index, left in enumerate(self.left) if left >= entry.milli]
        if len(fitting) < len(entry.devices):
            return None
        if entry.milli < 1_000:
            chosen: tuple[int, ...] = (min(fitting, key=lambda i: (self.left[i], i)),)
        else:
            chosen = tuple(sorted(self.rng.sample(fitting, len(entry.devices))))
        for index in chosen:
            self.left[index] -= entry.milli
        return chosen


@pytest.mark.parametrize("part", range(4))
def test_any_history_of_predictions_and_reports_keeps_the_sums_and_no_gpu_twice(part: int) -> None:
    for seed in range(part, 1_200, 4):
        rng = Random(seed)
        gpus = rng.choice((2, 4, 8))
        node, ray = room(gpus), Ray(gpus, rng)
        jobs: dict[JobId, tuple[PlacedBundle, Bundle, tuple[int, ...] | None]] = {}
        for number in range(30):
            step = rng.random()
            bundle = Bundle(rng.choice((300, 500, 700, 1_000, 1_000, 2_000)))
            if step < 0.45 and node.fits(bundle):
                name, entry, _ = taken(node, f"j{number}", bundle.gpu_milli)
                jobs[name] = (entry, bundle, None)
            elif step < 0.75 and (waiting := [name for name, (_, _, true) in jobs.items() if true is None]):
                name = rng.choice(waiting)
                entry, bundle, _ = jobs[name]
                true = ray.choose(entry)
                if true is not None:
                    node.correct(name, entry, true)
                    jobs[name] = (entry, bundle, true)
            elif jobs:
                name = rng.choice(sorted(jobs))
                entry, bundle, true = jobs.pop(name)
                node.give(name, PlacedBundle(NODE, 0, 1, true or entry.devices, entry.milli), bundle)
                for index in true or ():
                    ray.left[index] += entry.milli
            balanced(node, jobs, gpus, seed)


def balanced(
    node: Room, jobs: dict[JobId, tuple[PlacedBundle, Bundle, tuple[int, ...] | None]], gpus: int, seed: int
) -> None:
    asked = sum(bundle.gpu_milli for _, bundle, _ in jobs.values())
    assert node.gpu_milli == gpus * 1_000 - asked == sum(node.devices) >= 0, seed
    assert node.whole == node.devices.count(1_000), seed
    held = [0] * gpus
    for hold in node.holds:
        for index in hold.devices if hold.reported else ():
            held[index] += hold.milli
    assert max(held) <= 1_000, seed
    for hold in node.holds:
        true = jobs[hold.job][2]
        assert hold.reported == (true is not None) and (true is None or hold.devices == true), seed
