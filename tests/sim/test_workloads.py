"""Workloads: what generators draw and what traces become."""

import io
import tarfile
from collections import Counter
from math import pi
from pathlib import Path
from random import Random

import pytest

from raysched.core.model import ShareId
from raysched.sim.traces import itp as itp_reader
from raysched.sim.traces.itp import ItpJob
from raysched.sim.workloads import itp, muri, openb, philly, synthetic
from raysched.sim.workloads.arrivals import DAY_MS, HOUR_MS, WEEK_MS, Shape, arrivals
from raysched.sim.workloads.pieces import SPARES, gang, job_id
from raysched.sim.workloads.synthetic import JobClass, Plan
from raysched.sim.workloads.workload import Workload, bounds
from tests.sim.small_workload import job
from tests.sim.test_traces import PODS, zipped
from tests.sim.traces_at import TRACES, needs_traces

WEEKS = 30


def owned(workload: Workload) -> dict[str, int]:
    """GPUs of each share."""
    return {share.share: share.nominal["main"]["gpu"] // 1_000 for share in workload.config.shares}  # type: ignore[index]


# ── bounds ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_part_of_the_makespan_bound_binds_somewhere() -> None:
    late = bounds([job("a", 1, 10), job("b", 1, 10, at_s=100)], gpus=16)
    assert (late.makespan_ms, late.mean_jct_ms) == (110_000, 10_000)
    work = bounds([job(f"j{number}", 8, 10) for number in range(6)], gpus=16)
    assert work.makespan_ms == 30_000  # 480 GPU seconds on 16 GPUs
    one_by_one = bounds([job(f"j{number}", 9, 10) for number in range(3)], gpus=16)
    assert one_by_one.makespan_ms == 30_000  # no two fit beside each other


def test_offered_load_is_all_work_over_the_time_of_arrivals() -> None:
    found = bounds([job("a", 8, 30), job("b", 8, 10, at_s=20)], gpus=16)
    assert (found.gpu_ms, found.arrival_ms, found.offered_load) == (320_000, 20_000, 1.0)
    assert bounds([], gpus=16).offered_load == 0


# ── when jobs come ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_shape_of_a_week_has_mean_one_and_never_passes_its_highest() -> None:
    shape = Shape()
    minutes = [shape.at(ms) for ms in range(0, WEEK_MS, 60_000)]
    assert sum(minutes) / len(minutes) == pytest.approx(1)
    assert max(minutes) <= shape.highest
    assert shape.at(15 * HOUR_MS) == pytest.approx(shape.highest)


def test_arrivals_follow_the_integral_of_the_rate() -> None:
    shape = Shape(depth=0.6, peak_hour=15, weekend=0.4)
    per_ms = 2_000 / WEEK_MS
    times = list(arrivals(Random(7), shape, per_ms, WEEKS * WEEK_MS))
    expected = 2_000 * WEEKS
    assert times == sorted(times)
    assert len(times) == pytest.approx(expected, abs=5 * expected**0.5)
    # Over the 12 hours around the peak a cosine of depth d holds 1/2 + d/π of the day.
    by_day = sum(9 <= at % DAY_MS / HOUR_MS < 21 for at in times) / len(times)
    assert by_day == pytest.approx(0.5 + 0.6 / pi, abs=0.01)
    weekend = sum(at % WEEK_MS >= 5 * DAY_MS for at in times) / len(times)
    assert weekend == pytest.approx(2 * 0.4 / (5 + 2 * 0.4), abs=0.01)


def test_no_rate_no_jobs_and_a_shape_without_sense_is_refused() -> None:
    assert list(arrivals(Random(1), Shape(), 0.0, DAY_MS)) == []
    with pytest.raises(ValueError, match=r"depth 1\.5"):
        Shape(depth=1.5)


# ── made up ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_seed_is_one_workload_and_another_seed_another() -> None:
    plan = Plan(days=1, nodes=8)
    assert synthetic.workload(plan) == synthetic.workload(plan)
    assert synthetic.workload(plan).jobs != synthetic.workload(Plan(days=1, nodes=8, seed=2)).jobs


def test_nodes_that_fail_more_often_leave_the_jobs_as_they_are() -> None:
    never, often = (synthetic.workload(Plan(days=1, nodes=8, fails_every_days=days)) for days in (None, 0.5))
    assert never.jobs == often.jobs
    assert not never.failures
    assert often.failures


def test_classes_of_jobs_come_in_their_parts_and_bring_the_load_that_was_asked() -> None:
    mix = (JobClass("half", 1, 500, spread=0.5), JobClass("pair", 3, 8_000, nodes=2, spread=0.5))
    plan = Plan(days=14, nodes=64, load=0.8, mix=mix)
    found = synthetic.workload(plan)
    count = Counter(str(each.spec.job).split(".")[0] for each in found.jobs)
    assert count["pair"] / len(found.jobs) == pytest.approx(0.75, abs=0.03)
    assert {each.gpu_milli for each in found.jobs} == {500, 16_000}
    assert bounds(found.jobs, found.gpus).offered_load == pytest.approx(0.8, rel=0.1)


def test_nodes_fail_at_their_mean_rate_and_are_down_one_failure_at_a_time() -> None:
    found = synthetic.workload(Plan(days=60, nodes=32, standby=2, load=0.01, fails_every_days=10, repair_hours=6))
    up_days = 34 * 60
    assert len(found.failures) == pytest.approx(up_days / (10 + 0.25), rel=0.15)
    down_h = sum(each.repaired_ms - each.at_ms for each in found.failures) / len(found.failures) / HOUR_MS
    assert down_h == pytest.approx(6, rel=0.2)
    for node in found.nodes:
        mine = [each for each in found.failures if each.node == node.node]
        assert all(first.repaired_ms <= then.at_ms for first, then in zip(mine, mine[1:], strict=False))


def test_standby_nodes_are_no_capacity() -> None:
    found = synthetic.workload(Plan(days=0.1, nodes=4, standby=3))
    assert (len(found.nodes), found.gpus) == (7, 32)
    assert {node.pool for node in found.nodes} - {node.pool for node in found.working_nodes} == {SPARES}


def test_a_plan_that_cannot_be_is_refused_with_its_numbers() -> None:
    with pytest.raises(ValueError, match="2 nodes: the largest jobs of the mix need 4"):
        Plan(nodes=2)


# ── from traces ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_gangs_are_whole_nodes_and_what_is_left() -> None:
    assert [(bundle.gpu_milli, bundle.count) for bundle in gang(20)] == [(8_000, 2), (4_000, 1)]
    assert [(bundle.gpu_milli, bundle.count) for bundle in gang(4)] == [(4_000, 1)]
    assert job_id("a b/c", 7) == "a-b-c.7"


def philly_folder(tmp_path: Path) -> Path:
    rows = [
        "2017-10-01 00:00:00,60,16,960,vc1",
        "2017-10-02 00:00:00,60,17,1020,vc1",
        "2017-10-02 00:00:10,30,1,30,vc2",
        "2017-10-02 00:00:20,30,1,30,lost",
    ]
    text = "timestamp,duration,num_gpus,gpu_time,cluster\n" + "\n".join(rows) + "\n"
    zipped(tmp_path, "philly.csv", text)
    (tmp_path / "philly_vc.csv").write_text("vc,node num\nvc1,2\nvc2,4\n")
    return tmp_path


def test_virtual_clusters_become_shares_and_what_does_not_fit_is_counted(tmp_path: Path) -> None:
    found = philly.workload(philly_folder(tmp_path))
    assert owned(found) == {"vc1": 16, "vc2": 32}
    assert found.gpus == 48
    assert [(each.submit_ms, each.runtime_ms, each.gpu_milli) for each in found.jobs] == [
        (0, 60_000, 16_000),
        (86_410_000, 30_000, 1_000),
    ]
    assert [each.reason for each in found.dropped] == [
        "asks more GPUs than its virtual cluster has",
        "its virtual cluster has no size in philly_vc.csv",
    ]


def test_part_of_philly_begins_at_its_first_job_on_fewer_nodes(tmp_path: Path) -> None:
    found = philly.workload(philly_folder(tmp_path), from_day=1, jobs=2, shrink=4)
    assert owned(found) == {"vc1": 8, "vc2": 8}
    assert [each.submit_ms for each in found.jobs] == [10_000]
    assert [each.submit_ms for each in found.dropped] == [0]


def test_openb_pods_run_as_long_as_the_trace_saw_them(tmp_path: Path) -> None:
    zipped(tmp_path, "openb_node_list_gpu_node.csv", "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,9000,2,T4\n")
    asks, ran = PODS.rstrip(), "qos,pod_phase,creation_time,deletion_time,scheduled_time"
    rows = [
        "p1,4000,100,1,460,T4|G2,LS,Succeeded,100,400,150",
        "p2,4000,100,1,1000,,BE,Pending,110,500,",
        "p3,4000,100,4,1000,,LS,Running,120,500,130",
        "p4,4000,100,1,1000,G2,LS,Running,120,500,130",
        "p5,1000,100,0,0,,BE,Succeeded,130,160,130",
    ]
    found = openb.workload(zipped(tmp_path, "openb_pod_list_w.csv", "\n".join([f"{asks},{ran}", *rows]) + "\n"), "w")
    first, second = found.jobs
    assert (first.submit_ms, first.runtime_ms, first.gpu_milli, first.spec.model) == (0, 250_000, 460, "T4")
    assert (second.submit_ms, second.runtime_ms, second.gpu_milli, second.spec.share) == (30_000, 30_000, 0, "BE")
    reasons = {str(each.job): each.reason for each in found.dropped}
    assert reasons == {
        "p2": "never ran in the trace: its run time is not known",
        "p3": "fits no node",
        "p4": "fits no node",
    }
    assert owned(found) == {"BE": 1, "LS": 2}


def test_demand_is_what_would_run_if_every_job_began_at_once() -> None:
    # 8 GPUs for the first 50 s, 4 to the last submission at 100 s.
    jobs = [(0, 50_000, 4), (0, 500_000, 4), (100_000, 1_000, 64)]
    assert itp.demand_percentile(jobs, 50) == 4
    assert itp.demand_percentile(jobs, 51) == 8
    assert itp.demand_percentile([(0, 10, 3)], 95) >= 0


def test_a_tenant_owns_nodes_for_its_demand_and_at_least_for_its_largest_job() -> None:
    steady = [ItpJob(f"j{number}", 0, 100_000, 4) for number in range(5)] + [ItpJob("last", 90_000, 1, 1)]
    assert itp.tenant_nodes(steady) == 3
    assert itp.tenant_nodes([ItpJob("big", 0, 1_000, 64), ItpJob("last", 500_000, 1, 1)]) == 8
    assert itp.tenant_nodes([]) == 0


def test_a_tenant_alone_has_its_own_jobs_and_as_many_nodes_as_it_owns() -> None:
    clusters = {
        "a": [ItpJob("x", 0, 9_000, 8), ItpJob("y", 5_000, 9_000, 8)],
        "b": [ItpJob("z", 2_000, 9_000, 16)],
    }
    shared = itp.of_clusters(clusters)
    assert owned(shared) == {"a": 8, "b": 16}
    assert [str(each.spec.share) for each in shared.jobs] == ["a", "b", "a"]
    alone = itp.alone(shared, ShareId("b"), "any_fit")
    assert (alone.gpus, owned(alone), len(alone.jobs)) == (16, {"b": 16}, 1)


def test_each_cluster_of_the_archive_is_a_tenant(tmp_path: Path) -> None:
    text = b"job_id,submission_time,duration,num_gpu\nb,7,3,1\na,0,12,8\n"
    with tarfile.open(tmp_path / itp_reader.ARCHIVE, "w:gz") as archive:
        member = tarfile.TarInfo("cluster01.csv")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    found = itp.workload(tmp_path)
    assert [(each.submit_ms, each.gpu_milli) for each in found.jobs] == [(0, 8_000), (7_000, 1_000)]


@needs_traces
def test_public_traces_become_workloads_that_lose_nothing_silently() -> None:
    whole = philly.workload(TRACES / "philly")
    assert (len(whole.jobs), len(whole.dropped), whole.gpus) == (82_229, 18, 2_816)
    pods = openb.workload(TRACES / "alibaba-gpu-v2023")
    assert (len(pods.jobs), len(pods.dropped), pods.gpus) == (7_255, 897, 6_212)
    cut = muri.workload(TRACES / "philly-muri", "trace3")
    assert (len(cut.jobs), len(cut.dropped), cut.gpus) == (992, 0, 64)
