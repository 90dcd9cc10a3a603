"""The API over a service, without a socket between: requests go straight into the application."""

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from raysched.api.app import create_app
from raysched.api.auth import Auth
from raysched.client import Client, LocalTransport
from tests.api.real_service import RealService
from tests.api.service_double import ServiceDouble

AnyService = ServiceDouble | RealService
# For what only a test can bring about: output of a job, what exactly an action was sent as.
only_double = pytest.mark.parametrize("service", [ServiceDouble], indirect=True, ids=["double"])
BASE = "http://127.0.0.1:8266"


class Api:
    """Synchronous calls of an application, as `user`."""

    def __init__(self, app: FastAPI, headers: dict[str, str] | None = None) -> None:
        self.app = app
        self._headers = headers or {}

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {**self._headers, **options.pop("headers", {})}
        return asyncio.run(self._send(method, path, headers=headers, **options))

    async def _send(self, method: str, path: str, **options: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            return await client.request(method, path, **options)

    def as_user(self, user: str) -> "Api":
        return Api(self.app, {"X-Raysched-User": user})

    def submit(self, **changes: Any) -> str:
        """Submit a small job; returns its id."""
        body = {"share": "nlp", "command": ["python", "-c", "pass"], "gpu": 1, **changes}
        answer = self("POST", "/v1/jobs", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["job"])


@pytest.fixture(params=[ServiceDouble, RealService], ids=["double", "real"])
def service(request: pytest.FixtureRequest) -> AnyService:
    """The double, and the real service over a simulation: one suite, so that they cannot drift apart."""
    made: AnyService = request.param()
    return made


@pytest.fixture
def api(service: AnyService) -> Api:
    """The API in loopback mode, called by ana."""
    client = Client(user="api", transport=LocalTransport(service))
    return Api(create_app(client, Auth("nobody"))).as_user("ana")


@pytest.fixture
def admin(api: Api) -> Api:
    """The same API, called by the cluster's administrator."""
    return api.as_user("root")


def problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The problem in an answer, after a look at its form."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert body["status"] == status
    assert body["title"] and body["detail"] and body["instance"].startswith("/")
    assert body["type"] == f"urn:raysched:problem:{body['code'].lower()}"
    return body
