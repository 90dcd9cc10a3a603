"""Stories of one job: from the queue to its end, and what a failing store must not do to it."""

import pytest

from raysched.core import events as ev
from raysched.store.errors import StoreFailed
from tests.core.language import Story, cluster, gpus, job
from tests.model.replay import Replay


def test_a_job_is_claimed_started_and_succeeds_and_its_room_is_free_again() -> None:
    c = cluster().share("a")
    c.submit(job("one", gpus=8), runs_s=60)
    assert c.state("one") == "claimed"
    c.run(0.5)
    assert c.state("one") == "running"
    c.run(60)
    assert (c.state("one"), c.used("a"), c.node("n0").room.whole) == ("succeeded", 0, 8)


def test_a_cancelled_job_is_stopped_and_released() -> None:
    c = cluster().share("a").started(job("one", gpus=8))
    c.ask("cancel", "one", "ann")
    c.run(1)
    assert (c.state("one"), c.used("a")) == ("cancelled", 0)


def test_a_failed_job_runs_again_while_it_has_retries() -> None:
    c = cluster().share("a").started(job("one", gpus=1, retries=1))
    c.finish("one", ok=False)
    c.run(0.5)
    assert (c.state("one"), c.job("one").attempt) == ("running", 2)
    c.finish("one", ok=False)
    assert c.state("one") == "failed"


def test_a_job_is_stopped_when_its_run_time_grace_included_is_over() -> None:
    c = cluster().share("a").started(job("one", gpus=1, max_runtime_ms=60_000, grace_ms=10_000))
    c.run(49)
    assert c.state("one") == "running"
    c.run(2)
    assert c.state("one") == "stopping"
    c.run(10)
    assert c.state("one") == "failed"


def test_a_resized_job_is_charged_at_once_and_goes_on_as_its_next_attempt() -> None:
    c = cluster().share("a").started(job("one", gpus=8))
    c.ask("resize", "one", [{"gpu": 2}], "ann")
    assert c.used("a") == gpus(2)
    c.run(1)
    assert (c.job("one").attempt, c.state("one"), c.node("n0").room.whole) == (2, "running", 6)


def test_a_resize_that_does_not_fit_is_an_error_and_the_job_runs_on() -> None:
    c = cluster().share("a").started(job("one", gpus=4), job("two", gpus=4))
    assert "error" in c.ask("resize", "one", [{"gpu": 8}], "ann")
    assert (c.state("one"), c.job("one").attempt, c.used("a")) == ("running", 1, gpus(8))


def test_asking_for_a_resize_that_is_refused_forgets_no_reported_gpu() -> None:
    """The trial behind the answer takes the job off its node and puts it back exactly as it was."""
    c = cluster(nodes=1).share("a", nominal=8).started(job("one", gpus=2), job("two", gpus=2))
    before = c.node("n0").room.copied()
    assert all(hold.reported for hold in before.holds)
    c.ask("resize", "one", [{"gpu": 8}], "ann")
    assert c.node("n0").room == before


def test_a_job_with_two_options_settles_on_one_reason() -> None:
    """Its record must not go back and forth between the pools it may use."""
    c = cluster(nodes=1).pool("side", 1).share("a", nominal={"main": 8, "side": 4})
    c.started(job("first", gpus=4))
    c.submit(job("second", gpus=8))
    assert c.reason("second") == "SHARE_QUOTA"


# ── a store that fails ────────────────────────────────────────────────────────────────────────────────────────────


class Full:
    """A journal on a full disk."""

    def __init__(self, journal: object) -> None:
        self.journal = journal

    def append(self, events: object) -> int:
        raise StoreFailed("no space left on device")

    def __getattr__(self, name: str) -> object:
        return getattr(self.journal, name)


def half_posted() -> Story:
    """A claim stands in the ledger, and the journal could not take it."""
    c = cluster().share("a").share("b")
    c.sim.service.submit({"job": "one", "user": "ann", "share": "a", "bundles": [{"gpu_milli": 8_000}]}, "ann")
    loop = c.sim.service.loop
    journal, loop.journal = loop.journal, Full(loop.journal)  # type: ignore[assignment]
    c.sim.service.tick()
    assert loop.store_error is not None and "one" in c.sim.service.ledger.claims
    loop.journal = journal
    return c


def test_what_was_posted_is_journaled_before_the_next_command() -> None:
    c = half_posted()
    c.submit(job("two", share="b", gpus=8))
    assert [
        type(event).__name__ for event in c.sim.disk.events if isinstance(event, ev.Admitted | ev.JobSubmitted)
    ] == [
        "JobSubmitted",
        "Admitted",
        "JobSubmitted",
        "Admitted",
    ]
    assert Replay(c.sim.disk).run().differences == []


@pytest.mark.parametrize("command", ["move", "cancel", "resize"])
def test_a_command_sees_the_claim_the_journal_could_not_take(command: str) -> None:
    c = half_posted()
    args = {"move": ("one", "b", "ann"), "cancel": ("one", "ann"), "resize": ("one", [{"gpu": 1}], "ann")}
    assert "error" not in c.ask(command, *args[command])
    c.run(60)


def test_submitting_to_a_store_that_is_down_is_an_answer_not_a_crash() -> None:
    c = cluster().share("a")
    c.settle()
    loop = c.sim.service.loop
    loop.journal = Full(loop.journal)  # type: ignore[assignment]
    assert c.submit(job("one")) == ["STORE_FAILED"]


def test_news_kept_back_by_a_broken_store_is_told_in_its_order() -> None:
    c = cluster().share("a").started(job("one", gpus=1))
    loop = c.sim.service.loop
    journal, loop.journal = loop.journal, Full(loop.journal)  # type: ignore[assignment]
    c.sim.cluster.fail(c.node("n0").node, "node_dead")
    c.sim.service.tick()
    c.sim.cluster.recover(c.node("n0").node, repaired=True)
    loop.journal = journal
    c.settle()
    assert c.node("n0").present


def test_a_move_whose_journal_failed_is_finished_by_whoever_comes_next() -> None:
    c = cluster().share("a").share("b").started(job("one", gpus=8))
    loop = c.sim.service.loop
    loop.journal = Full(loop.journal)  # type: ignore[assignment]
    c.sim.service.move("one", "b", "ann")
    c.sim.restart_scheduler()
    c.settle()
    assert (c.job("one").share, c.used("b")) == ("b", gpus(8))


def test_a_resize_whose_journal_failed_is_finished_by_whoever_comes_next() -> None:
    c = cluster().share("a").started(job("one", gpus=8))
    loop = c.sim.service.loop
    loop.journal = Full(loop.journal)  # type: ignore[assignment]
    c.sim.service.resize("one", [{"gpu": 2}], "ann")
    c.sim.restart_scheduler()
    c.run(1)
    assert (c.job("one").bundles[0].gpu_milli, c.used("a"), c.state("one")) == (2_000, gpus(2), "running")
