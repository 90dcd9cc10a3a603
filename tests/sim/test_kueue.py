"""Kueue's generators: what comes when, the bounds, and small ones played to their end on books that are on disk."""

import json
from collections import Counter
from pathlib import Path

import pytest
from msgspec import structs
from typer.testing import CliRunner

from raysched.cli import bench_kueue
from raysched.cli.main import app
from raysched.core.check import check
from raysched.core.model import placement_nodes
from raysched.core.verify import Verifier
from raysched.sim.kueue.generators import (
    GENERATORS,
    Arrival,
    Generator,
    Racks,
    WorkloadSet,
    arrivals,
    bound_ms,
    late_bound_ms,
)
from raysched.sim.kueue.mapping import priorities
from raysched.sim.kueue.published import PUBLISHED
from raysched.sim.kueue.run import Play, Played
from raysched.store.ledger_store import LedgerStore

Row = tuple[int, int, int, int, float, int]

# class: count, interval, run time (ms), priority, cores of a pod, pods; as the generator.yaml files have them
BASELINE: dict[str, Row] = {
    "small": (350, 100, 200, 50, 1, 1),
    "medium": (100, 500, 500, 100, 5, 1),
    "large": (50, 1_200, 1_000, 200, 20, 1),
}
LARGE_SCALE: dict[str, Row] = {
    "small": (35, 60, 150, 50, 1, 1),
    "medium": (11, 300, 350, 100, 5, 1),
    "large": (4, 700, 700, 200, 20, 1),
}
TAS: dict[str, Row] = {
    "small-required-rack": (120, 100, 200, 50, 0.5, 2),
    "small-preferred-rack": (120, 100, 200, 50, 0.5, 2),
    "small-balanced-rack": (110, 100, 200, 50, 0.5, 2),
    "medium-required-rack": (34, 500, 500, 100, 1.25, 4),
    "medium-preferred-rack": (33, 500, 500, 100, 1.25, 4),
    "medium-balanced-rack": (33, 500, 500, 100, 1.25, 4),
    "large-required-rack": (17, 1_200, 1_000, 200, 2.5, 8),
    "large-preferred-rack": (17, 1_200, 1_000, 200, 2.5, 8),
    "large-balanced-rack": (16, 1_200, 1_000, 200, 2.5, 8),
}
FILES: dict[str, tuple[int, dict[str, Row]]] = {
    "baseline": (30, BASELINE),
    "large-scale": (1_000, LARGE_SCALE),
    "tas": (30, TAS),
}
NAMES = sorted(FILES)


