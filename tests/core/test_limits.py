"""Which of several rules counts for a user (semantics 2.4 to 2.6)."""

import pytest

from raysched.core.limits import LimitBook, resolve
from raysched.core.model import GroupId, LimitRule, Limits, PoolId, Share, ShareId, UserId

ANN, ML, WEB = UserId("ann"), GroupId("ml"), GroupId("web")


def limits(how: str, *rules: LimitRule, default: LimitRule | None = None) -> Limits:
    return Limits(True, how, default=default, rules=rules)  # type: ignore[arg-type]


def test_the_rule_with_the_smallest_gpu_number_counts_as_a_whole() -> None:
    own, group = LimitRule(30, user=ANN, cpu=60, memory=100), LimitRule(40, group=ML, cpu=50, memory=60)
    assert resolve(limits("smallest_gpu", own, group), ANN, [ML]) == {"gpu": 30, "cpu": 60, "memory": 100}


def test_the_largest_of_each_kind_counts() -> None:
    own, group = LimitRule(2, user=ANN, cpu=16, memory=32), LimitRule(1, group=ML, cpu=32, memory=64)
    assert resolve(limits("largest_each", own, group), ANN, [ML]) == {"gpu": 2, "cpu": 32, "memory": 64}


def test_the_smallest_of_each_kind_counts() -> None:
    own, group = LimitRule(2, user=ANN, cpu=16), LimitRule(1, group=ML, cpu=32, memory=64)
    assert resolve(limits("smallest_each", own, group), ANN, [ML]) == {"gpu": 1, "cpu": 16, "memory": 64}


def test_an_unlimited_kind_is_the_largest() -> None:
    own, group = LimitRule(2, user=ANN, cpu=16), LimitRule(1, group=ML)
    assert resolve(limits("largest_each", own, group), ANN, [ML]) == {"gpu": 2}


def test_a_tie_goes_to_the_user_and_then_to_the_name_of_the_group() -> None:
    own, ml, web = LimitRule(2, user=ANN, cpu=1), LimitRule(2, group=ML, cpu=2), LimitRule(2, group=WEB, cpu=3)
    assert resolve(limits("smallest_gpu", web, ml, own), ANN, [ML, WEB]) == {"gpu": 2, "cpu": 1}
    assert resolve(limits("smallest_gpu", web, ml), ANN, [ML, WEB]) == {"gpu": 2, "cpu": 2}


def test_the_default_counts_only_where_no_other_rule_does() -> None:
    found = limits("smallest_gpu", LimitRule(5, group=ML), default=LimitRule(1))
    assert resolve(found, ANN, [ML]) == {"gpu": 5}
    assert resolve(found, ANN, []) == {"gpu": 1}
    assert resolve(limits("smallest_gpu"), ANN, []) is None


@pytest.mark.parametrize("mode", ["each", "total"])
def test_a_group_rule_counts_for_each_member_or_for_all_together(mode: str) -> None:
    book = LimitBook()
    book.set_groups({ML: (ANN, UserId("bob"))})
    rule = LimitRule(4, group=ML, mode=mode)  # type: ignore[arg-type]
    book.set_shares({ShareId("a"): Share(ShareId("a"), {}, limits=limits("smallest_gpu", rule))})
    book.add(book.people(ShareId("a"), PoolId("main")), UserId("bob"), "training", {"gpu": 3}, 1)
    [row] = book.rows(ShareId("a"), ANN, PoolId("main"), {"gpu": 3})
    assert row.used == (3 if mode == "total" else 0)
