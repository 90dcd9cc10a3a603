"""Playing workloads: small ones by hand, made-up ones by what must be kept, files read back as they were written."""

from pathlib import Path

import pytest
from msgspec import structs

from raysched.core.check import check
from raysched.core.model import Bundle, JobSpec, NodeId, ShareId, UserId
from raysched.sim import outcome_files as files
from raysched.sim.cluster import Delays
from raysched.sim.outcome import Played, size_of, spread, summary
from raysched.sim.recording import Recorder, typical
from raysched.sim.run import START_MS, Play, play
from raysched.sim.simulation import REPORT_EVERY_MS
from raysched.sim.workloads import synthetic
from raysched.sim.workloads.synthetic import Plan
from raysched.sim.workloads.workload import Dropped, NodeFailure, Workload, WorkloadJob
from tests.sim.small_workload import job, workload

AT_ONCE = Delays(0, 0, 0)
THREE = (job("first", 8, 100), job("whole", 16, 50, at_s=1), job("small", 4, 20, at_s=10))


def times(played: Played) -> dict[str, tuple[float | None, float | None]]:
    """Start and end of each job, in seconds."""

    def seconds(ms: int | None) -> float | None:
        return None if ms is None else ms / 1_000

    return {str(line.job): (seconds(line.start_ms), seconds(line.end_ms)) for line in played.lines}


def failing(seed: int) -> Workload:
    """A small busy cluster whose nodes fail every half day."""
    return synthetic.workload(Plan(days=0.3, nodes=6, standby=1, load=1.2, seed=seed, fails_every_days=0.5))


# ── by hand ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_in_strict_order_everybody_waits_for_the_gang() -> None:
    played = play(workload(*THREE, policy="strict_fifo"), delays=AT_ONCE)
    assert times(played) == {"first": (0, 100), "whole": (100, 150), "small": (150, 170)}
    found = summary(played)
    assert found.makespan_ms == 170_000
    assert found.makespan_bound_ms == 105_000  # 1,680 GPU seconds on 16 GPUs
    assert found.utilisation == pytest.approx(1_680 / (16 * 170))
    assert (found.wait.mean_ms, found.wait.median_ms, found.wait.p99_ms) == (
        pytest.approx(239_000 / 3),
        99_000,
        140_000,
    )
    assert found.waits["16-63"].mean_ms == 99_000


def test_whatever_fits_goes_first_where_that_is_allowed() -> None:
    played = play(workload(*THREE, policy="any_fit"), delays=AT_ONCE)
    assert times(played) == {"first": (0, 100), "small": (10, 30), "whole": (100, 150)}
    # Until the last submission at 10 s only the first job ran.
    assert summary(played).utilisation_arrival == pytest.approx(8 * 10 / (16 * 10))


def test_by_default_a_start_takes_a_third_of_a_second() -> None:
    (line,) = play(workload(job("j", 8, 100))).lines
    assert (line.wait_ms, line.jct_ms) == (300, 100_350)


def test_samples_stand_on_a_grid_and_see_loans_and_the_queue() -> None:
    jobs = [job("own", 8, 100, share="a"), job("loan", 8, 100, share="a"), job("waits", 8, 50, at_s=10, share="b")]
    played = play(workload(*jobs, shares={"a": 8, "b": 8}), samples=10, delays=AT_ONCE)
    assert [sample.at_ms for sample in played.samples[:3]] == [0, 12_500, 25_000]
    sample = played.samples[1]
    assert (sample.capacity, sample.running, sample.claimed) == (16_000, 16_000, 16_000)
    assert (sample.queued_jobs, sample.queued) == (1, 8_000)
    assert (sample.borrowed, sample.lent) == ({"a": 8_000}, {"b": 8_000})
    assert sample.used == {"a": 16_000, "b": 0}
    waits = next(line for line in played.lines if line.job == "waits")
    assert waits.held_by == ("WAITING_RECLAIM",)
    assert summary(played).loans_most_gpus == 8


