"""Expected failures of the service's methods, as values that cross every boundary: `{"error": {...}}`."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import msgspec

from raysched.config import ConfigError
from raysched.runtime.ports import StoreFailed

P = ParamSpec("P")


class Refusal(Exception):
    """Raised inside the service, returned outside. `code` is stable, `status` is HTTP's, the message has numbers."""

    def __init__(self, code: str, status: int, message: str, findings: list[dict[str, Any]] | None = None) -> None:
        super().__init__(message)
        self.code, self.status, self.message, self.findings = code, status, message, findings or []

    def to_dict(self) -> dict[str, Any]:
        found = {"code": self.code, "status": self.status, "message": self.message, "findings": self.findings}
        return {"error": found}


def answers(method: Callable[P, Any]) -> Callable[P, Any]:
    """The method, with every expected failure returned as an error value."""

    @wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            return method(*args, **kwargs)
        except Refusal as refusal:
            return refusal.to_dict()
        except ConfigError as error:
            return Refusal("BAD_REQUEST", 422, str(error)).to_dict()
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            return Refusal("BAD_SPEC", 422, str(error)).to_dict()
        except StoreFailed as failed:
            return Refusal("STORE_FAILED", 503, f"nothing was changed: {failed}").to_dict()

    return guarded
