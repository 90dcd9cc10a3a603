"""The cheapest change: what `explain` offers starts the job, call by call as written, and asking changes nothing."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.crowds import crowded, waiting
from tests.service.house import HEAD, House

LENDING = "{strategy: lend}"
BOTH = "{strategy: lend_and_borrow, borrow_limit: 2}"


def over_a_user_limit() -> House:
    house = House("  s: {nominal: {p: {gpu: 8}}, limits: {enabled: true, rules: [{user: ana, gpu: 3, cpu: 8}]}}")
    house.submit("first", 3, cpu=8)
    house.submit("job", 2, cpu=4)
    return house


def over_a_group_total() -> House:
    rules = "[{group: ml, gpu: 4, mode: total}, {user: ana, gpu: 4}]"
    house = House(f"  s: {{nominal: {{p: {{gpu: 8}}}}, limits: {{enabled: true, rules: {rules}}}}}")
    house.submit("first", 3, user="bo")
    house.submit("job", 2)
    return house


def over_a_group_total_of_a_pool() -> House:
    head = HEAD.replace("{pool: p}}", "{pool: p}, limits: {enabled: true, rules: [{group: ml, gpu: 4, mode: total}]}}")
    house = House("  s: {nominal: {p: {gpu: 8}}}", head)
    house.submit("first", 4, user="bo")
    house.submit("job", 0.5)
    return house


def over_its_share() -> House:
    house = House("  s: {nominal: {p: {gpu: 4, cpu: 40}}}\n  t: {nominal: {p: {gpu: 4}}}")
    house.submit("first", 2, cpu=10)
    house.submit("job", 4, cpu=10)
    return house


def over_what_it_may_borrow() -> House:
    house = House(
        "  s: {nominal: {p: {gpu: 1}}, sharing: {strategy: borrow, borrow_limit: {gpu: 2}}}\n"
        f"  t: {{nominal: {{p: {{gpu: 7}}}}, sharing: {LENDING}}}"
    )
    house.submit("first", 2)
    house.submit("job", 2)
    return house


def nobody_lends() -> House:
    house = House(
        "  s: {nominal: {p: {gpu: 2}}, sharing: {strategy: borrow}}\n"
        f"  t: {{nominal: {{p: {{gpu: 5}}}}, sharing: {LENDING}}}"
    )
    house.submit("first", 4, share="t")
    house.submit("job", 4)
    return house


def its_share_has_lent_it() -> House:
    house = House(
        f"  s: {{nominal: {{p: {{gpu: 6}}}}, sharing: {LENDING}, reclaim: {{policy: wait}}}}\n"
        "  t: {nominal: {p: {gpu: 1}}, sharing: {strategy: borrow}}"
    )
    house.submit("guest", 1, count=5, share="t")
    house.submit("job", 3)
    return house


def reserved() -> House:
    house = House("  s: {nominal: {p: {gpu: 8}}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.admin("reserve", name="mine", owner={"share": "s"}, pool="p", amounts={"gpu": 1}, expiry="9h")
    house.admin("reserve", name="small", owner={"share": "t"}, pool="p", amounts={"gpu": 2}, expiry="9h")
    house.admin("reserve", name="large", owner={"share": "t"}, pool="p", amounts={"gpu": 4}, expiry="9h")
    house.submit("job", 4)
    return house


def several_are_reserved() -> House:
    house = House("  s: {nominal: {p: {gpu: 8}}}\n  t: {nominal: {p: {gpu: 8}}}")
    for name in ("one", "two", "three"):
        house.admin("reserve", name=name, owner={"share": "t"}, pool="p", amounts={"gpu": 2}, start="1h", expiry="9h")
    house.submit("job", 3, count=2)
    return house


def on_hold() -> House:
    house = House("  s: {nominal: {p: {gpu: 8}}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.admin("reserve", name="hold", owner={"share": "t"}, pool="p", amounts={"gpu": 6})
    house.submit("job", 4)
    return house


def names_one_on_hold() -> House:
    house = House("  s: {nominal: {p: {gpu: 8}}}")
    house.admin("reserve", name="hold", owner={"share": "s"}, pool="p", amounts={"gpu": 2})
    house.submit("job", 4, reservation="hold")
    return house


def an_override_without_authority() -> House:
    house = House("  s: {nominal: {p: {gpu: 4}}}")
    house.admin("override", share="s", amounts={"gpu": 2}, until="9h", reason="urgent")
    house.submit("first", 3)
    house.submit("job", 3)
    return house


def nothing_is_free() -> House:
    house = House("  s: {nominal: {p: {gpu: 8}}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.submit("large", 4, share="t", user="cem")
    house.submit("small", 3, share="t", user="cem")
    house.submit("job", 3)
    return house


def a_node_is_cordoned() -> House:
    house = House("  s: {nominal: {p: {gpu: 8}}}")
    house.admin("cordon", node="p0")
    house.submit("first", 4)
    house.submit("job", 4)
    return house


def too_many_bundles() -> House:
    house = House("  s: {nominal: {p: {gpu: 8}}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.submit("other", 3, share="t")
    house.submit("job", 2, count=3)
    return house


def a_node_is_full_of_small_ones() -> House:
    house = House("  s: {nominal: {p: {gpu: 8}}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.submit("a", 3, share="t", user="cem")
    house.submit("b", 3, share="t", user="cem")
    house.submit("c", 1, share="t", user="cem")
    house.submit("job", 4)
    return house


def behind_a_head() -> House:
    house = House("  s: {nominal: {p: {gpu: 8}}, queue: {policy: strict_fifo}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.submit("other", 4, share="t")
    house.submit("head", 4, count=2)
    house.submit("job", 2)
    return house


def behind_a_head_of_the_highest_priority() -> House:
    house = House("  s: {nominal: {p: {gpu: 8}}, queue: {policy: strict_fifo}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.submit("other", 4, share="t")
    house.submit("head", 4, count=2, priority="P0")
    house.submit("job", 2)
    return house


def disputed() -> House:
    house = House("  s: {nominal: {p: {gpu: 8}}}")
    house.admin("report_reserved", pool="p", amounts={"gpu": 3})
    house.submit("job", 4)
    return house


def another_pool_lends() -> House:
    house = House(
        "  s: {nominal: {p: {gpu: 4}}, sharing: {strategy: borrow}}\n"
        f"  t: {{nominal: {{q: {{gpu: 4}}}}, sharing: {LENDING}}}",
        p=1,
        q=1,
    )
    house.submit("first", 3)
    house.submit("job", 2)
    return house


def short_of_quota_and_of_room() -> House:
    house = House("  s: {nominal: {p: {gpu: 3}}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.submit("large", 4, share="t", user="cem")
    house.submit("small", 2, share="t", user="cem")
    house.submit("job", 4, confirm=True)
    return house


def its_own_share_has_both() -> House:
    """One job holds the quota and the room: no override is needed when it goes."""
    house = House("  s: {nominal: {p: {gpu: 4}}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.submit("other", 4, share="t", user="cem")
    house.submit("first", 2)
    house.submit("job", 4)
    return house


CASES: list[tuple[Any, str, list[str]]] = [
    (over_a_user_limit, "USER_LIMIT", ["override"]),
    (over_a_group_total, "GROUP_LIMIT", ["set_limits"]),
    (over_a_group_total_of_a_pool, "GROUP_LIMIT", ["set_limits"]),
    (over_its_share, "SHARE_QUOTA", ["override"]),
    (over_what_it_may_borrow, "BORROW_LIMIT", ["override"]),
    (nobody_lends, "NO_LENDER", ["override"]),
    (its_share_has_lent_it, "WAITING_RECLAIM", ["override"]),
    (reserved, "RESERVED", ["release"]),
    (several_are_reserved, "RESERVED", ["release", "release", "release"]),
    (on_hold, "RESERVATION_HOLD", ["release"]),
    (names_one_on_hold, "RESERVATION_HOLD", ["release"]),
    (an_override_without_authority, "OVERRIDE_BLOCKED", ["override"]),
    (nothing_is_free, "NO_CAPACITY", ["cancel"]),
    (a_node_is_cordoned, "NO_CAPACITY", ["uncordon"]),
    (too_many_bundles, "NO_CAPACITY", ["resize"]),
    (a_node_is_full_of_small_ones, "NO_CAPACITY", ["cancel"]),
    (behind_a_head, "BEHIND_HEAD", ["set_priority"]),
    (behind_a_head_of_the_highest_priority, "BEHIND_HEAD", ["cancel"]),
    (disputed, "EVIDENCE_DISPUTED", ["reconcile"]),
    (another_pool_lends, "NO_LENDER", ["set_cross_pool"]),
    (short_of_quota_and_of_room, "SHARE_QUOTA", ["override", "cancel"]),
    (its_own_share_has_both, "SHARE_QUOTA", ["cancel"]),
]


def called(change: dict[str, Any]) -> list[str]:
    """The calls of a change: an admin's by its action."""
    return [step["params"].get("action", step["method"]) for step in change["steps"]]


