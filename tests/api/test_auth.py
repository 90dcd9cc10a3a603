"""Who is calling: the header on loopback, the token elsewhere; nothing a web page could send."""

from pathlib import Path

import pytest

from raysched.api.__main__ import main
from raysched.api.app import create_app
from raysched.api.auth import Auth, read_tokens
from raysched.api.problems import ApiError
from raysched.client import Client, LocalTransport
from tests.api.conftest import AnyService, Api, problem


@pytest.fixture
def guarded(service: AnyService) -> Api:
    """The API with tokens: s3cret is ana's, r00t is root's."""
    client = Client(user="api", transport=LocalTransport(service))
    return Api(create_app(client, Auth("nobody", {"s3cret": "ana", "r00t": "root"})))


Headers = dict[str, str] | dict[str, bytes]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def owner(api: Api, service: AnyService, headers: Headers) -> str:
    answer = api("POST", "/v1/jobs", json={"share": "nlp", "command": ["true"], "gpu": 1}, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(service.specs[answer.json()["job"]]["user"])


def test_on_loopback_the_header_names_the_owner(api: Api, service: AnyService) -> None:
    assert owner(api, service, {"X-Raysched-User": "bo"}) == "bo"
    assert owner(api, service, {"X-Raysched-User": ""}) == "nobody"


def test_a_user_in_any_script(api: Api, service: AnyService) -> None:
    assert owner(api, service, {"X-Raysched-User": "Jürgen".encode()}) == "Jürgen"
    answer = api("GET", "/v1/jobs", headers={"X-Raysched-User": b"\xff"})
    assert problem(answer, 400)


def test_a_token_names_the_owner(guarded: Api, service: AnyService) -> None:
    assert owner(guarded, service, bearer("s3cret")) == "ana"
    assert owner(guarded, service, {"Authorization": "bearer s3cret"}) == "ana"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-Raysched-User": "root"},
        bearer("wrong"),
        bearer("s3cre"),
        {"Authorization": "Basic s3cret"},
        {"Authorization": "Bearer"},
    ],
)
def test_without_a_known_token_nothing_is_answered(guarded: Api, headers: dict[str, str]) -> None:
    for path in ("/v1/jobs", "/v1/ledger", "/metrics"):
        answer = guarded("GET", path, headers=headers)
        assert problem(answer, 401)["code"] == "UNAUTHENTICATED"
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_token_cannot_speak_for_somebody_else(guarded: Api) -> None:
    answer = guarded("GET", "/v1/jobs", headers={**bearer("s3cret"), "X-Raysched-User": "root"})
    assert problem(answer, 403)["code"] == "FORBIDDEN"


def test_probes_need_no_token(guarded: Api) -> None:
    assert guarded("GET", "/healthz").status_code == 200
    assert guarded("GET", "/readyz").json() == {"status": "ok"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:8265"},
        {"Host": "["},
    ],
)
def test_on_loopback_a_foreign_web_page_is_refused(api: Api, headers: dict[str, str]) -> None:
    job = api.submit()
    assert problem(api("POST", f"/v1/jobs/{job}/cancel", headers=headers), 403)


def test_the_apis_own_pages_may_call_it(api: Api) -> None:
    assert api("GET", "/v1/jobs", headers={"Origin": "http://127.0.0.1:8266"}).status_code == 200
    assert api("GET", "/v1/jobs", headers={"Host": "[::1]:8266"}).status_code == 200


def test_token_files_are_json_or_yaml(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").write_text('{"abc": "ana"}')
    (tmp_path / "tokens.yaml").write_text("abc: ana\n")
    assert read_tokens(tmp_path / "tokens.json") == read_tokens(tmp_path / "tokens.yaml") == {"abc": "ana"}


@pytest.mark.parametrize("text", ["", "[]", "abc: 3", "s3cret: {", "- s3cret"])
def test_a_bad_token_file_is_named_without_its_secrets(tmp_path: Path, text: str) -> None:
    (tmp_path / "tokens.yaml").write_text(text)
    with pytest.raises(ApiError, match="tokens.yaml") as caught:
        read_tokens(tmp_path / "tokens.yaml")
    assert "s3cret" not in str(caught.value)


def test_beyond_loopback_tokens_are_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--host", "0.0.0.0"]) == 2
    assert "--token-file" in capsys.readouterr().err


def test_a_missing_token_file_is_a_clear_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--token-file", str(tmp_path / "none.yaml")]) == 2
    assert "No such file" in capsys.readouterr().err
