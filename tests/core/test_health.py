"""Health with hysteresis, and what follows from it: holds, swaps, guards, fencing (semantics 9)."""

from raysched.core import events as ev
from tests.core.language import Story, cluster, job


def one_bad_node(**more: int) -> Story:
    """A job on n0 of two nodes."""
    return cluster(nodes=2).settings(**more).share("a", nominal=16).started(job("one", gpus=8))


def with_spare(nodes: int = 1, spares: int = 1) -> Story:
    return cluster(nodes=nodes).pool("spare", spares, role="standby").share("a", nominal=8 * nodes)


# ── hysteresis ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_bad_for_52_seconds_and_then_clean_is_no_failure() -> None:
    c = one_bad_node()
    c.fail("n0")
    c.run(52)
    assert c.node("n0").health == "suspect"
    c.clear("n0")
    c.run(30)
    assert (c.node("n0").health, c.state("one"), c.job("one").attempt) == ("healthy", "running", 1)
    assert not [e for e in c.events(ev.HealthChanged) if e.health == "failed"]


def test_bad_40_clean_10_bad_40_is_a_failure() -> None:
    c = one_bad_node()
    c.fail("n0")
    c.run(40)
    c.clear("n0")
    c.run(10)
    c.fail("n0")
    c.run(9)
    assert c.node("n0").health == "suspect"
    c.run(2)
    assert c.node("n0").health == "failed"


def test_after_30_seconds_clean_the_timer_starts_anew() -> None:
    c = one_bad_node()
    c.fail("n0")
    c.run(50)
    c.clear("n0")
    c.run(31)
    c.fail("n0")
    c.run(59)
    assert c.node("n0").health == "suspect"


def test_a_suspect_node_gets_no_new_work_and_keeps_what_runs() -> None:
    c = one_bad_node()
    c.fail("n0")
    c.submit(job("two", gpus=8), job("three", gpus=1))
    assert c.state("one") == "running"
    assert (c.where("two"), c.state("three")) == (["n1"], "queued")


def test_a_silent_agent_makes_its_node_suspect_and_then_failed() -> None:
    c = cluster(nodes=3).share("a")
    c.settle()
    c.silence("n0")
    c.run(16)
    assert c.node("n0").health == "suspect"
    c.run(60)
    assert c.node("n0").health == "failed"


def test_while_every_agent_is_silent_timers_stand_still() -> None:
    c = one_bad_node()
    c.silence("n0", "n1")
    c.run(300)
    assert [c.node(name).health for name in ("n0", "n1")] == ["suspect", "suspect"]
    assert "agents_silent" in c.alerts() and c.state("one") == "running"
    c.clear("n0")
    c.run(1)
    assert "agents_silent" not in c.alerts()
    c.run(58)
    assert c.node("n1").health == "suspect", "the time all were silent does not count"
    c.run(20)
    assert c.node("n1").health == "failed"


def test_a_failed_node_that_speaks_shows_that_not_every_agent_is_silent() -> None:
    c = cluster(nodes=3).share("a")
    c.settle()
    c.fail("n0")
    c.run(61)
    c.silence("n1", "n2")
    c.run(200)
    assert [c.node(name).health for name in ("n1", "n2")] == ["failed", "failed"]


def test_a_restarted_scheduler_starts_open_timers_again() -> None:
    c = one_bad_node()
    c.fail("n0")
    c.run(50)
    c.sim.restart_scheduler()
    c.run(50)
    assert c.node("n0").health == "suspect"
    c.run(11)
    assert c.node("n0").health == "failed"


# ── standby ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_spare_of_the_same_spec_takes_the_place_and_the_gang_goes_on_there() -> None:
    c = with_spare(nodes=2).started(job("one", gpus=8, bundles=2))
    c.fail("n0")
    c.run(62)
    assert c.where("one") == ["spare0", "n1"]
    assert (c.node("spare0").pool, c.node("n0").pool) == ("main", "spare")
    assert (c.job("one").attempt, c.used("a")) == (2, 16_000)


def test_a_spare_of_another_spec_is_no_spare_and_the_job_waits_in_front() -> None:
    c = cluster(nodes=1).pool("spare", 1, gpus=4, role="standby").share("a").started(job("one", gpus=8))
    c.submit(job("two", gpus=8))
    c.fail("n0")
    c.run(62)
    assert "no_spare" in c.alerts()
    assert (c.state("one"), c.job("one").front) == ("queued", True)