@pytest.mark.parametrize(("made", "reason", "calls"), CASES, ids=lambda each: getattr(each, "__name__", ""))
def test_the_change_starts_the_job(made: Any, reason: str, calls: list[str]) -> None:
    house = made()
    assert house.reason("job") == reason
    change = house.explain("job")["change"]
    assert change is not None and called(change) == calls
    house.follow(change)
    assert house.state("job") == "running"


def test_the_change_starts_nothing_before_a_cancelled_job_is_gone() -> None:
    house = nothing_is_free()
    (step,) = house.explain("job")["change"]["steps"]
    house.service.cancel(**step["params"], by="root")
    house.service.tick()
    assert (house.state(step["params"]["job"]), house.state("job")) == ("stopping", "queued")
    house.wait(1_000)
    assert house.state("job") == "running"


def test_a_change_is_as_small_as_can_be() -> None:
    """The smallest reservation and the smallest job that are enough."""
    assert reserved().explain("job")["change"]["text"] == "release reservation small"
    assert nothing_is_free().explain("job")["change"]["text"] == "cancel small of cem, which has the room"


@pytest.mark.parametrize("told", ["authorities: []", "authorities: [cto]"])
def test_only_who_may_grant_an_override_is_named(told: str) -> None:
    house = House(
        "  s: {nominal: {p: {gpu: 8}}, limits: {enabled: true, rules: [{user: ana, gpu: 1}]}}", f"{told}\n{HEAD}"
    )
    house.submit("first", 1)
    house.submit("job", 1)
    change = house.explain("job")["change"]
    if told == "authorities: []":
        assert change is None
    else:
        assert change["steps"][0]["params"]["params"]["authority"] == "cto"


