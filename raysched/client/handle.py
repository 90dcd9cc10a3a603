"""A submitted job in the caller's hands: wait for it, read its output and result, ask why it waits, cancel it."""

import time
from collections.abc import Iterator
from typing import Any, Literal, overload

from raysched.client.client import Client, Row
from raysched.client.errors import JobCancelled, JobFailed, Timeout
from raysched.client.payload import unpickle_result
from raysched.core.model import FINAL

POLL_S = 10.0  # one long-poll; short enough that a lost connection is noticed
LOOK_S = 0.3  # between looks for new output
PAUSE_S = 0.05  # between questions that were answered at once


class JobHandle:
    """One job by its id. Handles are cheap, can be pickled, and many may look at one job."""

    def __init__(self, job: str, client: Client) -> None:
        self.job = job
        self._client = client

    def __repr__(self) -> str:
        return f"JobHandle({self.job!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.job, self._client.user)

    def status(self) -> Row:
        """The job as it is now: state, reason, nodes, times, exit code."""
        return self._client.job(self.job)

    def wait(self, timeout: float | None = None) -> Row:
        """Wait until the job has ended, however it ended; returns its last status. `timeout` in seconds.

        Raises Timeout; the job goes on."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = POLL_S if deadline is None else deadline - time.monotonic()
            view = self.look(max(0.0, min(left, POLL_S)))
            if view["state"] in FINAL:
                return view
            if left <= 0:
                why = f", {view['reason']}" if view.get("reason") else ""
                raise Timeout(f"{self.job} is still {view['state']}{why} after {timeout:g} s")

    def look(self, timeout: float) -> Row:
        """The job once it has ended, or as it is after about `timeout` seconds."""
        began = time.monotonic()
        view = self._client.wait(self.job, timeout)
        if view["state"] not in FINAL and time.monotonic() - began < timeout:
            time.sleep(PAUSE_S)
        return view

    def result(self, timeout: float | None = None) -> Any:
        """What the job's function returned, once it has ended; None for a command that succeeded.

        Raises the function's own exception (its cause is JobFailed with the traceback on the node), JobFailed,
        JobCancelled, Timeout. Results are unpickled: read only those of jobs you trust."""
        view = self.wait(timeout)
        if view["state"] == "cancelled":
            raise JobCancelled(f"{self.job} was cancelled")
        data = self._client.get_blob(view["result"]) if view.get("result") else None
        if data is not None:
            return unpickle_result(self.job, data)
        if view["state"] != "succeeded":
            raise JobFailed(self.job, _failure(view), exit_code=view.get("exit_code"))
        return None

    @overload
    def logs(self, *, follow: Literal[False] = False, rank: int = 0, attempt: int | None = None) -> str: ...

    @overload
    def logs(self, *, follow: Literal[True], rank: int = 0, attempt: int | None = None) -> Iterator[str]: ...

    def logs(self, *, follow: bool = False, rank: int = 0, attempt: int | None = None) -> str | Iterator[str]:
        """The output of one rank so far; with `follow` an iterator of pieces that ends when the job has ended."""
        if follow:
            return self._follow(rank, attempt)
        return "".join(self._pieces(rank, attempt))

    def explain(self) -> Row:
        """Why the job waits, and what would start it."""
        return self._client.explain(self.job)

    def cancel(self) -> None:
        """Stop the job, or take it out of the queue. One that has ended stays as it is."""
        self._client.cancel(self.job)

    def read(self, offset: int, *, rank: int = 0, attempt: int | None = None) -> Row | None:
        """The next piece of output from `offset` on, {data, next, eof}; None while there is no more."""
        piece = self._client.logs(self.job, rank=rank, attempt=attempt, offset=offset)
        return piece if piece["data"] else None

    def _pieces(self, rank: int, attempt: int | None) -> Iterator[str]:
        offset = 0
        while piece := self.read(offset, rank=rank, attempt=attempt):
            yield piece["data"]
            offset = piece["next"]

    def _follow(self, rank: int, attempt: int | None) -> Iterator[str]:
        offset, current = 0, attempt
        while True:
            # The state is read before the output: what is written until the end is then always seen.
            view = self.look(LOOK_S)
            if attempt is None and view.get("attempt") != current:
                offset, current = 0, view.get("attempt")
            while piece := self.read(offset, rank=rank, attempt=current):
                offset = piece["next"]
                yield piece["data"]
            if view["state"] in FINAL:
                return


def _failure(view: Row) -> str:
    code, detail = view.get("exit_code"), view.get("detail")
    how = f" with exit code {code}" if code is not None else ""
    return f"{view['job']} {view['state']}{how}" + (f": {detail}" if detail else "")


def _reopen(job: str, user: str) -> JobHandle:
    return JobHandle(job, Client(user=user))
