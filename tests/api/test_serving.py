"""The API as its own process, over a socket, with no cluster behind it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.api.conftest import problem

START_S = 60


@pytest.fixture
def server(tmp_path: Path) -> Iterator[httpx.Client]:
    """`python -m raysched.api` on a free port of loopback; no cluster is known to it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAYSCHED_")}
    command = [sys.executable, "-m", "raysched.api", "--port", str(port), "--user", "ana"]
    process = subprocess.Popen(command, env={**environment, "RAYSCHED_HOME": str(tmp_path)})
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            _await_answer(client, process)
            yield client
    finally:
        process.terminate()
        process.wait(timeout=30)


def _await_answer(client: httpx.Client, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            client.get("/healthz")
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError(f"the API did not answer within {START_S} s (exit status {process.poll()})")


def test_it_serves_while_there_is_no_cluster(server: httpx.Client) -> None:
    assert server.get("/healthz").json() == {"status": "ok"}
    found = problem(server.get("/v1/jobs"), 503)
    assert "raysched up" in found["detail"]
    assert problem(server.get("/readyz"), 503)["code"] == "NOT_RUNNING"