def test_nothing_is_offered_where_nothing_would_help() -> None:
    """Evidence is not a thing that anybody can grant."""
    house = House("  s: {nominal: {p: {gpu: 8}}}")
    for node in ("p0", "p1"):
        house.sim.cluster.silence(node)  # type: ignore[arg-type]
    house.wait(40_000)
    house.submit("job", 4)
    assert house.reason("job") == "EVIDENCE_STALE"
    assert house.explain("job")["change"] is None


def test_a_job_that_does_not_wait_needs_no_change() -> None:
    house = House("  s: {nominal: {p: {gpu: 8}}}")
    house.submit("job", 4)
    house.wait(1_000)
    assert house.explain("job")["change"] is None


# ── many small clusters ───────────────────────────────────────────────────────────────────────────────────────────


def played(seed: int, number: int) -> tuple[str | None, dict[str, Any] | None]:
    """Follow the advice for one waiting job of a cluster: its reason, and the advice."""
    house = crowded(seed)
    jobs = waiting(house)
    if not jobs:
        return None, None
    job = jobs[number % len(jobs)]
    reason, change = house.reason(job), house.explain(job)["change"]
    if change is not None:
        house.follow(change)
        assert house.state(job) == "running", (seed, job, change["text"], house.explain(job))
    return reason, change


@settings(derandomize=True)
@given(seed=st.integers(0, 1 << 30), number=st.integers(0, 7))
def test_whatever_is_offered_starts_the_job(seed: int, number: int) -> None:
    played(seed, number)


def test_something_is_offered_for_every_reason_that_anybody_can_change() -> None:
    """The clusters above go where it matters: every reason comes up, and for most jobs something can be done."""
    offered: dict[str, int] = {}
    waited = helped = 0
    for seed in range(300):
        reason, change = played(seed, seed)
        waited += reason is not None
        helped += change is not None
        if reason is not None and change is not None:
            offered[reason] = offered.get(reason, 0) + 1
    assert offered.keys() >= {
        "USER_LIMIT",
        "GROUP_LIMIT",
        "SHARE_QUOTA",
        "BORROW_LIMIT",
        "NO_LENDER",
        "RESERVED",
        "RESERVATION_HOLD",
        "OVERRIDE_BLOCKED",
        "NO_CAPACITY",
        "BEHIND_HEAD",
        "EVIDENCE_DISPUTED",
    }
    assert helped > 0.6 * waited > 120