def test_a_run_far_beyond_its_bound_is_looked_at_less_often() -> None:
    long = [job(f"j{number}", 8, 10) for number in range(40)]
    played = play(workload(*long, shares={"s": 8}), samples=5, delays=AT_ONCE)
    down = NodeFailure(1_000, NodeId("n0"), "node_dead", 30 * 86_400_000)
    late = play(workload(job("j", 8, 10), shares={"s": 8}, failures=(down,)), samples=5)
    assert len(played.samples) <= 4 * 5
    assert len(late.samples) <= 4 * 5
    steps = {then.at_ms - first.at_ms for first, then in zip(late.samples, late.samples[1:], strict=False)}
    assert len(steps) == 1
    assert [line.state for line in late.lines] == ["succeeded"]


# ── fragmentation ─────────────────────────────────────────────────────────────────────────────────────────────────


def looked_at(*jobs: WorkloadJob, usual: WorkloadJob) -> tuple[float, float]:
    """(fragmented, stranded) GPUs of two nodes with these jobs on them, when everybody asks as `usual` does."""
    run = Play(workload(*jobs), delays=AT_ONCE)
    run.submit(list(jobs))
    run.sim.settle()
    recorder = Recorder(run.sim, [usual], run.recorder.pools)
    recorder.take()
    return recorder.samples[0].fragmented / 1_000, recorder.samples[0].stranded / 1_000


def test_what_is_left_on_a_used_node_is_lost_to_jobs_of_whole_nodes() -> None:
    assert looked_at(usual=job("u", 8, 1)) == (0, 0)
    assert looked_at(job("a", 3, 100), usual=job("u", 8, 1)) == (5, 5)
    assert looked_at(job("a", 3, 100), usual=job("u", 4, 1)) == (0, 5)
    assert looked_at(job("a", 3, 100), job("b", 8, 100), usual=job("u", 16, 1)) == (5, 5)


def test_the_rest_of_a_shared_gpu_is_lost_to_whole_ones() -> None:
    share = WorkloadJob(0, 100_000, JobSpec(job("x", 1, 1).spec.job, UserId("u"), ShareId("s"), (Bundle(600),)))
    assert looked_at(share, usual=job("u", 1, 1)) == (0.4, 7.4)


def test_a_node_without_cores_is_lost_however_many_gpus_are_free() -> None:
    hungry = (Bundle(1_000, 64_000),)
    asks = WorkloadJob(0, 100_000, JobSpec(job("x", 1, 1).spec.job, UserId("u"), ShareId("s"), hungry))
    assert looked_at(asks, usual=job("u", 1, 1)) == (7, 7)


def test_typical_are_the_most_frequent_requests_up_to_95_per_cent() -> None:
    jobs = [job(f"a{n}", 1, 1) for n in range(90)] + [job(f"b{n}", 8, 1) for n in range(6)] + [job("c", 2, 1)] * 4
    found = typical(jobs)
    assert [each.bundle.gpu_milli for each in found] == [1_000, 8_000]
    assert [each.part for each in found] == [pytest.approx(90 / 96), pytest.approx(6 / 96)]


# ── what must be kept ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(4))
def test_every_job_ends_and_every_gpu_second_is_accounted_for(seed: int) -> None:
    made = failing(seed)
    run = Play(made, samples=50)
    played = run.run()
    lines = played.lines
    assert len(lines) == len(made.jobs)
    assert {line.state for line in lines} == {"succeeded"}
    ran = sum(line.ran_ms * line.gpu_milli for line in lines) / 1_000
    assert ran == pytest.approx(played.busy_ms)
    useful = sum(line.runtime_ms * line.gpu_milli for line in lines) / 1_000
    assert useful == pytest.approx(played.bounds.gpu_ms)
    assert summary(played).lost_gpu_ms == pytest.approx(ran - useful)
    for line in lines:
        assert line.ran_ms == line.runtime_ms if line.attempts == 1 else line.ran_ms >= line.runtime_ms
    assert played.makespan_ms >= played.bounds.makespan_ms
    for sample in played.samples:
        assert sample.running <= sample.claimed == sum(sample.used.values())
        assert sum(sample.borrowed.values()) == sum(sample.lent.values())
        assert 0 <= sample.fragmented <= sample.capacity
        assert 0 <= sample.stranded <= sample.capacity
    assert check(run.sim.service.state, run.sim.service.ledger) == []


