"""Who is calling. On loopback a header names the user; with a token file only its bearer tokens are believed."""

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import yaml
from fastapi import Request

from raysched.api.problems import ApiError

USER_HEADER = "X-Raysched-User"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@dataclass(frozen=True)
class Auth:
    """How callers are recognised. `tokens` None: loopback mode, the header or else `default_user` is believed, and
    requests that a web page of another origin could have made are refused."""

    default_user: str
    tokens: Mapping[str, str] | None = field(default=None, repr=False)

    def caller(self, request: Request) -> str:
        """The user who makes this request. Raises ApiError with status 401 or 403."""
        named = _named(request)
        if self.tokens is None:
            _check_local(request)
            return named or self.default_user
        user = self._bearer(request.headers.get("Authorization"))
        if named is not None and named != user:
            raise ApiError(f"the token is {user}'s, {USER_HEADER} says {named}", code="FORBIDDEN", status=403)
        return user

    def _bearer(self, header: str | None) -> str:
        scheme, _, token = (header or "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise ApiError("send `Authorization: Bearer <token>`", code="UNAUTHENTICATED", status=401)
        given, user = token.strip().encode("utf-8", "replace"), None
        # All are compared, each in constant time: the time taken tells nothing about the tokens.
        for known, owner in (self.tokens or {}).items():
            if hmac.compare_digest(known.encode(), given):
                user = owner
        if user is None:
            raise ApiError("the token is not known", code="UNAUTHENTICATED", status=401)
        return user


def read_tokens(path: Path) -> dict[str, str]:
    """The token file: JSON or YAML, {token: user}. Raises ApiError with what is wrong, never showing a token."""
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"not valid {path.suffix.lstrip('.') or 'YAML'}"
        raise ApiError(f"token file {path}: {reason}", code="BAD_TOKEN_FILE", status=500) from None
    entries = found.items() if isinstance(found, dict) else ()
    if not entries or not all(isinstance(k, str) and isinstance(v, str) and k and v for k, v in entries):
        raise ApiError(f"token file {path}: want a mapping from tokens to users", code="BAD_TOKEN_FILE", status=500)
    return dict(entries)


def _named(request: Request) -> str | None:
    value = request.headers.get(USER_HEADER)
    if not value:
        return None
    try:
        # HTTP hands headers over as Latin-1; clients send UTF-8.
        return value.encode("latin-1").decode("utf-8")
    except UnicodeError:
        raise ApiError(f"{USER_HEADER} is not UTF-8", code="BAD_REQUEST", status=400) from None


def _check_local(request: Request) -> None:
    """A browser on this machine could be made to call us by any page it shows: a foreign origin, or a foreign name
    that resolves to loopback, is refused."""
    host = request.headers.get("Host", "")
    if _host(f"//{host}") not in LOOPBACK:
        raise ApiError("without a token file the API answers only on loopback names", code="FORBIDDEN", status=403)
    origin = request.headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise ApiError(f"requests from pages of {origin} are refused", code="FORBIDDEN", status=403)


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
