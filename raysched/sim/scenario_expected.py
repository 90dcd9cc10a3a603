"""The keys of `expect`, as pydantic models. What a mapping leaves out is not checked (`model_fields_set`).

Amounts are written as people write them and read into the integers of units.py."""

import difflib
from typing import Annotated, Any, Literal

from msgspec import Struct
from pydantic import BeforeValidator, Field, PlainValidator, model_validator

from raysched.config.fields import (
    Name,
    Priority,
    Quantities,
    User,
    checked_kind,
    each_of,
    located,
    raise_all,
    read_amount,
)
from raysched.config.problems import shown
from raysched.config.sections import Keys
from raysched.core.model import Health, JobState
from raysched.core.record import AdmissionState, ContentionState, Evidence, Reason, ReservationState
from raysched.core.units import GPU, Amounts

SubmitError = Literal[
    "OVER_USER_LIMIT",
    "OVER_SHARE_MAX",
    "OVER_NODE_MAX",
    "SHARE_STOPPED",
    "WORKLOAD_NOT_ALLOWED",
    "WORKSPACE_NOT_LINKED",
    "UNKNOWN_SHARE",
    "UNKNOWN_POOL",
    "STANDBY_POOL",
    "NEEDS_CONFIRM",
]
FindingKind = Literal[SubmitError, Reason]


def _state(given: object) -> object:
    return {"state": given} if isinstance(given, str) else given


class JobExpected(Keys):
    """`jobs: {j1: running}` or a mapping."""

    state: JobState | None = None
    reason: Reason | None = None
    admission: AdmissionState | None = None
    contention: ContentionState | None = None
    attempt: Annotated[int, Field(ge=0)] | None = None
    priority: Priority | None = None
    share: Name | None = None
    pool: Name | None = None
    model: Name | None = None
    nodes: list[Name] | None = None


class Holding(Struct, frozen=True):
    """Amounts with the names that say whose they are."""

    names: dict[str, str]
    amounts: Amounts


def _holding(given: object, required: tuple[str, ...], optional: tuple[str, ...]) -> Holding:
    if not isinstance(given, dict):
        raise ValueError(f"must be a mapping such as {{{', '.join(required + optional)}, gpu: 8}}, got {shown(given)}")
    raise_all([located((key,), "is required", given) for key in required if key not in given])
    known = required + optional

    def part(key: str, value: object) -> object:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1, cutoff=0.7)
            if close:
                raise ValueError(f"unknown key (did you mean {close[0]}?)")
            return read_amount(checked_kind(key), value)
        if not isinstance(value, str) or not value:
            raise ValueError(f"must be a name, got {shown(value)}")
        return value

    parts: dict[str, Any] = each_of(given, part)
    names = {key: parts.pop(key) for key in known if key in parts}
    return Holding(names, parts)


UserHolding = Annotated[Holding, PlainValidator(lambda given: _holding(given, (), ("share",)))]
LoanHolding = Annotated[Holding, PlainValidator(lambda given: _holding(given, ("borrower", "lender"), ("pool",)))]


class UsageExpected(Keys):
    shares: dict[Name, Quantities] = {}
    users: dict[User, UserHolding] = {}


class NodeExpected(Keys):
    health: Health | None = None
    pool: Name | None = None


class PoolExpected(Keys):
    nodes: Annotated[int, Field(ge=0)] | None = None
    capacity: Quantities | None = None
    free: Quantities | None = None
    contention: ContentionState | None = None


class ReservationExpected(Keys):
    state: ReservationState | None = None
    committed: Quantities | None = None
    drawn: Quantities | None = None
    history: list[Literal["created", "changed", "released", "expired"]] | None = None


def _kind(given: object) -> str:
    if not isinstance(given, str):
        raise ValueError(f"must be a resource kind, got {shown(given)}")
    return checked_kind(given)


Kind = Annotated[str, PlainValidator(_kind)]
NUMBERS = (
    "quota_limit",
    "quota_used",
    "quota_remaining",
    "capacity_allocatable",
    "reserved_by_others",
    "request_quantity",
)


