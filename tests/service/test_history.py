"""Versions of shares: history, rollback as an ordinary change, and edits that must not undo somebody else's."""

from typing import Any

import pytest

from tests.service.house import House

SHARES = "  s: {nominal: {p: {gpu: 4}}, weight: 10, admins: [ana]}\n  t: {nominal: {p: {gpu: 4}}, weight: 20}\n"


@pytest.fixture
def house() -> House:
    return House(SHARES)


def test_every_version_is_kept_with_who_and_when(house: House) -> None:
    first = house.service.share_history("s")[0]
    house.wait(60_000)
    changed = house.admin("set_share", by="ana", name="s", weight=11)
    history = house.service.share_history("s")
    assert [each["by"] for each in history] == ["raysched", "ana"]
    assert [each["share"]["weight"] for each in history] == [10, 11]
    assert (history[0], history[1]["version"]) == (first, changed["version"])
    assert history[1]["at_ms"] - history[0]["at_ms"] == 60_000


def test_a_rollback_is_a_new_version_with_the_old_settings(house: House) -> None:
    first = house.service.share_history("s")[0]
    house.admin("set_share", name="s", weight=11, nominal={"p": {"gpu": 2}})
    house.admin("set_limits", name="s", enabled=True, rules=[{"user": "bo", "gpu": 1}])
    house.admin("rollback", name="s", version=first["version"])
    history = house.service.share_history("s")
    assert len(history) == 4 and history[-1]["share"] == first["share"]


def test_a_rollback_to_between_versions_takes_the_one_that_was_in_force(house: House) -> None:
    house.admin("set_share", name="s", weight=11)
    seen = house.version
    house.admin("set_share", name="t", weight=21)
    house.admin("set_share", name="s", weight=12)
    house.admin("rollback", name="s", version=seen + 1)
    assert house.service.shares("s")[0]["weight"] == 11


def test_a_rollback_is_checked_as_any_change_is() -> None:
    house = House("  s: {preset: xirang, nominal: {p: {gpu: 2}}, workspaces: [w]}\n  t: {nominal: {p: {gpu: 2}}}\n")
    seen = house.version
    house.admin("stop_share", name="s")
    house.admin("set_share", name="s", nominal={"p": {"gpu": 4}})
    house.admin("open_share", name="s")
    assert "must be stopped" in house.asked("rollback", name="s", version=seen)["error"]["message"]


def test_a_rollback_to_a_weight_that_another_has_now_is_refused(house: House) -> None:
    seen = house.version
    house.admin("set_share", name="s", weight=11)
    house.admin("set_share", name="t", weight=10)
    assert "weight" in house.asked("rollback", name="s", version=seen)["error"]["message"]


@pytest.mark.parametrize("version", [1, 0, -1, True, "2", None, 1.5])
def test_a_version_at_which_there_was_no_such_share_is_refused(house: House, version: Any) -> None:
    before = house.digest()
    assert house.asked("rollback", name="s", version=version)["error"]["code"] in ("UNKNOWN_VERSION", "BAD_REQUEST")
    assert house.digest() == before


def test_a_deleted_share_is_in_its_history_and_can_be_brought_back(house: House) -> None:
    seen = house.version
    house.admin("stop_share", name="s")
    deleted = house.admin("delete_share", name="s")["version"]
    assert house.service.share_history("s")[-1]["share"] is None
    assert house.asked("rollback", name="s", version=deleted)["error"]["code"] == "UNKNOWN_VERSION"
    house.admin("rollback", name="s", version=seen)
    assert house.service.shares("s")[0]["state"] == "open"


def test_a_share_that_never_was_has_no_history(house: House) -> None:
    assert house.service.share_history("x")["error"]["code"] == "UNKNOWN_SHARE"


# ── concurrent edits ──────────────────────────────────────────────────────────────────────────────────────────────

EDITS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("set_share", {"name": "s", "weight": 11}, {"name": "s", "weight": 12}),
    ("set_limits", {"name": "s", "enabled": False}, {"name": "s", "resolve": "largest_each"}),
    ("set_limits", {"pool": "p", "enabled": False}, {"pool": "p", "resolve": "largest_each"}),
    ("set_group", {"group": "ml", "members": ["ana"]}, {"group": "ml", "members": ["bo"]}),
    ("stop_share", {"name": "s"}, {"name": "s"}),
    ("rollback", {"name": "s", "version": 999}, {"name": "s", "version": 999}),
    (
        "reserve",
        {"name": "r", "owner": {"share": "s"}, "pool": "p", "amounts": {"gpu": 1}},
        {"name": "r", "owner": {"share": "s"}, "pool": "p", "amounts": {"gpu": 2}},
    ),
]


@pytest.mark.parametrize(("action", "theirs", "mine"), EDITS, ids=lambda each: each if isinstance(each, str) else "")
def test_an_edit_of_what_changed_since_is_refused_and_names_the_version(
    house: House, action: str, theirs: dict[str, Any], mine: dict[str, Any]
) -> None:
    seen = house.version
    changed = house.admin(action, **theirs)["version"]
    before = house.digest()
    refused = house.asked(action, **mine, base=seen)["error"]
    assert refused["status"] == 409 and f"was changed in version {changed}, after version {seen}" in refused["message"]
    assert "was changed in version" in house.preview(action, **mine, base=seen)["error"]["message"]
    assert house.digest() == before
    assert "error" not in house.asked(action, **mine, base=changed)


def test_a_change_of_something_else_does_not_disturb_an_edit(house: House) -> None:
    seen = house.version
    house.admin("set_share", name="t", weight=21)
    house.admin("set_group", group="ml", members=[])
    house.admin("set_share", name="s", weight=11, base=seen)


@pytest.mark.parametrize("base", [True, "1", 1.5])
def test_a_base_that_is_no_version_is_refused(house: House, base: Any) -> None:
    assert house.asked("set_share", name="s", weight=11, base=base)["error"]["code"] == "BAD_REQUEST"


def test_what_has_no_version_takes_no_base(house: House) -> None:
    assert "takes no base" in house.asked("cordon", node="p0", base=1)["error"]["message"]
