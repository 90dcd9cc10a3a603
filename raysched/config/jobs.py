"""Jobs, reservations and overrides as scenarios and admin actions write them."""

from collections.abc import Collection, Mapping
from typing import Literal, TypeVar

from msgspec import structs
from pydantic import Field, model_validator

from raysched.config.bundles import MAX_TOTAL, Bundles
from raysched.config.door import as_keys, validated
from raysched.config.fields import (
    MOST,
    Count,
    Duration,
    Name,
    PositiveCount,
    PositiveDuration,
    Priority,
    Quantities,
    User,
    Workload,
)
from raysched.config.problems import ConfigError, Lines, Problems, nearest
from raysched.config.sections import Keys
from raysched.config.times import time_ms
from raysched.core.model import (
    Bundle,
    JobId,
    JobSpec,
    Override,
    PoolId,
    Reservation,
    ReservationId,
    ShareId,
    UserId,
    gang_amounts,
)

K = TypeVar("K", bound=Keys)


class JobKeys(Keys):
    """`submit:`; `user` is the owner who is charged, `submitted_by` who operates."""

    job: Name | None = None
    user: User
    share: Name
    bundles: Bundles
    count: PositiveCount = 1
    workload: Workload = "training"
    workspace: str | None = Field(default=None, min_length=1)
    priority: Priority | None = None
    tags: dict[str, str] = {}
    model: Name | None = None
    pool: Name | None = None
    cross_pool: bool = False
    confirm: bool = False
    max_runtime: PositiveDuration | None = None
    checkpoint_every: PositiveDuration | None = None
    reservation: Name | None = None
    retries: Count = 0
    grace: Duration = 30_000
    topology: Literal["preferred", "required"] = "preferred"
    submitted_by: User | None = None


class OwnerKeys(Keys):
    """`owner:` of a reservation, and the scope of an override."""

    share: Name | None = None
    user: User | None = None

    @model_validator(mode="after")
    def _one(self) -> "OwnerKeys":
        if (self.share is None) == (self.user is None):
            raise ValueError("must name either a share or a user")
        return self


class ReservationKeys(Keys):
    """`reserve:`; times are read against the start of the scenario or the present."""

    name: Name
    owner: OwnerKeys
    pool: Name
    amounts: Quantities
    start: object = None
    expiry: object = None
    release_condition: str | None = Field(default=None, min_length=1)
    bundles: Bundles = []
    reason: str = ""


class OverrideKeys(OwnerKeys):
    """`override:`"""

    name: Name | None = None
    pool: Name | None = None
    amounts: Quantities
    start: object = None
    until: object = None
    lasts: PositiveDuration | None = Field(default=None, alias="for")
    reason: str = Field(min_length=1)
    authority: str | None = Field(default=None, min_length=1)


def bundles_from_keys(keys: object) -> tuple[Bundle, ...]:
    """Bundles of a resize. Raises ConfigError."""

    class Holder(Keys):
        bundles: Bundles

    problems = Problems(Lines("job"))
    found = _read(Holder, {"bundles": keys}, problems)
    bundles = tuple(found.bundles)
    _check_total(bundles, problems)
    problems.check()
    return bundles


def job_from_keys(keys: Mapping[str, object], job: str | None = None) -> JobSpec:
    """A job from the fields of `submit`; `count` multiplies every bundle. `job` names it where the keys do not.

    What is left out keeps the defaults of JobSpec. Raises ConfigError."""
    problems = Problems(Lines("job"))
    found = _read(JobKeys, keys, problems)
    name = found.job or job
    if name is None:
        problems.add(("job",), "is required")
    bundles = tuple(structs.replace(bundle, count=bundle.count * found.count) for bundle in found.bundles)
    _check_total(bundles, problems)
    problems.check()
    return JobSpec(
        job=JobId(name or ""),
        user=UserId(found.user),
        share=ShareId(found.share),
        bundles=bundles,
        workload=found.workload,
        workspace=found.workspace,
        priority=found.priority,
        tags=found.tags,
        model=found.model,
        pool=None if found.pool is None else PoolId(found.pool),
        cross_pool=found.cross_pool,
        confirm=found.confirm,
        max_runtime_ms=found.max_runtime,
        checkpoint_every_ms=found.checkpoint_every,
        reservation=None if found.reservation is None else ReservationId(found.reservation),
        retries=found.retries,
        grace_ms=found.grace,
        topology=found.topology,
        submitted_by=None if found.submitted_by is None else UserId(found.submitted_by),
    )


