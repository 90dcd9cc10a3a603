"""Dry runs: what they foretell is what comes of the change, and asking changes nothing."""

from typing import Any

import pytest

from tests.service.crowds import crowded
from tests.service.house import House


def running(house: House) -> set[str]:
    return {job.job for job in house.service.state.jobs.values() if job.state == "running"}


def over(effects: dict[str, Any]) -> list[tuple[str, str, int, tuple[str, ...]]]:
    return [(each["scope"], each["kind"], each["over"], tuple(each["jobs"])) for each in effects["over"]]


def test_who_would_start_is_named() -> None:
    house = House("  s: {nominal: {p: {gpu: 2}}}")
    house.submit("first", 2)
    house.submit("second", 2, confirm=True)
    house.submit("third", 4, confirm=True)
    effects = house.preview("set_share", name="s", nominal={"p": {"gpu": 5}})["effects"]
    assert (effects["starts"], effects["queues"], effects["over"]) == (["second"], [], [])


def test_who_would_wait_is_named() -> None:
    """A job that was submitted this moment would start with the next plan, but not under the new limit."""
    house = House("  s: {nominal: {p: {gpu: 8}}}")
    house.sim.service.submit({"job": "job", "user": "ana", "share": "s", "bundles": [{"gpu_milli": 4_000}]}, "ana")
    effects = house.preview("set_limits", name="s", enabled=True, rules=[{"user": "ana", "gpu": 2}])["effects"]
    assert (effects["starts"], effects["queues"]) == ([], ["job"])


def test_which_jobs_would_be_over_a_new_limit_is_named() -> None:
    house = House("  s: {nominal: {p: {gpu: 8}}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.submit("a", 2)
    house.submit("b", 1)
    house.submit("elsewhere", 1, share="t")
    house.submit("other", 1, user="bo")
    rules = [{"user": "ana", "gpu": 1}, {"group": "ml", "gpu": 2, "mode": "total"}]
    effects = house.preview("set_limits", name="s", enabled=True, rules=rules)["effects"]
    assert over(effects) == [
        ("group ml in share s", "gpu", 2_000, ("a", "b", "other")),
        ("user ana in share s", "gpu", 2_000, ("a", "b")),
    ]


def test_an_override_is_counted_before_somebody_is_over() -> None:
    house = House("  s: {nominal: {p: {gpu: 8}}}")
    house.submit("a", 3)
    house.admin("override", user="ana", amounts={"gpu": 2}, until="9h", reason="x", authority="cto")
    rules = [{"user": "ana", "gpu": 1}]
    assert house.preview("set_limits", name="s", enabled=True, rules=rules)["effects"]["over"] == []


def test_a_share_that_is_cut_is_over_and_so_is_who_borrows_too_much() -> None:
    house = House(
        "  s: {nominal: {p: {gpu: 3}}, sharing: {strategy: borrow}}\n"
        "  t: {nominal: {p: {gpu: 5}}, sharing: {strategy: lend}}"
    )
    house.submit("own", 3)
    house.wait(1_000)
    house.submit("guest", 4)
    effects = house.preview("set_share", name="s", nominal={"p": {"gpu": 2}})["effects"]
    assert effects["over"] == []  # t lends 5
    effects = house.preview("set_share", name="t", nominal={"p": {"gpu": 1}})["effects"]
    assert over(effects) == [("share s", "gpu", 3_000, ("guest",))]
    effects = house.preview("set_share", name="s", sharing={"strategy": "borrow", "borrow_limit": {"gpu": 1}})[
        "effects"
    ]
    assert over(effects) == [("share s", "gpu", 3_000, ("guest",))]
    effects = house.preview("set_share", name="s", sharing={"strategy": "reserve"})["effects"]
    assert over(effects) == [("share s", "gpu", 4_000, ("guest",))]


@pytest.mark.parametrize("action", ["uncordon", "repool_node"])
def test_room_on_nodes_is_foretold_too(action: str) -> None:
    house = House("  s: {nominal: {p: {gpu: 8}}}", p=1, q=1)
    if action == "uncordon":
        house.admin("cordon", node="p0")
    else:
        house.submit("first", 4)
    house.submit("job", 4)
    params = {"node": "p0"} if action == "uncordon" else {"node": "q0", "pool": "p"}
    assert house.preview(action, **params)["effects"]["starts"] == ["job"]
    assert house.preview("cordon", node="p0" if action == "repool_node" else "q0")["effects"]["starts"] == []


def test_what_would_be_refused_is_refused_when_it_is_previewed() -> None:
    house = House("  s: {nominal: {p: {gpu: 8}}}")
    house.submit("job", 1)
    assert "unfinished" in house.preview("delete_share", name="s")["error"]["message"]
    assert house.preview("set_share", name="x", weight=1)["error"]["code"] == "UNKNOWN_SHARE"


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("set_share", {"name": "s", "nominal": {"p": {"gpu": 64}}, "limits": {"enabled": False}}),
    ("set_share", {"name": "s", "nominal": {"p": {"gpu": 1}}}),
    ("set_share", {"name": "t", "sharing": {"strategy": "lend_and_borrow"}}),
    ("set_share", {"name": "s", "queue": {"policy": "any_fit"}}),
    ("set_limits", {"name": "s", "enabled": True, "rules": [{"user": "ana", "gpu": 8}]}),
    ("set_group", {"group": "ml", "members": []}),
    ("reconcile", {"pool": "p"}),
    ("override", {"share": "s", "amounts": {"gpu": 16}, "for": "1d", "reason": "x", "authority": "cto"}),
    ("uncordon", {"node": "p0"}),
]


def foretold(action: str, params: dict[str, Any], seed: int) -> int:
    """Whether exactly the jobs that a dry run names start at once; returns how many."""
    house = crowded(seed)
    answer = house.preview(action, **params)
    before = running(house)
    done = house.asked(action, **params)
    assert ("error" in answer) == ("error" in done), (seed, answer, done)
    house.wait(1_000)
    starts = set() if "error" in answer else set(answer["effects"]["starts"])
    assert running(house) - before == starts, seed
    return len(starts)


@pytest.mark.parametrize(("action", "params"), CHANGES, ids=[f"{action}-{n}" for n, (action, _) in enumerate(CHANGES)])
def test_what_is_foretold_is_what_comes(action: str, params: dict[str, Any]) -> None:
    started = sum(foretold(action, params, seed) for seed in range(40))
    assert started or action not in ("uncordon", "override"), "the clusters must be such that changes start jobs"
