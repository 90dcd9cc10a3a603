"""How a call reaches the scheduler: straight into a service object, or over Ray to its actor.

Both take a method name of the service and plain values, and return the service's plain answer."""

from typing import Any, Protocol


class Transport(Protocol):
    def call(self, method: str, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Call one method of the service. `timeout_s` None: the transport's own patience.

        Raises NotRunning when the service cannot be reached or does not answer in time."""
        ...


# The service's own `ledger` is the book; the call of that name reads its rows, as on the actor.
_NAMES = {"ledger": "ledger_rows"}


class LocalTransport:
    """Calls a service that lives in this process: simulations, tests, embedding."""

    def __init__(self, service: object) -> None:
        self._service = service

    def call(self, method: str, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Call the service directly; `timeout_s` does not matter here."""
        return getattr(self._service, _NAMES.get(method, method))(*args, **kwargs)
