"""The books over REST: verify, check, apply, history and rollback, imports, and advice that can be followed."""

from typing import Any

import pytest
import yaml
from msgspec import structs

from raysched.core.entries import Claimed
from tests.api.conftest import AnyService, Api, problem
from tests.api.real_service import CONFIG, RealService
from tests.cli.test_apply import AWS, TIONE

real = pytest.mark.parametrize("service", [RealService], indirect=True, ids=["real"])


def config(**shares: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(CONFIG)
    found["shares"].update(shares)
    return found


def test_the_ledger_is_verified(api: Api) -> None:
    found = api("GET", "/v1/ledger/verify").json()
    assert found["rows"] > 0 and found["disagreements"] == []
    assert api("GET", "/v1/check").json() == {"broken": []}


@real
def test_a_row_that_disagrees_is_named(admin: Api, service: RealService) -> None:
    admin.submit(name="one")
    entries = service.simulation.disk.entries
    number, claim = next((n, each) for n, each in enumerate(entries) if isinstance(each, Claimed))
    entries[number] = structs.replace(claim, amounts={"gpu": 500})
    service.simulation.restart_quota()
    (found, *_) = admin("GET", "/v1/ledger/verify").json()["disagreements"]
    assert (found["version"], found["job"]) == (number + 1, "one") and "500" in found["what"]


def test_a_configuration_is_previewed_and_applied(admin: Api, service: AnyService) -> None:
    wanted = config()
    wanted["shares"]["nlp"]["weight"] = 3
    before = service.version
    preview = admin("POST", "/v1/apply?dry_run=true", json=wanted).json()
    assert [each["subject"] for each in preview["differences"]] == ["share nlp"]
    assert preview["effects"] == {"starts": [], "queues": [], "over": []} and service.version == before
    applied = admin("POST", "/v1/apply", json=wanted).json()
    assert applied["version"] == service.version == before + 1 and applied["effects"] is None


def test_only_a_cluster_admin_applies(api: Api) -> None:
    problem(api("POST", "/v1/apply", json=config()), 403)


@real
def test_a_refused_configuration_changes_nothing(admin: Api, service: RealService) -> None:
    wanted = config()
    del wanted["shares"]["cv"]
    before = service.version
    assert "must be stopped" in problem(admin("POST", "/v1/apply?prune=true", json=wanted), 409)["detail"]
    assert "shares.cv.wieght" in problem(admin("POST", "/v1/apply", json=config(cv={"wieght": 1})), 422)["detail"]
    assert service.version == before


@real
def test_a_share_is_rolled_back(admin: Api, service: RealService) -> None:
    (first,) = admin("GET", "/v1/shares/nlp/history").json()
    admin("PATCH", "/v1/shares/nlp", json={"weight": 3})
    body = {"version": first["version"]}
    preview = admin("POST", "/v1/shares/nlp/rollback?dry_run=true", json=body).json()
    assert (preview["changed"]["before"]["weight"], preview["changed"]["after"]["weight"]) == (3, None)
    stale = {"If-Match": f'"{first["version"]}"'}
    assert problem(admin("POST", "/v1/shares/nlp/rollback", json=body, headers=stale), 409)
    assert admin("POST", "/v1/shares/nlp/rollback", json=body).status_code == 200
    versions = admin("GET", "/v1/shares/nlp/history").json()
    assert [each["share"]["weight"] for each in versions] == [None, 3, None]
    problem(admin("GET", "/v1/shares/none/history"), 404)
    problem(admin("POST", "/v1/shares/nlp/rollback", json={"version": 1}), 404)
    problem(admin("POST", "/v1/shares/nlp/rollback", json={"version": "x"}), 422)


@real
def test_limits_of_a_pool_and_groups_are_edited_on_a_version(admin: Api, service: RealService) -> None:
    seen = admin("GET", "/v1/pools/train/limits").headers["etag"]
    assert admin("PATCH", "/v1/pools/train/limits", json={"enabled": True}).status_code == 200
    late = admin("PATCH", "/v1/pools/train/limits", json={"enabled": False}, headers={"If-Match": seen})
    assert "pool train was changed in version" in problem(late, 409)["detail"]
    assert admin("GET", "/v1/pools/train/limits").json()["enabled"] is True
    version = admin("GET", "/v1/groups").json()[0]["version"]
    assert admin("PUT", "/v1/groups/algo", json={"members": ["ana"]}).status_code == 200
    late = admin("PUT", "/v1/groups/algo", json={"members": []}, headers={"If-Match": f'"{version}"'})
    assert "group algo was changed in version" in problem(late, 409)["detail"]


def test_a_tione_policy_is_read(api: Api) -> None:
    keys = api("POST", "/v1/import/tione-policy", json=TIONE).json()
    assert keys["keys"]["preset"] == "tione" and keys["applied"] is None
    wrong = problem(api("POST", "/v1/import/tione-policy", json={**TIONE, "Versoin": 1}), 422)
    assert wrong["code"] == "BAD_POLICY" and "Versoin: unknown key" in wrong["detail"]
    assert "share" in problem(api("POST", "/v1/import/tione-policy?apply=true", json=TIONE), 422)["detail"]


@real
def test_policies_are_made_a_shares(admin: Api, api: Api, service: RealService) -> None:
    path = "/v1/import/tione-policy?share=nlp"
    problem(api("POST", f"{path}&apply=true", json=TIONE), 403)
    assert "effects" in admin("POST", f"{path}&dry_run=true", json=TIONE).json()["applied"]
    assert admin("POST", f"{path}&apply=true", json=TIONE).json()["applied"]["version"] == service.version
    assert admin("POST", "/v1/import/aws-quota-share?apply=true", json=AWS).status_code == 200
    assert admin("POST", "/v1/import/aws-quota-share?apply=true", json={**AWS, "state": "DISABLED"}).status_code == 200
    assert admin("GET", "/v1/shares/research").json()["state"] == "stopped"


@real
def test_what_is_advised_can_be_done(admin: Api, service: RealService) -> None:
    admin("PATCH", "/v1/shares/nlp/limits", json={"enabled": True, "rules": [{"user": "root", "gpu": 4}]})
    admin.submit(name="one", gpu=4)
    admin.submit(name="two", gpu=2)
    explained = admin("GET", "/v1/jobs/two/explain").json()
    (step,) = explained["change"]["steps"]
    assert (step["method"], step["params"]["action"]) == ("admin", "override")
    assert admin("POST", "/v1/overrides", json=step["params"]["params"]).status_code == 201
    assert admin("GET", "/v1/jobs/two").json()["state"] == "claimed"


def test_every_path_of_the_books_is_described(api: Api) -> None:
    paths = api("GET", "/openapi.json").json()["paths"]
    wanted = ("/ledger/verify", "/check", "/apply", "/shares/{share}/history", "/shares/{share}/rollback")
    for path in (*wanted, "/import/tione-policy", "/import/aws-quota-share", "/pools/{pool}/limits"):
        operations = paths[f"/v1{path}"].values()
        for operation in operations:
            content = operation["responses"]["200"]["content"]["application/json"]["schema"]
            assert content, path
            assert "application/problem+json" in operation["responses"]["default"]["content"], path