def test_two_failures_take_two_spares() -> None:
    c = with_spare(nodes=5, spares=2).started(job("one", gpus=8), job("two", gpus=8))
    c.fail("n0", "xid_79")
    c.fail("n1", "gpu_lost")
    c.run(62)
    assert {c.where("one")[0], c.where("two")[0]} == {"spare0", "spare1"}


def test_a_repaired_node_becomes_a_spare_and_a_node_never_replaced_comes_back() -> None:
    c = with_spare().started(job("one", gpus=8))
    c.fail("n0")
    c.run(62)
    c.repair("n0")
    c.run(700)
    assert (c.node("n0").health, c.node("n0").pool) == ("healthy", "spare")

    c = cluster(nodes=1).share("a")
    c.settle()
    c.fail("n0")
    c.run(62)
    c.repair("n0")
    c.run(700)
    assert (c.node("n0").health, c.node("n0").pool) == ("healthy", "main")


# ── guards ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_breaker_holds_swaps_when_most_of_a_pool_goes_bad_on_one_signal() -> None:
    c = with_spare(nodes=4, spares=4).started(job("one", gpus=8))
    for name in ("n0", "n1", "n2"):
        c.fail(name, "xid_79")
    c.run(62)
    assert "swap_held" in c.alerts() and c.events(ev.NodeSwapped) == []
    c.run(300)
    assert len(c.events(ev.NodeSwapped)) == 3


def test_different_signals_are_no_common_cause() -> None:
    c = with_spare(nodes=4, spares=4)
    c.settle()
    for name, signal in (("n0", "xid_79"), ("n1", "gpu_lost"), ("n2", "xid_48")):
        c.fail(name, signal)
    c.run(62)
    assert len(c.events(ev.NodeSwapped)) == 3


def test_swaps_have_a_budget_for_each_minute() -> None:
    c = with_spare(nodes=6, spares=3).settings(swaps_in_flight=2)
    c.settle()
    for name, signal in (("n0", "xid_79"), ("n1", "gpu_lost"), ("n2", "xid_48")):
        c.fail(name, signal)
    c.run(62)
    assert len(c.events(ev.NodeSwapped)) == 2
    c.run(60)
    assert len(c.events(ev.NodeSwapped)) == 3


# ── fencing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_swap_waits_until_the_lost_node_is_fenced() -> None:
    c = with_spare(nodes=2).started(job("one", gpus=8))
    c.fail("n0")
    c.run(50)
    c.silence("n0")
    c.run(20)
    assert c.node("n0").health == "failed" and c.job("one").attempt == 1, "its agent could not confirm the kill"
    c.run(45)
    assert (c.where("one"), c.job("one").attempt) == (["spare0"], 2)


def test_a_retry_waits_until_a_silent_agents_lease_is_over() -> None:
    c = cluster(nodes=2).share("a", nominal=16).started(job("one", gpus=8, retries=1))
    c.silence("n0")
    c.finish("one", ok=False)
    c.run(14)
    assert c.job("one").attempt == 1, "the failed attempt may still have processes on n0"
    c.clear("n0")
    c.run(62)
    assert (c.job("one").attempt, c.state("one")) == (2, "running")


def test_a_resize_waits_until_a_silent_agents_lease_is_over() -> None:
    c = cluster(nodes=3).share("a", nominal=24).started(job("one", gpus=8, grace_ms=1_000))
    c.silence("n0")
    c.ask("resize", "one", [{"gpu": 4}], "ann")
    c.run(10)
    assert c.job("one").attempt == 1
    c.clear("n0")
    c.run(62)
    assert (c.job("one").attempt, c.state("one")) == (2, "running")


def test_a_held_attempt_goes_on_only_when_the_last_one_is_surely_over() -> None:
    c = cluster(nodes=2).share("a", nominal=16).started(job("one", gpus=8))
    c.fail("n0")
    c.silence("n0")
    c.finish("one", ok=False)
    c.run(5)
    c.clear("n0")
    c.run(40)
    assert (c.node("n0").health, c.state("one"), c.job("one").attempt) == ("healthy", "starting", 1)
    c.run(20)
    assert (c.state("one"), c.job("one").attempt) == ("running", 2)


def test_a_rebooted_node_needs_no_lease_to_be_over() -> None:
    c = cluster(nodes=2).settings(fence_wait_ms=3_600_000).share("a", nominal=16).started(job("one", gpus=8))
    c.fail("n0", "node_dead")
    c.run(20)
    c.repair("n0")
    c.run(31)
    assert (c.job("one").attempt, c.where("one"), c.state("one")) == (2, ["n0"], "running")
