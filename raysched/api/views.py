"""What callers get. Amounts are whole numbers: thousandths of GPUs and cores, bytes, counts. Times are milliseconds
since the epoch. Fields that are not named here may come along; none that is named changes its meaning within `/v1`."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

Amounts = dict[str, int]


class View(BaseModel):
    model_config = ConfigDict(extra="allow")


class JobId(View):
    job: str


class JobView(View):
    """One job as it is now."""

    job: str
    user: str
    share: str
    state: str
    workload: str | None = None
    workspace: str | None = None
    priority: int | None = None
    tags: dict[str, str] = Field(default_factory=dict)
    reason: str | None = Field(default=None, description="the first blocker while it waits")
    admission: str | None = None
    contention: str | None = None
    attempt: int | None = None
    pool: str | None = None
    model: str | None = None
    nodes: list[str] = Field(default_factory=list)
    bundles: list[dict[str, Any]] = Field(default_factory=list)
    amounts: Amounts = Field(default_factory=dict)
    submitted_ms: int | None = None
    claimed_ms: int | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    exit_code: int | None = None
    detail: str | None = None
    result: str | None = Field(default=None, description="digest of the pickled result of a function")


class Blocker(View):
    reason: str
    scope: str | None = None
    text: str
    numbers: dict[str, Any] = Field(default_factory=dict)
    freed_by: str | None = None
    freed_at_ms: int | None = None


class Step(View):
    """One call: a method of the service and its arguments; for `admin` an action and its parameters."""

    text: str
    method: str
    params: dict[str, Any]


class Change(View):
    """Steps that together start the job, in this order."""

    text: str
    steps: list[Step] = Field(default_factory=list)


class Explanation(View):
    """Why a job waits: every blocker in order, and the cheapest change that would start it now."""

    job: str
    state: str
    reason: str | None = None
    text: str = ""
    blockers: list[Blocker] = Field(default_factory=list)
    change: Change | None = None


class Finding(View):
    kind: str
    severity: str = Field(description="block or wait")
    text: str = ""
    rows: dict[str, dict[str, int | None]] = Field(default_factory=dict)


class Diagnosis(View):
    findings: list[Finding]


class LogPiece(View):
    """A piece of output; read on from `next` until `eof`."""

    data: str
    next: int
    eof: bool


class Blob(View):
    digest: str
    size: int


class ShareView(View):
    share: str
    cohort: str | None = None
    state: str | None = None
    weight: int | None = None
    strategy: str | None = None
    queue: str | None = None


class Loan(View):
    borrower: str
    lender: str
    pool: str | None = None
    kind: str
    amount: int
    since_ms: int | None = None
    why: str | None = None


class NodeView(View):
    node: str
    pool: str | None = None
    role: str | None = None
    health: str
    why: str | None = None
    cordoned: str | None = Field(default=None, description="why nothing new is placed here; null when something may be")
    spec: dict[str, Any] = Field(default_factory=dict)
    free: Amounts = Field(default_factory=dict)
    attempts: list[str] = Field(default_factory=list)
    ray_id: str | None = None
    measured: bool | None = Field(default=None, description="whether the GPUs were read from NVML, not declared")
    last_report_ms: int | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class LedgerRow(View):
    version: int
    at_ms: int | None = None
    entry: dict[str, Any]


class Usage(View):
    shares: dict[str, Any] = Field(default_factory=dict)
    users: dict[str, Any] = Field(default_factory=dict)


class Overuse(View):
    """Somebody who is charged beyond a ceiling, and the jobs that count there; nobody is stopped for it."""

    scope: str
    pool: str | None = None
    kind: str
    over: int
    jobs: list[str] = Field(default_factory=list)


class Effects(View):
    """What a change would do at once."""

    starts: list[str] = Field(default_factory=list, description="jobs that would start with it and wait without")
    queues: list[str] = Field(default_factory=list, description="jobs that would wait with it and start without")
    over: list[Overuse] = Field(default_factory=list)


class Changed(View):
    """A change of the books, or with `dry_run` what it would do."""

    version: int | None = None
    changed: dict[str, Any] = Field(default_factory=dict)
    effects: Effects | None = None


class Difference(View):
    """One thing that a configuration says otherwise. `refused`: why it cannot be changed now."""

    subject: str
    before: Any = None
    after: Any = None
    refused: str | None = None


class Applied(View):
    """A configuration made the books', or with `dry_run` what that would change and do."""

    version: int | None = None
    differences: list[Difference]
    effects: Effects | None = None


class ShareVersion(View):
    """One version of a share; `share` is null where it was deleted."""

    version: int
    at_ms: int
    by: str
    share: dict[str, Any] | None = None


class Disagreement(View):
    version: int
    job: str | None = None
    what: str


class Verified(View):
    """Every stored decision, decided again."""

    rows: int
    archived: int = Field(default=0, description="rows up to this version are archived and were not looked at")
    decided: int
    compared: int = Field(description="decisions compared also with the books before them")
    disagreements: list[Disagreement] = Field(default_factory=list)


class Checked(View):
    """Invariants of state and books that do not hold."""

    broken: list[str] = Field(default_factory=list)


class Imported(View):
    """A policy of another system as keys of the configuration; `applied` when it was made a share's."""

    keys: dict[str, Any]
    applied: Changed | None = None


class HealthView(View):
    status: str
    epoch: int | None = None
    ledger_version: int | None = None
    journal_seq: int | None = None
    nodes: dict[str, int] = Field(default_factory=dict)
    ticks: int | None = None
    last_tick_ms: float | None = None


class Alive(View):
    status: str


class Row(View):
    """One entry of a list whose fields depend on what is set."""
