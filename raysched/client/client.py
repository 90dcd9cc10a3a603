"""The client: every method of the scheduler's service, as the user who calls, with errors raised as exceptions.

Answers are the service's plain values; amounts in them are whole numbers (thousandths, bytes, counts)."""

import getpass
import os
from collections.abc import Mapping, Sequence
from typing import Any

from raysched.client.errors import RayschedError, error_of
from raysched.client.payload import MAX_BLOB_BYTES
from raysched.client.ray_transport import ActorTransport
from raysched.client.transport import Transport

Row = dict[str, Any]
USER_VARIABLE = "RAYSCHED_USER"
VERIFY_S = 600.0  # a ledger of a million rows takes minutes


class Client:
    """A connection to one scheduler, made on the first call.

    `address`: Ray's head (else RAYSCHED_ADDRESS, else what `raysched up` wrote). `user`: who calls (else
    RAYSCHED_USER, else the user of the process). Can be shared between threads."""

    def __init__(
        self, address: str | None = None, *, user: str | None = None, transport: Transport | None = None
    ) -> None:
        self.user = user or default_user()
        self._transport = transport or ActorTransport(address)

    def as_user(self, user: str) -> "Client":
        """The same connection for another caller."""
        return Client(user=user, transport=self._transport)

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, spec: Row, *, fresh: bool = False) -> str:
        """Submit one job (the dict of a JobSpec); returns its id. Raises SubmitRefused with the findings.

        `fresh`: the id was made for this submission. Then a job that exists already is this one: a call that was cut
        off by a restart of the scheduler is made again."""
        outcome = _outcome(self._transport.call("submit", spec, self.user))
        if isinstance(outcome, RayschedError):
            if fresh and outcome.code == "JOB_EXISTS":
                return str(spec["job"])
            raise outcome
        return outcome

    def submit_many(self, specs: Sequence[Row]) -> list[str | RayschedError]:
        """Submit jobs in one durable step; for each its id, or the error why it was refused."""
        return [_outcome(answer) for answer in self._call("submit_many", list(specs), self.user)]

    def put_blob(self, data: bytes) -> str:
        """Store bytes that go with a job; returns their digest."""
        if len(data) > MAX_BLOB_BYTES:
            message = f"{len(data)} bytes; at most {MAX_BLOB_BYTES} travel with a job"
            raise RayschedError(message, code="TOO_LARGE", status=413)
        return str(self._call("put_blob", data))

    def get_blob(self, digest: str) -> bytes | None:
        """Stored bytes; None for an unknown digest."""
        found = self._call("get_blob", digest)
        return None if found is None else bytes(found)

    def cancel(self, job: str) -> Row:
        return self._row("cancel", job, self.user)

    def set_priority(self, job: str, priority: int) -> Row:
        """0 is the highest."""
        return self._row("set_priority", job, priority, self.user)

    def set_cross_pool(self, job: str, value: bool) -> Row:
        return self._row("set_cross_pool", job, value, self.user)

    def move(self, job: str, share: str) -> Row:
        """Charge a job to another share from now on."""
        return self._row("move", job, share, self.user)

    def resize(self, job: str, bundles: Sequence[Row]) -> Row:
        """Change what a job asks for; `bundles` as in the configuration file: [{"gpu": 8, "memory": "1Ti"}]."""
        return self._row("resize", job, list(bundles), self.user)

    def job(self, job: str) -> Row:
        """One job as it is now. Raises UnknownJob."""
        return self._row("job", job)

    def jobs(
        self, share: str | None = None, user: str | None = None, state: str | None = None, limit: int = 1000
    ) -> list[Row]:
        return self._rows("jobs", share=share, user=user, state=state, limit=limit)

    def wait(self, job: str, timeout_s: float) -> Row:
        """The job once it has ended, or as it is after `timeout_s`."""
        return dict(self._checked(self._transport.call("wait", job, timeout_s, timeout_s=timeout_s)))

    def explain(self, job: str) -> Row:
        """Why a job waits: the chain of blockers, and the cheapest change that would start it."""
        return self._row("explain", job)

    def diagnose(self, spec: Row) -> list[Row]:
        """Findings on a job that is not submitted; empty when it would start."""
        return list(self._row("diagnose", spec, self.user)["findings"])

    def logs(self, job: str, rank: int = 0, attempt: int | None = None, offset: int = 0, limit: int = 65_536) -> Row:
        """A piece of one rank's output: {data, next, eof}."""
        return self._row("logs", job, rank=rank, attempt=attempt, offset=offset, limit=limit)

    def records(self, job: str) -> list[Row]:
        """The admission records of a job, oldest first."""
        return self._rows("records", job)

    # ── quota and cluster ─────────────────────────────────────────────────────────────────────────────────────────

    def shares(self, name: str | None = None, pool: str | None = None, workspace: str | None = None) -> list[Row]:
        return self._rows("shares", name=name, pool=pool, workspace=workspace)

    def share_history(self, share: str) -> list[Row]:
        """Every version of a share, oldest first: {version, at_ms, by, share}; `share` None where it was deleted."""
        return self._rows("share_history", share)

    def limits(self, share: str | None = None, *, pool: str | None = None) -> Row:
        """The limits of a share or of a pool."""
        return self._row("limits", share, pool=pool) if pool is not None else self._row("limits", share)

    def usage(self) -> Row:
        return self._row("usage")

    def loans(self) -> list[Row]:
        return self._rows("loans")

    def quota(self, user: str | None = None, share: str | None = None) -> list[Row]:
        """The personal overview, per share: used, idle and limit per kind."""
        return self._rows("quota", user or self.user, share=share)

    def nodes(self) -> list[Row]:
        return self._rows("nodes")

    def pools(self) -> list[Row]:
        return self._rows("pools")

    def node_specs(self) -> Row:
        """What nodes are, by the name of their spec."""
        return self._row("node_specs")

    def groups(self) -> list[Row]:
        return self._rows("groups")

    def reservations(self) -> list[Row]:
        return self._rows("reservations")

    def overrides(self) -> list[Row]:
        return self._rows("overrides")

    def alerts(self) -> list[Row]:
        return self._rows("alerts")

    def ledger(
        self,
        job: str | None = None,
        after: int = 0,
        limit: int = 100,
        *,
        user: str | None = None,
        share: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> list[Row]:
        """Posted entries with a version above `after`: those that name all of job, user and share, decided at or after
        `since_ms` and before `until_ms`. Commits and releases name the job alone."""
        about = {"job": job, "user": user, "share": share, "since_ms": since_ms, "until_ms": until_ms}
        return self._rows("ledger", after=after, limit=limit, **about)

    def verify(self) -> Row:
        """Every stored decision decided again: {rows, decided, compared, disagreements}. Reads the whole ledger."""
        return dict(self._checked(self._transport.call("verify", timeout_s=VERIFY_S)))

    def check(self) -> list[str]:
        """Every invariant of state and books that does not hold; empty when all is sound."""
        return list(self._row("check")["broken"])

    def health(self) -> Row:
        return self._row("health")

    def metrics(self) -> list[Row]:
        return self._rows("metrics")

    def admin(self, action: str, params: Mapping[str, Any], *, dry_run: bool = False) -> Row:
        """Change the books; with `dry_run` only say what would change. `base` in `params`: the ledger version the
        editor saw; a later change of the same thing refuses this one."""
        return self._row("admin", action, dict(params), self.user, dry_run=dry_run)

    def apply(self, config: Mapping[str, Any], *, dry_run: bool = False, prune: bool = False) -> Row:
        """Make the books say what a configuration (the keys of its file) says, all of it or nothing; `dry_run` only
        lists the differences, `prune` also deletes shares that it does not have."""
        return self._row("apply", dict(config), self.user, dry_run=dry_run, prune=prune)

    # ── how answers are read ──────────────────────────────────────────────────────────────────────────────────────

    def _call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._checked(self._transport.call(method, *args, **kwargs))

    def _checked(self, answer: Any) -> Any:
        if _is_error(answer):
            raise error_of(answer)
        return answer

    def _row(self, method: str, *args: Any, **kwargs: Any) -> Row:
        return dict(self._call(method, *args, **kwargs) or {})

    def _rows(self, method: str, *args: Any, **kwargs: Any) -> list[Row]:
        return list(self._call(method, *args, **kwargs))


def default_user() -> str:
    """Who is calling when nobody says: RAYSCHED_USER, else the user of the process."""
    named = os.environ.get(USER_VARIABLE)
    if named:
        return named
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return f"uid-{os.getuid()}"


def _outcome(answer: Any) -> str | RayschedError:
    return error_of(answer, submitting=True) if _is_error(answer) else str(answer["job"])


def _is_error(answer: Any) -> bool:
    return isinstance(answer, dict) and isinstance(answer.get("error"), dict)
