"""Who may change what (semantics 7.14): cluster admins everything, a share's admins their share, owners their own."""

from typing import Any

import pytest

from tests.service.house import HEAD, House

SHARES = "  s: {nominal: {p: {gpu: 4}}, admins: [sue]}\n  t: {nominal: {p: {gpu: 4}}, admins: [tom]}\n"
Params = dict[str, Any]

OF_A_SHARE: list[tuple[str, Params]] = [
    ("set_share", {"name": "s", "description": "x"}),
    ("set_share", {"name": "s", "nominal": {"p": {"gpu": 5}}}),
    ("set_limits", {"name": "s", "enabled": True, "rules": [{"user": "ana", "gpu": 1}]}),
    ("stop_share", {"name": "s"}),
    ("open_share", {"name": "s"}),
    ("rollback", {"name": "s", "version": 99}),
    ("reserve", {"name": "r", "owner": {"share": "s"}, "pool": "p", "amounts": {"gpu": 1}}),
]
OF_THE_CLUSTER: list[tuple[str, Params]] = [
    ("create_share", {"name": "u", "share": {"nominal": {}}}),
    ("override", {"share": "s", "amounts": {"gpu": 1}, "for": "1h", "reason": "x", "authority": "sue"}),
    ("override", {"user": "ana", "amounts": {"gpu": 1}, "for": "1h", "reason": "x", "authority": "sue"}),
    ("reserve", {"name": "r", "owner": {"share": "t"}, "pool": "p", "amounts": {"gpu": 1}}),
    ("reserve", {"name": "r", "owner": {"user": "bo"}, "pool": "p", "amounts": {"gpu": 1}}),
    ("set_limits", {"pool": "p", "enabled": False}),
    ("set_group", {"group": "ml", "members": []}),
    ("report_reserved", {"pool": "p", "amounts": {"gpu": 0}}),
    ("reconcile", {"pool": "p"}),
    ("cordon", {"node": "p0"}),
    ("uncordon", {"node": "p0"}),
    ("repool_node", {"node": "p0", "pool": "q"}),
    ("repair_task", {"node": "p0", "open": True}),
    ("remove_node", {"node": "p0"}),
]


@pytest.fixture
def house() -> House:
    return House(SHARES)


@pytest.mark.parametrize(("action", "params"), OF_A_SHARE)
def test_a_share_is_changed_by_its_own_admins_and_cluster_admins_only(
    house: House, action: str, params: Params
) -> None:
    for other in ("ana", "tom", "", "ROOT"):
        refused = house.asked(action, other, **params)["error"]
        assert (refused["code"], refused["status"]) == ("FORBIDDEN", 403), other
        assert house.preview(action, other, **params)["error"]["code"] == "FORBIDDEN"
    for one in ("sue", "root"):
        assert "error" not in house.preview(action, one, **params), one
    assert "error" not in house.asked(action, "sue", **params)


@pytest.mark.parametrize(("action", "params"), OF_THE_CLUSTER)
def test_what_concerns_others_needs_a_cluster_admin(house: House, action: str, params: Params) -> None:
    before = house.digest()
    for other in ("ana", "sue"):
        assert house.asked(action, other, **params)["error"]["code"] == "FORBIDDEN", other
    assert house.digest() == before
    assert "error" not in house.asked(action, "root", **params)


def test_a_shares_admin_deletes_it(house: House) -> None:
    house.admin("stop_share", by="sue", name="s")
    assert house.asked("delete_share", "tom", name="s")["error"]["code"] == "FORBIDDEN"
    house.admin("delete_share", by="sue", name="s")
    # Bringing it back is making a share.
    assert house.asked("rollback", "sue", name="s", version=9)["error"]["code"] == "FORBIDDEN"


def test_everybody_may_reserve_for_themselves_and_release_that(house: House) -> None:
    mine: Params = {"name": "mine", "owner": {"user": "ana"}, "pool": "p", "amounts": {"gpu": 1}}
    house.admin("reserve", by="ana", **mine)
    assert house.asked("release", "bo", reservation="mine")["error"]["code"] == "FORBIDDEN"
    theirs = {**mine, "owner": {"user": "bo"}}
    assert house.asked("reserve", "bo", **theirs)["error"]["code"] == "FORBIDDEN", "another's must not be taken over"
    house.admin("release", by="ana", reservation="mine")


def test_who_was_an_admin_is_none_any_more(house: House) -> None:
    house.admin("set_share", by="sue", name="s", admins=["tom"])
    assert house.asked("set_share", "sue", name="s", admins=["sue"])["error"]["code"] == "FORBIDDEN"


def test_an_authority_must_be_one_that_is_listed() -> None:
    house = House(SHARES, f"authorities: [cto]\n{HEAD}")
    keys: Params = {"share": "s", "amounts": {"gpu": 1}, "for": "1h", "reason": "x"}
    refused = house.asked("override", **keys, authority="root")["error"]
    assert "root is no authority here" in refused["message"]
    house.admin("override", **keys, authority="cto")
    house.admin("override", **keys)
    assert [each["authority"] for each in house.service.overrides()] == ["cto", None]


@pytest.mark.parametrize("call", ["cancel", "set_priority", "set_cross_pool", "move", "resize"])
def test_a_job_is_changed_by_its_owner_and_admins_only(house: House, call: str) -> None:
    rest: dict[str, tuple[Any, ...]] = {"set_priority": (3,), "set_cross_pool": (True,), "move": ("t",)}
    args = ("job", *rest.get(call, ()), *(([{"gpu": 2}],) if call == "resize" else ()))
    for user in ("ana", "sue", "root"):
        house = House(SHARES)
        house.submit("job", 1)
        assert getattr(house.service, call)(*args, by="bo")["error"]["code"] == "FORBIDDEN"
        assert "error" not in getattr(house.service, call)(*args, by=user), user


def test_without_a_cluster_admin_nobody_is_locked_out() -> None:
    house = House(SHARES, HEAD.replace("admins: [root]\n", ""))
    assert "error" not in house.asked("create_share", "ana", name="u", share={"nominal": {}})


def test_each_change_is_in_the_journal_with_who_and_what(house: House) -> None:
    house.wait(60_000)
    done = house.admin("set_limits", by="sue", name="s", enabled=True, rules=[{"user": "ana", "gpu": 1}])
    house.asked("set_share", "ana", name="s", description="refused")
    acts = [event for event in house.sim.disk.events if type(event).__name__ == "AdminActed"]
    (told,) = acts
    seen = (told.by, told.action, told.subject, told.version, told.at_ms)  # type: ignore[union-attr]
    assert seen == ("sue", "set_limits", "share s", done["version"], house.sim.clock.at_ms)
    assert '"enabled":false' in str(told.before) and '"enabled":true' in str(told.after)  # type: ignore[union-attr]
