"""Changes of the books over REST: who may make them, dry runs, and edits that must not undo another's."""

from typing import Any

import pytest

from tests.api.conftest import AnyService, Api, only_double, problem
from tests.api.service_double import ServiceDouble

CHANGES: list[tuple[str, str, Any, str]] = [
    ("POST", "/v1/shares", {"name": "new", "nominal": {"train": {"gpu": 8}}}, "create_share"),
    ("PATCH", "/v1/shares/nlp", {"weight": 80}, "set_share"),
    ("POST", "/v1/shares/nlp/stop", None, "stop_share"),
    ("POST", "/v1/shares/nlp/open", None, "open_share"),
    ("DELETE", "/v1/shares/nlp", None, "delete_share"),
    ("PATCH", "/v1/shares/nlp/limits", {"enabled": True}, "set_limits"),
    ("PATCH", "/v1/pools/train/limits", {"enabled": True}, "set_limits"),
    ("PUT", "/v1/groups/algo", {"members": ["ana", "bo"]}, "set_group"),
    ("POST", "/v1/nodes/n0/cordon", {"reason": "fan"}, "cordon"),
    ("POST", "/v1/nodes/n0/cordon", None, "cordon"),
    ("POST", "/v1/nodes/n0/uncordon", None, "uncordon"),
    ("POST", "/v1/nodes/n0/repool", {"pool": "train"}, "repool_node"),
    ("POST", "/v1/nodes/n0/repair", {"open": True}, "repair_task"),
    ("DELETE", "/v1/nodes/n0", None, "remove_node"),
    ("POST", "/v1/pools/train/reserved", {"amounts": {"gpu": 4}}, "report_reserved"),
    ("POST", "/v1/pools/train/reconcile", None, "reconcile"),
    (
        "POST",
        "/v1/reservations",
        {"name": "ra", "owner": {"share": "nlp"}, "pool": "train", "amounts": {"gpu": 4}},
        "reserve",
    ),
    ("DELETE", "/v1/reservations/ra", None, "release"),
    (
        "POST",
        "/v1/overrides",
        {"share": "nlp", "amounts": {"gpu": 2}, "until": "2030-01-01T00:00:00Z", "reason": "demo", "authority": "eva"},
        "override",
    ),
]


def send(api: Api, method: str, path: str, body: Any) -> Any:
    return api(method, path, **({} if body is None else {"json": body}))


RESERVATION = {"name": "ra", "owner": {"share": "nlp"}, "pool": "train", "amounts": {"gpu": 4}}
# What must have been done before an action makes sense.
BEFORE: dict[str, tuple[str, str, Any]] = {
    "delete_share": ("POST", "/v1/shares/nlp/stop", None),
    "release": ("POST", "/v1/reservations", RESERVATION),
}


def prepare(admin: Api, action: str) -> None:
    if action in BEFORE:
        assert send(admin, *BEFORE[action]).status_code in (200, 201)


@pytest.mark.parametrize(("method", "path", "body", "action"), CHANGES)
def test_an_admin_changes_the_books(admin: Api, method: str, path: str, body: Any, action: str) -> None:
    prepare(admin, action)
    answer = send(admin, method, path, body)
    assert answer.status_code in (200, 201), answer.text
    assert answer.json().keys() >= {"version", "changed"}


@only_double
@pytest.mark.parametrize(("method", "path", "body", "action"), CHANGES)
def test_a_change_is_sent_as_the_callers_action(
    admin: Api, service: ServiceDouble, method: str, path: str, body: Any, action: str
) -> None:
    prepare(admin, action)
    send(admin, method, path, body)
    sent, params, by = service.calls[-1]
    assert (sent, by) == (action, "root")
    if action != "create_share":
        assert all(params[key] == value for key, value in (body or {}).items())


@pytest.mark.parametrize(("method", "path", "body", "action"), CHANGES)
def test_anybody_else_is_refused(api: Api, method: str, path: str, body: Any, action: str) -> None:
    refused = problem(send(api, method, path, body), 403)
    assert "ana" in refused["detail"]


@pytest.mark.parametrize(("method", "path", "body", "action"), CHANGES)
def test_a_dry_run_changes_nothing(
    admin: Api, service: AnyService, method: str, path: str, body: Any, action: str
) -> None:
    prepare(admin, action)
    before = service.version
    answer = send(admin, method, f"{path}?dry_run=true", body)
    assert answer.status_code == 200
    assert "effects" in answer.json()
    assert service.version == before


@only_double
def test_a_new_share_is_sent_as_its_configuration(admin: Api, service: ServiceDouble) -> None:
    admin("POST", "/v1/shares", json={"name": "new", "nominal": {"train": {"gpu": 8}}, "weight": 3})
    assert service.calls[-1][1] == {"name": "new", "share": {"nominal": {"train": {"gpu": 8}}, "weight": 3}}


def test_an_edit_of_what_somebody_else_changed_is_refused(admin: Api) -> None:
    seen = admin("GET", "/v1/shares/nlp").headers["etag"]
    assert admin("PATCH", "/v1/shares/nlp", json={"weight": 1}).status_code == 200
    late = admin("PATCH", "/v1/shares/nlp", json={"weight": 2}, headers={"If-Match": seen})
    assert "changed in version" in problem(late, 409)["detail"]
    seen = admin("GET", "/v1/shares/nlp").headers["etag"]
    assert admin("PATCH", "/v1/shares/nlp", json={"weight": 2}, headers={"If-Match": seen}).status_code == 200
    assert admin("PATCH", "/v1/shares/nlp", json={"weight": 3}, headers={"If-Match": "*"}).status_code == 200


def test_an_etag_that_is_none_is_a_bad_request(admin: Api) -> None:
    assert problem(admin("PATCH", "/v1/shares/nlp", json={"weight": 2}, headers={"If-Match": "new"}), 400)


def test_what_was_made_is_listed(admin: Api) -> None:
    seen = admin("GET", "/v1/health").json()["ledger_version"]
    assert admin("POST", "/v1/reservations", json=RESERVATION).status_code == 201
    override = {"user": "ana", "amounts": {"gpu": 2}, "until": "2030-01-01T00:00:00Z", "reason": "demo"}
    assert admin("POST", "/v1/overrides", json=override).status_code == 201
    (reservation,) = admin("GET", "/v1/reservations").json()
    (listed,) = admin("GET", "/v1/overrides").json()
    assert reservation["reservation"] == "ra"
    assert listed["user"] == "ana"
    rows = admin("GET", f"/v1/ledger?after={seen}").json()
    assert [row["version"] for row in rows] == [seen + 1, seen + 2]
    assert all(row["entry"]["type"] for row in rows)
    assert admin("GET", f"/v1/ledger?after={seen}&limit=1").json() == rows[:1]


def test_a_cordoned_node_shows_it(admin: Api) -> None:
    admin("POST", "/v1/nodes/n0/cordon", json={"reason": "fan"})
    assert admin("GET", "/v1/nodes/n0").json()["cordoned"] == "fan"
    assert admin("GET", "/v1/nodes/n1").json()["cordoned"] is None
    assert [row["node"] for row in admin("GET", "/v1/nodes?pool=train&health=healthy").json()] == ["n0", "n1"]
    assert admin("GET", "/v1/nodes?pool=other").json() == []
