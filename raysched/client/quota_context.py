"""On whose account jobs are submitted: a user, the share to charge, and the workspace it is used from."""

from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType

# The contexts entered and not left, outermost first. One variable holds all of them, so that threads and async tasks
# nest without sharing, and one QuotaContext can be entered twice.
_entered: ContextVar[tuple["QuotaContext", ...]] = ContextVar("raysched_quota", default=())


@dataclass(frozen=True)
class QuotaContext:
    """Given to one submission (`quota=`), or entered so that all submissions inside it are charged alike:

    with QuotaContext("ana", "nlp"):
        raysched.submit(train, gpu=8)"""

    user: str
    share: str
    workspace: str | None = None

    def __enter__(self) -> "QuotaContext":
        _entered.set((*_entered.get(), self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        _entered.set(_entered.get()[:-1])


def current_quota() -> QuotaContext | None:
    """The innermost context entered here; None outside of all."""
    entered = _entered.get()
    return entered[-1] if entered else None
