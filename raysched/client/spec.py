"""From what a caller writes to the job the scheduler is asked for: quantities, durations, defaults, checks of shape."""

import difflib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, TypedDict

import msgspec

from raysched.client.bundle import Bundle, Quantity, bundle_of
from raysched.client.errors import BadSpec
from raysched.client.quota_context import QuotaContext
from raysched.core import model
from raysched.core.units import BadQuantity, parse_duration_ms

Duration = int | float | str
Priority = int | str


class JobOptions(TypedDict, total=False):
    """Everything that can be said about a job besides what it runs.

    `quota`, or `user`, `share`, `workspace` one by one: on whose account (the entered QuotaContext otherwise).
    `gpu`, `cpu`, `memory`, `count`: one kind of bundle, `count` times; or `bundles` for several kinds. A job that asks
    for nothing gets one core. `name` is the job's id and must be new; without it one is made (`ana-7f3k2q`).
    `priority` 0 or "P0" is the highest. Durations are "90s", "2h" or seconds. `working_dir` goes with a command."""

    quota: QuotaContext | None
    user: str | None
    share: str | None
    workspace: str | None
    gpu: Quantity | None
    cpu: Quantity | None
    memory: Quantity | None
    count: int | None
    bundles: Sequence[Bundle | Mapping[str, Any]] | None
    workload: str | None
    priority: Priority | None
    tags: Mapping[str, str] | None
    max_runtime: Duration | None
    checkpoint_every: Duration | None
    grace: Duration | None
    env: Mapping[str, str] | None
    runtime_env: Mapping[str, Any] | None
    working_dir: str | PathLike[str] | None
    name: str | None
    model: str | None
    pool: str | None
    cross_pool: bool | None
    confirm: bool | None
    retries: int | None
    reservation: str | None
    topology: str | None


OPTION_NAMES = tuple(JobOptions.__annotations__)


def check_options(given: Mapping[str, Any]) -> None:
    """Raises TypeError for an option that does not exist, as a function does for an unknown argument."""
    for name in given:
        if name not in OPTION_NAMES:
            near = difflib.get_close_matches(name, OPTION_NAMES, 1)
            hint = f"did you mean {near[0]!r}?" if near else "arguments of the function go into kwargs={...}"
            raise TypeError(f"unknown option {name!r}: {hint}")


def build_spec(options: JobOptions, quota: QuotaContext | None, user: str) -> dict[str, Any]:
    """The plain dict of a JobSpec, all but its `run`. `quota`: the entered context; `user`: who is calling.

    Raises BadSpec."""
    account = _account(options, quota, user)
    try:
        spec = model.JobSpec(
            job=model.JobId(options.get("name") or new_job_id(account.user)),
            user=model.UserId(account.user),
            share=model.ShareId(account.share),
            workspace=account.workspace,
            bundles=_bundles(options),
            submitted_by=None if account.user == user else model.UserId(user),
            **_given(options),
        )
    except BadQuantity as error:
        raise BadSpec(str(error)) from error
    built: dict[str, Any] = msgspec.to_builtins(spec)
    return built


def new_job_id(user: str) -> str:
    """An id that no other job has, readable enough to type: made by the caller, so that a submission which is sent
    again after a crash is the same job."""
    alphabet = "abcdefghjkmnpqrstuvwxyz23456789"
    readable = re.sub(r"[^a-z0-9]+", "-", user.lower()).strip("-") or "job"
    return f"{readable[:32]}-{''.join(secrets.choice(alphabet) for _ in range(8))}"


def parse_priority(given: Priority) -> int:
    """`P3`, `3` or 3; 0 is the highest. Raises BadSpec."""
    text = str(given).upper().removeprefix("P")
    if isinstance(given, bool) or not re.fullmatch(r"\d", text):
        raise BadSpec(f"priority: {given!r} is not P0 (highest) to P{model.LOWEST_PRIORITY}")
    return int(text)


def _account(options: JobOptions, quota: QuotaContext | None, user: str) -> QuotaContext:
    base = options.get("quota") or quota
    share = options.get("share") or (base.share if base else None)
    if share is None:
        raise BadSpec("no share to charge: give share=, quota=QuotaContext(user, share), or enter a QuotaContext")
    return QuotaContext(
        user=options.get("user") or (base.user if base else user),
        share=share,
        workspace=options.get("workspace") or (base.workspace if base else None),
    )


def _bundles(options: JobOptions) -> tuple[model.Bundle, ...]:
    single = {key: options.get(key) for key in ("gpu", "cpu", "memory", "count")}
    given = {key: value for key, value in single.items() if value is not None}
    listed = options.get("bundles")
    if listed is not None:
        if given:
            raise BadSpec(f"bundles= and {'=, '.join(given)}= were both given; write all of it into the bundles")
        if not listed:
            raise BadSpec("bundles: an empty list; give at least one bundle")
        return tuple(bundle_of(each).to_core() for each in listed)
    if not given.keys() - {"count"}:
        given["cpu"] = 1
    return (bundle_of(given).to_core(),)


def _given(options: JobOptions) -> dict[str, Any]:
    """The fields of a JobSpec that were said; the rest keeps the defaults of JobSpec."""
    fields: dict[str, Any] = {
        key: options.get(key)
        for key in ("workload", "model", "pool", "cross_pool", "confirm", "reservation", "retries", "topology")
    }
    fields["max_runtime_ms"] = _milliseconds("max_runtime", options.get("max_runtime"))
    fields["checkpoint_every_ms"] = _milliseconds("checkpoint_every", options.get("checkpoint_every"))
    fields["grace_ms"] = _milliseconds("grace", options.get("grace"))
    priority, tags = options.get("priority"), options.get("tags")
    fields["priority"] = None if priority is None else parse_priority(priority)
    fields["tags"] = None if tags is None else text_mapping("tags", tags)
    _check_fields(fields)
    return {key: value for key, value in fields.items() if value is not None}


def _check_fields(fields: dict[str, Any]) -> None:
    workload, retries, topology = fields["workload"], fields["retries"], fields["topology"]
    if workload is not None and workload not in model.WORKLOADS:
        raise BadSpec(f"workload: {workload!r} is none of {', '.join(model.WORKLOADS)}")
    if retries is not None and (not isinstance(retries, int) or retries < 0):
        raise BadSpec(f"retries: {retries!r} is not a whole number of at least 0")
    if topology not in (None, "preferred", "required"):
        raise BadSpec(f"topology: {topology!r} is neither preferred nor required")


def _milliseconds(key: str, given: Duration | None) -> int | None:
    if given is None:
        return None
    try:
        return parse_duration_ms(given)
    except BadQuantity as error:
        raise BadSpec(f"{key}: {error}") from error


def text_mapping(what: str, given: Mapping[str, str]) -> dict[str, str]:
    """A copy of a mapping from text to text. Raises BadSpec."""
    if not isinstance(given, Mapping):
        raise BadSpec(f"{what}: {given!r} is not a mapping from text to text")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise BadSpec(f"{what}: {key!r}: {value!r} is not text to text (quote numbers)")
    return dict(given)


def runtime_env_json(given: Mapping[str, Any] | None) -> str | None:
    """Ray's runtime environment as the text that is stored with the job. Raises BadSpec."""
    if not given:
        return None
    try:
        return json.dumps(dict(given), sort_keys=True)
    except (TypeError, ValueError) as error:
        raise BadSpec(f"runtime_env: cannot be written as JSON: {error}") from error
