"""The command line over a service in this process."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from raysched.cli.main import app
from raysched.client import Client, LocalTransport
from tests.api.service_double import ServiceDouble

Cli = Callable[..., Result]


@pytest.fixture
def service() -> ServiceDouble:
    return ServiceDouble()


@pytest.fixture
def client(service: ServiceDouble) -> Client:
    return Client(user="ana", transport=LocalTransport(service))


@pytest.fixture
def cli(client: Client, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run `raysched` with words, as ana."""
    for name in ("RAYSCHED_ADDRESS", "RAYSCHED_USER", "RAYSCHED_SHARE"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, list(words), obj=client)

    return run


@pytest.fixture
def submitted(cli: Cli) -> str:
    """A small job of ana's, waiting in nlp."""
    ran = cli("submit", "--share", "nlp", "--gpu", "8", "--name", "ana-1", "--", "python", "train.py")
    assert ran.exit_code == 0, ran.output
    return ran.stdout.strip()


def answer(ran: Result, status: int = 0) -> Any:
    """The JSON a run printed; nothing else may be on stdout."""
    assert ran.exit_code == status, ran.output
    return json.loads(ran.stdout)


def said(ran: Result, status: int) -> str:
    """The one line a failed run left on stderr."""
    assert ran.exit_code == status, ran.output
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert line.startswith("raysched: ")
    return line
