"""Laws 2, 3 and 9 around the windows of overrides: what they allow while open, and what is left afterwards."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.model.play import Play
from tests.model.worlds import world
from tests.service.house import House


def test_while_the_window_is_open_more_is_admitted_and_afterwards_nobody_is_stopped() -> None:
    house = House("  s: {nominal: {p: {gpu: 2}}}")
    house.admin("override", share="s", amounts={"gpu": 2}, start="1h", until="2h", reason="x", authority="cto")
    house.submit("first", 2)
    house.submit("early", 2, confirm=True)
    house.wait(3_599_000)
    assert house.state("early") == "queued"
    house.wait(2_000)
    assert house.state("early") == "running", "the window has opened"
    assert house.service.records("early")[-1]["admission_state"] == "ADMITTED_OVERRIDE"
    house.wait(3_600_000)
    assert house.state("early") == "running", "the window has closed; nobody is stopped for it"
    house.submit("late", 1, confirm=True)
    assert house.reason("late") == "SHARE_QUOTA"
    house.service.cancel("first", "root")
    house.wait(1_000)
    assert house.state("late") == "queued", "early still fills what the share owns"
    house.service.cancel("early", "root")
    house.wait(1_000)
    assert house.state("late") == "running"


def test_what_is_diagnosed_is_what_is_admitted_at_both_edges_of_a_window() -> None:
    house = House("  s: {nominal: {p: {gpu: 2}}}")
    house.admin("override", share="s", amounts={"gpu": 2}, start="1h", until="2h", reason="x", authority="cto")
    spec = {"job": "job", "user": "ana", "share": "s", "bundles": [{"gpu_milli": 4_000}]}
    told = []
    for wait_ms in (3_599_999, 1, 3_599_999, 1):
        house.wait(wait_ms)
        findings = house.service.diagnose(spec)["findings"]
        told.append(not findings)
        if not findings:
            answer = house.service.submit({**spec, "job": f"job{len(told)}"}, "ana")
            assert "error" not in answer
            house.sim.settle()
            assert house.state(answer["job"]) == "claimed"
            house.service.cancel(answer["job"], "root")
            house.sim.settle()
            house.sim.cluster.advance()
        else:
            assert house.service.submit({**spec, "job": f"job{len(told)}"}, "ana")["error"]["code"] == "OVER_SHARE_MAX"
    assert told == [False, True, True, False]


@settings(derandomize=True)
@given(seed=st.integers(0, 1 << 30))
def test_no_law_is_broken_while_windows_open_and_close(seed: int) -> None:
    """Random histories with many short overrides of shares and users, with and without authority."""
    play, rng = Play(world(seed), seed), Random(seed)
    for _ in range(20):
        n = [rng.randint(0, 1 << 16) for _ in range(7)]
        if rng.random() < 0.35:
            _window(play, rng)
        elif rng.random() < 0.7:
            play.submit(n[0], n[1], n[2], n[3], n[4], n[5], n[6])
        else:
            play.finish(n[0], True)
        play.verify()
        play.sim.run_until(play.sim.clock.at_ms + rng.choice((0, 500, 5_000, 20_000)))
        play.verify()
    assert [broken for broken in play.broken if broken[0] in (1, 2, 3, 9, 10)] == []


def _window(play: Play, rng: Random) -> None:
    service, now_s = play.sim.service, (play.sim.clock.at_ms - play.sim.start_ms) // 1_000
    scope = rng.choice(({"share": "a"}, {"share": "b"}, {"user": "ann"}, {"user": "bob"}))
    start_s = now_s + rng.randint(0, 10)
    keys = {**scope, "amounts": {"gpu": rng.randint(1, 4)}, "start": f"{start_s}s", "for": f"{rng.randint(1, 15)}s"}
    authority = {"authority": "cto"} if rng.random() < 0.8 else {}
    answer = service.admin("override", {**keys, "reason": "a deadline", **authority}, "root")
    assert "error" not in answer, answer
