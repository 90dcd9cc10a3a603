"""The scheduler stops after any step of any tick, and another takes over: the books balance, every job still runs
exactly once, and everything ends as it does without a crash."""

from collections.abc import Callable
from typing import get_args

import msgspec
import pytest

from raysched.core import events as ev
from raysched.core.check import check
from raysched.core.model import JobId
from raysched.sim.crash import CrashStep
from tests.core.language import Story, cluster, job
from tests.model.replay import Replay

STEPS: tuple[CrashStep, ...] = get_args(CrashStep)
Act = Callable[[Story], object]

ACTS: list[Act] = [
    lambda c: c.submit(job("one", share="a", gpus=8, bundles=2), runs_s=300),
    lambda c: c.submit(job("two", share="b", gpus=0.5, bundles=2), job("three", share="b", gpus=4), runs_s=40),
    lambda c: c.submit(job("waits", share="b", gpus=8), runs_s=20),
    lambda c: c.run(1),
    lambda c: c.ask("resize", "three", [{"gpu": 2}], "ann"),
    lambda c: c.run(60),
    lambda c: c.submit(job("never", share="b", gpus=4)),
    lambda c: c.run(1),
    lambda c: c.ask("cancel", "never", "ann"),
    lambda c: c.sim.cluster.fail(c.node("n0").node, "gpu_lost"),
    lambda c: c.run(61),
    lambda c: c.run(10),
    lambda c: c.run(400),
]


def story() -> Story:
    """Two shares, three nodes and a spare."""
    c = cluster(nodes=3).pool("spare", 1, role="standby")
    c.share("a", nominal=12, strategy="lend_and_borrow").share("b", nominal=12, strategy="lend")
    c.settle()
    return c


class Started:
    """Every start of an attempt that the cluster really made."""

    def __init__(self, c: Story) -> None:
        self.attempts: list[tuple[JobId, int]] = []
        cluster = c.sim.cluster
        start = cluster._start

        def listening(key: tuple[JobId, int]) -> None:
            before = key in cluster.attempts and cluster.attempts[key].started
            start(key)
            found = cluster.attempts.get(key)
            if found is not None and found.started and not before:
                self.attempts.append(key)

        cluster._start = listening  # type: ignore[method-assign]


def lived(step: CrashStep | None, crashes: Callable[[int], bool]) -> tuple[Story, Started]:
    c = story()
    started = Started(c)
    for number, act in enumerate(ACTS):
        if step is not None and crashes(number):
            c.sim.crash_at(step)
        act(c)
        c.settle()
    return c, started


def outcome(c: Story, started: Started) -> object:
    """What people see in the end: each job's state, how often it ran, who holds what, and where the nodes are."""
    state, ledger = c.sim.service.state, c.sim.service.ledger
    jobs = {name: (found.state, found.exit_code, found.attempt) for name, found in state.jobs.items()}
    nodes = {name: (node.pool, node.health, node.room.whole) for name, node in state.nodes.items()}
    return jobs, nodes, sorted(started.attempts), sorted(ledger.claims), [c.used("a"), c.used("b")]


def test_the_story_without_a_crash_goes_through_everything() -> None:
    c, started = lived(None, lambda _: False)
    jobs = c.sim.service.state.jobs
    assert {name: found.state for name, found in jobs.items()} == {
        "one": "succeeded",
        "two": "succeeded",
        "three": "succeeded",
        "waits": "succeeded",
        "never": "cancelled",
    }
    assert c.events(ev.NodeSwapped) and c.job("one").attempt == 2 and c.job("three").attempt == 2
    assert len(started.attempts) == len(set(started.attempts))


@pytest.mark.parametrize("number", range(len(ACTS)))
@pytest.mark.parametrize("step", STEPS)
def test_one_crash_anywhere_changes_nothing_in_the_end(step: CrashStep, number: int) -> None:
    c, started = lived(step, lambda act: act == number)
    ends_as_without_a_crash(c, started)


@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_every_act_changes_nothing_in_the_end(step: CrashStep) -> None:
    c, started = lived(step, lambda _: True)
    assert len(c.events(ev.Restarted)) > 5
    ends_as_without_a_crash(c, started)


def ends_as_without_a_crash(c: Story, started: Started) -> None:
    assert check(c.sim.service.state, c.sim.service.ledger) == []
    assert check(c.sim.service.state, c.sim.quota.ledger) == []
    assert outcome(c, started) == outcome(*lived(None, lambda _: False))
    assert Replay(c.sim.disk).run().differences == []


def test_a_quota_actor_that_restarts_after_every_act_changes_nothing() -> None:
    c = story()
    started = Started(c)
    for act in ACTS:
        c.sim.restart_quota()
        act(c)
        c.settle()
    ends_as_without_a_crash(c, started)


def test_the_same_plan_follows_a_crash_before_it_was_posted() -> None:
    """Until something is posted, a crash leaves no trace: the next scheduler plans the very same."""
    plans = []
    for step in (None, "planned"):
        c = story()
        if step is not None:
            c.sim.crash_at("planned")
        c.submit(job("one", share="a", gpus=8, bundles=2))
        plans.append(msgspec.json.encode(c.events(ev.Admitted)))
    assert plans[0] == plans[1]


def test_an_older_scheduler_that_still_lives_is_fenced() -> None:
    c = story()
    old = c.sim.service.loop
    c.sim.restart_scheduler()
    answer = c.sim.quota.post((), old.ledger.version, old.epoch, "old-1")
    assert getattr(answer, "code", None) == "FENCED"
