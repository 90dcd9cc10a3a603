"""The way to the scheduler: hands over the newest report, notes the answer, and survives whatever is at the other end.

A sink is a callable that takes a list of reports, an actor handle with a `report` method, or the name of such an actor.
Sending happens in threads of its own, so that a sink that never answers costs the agent's loop nothing."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

log = logging.getLogger("raysched.agent")
MOST_ABANDONED: Final = 4  # calls that never came back; more of them would only pile up


@dataclass(frozen=True)
class NamedSink:
    """A detached Ray actor, looked up by name before the first report and after every failure."""

    name: str
    namespace: str


Report = dict[str, Any]
Sink = Callable[[list[Report]], object] | NamedSink | Any  # Any: an actor handle, a type that only Ray has


class Line:
    """At most one report on its way, the newest waiting; `answered` is the monotonic time at which the last answered
    report was sent: the scheduler has heard of us no earlier than that."""

    def __init__(self, sink: Sink, timeout_s: float, answered: float, on_answer: Callable[[float], None]) -> None:
        self._sink, self._timeout_s, self._on_answer = sink, timeout_s, on_answer
        self.answered = answered
        self._lock = threading.Lock()
        self._waiting: Report | None = None
        self._sending: threading.Thread | None = None
        self._since = 0.0
        self._abandoned: list[threading.Thread] = []
        self._handle: Any = None
        self._trouble: str | None = None

    def send(self, report: Report) -> None:
        """Give the report to the sender and return at once."""
        with self._lock:
            self._waiting = report
            if self._sending is not None and time.monotonic() - self._since > self._timeout_s:
                self._abandoned = [*(t for t in self._abandoned if t.is_alive()), self._sending]
                self._sending, self._handle = None, None
                self._note(f"no answer within {self._timeout_s:g} s")
            if self._sending is None and len(self._abandoned) <= MOST_ABANDONED:
                self._since = time.monotonic()
                self._sending = threading.Thread(target=self._deliver, name="report-sender", daemon=True)
                self._sending.start()
            elif self._sending is None:
                self._abandoned = [thread for thread in self._abandoned if thread.is_alive()]

    def _deliver(self) -> None:
        while (report := self._next()) is not None:
            began = time.monotonic()
            try:
                self._call(report)
            except Exception as error:  # whatever a sink or Ray raises: the next report tries again
                self._handle = None
                self._note(f"{type(error).__name__}: {error}")
            else:
                self._arrived(began)

    def _next(self) -> Report | None:
        """The report to send, or None when there is none or another thread has taken over."""
        with self._lock:
            if self._sending is not threading.current_thread():
                return None
            report, self._waiting, self._since = self._waiting, None, time.monotonic()
            if report is None:
                self._sending = None
            return report

    def _call(self, report: Report) -> None:
        target = self._sink
        if isinstance(target, NamedSink):
            target = self._handle = self._handle or _actor(target)
        method = getattr(target, "report", None)
        if method is not None and hasattr(method, "remote"):
            import ray

            ray.get(method.remote([report]), timeout=self._timeout_s)
        else:
            target([report])

    def _arrived(self, sent: float) -> None:
        self.answered = max(self.answered, sent)
        if self._trouble is not None:
            log.info("the scheduler answers again")
            self._trouble = None
        self._on_answer(self.answered)

    def _note(self, trouble: str) -> None:
        """Log a trouble once, not at every beat."""
        if trouble != self._trouble:
            log.warning("report not delivered: %s", trouble)
            self._trouble = trouble


def _actor(named: NamedSink) -> Any:
    import ray

    return ray.get_actor(named.name, namespace=named.namespace)
