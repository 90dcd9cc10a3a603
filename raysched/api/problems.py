"""Errors as problem+json (RFC 9457): what it is, its status, one sentence, and the findings behind it."""

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from raysched.client.errors import NotRunning, RayschedError

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 2  # a scheduler that restarts is back in about a second
_log = logging.getLogger(__name__)

_TITLES = {
    400: "The request cannot be read",
    401: "Who is calling is not known",
    403: "The caller may not do this",
    404: "There is no such thing",
    405: "The method does not apply here",
    409: "The change does not fit what is there now",
    412: "It was changed since it was read",
    413: "The request is too large",
    422: "The request is not valid",
    500: "raysched failed",
    503: "The scheduler cannot be reached",
    504: "The scheduler did not answer in time",
}


class InvalidPart(BaseModel):
    """One thing that is wrong in a request."""

    pointer: str = Field(description="JSON pointer into the body (`#/bundles/0/gpu`), or `query:limit`, `path:job`")
    detail: str


class Problem(BaseModel):
    """An error as RFC 9457 describes it."""

    type: str = Field(description="urn:raysched:problem:<code in lower case>")
    title: str
    status: int
    detail: str
    instance: str = Field(description="path of the request")
    code: str = Field(description="stable name of the error, for programs")
    findings: list[dict[str, Any]] = Field(default_factory=list, description="what blocks a job, worst first")
    errors: list[InvalidPart] = Field(default_factory=list, description="what is wrong in the request")


class ApiError(RayschedError):
    """An error the API itself finds: who is calling, how large a body is, what a header says."""


def problem(
    request: Request,
    status: int,
    detail: str,
    *,
    code: str,
    findings: Sequence[Mapping[str, Any]] = (),
    errors: Sequence[InvalidPart] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """One error as a response."""
    body = Problem(
        type=f"urn:raysched:problem:{code.lower()}",
        title=_TITLES.get(status, "The request was refused"),
        status=status,
        detail=detail,
        instance=request.url.path,
        code=code,
        findings=[dict(finding) for finding in findings],
        errors=list(errors),
    )
    return Response(_encoded(body.model_dump()), status, headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Turn every error of the app into a problem."""
    app.add_exception_handler(RayschedError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def _encoded(body: Any) -> bytes:
    # A lone surrogate from a request's JSON cannot be UTF-8; backslashreplace writes it as JSON's own escape again.
    return json.dumps(body, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace")


def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RayschedError)
    headers = {}
    if isinstance(error, NotRunning):
        headers["Retry-After"] = str(RETRY_AFTER_S)
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="raysched"'
    return problem(request, error.status, error.message, code=error.code, findings=error.findings, headers=headers)


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    parts = [InvalidPart(pointer=_pointer(found["loc"]), detail=str(found["msg"])) for found in error.errors()]
    detail = "; ".join(f"{part.pointer}: {part.detail}" for part in parts[:3])
    return problem(request, 422, detail, code="INVALID_REQUEST", errors=parts)


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 413: "TOO_LARGE"}.get(error.status_code, "BAD_REQUEST")
    detail = f"{request.method} {request.url.path}: {error.detail}"
    return problem(request, error.status_code, detail, code=code, headers=error.headers)


def _unexpected(request: Request, error: Exception) -> Response:
    # The caller gets no internals; whoever runs the API finds them in its log.
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem(request, 500, "an error inside the API; its log has the details", code="INTERNAL")


def _pointer(location: Sequence[int | str]) -> str:
    where, *path = location
    if where == "body":
        return "#" + "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
    return f"{where}:{'.'.join(str(part) for part in path)}"