def _number(given: object) -> object:
    """A quantity kept as written: which kind it is of is known only with the rest. Negative after a cut."""
    if given is not None and (isinstance(given, bool) or not isinstance(given, int | float | str)):
        raise ValueError(f"must be a quantity, got {shown(given)}")
    return given


def signed_amount(kind: str, given: object) -> int | None:
    """The integer of a quantity that may be negative, or None. Raises ValueError."""
    if given is None:
        return None
    text = str(given)
    return -read_amount(kind, text[1:]) if text.startswith("-") else read_amount(kind, given)


def _check_numbers(kind: str, keys: Keys, at: tuple[str, ...] = ()) -> None:
    """Every number of `keys` is an amount of `kind`. Raises a ValidationError that names each wrong one."""
    wrong = []
    for name in keys.model_fields_set:
        try:
            if name in NUMBERS or isinstance(keys, RowExpected | QuotaRowExpected):
                signed_amount(kind, getattr(keys, name))
        except ValueError as error:
            wrong.append(located((*at, name), str(error), getattr(keys, name)))
    raise_all(wrong)


Number = Annotated[object, PlainValidator(_number)]


class RecordExpected(Keys):
    """`admission:` the latest admission record of a job; the numbers are those of the rows of `kind`."""

    kind: Kind = GPU
    quota_limit: Number = None
    quota_used: Number = None
    quota_remaining: Number = None
    capacity_allocatable: Number = None
    reserved_by_others: Number = None
    request_quantity: Number = None
    scope: str | None = None
    reservation_lifecycle: ReservationState | None = None
    contention_state: ContentionState | None = None
    admission_state: AdmissionState | None = None
    evidence: Evidence | None = None
    evidence_ref: str | None = None
    override_authority: str | None = None
    reason: Reason | None = None
    refused: list[FindingKind] | None = None

    @model_validator(mode="after")
    def _in_kind(self) -> "RecordExpected":
        _check_numbers(self.kind, self)
        return self


class RowExpected(Keys):
    limit: Number = None
    requested: Number = None
    excess: Number = None


class FindingExpected(Keys):
    kind: FindingKind
    severity: Literal["block", "wait"] | None = None
    rows: dict[Kind, RowExpected] = {}
    numbers: dict[str, int] = {}

    @model_validator(mode="after")
    def _in_kinds(self) -> "FindingExpected":
        for kind, row in self.rows.items():
            _check_numbers(kind, row, ("rows", kind))
        return self


class ShareExpected(Keys):
    state: Literal["open", "stopped"] | None = None
    owned: Quantities | None = None
    used: Quantities | None = None
    borrowed: Quantities | None = None
    lent: Quantities | None = None


class QuotaRowExpected(Keys):
    used: Number = None
    limit: Number = None
    idle: Number = None


class QuotaExpected(Keys):
    """`quota: {ana: {share: nlp, kinds: {gpu: {used, limit, idle}}}}`"""

    share: Name
    kinds: dict[Kind, QuotaRowExpected]

    @model_validator(mode="after")
    def _in_kinds(self) -> "QuotaExpected":
        for kind, row in self.kinds.items():
            _check_numbers(kind, row, ("kinds", kind))
        return self


class AlertExpected(Keys):
    alert: str
    subject: str | None = None
    contains: str | None = None


class Expected(Keys):
    """`expect:`"""

    jobs: dict[Name, Annotated[JobExpected, BeforeValidator(_state)]] = {}
    usage: UsageExpected = UsageExpected()
    loans: list[LoanHolding] = []
    nodes: dict[Name, NodeExpected] = {}
    pools: dict[Name, PoolExpected] = {}
    admission: dict[Name, RecordExpected] = {}
    reservations: dict[Name, ReservationExpected] = {}
    findings: list[FindingExpected] = []
    shares: dict[Name, ShareExpected] = {}
    quota: dict[User, QuotaExpected] = {}
    alerts: list[AlertExpected] = []
