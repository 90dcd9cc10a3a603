"""`apply`: the books become what a configuration says, all of it or nothing, each change after the one before."""

from typing import Any

import pytest
import yaml

from tests.service.house import HEAD, House

SHARES = """\
  s: {nominal: {p: {gpu: 4}}, overbook: false, weight: 10}
  t: {nominal: {p: {gpu: 4}}, overbook: false}
"""


def keys(shares: str = SHARES, head: str = HEAD) -> dict[str, Any]:
    found = yaml.safe_load(f"{head}shares:\n{shares}")
    assert isinstance(found, dict)
    return found


@pytest.fixture
def house() -> House:
    return House(SHARES)


def applied(house: House, config: dict[str, Any], **how: Any) -> dict[str, Any]:
    answer = dict(house.service.apply(config, "root", **how))
    house.sim.settle()
    return answer


def subjects(answer: dict[str, Any]) -> list[str]:
    return [each["subject"] for each in answer["differences"]]


def test_the_same_file_changes_nothing(house: House) -> None:
    before = house.digest()
    assert applied(house, keys()) == {"version": house.version, "differences": []}
    assert house.digest() == before


def test_every_difference_is_made(house: House) -> None:
    wanted = keys(SHARES.replace("weight: 10", "weight: 20") + "  u: {nominal: {q: {gpu: 2}}}\n")
    wanted["groups"] = {"ml": ["ana"], "new": ["cem"]}
    wanted["pools"]["p"]["limits"] = {"enabled": True, "rules": [{"user": "ana", "gpu": 3}]}
    wanted["defaults"] = {"failed_after": "90s"}
    answer = applied(house, wanted)
    assert subjects(answer) == ["settings", "pool p", "group ml", "group new", "share s", "share u"]
    assert house.service.shares("s")[0]["weight"] == 20
    assert house.service.limits(pool="p")["rules"] == [{"user": "ana", "gpu": 3}]
    assert house.service.ledger.settings.failed_after_ms == 90_000
    assert applied(house, wanted)["differences"] == []


def test_a_dry_run_lists_differences_and_effects_and_changes_nothing(house: House) -> None:
    house.submit("first", 4)
    house.submit("job", 2, confirm=True)
    before = house.digest()
    answer = applied(house, keys(SHARES.replace("{gpu: 4}}, overbook: false, weight: 10", "{gpu: 8}}")), dry_run=True)
    assert (subjects(answer), answer["effects"]["starts"]) == (["share s"], ["job"])
    assert house.digest() == before


def test_one_refused_difference_refuses_all(house: House) -> None:
    wanted = keys(SHARES.replace("{gpu: 4}}, overbook: false, weight: 10", "{gpu: 5}}, overbook: false, weight: 11"))
    wanted["groups"] = {"ml": ["cem"]}
    before = house.digest()
    refused = applied(house, wanted)["error"]
    assert (refused["code"], refused["status"]) == ("REFUSED", 409)
    assert "0 left, at most 4" in refused["message"]
    assert house.digest() == before
    listed = applied(house, wanted, dry_run=True)["differences"]
    assert [each["refused"] is not None for each in listed] == [False, True]


@pytest.mark.parametrize("grows", ["s", "t"])
def test_one_share_may_grow_into_what_another_gives_up(house: House, grows: str) -> None:
    """Whatever their order in the file."""
    gives = "t" if grows == "s" else "s"
    wanted = keys()
    wanted["shares"][grows]["nominal"]["p"]["gpu"], wanted["shares"][gives]["nominal"]["p"]["gpu"] = 6, 2
    assert subjects(applied(house, wanted)) == [f"share {gives}", f"share {grows}"]


def test_two_shares_cannot_both_grow_into_the_same_room() -> None:
    house = House(SHARES, p=3)
    wanted = keys()
    for share in ("s", "t"):
        wanted["shares"][share]["nominal"]["p"]["gpu"] = 8
    assert "0 left, at most 4" in applied(house, wanted)["error"]["message"]


def test_shares_that_the_file_does_not_have_stay_unless_they_are_pruned(house: House) -> None:
    wanted = keys()
    del wanted["shares"]["t"]
    assert applied(house, wanted)["differences"] == []
    assert "must be stopped" in applied(house, wanted, prune=True)["error"]["message"]
    house.admin("stop_share", name="t")
    assert subjects(applied(house, wanted, prune=True)) == ["share t"]
    assert [share["share"] for share in house.service.shares()] == ["s"]


def test_a_pruned_share_gives_its_quota_to_one_that_grows(house: House) -> None:
    wanted = keys()
    del wanted["shares"]["t"]
    wanted["shares"]["s"]["nominal"]["p"]["gpu"] = 8
    house.admin("stop_share", name="t")
    assert subjects(applied(house, wanted, prune=True)) == ["share t", "share s"]


def test_a_configuration_that_cannot_be_read_names_path_and_reason(house: House) -> None:
    wanted = keys()
    wanted["shares"]["s"]["wieght"] = 3
    refused = applied(house, wanted)["error"]
    assert "shares.s.wieght" in refused["message"] and "did you mean weight" in refused["message"]


def test_only_a_cluster_admin_applies(house: House) -> None:
    assert house.service.apply(keys(), "ana", dry_run=True)["error"]["code"] == "FORBIDDEN"


def test_the_journal_says_who_changed_what(house: House) -> None:
    wanted = keys(SHARES.replace("weight: 10", "weight: 20"))
    applied(house, wanted)
    told = house.sim.disk.events[-1]
    acted = next(e for e in reversed(house.sim.disk.events) if type(e).__name__ == "AdminActed")
    assert told is not None and (acted.by, acted.action, acted.subject) == ("root", "apply", "share s")  # type: ignore[union-attr]
    assert '"weight":10' in str(acted.before) and '"weight":20' in str(acted.after)  # type: ignore[union-attr]
