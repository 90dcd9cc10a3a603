"""What every route gets: the client as the caller, and for changes whether they are dry and on which version."""

import re
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request

from raysched.api.auth import Auth
from raysched.api.problems import ApiError, Problem
from raysched.client.client import Client

PROBLEMS: dict[int | str, dict[str, Any]] = {"default": {"model": Problem, "description": "an error (RFC 9457)"}}


def caller_client(request: Request) -> Client:
    """The client of the app, speaking for the authenticated caller."""
    auth: Auth = request.app.state.auth
    client: Client = request.app.state.client
    return client.as_user(auth.caller(request))


Caller = Annotated[Client, Depends(caller_client)]
DryRun = Annotated[bool, Query(description="only say what would change")]


def base_version(
    if_match: Annotated[str | None, Header(description="ETag of what was read; refused if it changed since")] = None,
) -> int | None:
    """The ledger version an editor saw, from `If-Match: "17"`; None without the header or for `*`."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = re.fullmatch(r'(?:W/)?"?(\d+)"?', if_match.strip())
    if found is None:
        message = f'If-Match: {if_match!r} is not the ETag of a ledger version such as "17"'
        raise ApiError(message, code="BAD_REQUEST", status=400)
    return int(found.group(1))


Base = Annotated[int | None, Depends(base_version)]


def change(client: Client, action: str, params: dict[str, Any], *, dry_run: bool, base: int | None = None) -> Any:
    """Make an administrative change as the caller."""
    if base is not None:
        params = params | {"base": base}
    return client.admin(action, params, dry_run=dry_run)
