"""Every kind of error is a problem (RFC 9457), also for requests that are barely requests."""

from typing import Any

import pytest

from raysched.api.app import create_app
from raysched.api.auth import Auth
from raysched.client import Client, NotRunning
from tests.api.conftest import Api, problem

JOB = {"share": "nlp", "command": ["true"], "gpu": 1}


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/v1/jobs/none", "UNKNOWN_JOB"),
        ("GET", "/v1/jobs/none/explain", "UNKNOWN_JOB"),
        ("GET", "/v1/jobs/none/logs", "UNKNOWN_JOB"),
        ("POST", "/v1/jobs/none/cancel", "UNKNOWN_JOB"),
        ("GET", "/v1/shares/none", "UNKNOWN_SHARE"),
        ("GET", "/v1/shares/none/limits", "UNKNOWN_SHARE"),
        ("GET", "/v1/nodes/none", "UNKNOWN_NODE"),
        ("GET", "/v1/nothing", "NOT_FOUND"),
        ("GET", "/", "NOT_FOUND"),
    ],
)
def test_what_is_not_there_is_404(api: Api, method: str, path: str, code: str) -> None:
    assert problem(api(method, path), 404)["code"] == code


def test_a_wrong_method_is_405(api: Api) -> None:
    answer = api("DELETE", "/v1/jobs")
    assert problem(answer, 405)["code"] == "METHOD_NOT_ALLOWED"
    assert set(answer.headers["allow"].replace(" ", "").split(",")) <= {"GET", "POST"}


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"gpus": 1}, "#/gpus"),
        ({"user": "bo"}, "#/user"),
        ({"count": 0}, "#/count"),
        ({"bundles": []}, "#/bundles"),
        ({"bundles": [{"gpu": 1}, {"gpu": 1, "~x/y": 2}]}, "#/bundles/1/~0x~1y"),
        ({"tags": {"kind": 3}}, "#/tags/kind"),
        ({"retries": -1}, "#/retries"),
    ],
)
def test_an_invalid_body_points_at_what_is_wrong(api: Api, change: dict[str, Any], pointer: str) -> None:
    found = problem(api("POST", "/v1/jobs", json={**JOB, **change}), 422)
    assert found["code"] == "INVALID_REQUEST"
    assert pointer in [part["pointer"] for part in found["errors"]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gpu": 1.5}, "1.5"),
        ({"gpu": "many"}, "many"),
        ({"memory": "5Xi"}, "5Xi"),
        ({"priority": "P10"}, "P10"),
        ({"max_runtime": "soon"}, "soon"),
        ({"workload": "gaming"}, "gaming"),
        ({"command": []}, "command"),
        ({"command": "echo 'open"}, "command"),
        ({"bundles": [{"gpu": 1}]}, "bundles"),
        ({"gpu": "größe"}, "größe"),
    ],
)
def test_a_bad_quantity_is_said_in_words(api: Api, change: dict[str, Any], said: str) -> None:
    found = problem(api("POST", "/v1/jobs", json={**JOB, **change}), 422)
    assert found["code"] == "BAD_SPEC"
    assert said in found["detail"]


@pytest.mark.parametrize("path", ["/v1/jobs?limit=0", "/v1/ledger?after=x", "/v1/jobs/a/wait?timeout_s=nan"])
def test_an_invalid_query_is_422(api: Api, path: str) -> None:
    (part,) = problem(api("GET", path), 422)["errors"]
    assert part["pointer"].startswith("query:")


@pytest.mark.parametrize(
    "content", [b"{", b"\xff\xfe{}", b'{"share": NaN}', b'"text"', b"[]", b"", b'{"share": "\\ud800"}', b"[" * 100_000]
)
def test_a_body_that_is_no_job_is_a_problem(api: Api, content: bytes) -> None:
    answer = api("POST", "/v1/jobs", content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    problem(answer, answer.status_code)


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("POST", "/v1/jobs", b'{"share": "\\ud800", "command": ["true"]}'),
        ("POST", "/v1/jobs", b'{"share": "nlp", "command": ["\\ud800"]}'),
        ("POST", "/v1/jobs", b'{"share": "nlp", "command": ["true"], "gpu": "\\ud800"}'),
        ("POST", "/v1/jobs", b'{"share": "nlp", "command": ["true"], "\\ud800": 1}'),
        ("PATCH", "/v1/shares/nlp", b'{"description": "\\ud800"}'),
        ("PATCH", "/v1/shares/nlp", b'{"weight": NaN}'),
    ],
)
def test_half_a_character_is_refused_and_said(api: Api, method: str, path: str, content: bytes) -> None:
    answer = api(method, path, content=content, headers={"Content-Type": "application/json"})
    assert problem(answer, 422)


def test_a_name_in_any_script_comes_back_whole(api: Api) -> None:
    found = problem(api("GET", "/v1/jobs/задание-π"), 404)
    assert "задание-π" in found["detail"]
    refused = api("POST", "/v1/jobs", json={**JOB, "name": "задание-π"})
    assert "задание-π" in problem(refused, 422)["detail"]


class Broken:
    """A transport behind which something always goes wrong in the same way."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def call(self, method: str, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        raise self._error


def over(error: Exception) -> Api:
    return Api(create_app(Client(user="api", transport=Broken(error)), Auth("ana")))


def test_without_a_scheduler_the_answer_is_503_with_a_time_to_ask_again() -> None:
    api = over(NotRunning("the scheduler is restarting"))
    answer = api("GET", "/v1/jobs")
    assert problem(answer, 503)["code"] == "NOT_RUNNING"
    assert int(answer.headers["retry-after"]) > 0
    assert problem(api("GET", "/readyz"), 503)["detail"] == "the scheduler is restarting"
    assert problem(api("GET", "/metrics"), 503)
    assert api("GET", "/healthz").json() == {"status": "ok"}


def test_an_unexpected_error_shows_no_internals() -> None:
    answer = over(RuntimeError("password=secret"))("GET", "/v1/jobs")
    assert problem(answer, 500)["code"] == "INTERNAL"
    assert "secret" not in answer.text
