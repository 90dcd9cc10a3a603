"""The application: routes under `/v1`, probes and metrics beside them, every error a problem."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from fastapi.routing import APIRoute

from raysched.api import problems
from raysched.api.auth import Auth
from raysched.api.doors import PROBLEMS
from raysched.api.routes import books, imports, jobs, monitor, nodes, shares
from raysched.client.client import Client, default_user

THREADS = 128  # long-polls hold one each; the default of 40 would let waiting callers block all others
DESCRIPTION = """Quota, gangs, reservations and standby for GPU teams. Errors are problem+json (RFC 9457).
Quantities are sent as people write them (`512Gi`, `500m`, `2h`) and returned as whole numbers (bytes, thousandths,
milliseconds). Changes of the books take `dry_run=true`; `If-Match` with an ETag guards an edit."""


def create_app(client: Client, auth: Auth | None = None) -> FastAPI:
    """The API over `client`. `auth` None: loopback mode, callers without the user header are the process's user."""
    app = FastAPI(
        title="raysched",
        version="1",
        description=DESCRIPTION,
        lifespan=_lifespan,
        generate_unique_id_function=_operation_id,
    )
    app.state.client = client
    app.state.auth = auth or Auth(default_user())
    for module in (jobs, shares, nodes, books, imports, monitor):
        app.include_router(module.router, prefix="/v1", responses=PROBLEMS)
    app.include_router(monitor.probes, responses=PROBLEMS)
    problems.install(app)
    app.openapi = _schema(app)  # type: ignore[method-assign]
    return app


def _schema(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """The OpenAPI document with errors under their own media type; FastAPI describes every model as plain JSON."""
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        document = plain()
        for operations in document["paths"].values():
            for operation in operations.values():
                content = operation["responses"]["default"]["content"]
                content[problems.MEDIA_TYPE] = content.pop("application/json", content.get(problems.MEDIA_TYPE))
        return document

    return openapi


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    yield


def _operation_id(route: APIRoute) -> str:
    return route.name