def reservation_from_keys(keys: Mapping[str, object], origin_ms: int, now_ms: int | None = None) -> Reservation:
    """A reservation from the fields of `reserve`. Offsets count from `origin_ms`; without `start` it begins now
    (`now_ms`, else the origin). Neither expiry nor release condition is allowed: it is on hold. Raises ConfigError."""
    problems = Problems(Lines("reservation"))
    found = _read(ReservationKeys, keys, problems)
    start = _time(found.start, origin_ms, problems, "start")
    start = start if start is not None else origin_ms if now_ms is None else now_ms
    expiry = _time(found.expiry, origin_ms, problems, "expiry")
    if expiry is not None and expiry <= start:
        problems.add(("expiry",), "must be later than the start")
    _check_amounts(found.amounts, problems)
    problems.check()
    return Reservation(
        reservation=ReservationId(found.name),
        pool=PoolId(found.pool),
        amounts=found.amounts,
        start_ms=start,
        share=None if found.owner.share is None else ShareId(found.owner.share),
        user=None if found.owner.user is None else UserId(found.owner.user),
        expiry_ms=expiry,
        release_condition=found.release_condition,
        bundles=tuple(found.bundles),
        reason=found.reason,
    )


def override_from_keys(
    keys: Mapping[str, object],
    origin_ms: int,
    now_ms: int | None = None,
    name: str | None = None,
    authorities: Collection[str] | None = None,
) -> Override:
    """An override from the fields of `override`: it ends at `until`, or lasts `for` so long. Offsets count from
    `origin_ms`; without `start` it begins now. `name` is used where the keys give none; an authority must be one of
    `authorities` where those are listed. Without an authority it is recorded and blocks (semantics 7.8). Raises
    ConfigError."""
    problems = Problems(Lines("override"))
    found = _read(OverrideKeys, keys, problems)
    start = _time(found.start, origin_ms, problems, "start")
    start = start if start is not None else origin_ms if now_ms is None else now_ms
    until = _until(found, start, origin_ms, problems)
    if (found.name or name) is None:
        problems.add(("name",), "is required")
    if authorities is not None and found.authority is not None and found.authority not in authorities:
        problems.add(("authority",), f"{found.authority} is no authority here" + nearest(found.authority, authorities))
    _check_amounts(found.amounts, problems)
    problems.check()
    return Override(
        override=found.name or name or "",
        amounts=found.amounts,
        start_ms=start,
        until_ms=until or 0,
        reason=found.reason,
        authority=found.authority,
        share=None if found.share is None else ShareId(found.share),
        user=None if found.user is None else UserId(found.user),
        pool=None if found.pool is None else PoolId(found.pool),
    )


def _read(model: type[K], keys: object, problems: Problems) -> K:
    found = validated(model, as_keys(keys), problems)
    if found is None:
        raise ConfigError(problems.found)
    return found


def _time(given: object, origin_ms: int, problems: Problems, key: str) -> int | None:
    if given is None:
        return None
    try:
        return time_ms(given, origin_ms)
    except ValueError as error:
        problems.add((key,), str(error))
        return None


def _until(found: OverrideKeys, start_ms: int, origin_ms: int, problems: Problems) -> int | None:
    if found.lasts is not None:
        if found.until is not None:
            problems.add(("for",), "and until cannot both be given")
        return start_ms + found.lasts
    if found.until is None:
        problems.add(("until",), "is required, or `for`")
        return None
    until = _time(found.until, origin_ms, problems, "until")
    if until is not None and until <= start_ms:
        problems.add(("until",), "must be later than the start")
    return until


def _check_total(bundles: tuple[Bundle, ...], problems: Problems) -> None:
    if sum(bundle.count for bundle in bundles) > MOST:
        problems.add(("bundles",), f"are more than {MOST} in all")
    for kind, amount in gang_amounts(bundles, None).items():
        if amount >= MAX_TOTAL:
            problems.add(("bundles",), f"ask for too much {kind} in all")


def _check_amounts(amounts: dict[str, int], problems: Problems) -> None:
    if not any(amounts.values()):
        problems.add(("amounts",), "must be more than 0")
