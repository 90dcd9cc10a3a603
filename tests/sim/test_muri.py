"""Muri's completion times: its conventions on clusters small enough to follow, and its printed digits."""

import pytest

from raysched.sim.muri import ORDERS, SLOWDOWN, Completion, completion
from raysched.sim.muri_published import PRINTED
from raysched.sim.traces import muri
from raysched.sim.traces.muri import MuriJob
from tests.sim.traces_at import TRACES, needs_traces


def job(number: int, seconds: float, gpus: int = 8, at_s: float = 0, model: str = "bert") -> MuriJob:
    """A job that runs so long, the slowdown apart."""
    return MuriJob(number, gpus, round(at_s * 1000), round(seconds * 10), 100, model)


def played(*jobs: MuriJob, order: str = "srtf") -> Completion:
    return completion(jobs, ORDERS[order])


def test_a_job_alone_runs_its_iterations_with_the_slowdown() -> None:
    assert played(job(1, 100)).average_s == pytest.approx(100 * SLOWDOWN)


def test_the_start_up_cost_is_charged_at_an_event_and_not_to_the_last_stretch() -> None:
    # At 50 s the first job has run 50 s, of which bert's 10 s to start do not count; its end moves by them. When it
    # ends the second one pays too, and then runs to its end.
    found = played(job(1, 100), job(2, 100, at_s=50))
    assert found.average_s == pytest.approx(100 * SLOWDOWN + 10)
    assert found.makespan_s == pytest.approx(50 + 100 * SLOWDOWN + 10)


def test_the_shortest_goes_first_and_the_longest_waits() -> None:
    jobs = [job(number, 100) for number in range(8)]
    found = played(*jobs, job(9, 50))
    # The ninth takes one of eight nodes first; one of the others starts when it ends, and pays once for the event at
    # which the seven end.
    assert found.makespan_s == pytest.approx((50 + 100) * SLOWDOWN + 10)


def test_srsf_weighs_by_gpus() -> None:
    long_small, short_large = job(1, 100, gpus=1), job(2, 50, gpus=64)
    assert played(long_small, short_large).makespan_s == pytest.approx(150 * SLOWDOWN)  # srtf: the large one first
    found = played(long_small, short_large, order="srsf")
    assert found.average_s == pytest.approx((100 + 150) / 2 * SLOWDOWN)


def test_what_does_not_fit_is_passed_over() -> None:
    # 7 nodes are taken; the job of two nodes does not fit, the longer one of one node does.
    found = played(*(job(number, 10) for number in range(7)), job(8, 20, gpus=16), job(9, 30))
    assert found.makespan_s < (10 + 20 + 30) * SLOWDOWN


def test_submissions_closer_than_a_billionth_are_one_event() -> None:
    start_s = 2_000_000
    apart = played(job(1, 100, at_s=start_s), job(2, 100, at_s=start_s + 0.001))
    assert apart.average_s == pytest.approx(100 * SLOWDOWN, abs=0.01)  # as two events the first would pay 10 s


def test_jobs_that_cannot_be_played_are_refused() -> None:
    with pytest.raises(ValueError, match="job 3 asks 65 GPUs of 64"):
        played(job(3, 1, gpus=65))
    with pytest.raises(ValueError, match="without jobs"):
        played()


@needs_traces
@pytest.mark.parametrize(("trace", "order"), [(t, o) for t in ("trace3", "trace1", "trace4_pr") for o in ORDERS])
def test_printed_digits(trace: str, order: str) -> None:
    found = completion(muri.read_jobs(TRACES / muri.FOLDER, trace), ORDERS[order])
    assert not PRINTED[trace, order].differences(found.average_s, found.p99_s, found.makespan_s)


@needs_traces
@pytest.mark.slow
@pytest.mark.parametrize(("trace", "order"), PRINTED)
def test_all_printed_digits(trace: str, order: str) -> None:
    test_printed_digits(trace, order)