# ── what comes when ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", NAMES)
def test_every_queue_gets_what_the_file_says(name: str) -> None:
    queues, classes = FILES[name]
    generator = GENERATORS[name]
    found = {
        each.name: (
            each.count, each.interval_ms, each.runtime_ms, each.priority, each.pod_cpu_milli / 1_000, each.pods
        )
        for each in generator.sets
    }  # fmt: skip
    assert found == classes
    assert (generator.cohorts * generator.queues, generator.nominal_milli, generator.borrowing_milli) == (
        queues,
        20_000,
        100_000,
    )
    created = arrivals(generator)
    assert Counter(each.set.name for each in created) == {each: row[0] * queues for each, row in classes.items()}
    assert len(created) == generator.workloads == {"baseline": 15_000, "large-scale": 50_000, "tas": 15_000}[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_set_waits_its_interval_before_each_workload(name: str) -> None:
    queues, classes = FILES[name]
    times: dict[tuple[str, str], list[int]] = {}
    for each in arrivals(GENERATORS[name]):
        times.setdefault((each.queue, each.set.name), []).append(each.at_ms)
    assert len(times) == queues * len(classes)
    for (_, kind), found in times.items():
        count, interval_ms, *_ = classes[kind]
        assert found == list(range(interval_ms, count * interval_ms + 1, interval_ms))


def test_names_are_those_of_kueue() -> None:
    created = [each for each in arrivals(GENERATORS["baseline"]) if each.queue == "cq-0-5-cohort-4"]
    assert [each.name for each in created[:6]] == [
        "small-0-0-0",
        "small-0-1-0",
        "small-0-2-0",
        "small-0-3-0",
        "small-0-4-0",
        "medium-1-0-0",
    ]
    assert created[-1].name == "large-2-49-0"


def test_tas_has_ten_racks_of_64_nodes() -> None:
    assert GENERATORS["tas"].racks == Racks(10, 64, 96_000, 256 * 2**30)
    slices = {each.name: each.slice_pods for each in GENERATORS["tas"].sets if each.constraint == "balanced"}
    assert slices == {"small-balanced-rack": 1, "medium-balanced-rack": 2, "large-balanced-rack": 4}


def test_the_highest_priority_becomes_0() -> None:
    assert priorities(GENERATORS["baseline"]) == {200: 0, 100: 1, 50: 2}


def test_every_class_with_a_published_wait_exists() -> None:
    for name, published in PUBLISHED.items():
        assert set(published.mean_ms) <= set(published.most_ms) == {each.name for each in GENERATORS[name].sets}


# ── the bounds ───────────────────────────────────────────────────────────────────────────────────────────────────────


def one_queue(generator: Generator) -> list[Arrival]:
    return arrivals(generator.reduced(1, 1))


@pytest.mark.parametrize(("name", "ms"), [("baseline", 66_000), ("large-scale", 4_025), ("tas", 66_000)])
def test_the_bound_is_all_work_at_the_whole_quota(name: str, ms: int) -> None:
    generator = GENERATORS[name]
    work = sum(each.set.runtime_ms * each.set.pods * each.set.pod_cpu_milli for each in one_queue(generator))
    first = one_queue(generator)[0].at_ms
    alone = max(each.at_ms + each.set.runtime_ms for each in one_queue(generator)) - first
    assert bound_ms(generator) == max(alone, work / 20_000) == ms
    assert bound_ms(generator.reduced(1, 2)) == bound_ms(generator)


@pytest.mark.parametrize("name", NAMES)
def test_with_arrivals_the_bound_is_the_end_of_a_server_that_never_idles_while_work_is_there(name: str) -> None:
    generator = GENERATORS[name]
    free_ms = 0.0
    for each in one_queue(generator):
        free_ms = max(free_ms, each.at_ms) + each.set.runtime_ms * each.set.cpu_milli / 20_000
    assert late_bound_ms(generator) == pytest.approx(free_ms - one_queue(generator)[0].at_ms)
    assert late_bound_ms(generator) > bound_ms(generator)


def test_one_long_workload_alone_is_a_bound_too() -> None:
    slow = WorkloadSet("slow", count=1, interval_ms=160, runtime_ms=60_000, priority=1, pod_cpu_milli=1_000)
    generator = structs.replace(GENERATORS["large-scale"], sets=(*GENERATORS["large-scale"].sets, slow))
    assert bound_ms(generator) == late_bound_ms(generator) == 60_100


# ── played ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def shorter(generator: Generator, by: int) -> Generator:
    """The same load for a part of the time."""
    return structs.replace(
        generator, sets=tuple(structs.replace(each, count=each.count // by) for each in generator.sets)
    )


def played(generator: Generator, directory: Path) -> tuple[Play, Played]:
    play = Play(generator, directory)
    return play, play.run()


def books_agree(play: Play, decisions: int) -> None:
    """The ledger on disk is whole, each of its decisions follows again, and it is what the scheduler believes."""
    table, verifier = LedgerStore(play.ledger_url, writer=False), Verifier()
    for version, entry in table.read(limit=1_000_000):
        verifier.entry(version, entry)
    assert verifier.found == []
    assert verifier.decided >= decisions
    assert table.verify_chain() == []
    assert table.last_version() == play.sim.service.ledger.version
    table.close()
    assert check(play.sim.service.state, play.sim.service.ledger) == []
    assert not play.sim.service.ledger.claims


def test_a_small_baseline_ends_near_its_bound(tmp_path: Path) -> None:
    play, found = played(shorter(GENERATORS["baseline"].reduced(1, 3), by=5), tmp_path)
    assert found.ended == found.workloads == 300
    assert {job.state for _, job in play.jobs()} == {"succeeded"}
    assert found.late_bound_ms <= found.makespan_ms <= 1.1 * found.bound_ms
    assert sum(play.meter.claims) == 300
    books_agree(play, 300)


def test_queues_of_a_cohort_borrow_and_end_near_the_bound_with_arrivals(tmp_path: Path) -> None:
    play, found = played(GENERATORS["large-scale"].reduced(1, 4), tmp_path)
    assert found.ended == found.workloads == 200
    assert found.late_bound_ms <= found.makespan_ms <= 1.1 * found.late_bound_ms
    assert found.most_claims > 4  # more than one workload of a queue gets in with one post
    books_agree(play, 200)


def test_a_gang_stays_in_one_rack(tmp_path: Path) -> None:
    generator = shorter(GENERATORS["tas"].reduced(1, 2), by=16)
    play, found = played(structs.replace(generator, racks=Racks(3, 4, 5_000, 1 << 30)), tmp_path)
    assert found.ended == found.workloads == generator.workloads
    pods = {each.name: each.pods for each in generator.sets}
    for name, job in play.jobs():
        racks = {node.split("-")[2] for node in placement_nodes(job.placement)}
        assert sum(placed.count for placed in job.placement) == pods[name]
        assert len(racks) == 1 or "preferred" in name
    books_agree(play, found.workloads)


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_prints_ours_beside_kueues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(bench_kueue.QUICK, "large-scale", (1, 2))
    result = CliRunner().invoke(app, ["bench", "kueue", "--generator", "large-scale", "--json"])
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert (row["workloads"], row["ended"], row["is_full"]) == (100, 100, False)
    assert (row["bound_ms"], row["kueue"]["wall_s"], row["kueue"]["per_second"]) == (4_025, 1_179.4, 42.4)
    assert [wait["name"] for wait in row["waits"]] == ["small", "medium", "large"]
