"""Every reading command over the real service: whatever it answers can be shown."""

import pytest
from typer.testing import CliRunner

from raysched.cli.main import app
from raysched.client import Client, LocalTransport
from tests.api.real_service import RealService
from tests.cli.conftest import answer

READS = [
    ["ps"],
    ["ps", "--all"],
    ["show", "one"],
    ["show", "two"],
    ["explain", "one"],
    ["explain", "two"],
    ["records", "two"],
    ["logs", "one"],
    ["quota"],
    ["quota", "--share", "nlp"],
    ["shares"],
    ["limits", "nlp"],
    ["usage"],
    ["loans"],
    ["nodes"],
    ["pools"],
    ["ledger", "rows"],
    ["ledger", "rows", "--job", "one"],
    ["ledger", "show", "two"],
    ["ledger", "verify"],
    ["check"],
    ["admin", "share", "history", "nlp"],
    ["alerts"],
    ["health"],
    ["diagnose", "--share", "nlp", "--gpu", "8"],
    ["admin", "groups", "list"],
    ["admin", "reservations", "list"],
    ["admin", "overrides", "list"],
]


@pytest.fixture(scope="module")
def client() -> Client:
    """A cluster where `one` runs partly on loan, `two` waits, a share has limits, and somebody reserved."""
    client = Client(user="root", transport=LocalTransport(RealService()))
    for words in (
        ["admin", "limits", "set", "--share", "nlp", "enabled=true", "rules=[{user: root, gpu: 16, memory: 100Gi}]"],
        ["submit", "--share", "nlp", "--gpu", "6", "--count", "2", "--name", "one", "--", "true"],
        ["submit", "--share", "nlp", "--gpu", "8", "--name", "two", "--", "true"],
        ["admin", "reservations", "create", "ra", "gpu=2", "--pool", "train", "--share", "cv"],
        ["admin", "overrides", "create", "gpu=2", "--user", "ana", "--until", "2030-01-01T00:00:00Z", "--reason", "x"],
        ["cordon", "n1", "--reason", "fan"],
    ):
        ran = CliRunner().invoke(app, words, obj=client)
        assert ran.exit_code == 0, (words, ran.output)
    return client


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_it_is_shown(client: Client, words: list[str]) -> None:
    ran = CliRunner().invoke(app, words, obj=client)
    assert ran.exit_code == 0, ran.output
    as_json = CliRunner().invoke(app, [*words, "--json"], obj=client)
    assert isinstance(answer(as_json), list | dict)


def test_a_decision_in_the_ledger_names_its_job_and_reason(client: Client) -> None:
    rows = CliRunner().invoke(app, ["ledger", "rows", "--job", "two"], obj=client).stdout
    assert "Recorded" in rows and "two" in rows and "QUEUED, USER_LIMIT" in rows


def test_a_reason_is_said_once(client: Client) -> None:
    explained = CliRunner().invoke(app, ["explain", "two"], obj=client).stdout
    assert "two is queued, USER_LIMIT: user root in share nlp: 12 of 16 gpu in use, asked 8" in explained


def test_a_loan_and_its_reason_are_seen(client: Client) -> None:
    loans = CliRunner().invoke(app, ["loans"], obj=client).stdout
    assert "4 gpu" in loans and "nlp" in loans and "cv" in loans
    assert "100Gi" in CliRunner().invoke(app, ["limits", "nlp"], obj=client).stdout
    assert "cordoned (fan)" in CliRunner().invoke(app, ["nodes"], obj=client).stdout