def test_nodes_fail_are_swapped_and_cost_work() -> None:
    outcomes = [summary(play(failing(seed), samples=10)) for seed in range(4)]
    assert sum(found.failures for found in outcomes) > 4
    assert sum(found.swaps for found in outcomes) > 0
    assert sum(found.attempts - found.jobs for found in outcomes) > 0
    assert sum(found.lost_gpu_ms for found in outcomes) > 0


def test_the_same_workload_is_played_the_same_way() -> None:
    first, second = (play(failing(1), samples=20) for _ in range(2))
    assert structs.replace(first, seconds=0) == structs.replace(second, seconds=0)


def test_jobs_that_cannot_be_played_are_told_and_the_run_still_ends() -> None:
    made = workload(job("fits", 8, 10), job("large", 32, 10), job("for-ever", 32, 10, confirm=True))
    gone = Dropped(job("gone", 1, 1).spec.job, ShareId("s"), 5_000, 1_000, "too large for its tenant")
    played = play(structs.replace(made, dropped=(gone,)))
    assert {str(line.job): line.state for line in played.lines} == {
        "fits": "succeeded",
        "large": "refused",
        "for-ever": "unfinished",
        "gone": "dropped",
    }
    reasons = {str(line.job): line.reason for line in played.lines}
    assert "OVER_SHARE_MAX" in reasons["large"]
    assert reasons["gone"] == "too large for its tenant"
    assert summary(played).ended == {"dropped": 1, "refused": 1, "succeeded": 1, "unfinished": 1}


def test_progress_is_told_up_to_the_end() -> None:
    told: list[tuple[int, int]] = []
    play(workload(*THREE), samples=10, progress=lambda ended, jobs: told.append((ended, jobs)))
    assert told[-1] == (3, 3)
    assert told == sorted(told)


# ── the clock ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_whoever_looks_after_a_long_run_finds_fresh_reports() -> None:
    run, day_ms = Play(workload(job("j", 8, 100))), 86_400_000
    inbox, (mute, speaks) = run.sim.service.loop.inbox, (NodeId("n0"), NodeId("n1"))
    run.sim.run_until(START_MS + day_ms)
    assert inbox.last_ms(mute) == START_MS + day_ms
    run.sim.go_to(START_MS + 2 * day_ms)
    run.sim.cluster.silence(mute)  # it had spoken to the last
    run.sim.run_until(START_MS + 2 * day_ms + 3 * REPORT_EVERY_MS)
    assert inbox.last_ms(mute) == START_MS + 2 * day_ms
    assert inbox.last_ms(speaks) == START_MS + 2 * day_ms + 3 * REPORT_EVERY_MS


def test_nothing_is_due_once_all_has_ended() -> None:
    run = Play(workload(job("j", 8, 100)))
    run.run()
    assert run.sim.next_ms() is None


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_are_read_back_as_they_were_written(tmp_path: Path) -> None:
    played = play(failing(2), samples=30)
    written = files.write(played, tmp_path / "new")
    assert [file.name for file in written] == ["jobs.csv", "samples.csv", "summary.json"]
    assert files.read_jobs(written[0]) == played.lines
    assert files.read_samples(written[1]) == played.samples


def test_an_unbounded_load_is_no_number_in_json() -> None:
    found = files.summary_json(play(workload(job("j", 8, 100))))
    assert found["offered_load"] is None
    assert found["ended"] == {"succeeded": 1}


def test_a_file_that_is_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("job,share\n")
    with pytest.raises(ValueError, match=r"jobs\.csv: lacks the columns user, size"):
        files.read_jobs(tmp_path / "jobs.csv")


def test_sizes_and_spreads() -> None:
    sizes = [size_of(milli) for milli in (0, 500, 1_000, 7_000, 8_000, 16_000, 64_000)]
    assert sizes == ["no GPU", "part of one", "1", "2-7", "8-15", "16-63", "64 and more"]
    found = spread([*range(1, 101), None])
    assert (found.count, found.mean_ms, found.median_ms, found.p99_ms, found.most_ms) == (100, 50.5, 51, 100, 100)
    assert spread([]).count == 0
