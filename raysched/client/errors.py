"""What can go wrong between a caller and the scheduler.

Every error has a stable `code` (for programs), an HTTP `status` (for the REST API) and one sentence with the numbers
in it (for people). `findings` are those of a diagnosis, worst first."""

from collections.abc import Sequence
from typing import Any

Finding = dict[str, Any]


class RayschedError(Exception):
    """Anything raysched refuses or cannot do; the subclasses are the cases a program may want to tell apart."""

    code = "REFUSED"
    status = 409

    def __init__(
        self, message: str, *, code: str | None = None, status: int | None = None, findings: Sequence[Finding] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or type(self).code
        self.status = status or type(self).status
        self.findings = list(findings)

    def to_dict(self) -> dict[str, Any]:
        """The error as plain data: what `--json` prints."""
        return {"code": self.code, "status": self.status, "message": self.message, "findings": self.findings}


class NotRunning(RayschedError):
    """No Ray, no scheduler in it, or it does not answer; the message says what to do."""

    code, status = "NOT_RUNNING", 503


class BadSpec(RayschedError, ValueError):
    """A submission that cannot be read: a quantity, an option, a function that does not pickle."""

    code, status = "BAD_SPEC", 422


class SubmitRefused(RayschedError):
    """The scheduler looked at the job and refused it; `findings` say what blocks it, with numbers."""

    code, status = "SUBMIT_REFUSED", 422


class UnknownJob(RayschedError):
    code, status = "UNKNOWN_JOB", 404


class Timeout(RayschedError, TimeoutError):
    """The caller's patience ended; the job goes on."""

    code, status = "TIMEOUT", 504


class JobFailed(RayschedError):
    """The job ended badly. `exit_code` of its command, or `traceback` of its function as it was on the node."""

    code = "JOB_FAILED"

    def __init__(self, job: str, message: str, *, exit_code: int | None = None, traceback: str | None = None) -> None:
        super().__init__(message if traceback is None else f"{message}\n\n{traceback.rstrip()}")
        self.job = job
        self.exit_code = exit_code
        self.traceback = traceback


class JobCancelled(RayschedError):
    """The job was cancelled before it had a result."""

    code = "JOB_CANCELLED"


def error_of(answer: dict[str, Any], submitting: bool = False) -> RayschedError:
    """The exception for a service's `{"error": {...}}`; `submitting` makes refusals SubmitRefused."""
    found = answer["error"]
    code, status = str(found.get("code", "REFUSED")), int(found.get("status", 409))
    kind = _kind(code, status, submitting)
    return kind(str(found.get("message", code)), code=code, status=status, findings=found.get("findings") or ())


def _kind(code: str, status: int, submitting: bool) -> type[RayschedError]:
    if code == UnknownJob.code:
        return UnknownJob
    if status == NotRunning.status:
        return NotRunning
    return SubmitRefused if submitting else RayschedError
