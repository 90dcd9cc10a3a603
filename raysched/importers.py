"""Policies of other systems as keys of our configuration: the TI-ONE policy JSON, the AWS quota-share JSON.

Both are read strictly: a field that is not known is an error that names it (ConfigError)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

from pydantic import ConfigDict, Field, PlainValidator, model_validator

from raysched.config import ConfigError, Lines, amounts_to_keys
from raysched.config.door import validated
from raysched.config.fields import Priority, located, raise_all
from raysched.config.lines import MAX_BYTES
from raysched.config.problems import Problem, Problems, nearest, shown
from raysched.config.sections import Keys
from raysched.core.model import NodeSpec
from raysched.core.units import added, scaled

_QUEUES: Final = {0: "strict_fifo", 1: "fifo_within_priority", 2: "any_fit"}
_STRATEGIES: Final = {"RESERVE": "reserve", "LEND": "lend", "LEND_AND_BORROW": "lend_and_borrow"}
_Switch = Literal["ENABLED", "DISABLED"]

K = TypeVar("K", bound=Keys)


class _Foreign(Keys):
    """Keys of another system: spelled its way, named ours by an alias."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _PreemptedRule(_Foreign):
    training: bool | None = Field(default=None, alias="TrainingTask")
    service: bool | None = Field(default=None, alias="ServiceGroup")


class _ResourceRule(_Foreign):
    default_priority: Priority | None = Field(default=None, alias="DefaultPriority")
    default_queue: Literal[0, 1, 2] | None = Field(default=None, alias="DefaultQueue")
    preempted: bool | None = Field(default=None, alias="Preempted")
    preempted_rule: _PreemptedRule = Field(default=_PreemptedRule(), alias="PreemptedRule")


class _AttrRule(_Foreign):
    value_type: Literal["Tag"] = Field(alias="ValueType")
    key: str = Field(alias="Key", min_length=1)
    value: str = Field(alias="Value")


class _ScheduleRule(_Foreign):
    priority: Priority = Field(alias="Priority")


class _TaskRule(_Foreign):
    attributes: list[_AttrRule] = Field(alias="AttrRules", min_length=1)
    schedule: _ScheduleRule = Field(alias="ScheduleRule")

    @model_validator(mode="after")
    def _can_match(self) -> "_TaskRule":
        tags: dict[str, str] = {}
        for number, rule in enumerate(self.attributes):
            if tags.setdefault(rule.key, rule.value) != rule.value:
                reason = f"the tag {rule.key} cannot be both {tags[rule.key]} and {rule.value}: the rule never matches"
                raise_all([located(("AttrRules", number, "Value"), reason, rule.value)])
        return self


def _version(given: object) -> str:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise ValueError(f"must be text or a number, got {shown(given)}")
    return str(given)


class _TionePolicy(_Foreign):
    version: Annotated[str, PlainValidator(_version)] = Field(alias="Version")
    resource: _ResourceRule = Field(default=_ResourceRule(), alias="ResourceRule")
    tasks: list[_TaskRule] = Field(default=[], alias="TaskRules")


def tione_policy(data: object, file: str = "TI-ONE policy") -> dict[str, object]:
    """The keys of a pool or a share that mean what a TI-ONE policy says: `preset`, and those of `priority`, `queue`
    and `preemption` that the policy sets. All AttrRules of a task rule must match; the first rule that does wins.

    `file` is named in errors. Raises ConfigError."""
    policy = _validated(_TionePolicy, data, file)
    keys: dict[str, object] = {"preset": "tione"}
    priority = _priority(policy)
    if priority:
        keys["priority"] = priority
    if policy.resource.default_queue is not None:
        keys["queue"] = {"policy": _QUEUES[policy.resource.default_queue]}
    preemption = _preemption(policy.resource)
    if preemption:
        keys["preemption"] = preemption
    return keys


def _priority(policy: _TionePolicy) -> dict[str, object]:
    found: dict[str, object] = {}
    if policy.resource.default_priority is not None:
        found["default"] = f"P{policy.resource.default_priority}"
    rules = [
        {"tags": {each.key: each.value for each in rule.attributes}, "priority": f"P{rule.schedule.priority}"}
        for rule in policy.tasks
    ]
    return found | ({"rules": rules} if rules else {})


def _preemption(rule: _ResourceRule) -> dict[str, object]:
    found: dict[str, object] = {} if rule.preempted is None else {"default": rule.preempted}
    kinds = {"training": rule.preempted_rule.training, "service": rule.preempted_rule.service}
    workloads = {kind: value for kind, value in kinds.items() if value is not None}
    return found | ({"workloads": workloads} if workloads else {})


class _CapacityLimit(_Foreign):
    most: Annotated[int, Field(ge=1, le=1_000_000)] = Field(alias="maxCapacity")
    unit: str = Field(alias="capacityUnit")


class _Sharing(_Foreign):
    strategy: Literal["RESERVE", "LEND", "LEND_AND_BORROW"]
    borrow_limit: Annotated[int, Field(ge=-1, le=999_999)] = Field(default=-1, alias="borrowLimit")


class _Preemption(_Foreign):
    in_share: _Switch = Field(alias="inSharePreemption")


class _QuotaShare(_Foreign):
    name: str = Field(alias="quotaShareName", pattern=r"^[A-Za-z0-9_-]{1,128}$")
    queue: str | None = Field(default=None, alias="jobQueue", min_length=1)
    limits: list[_CapacityLimit] = Field(alias="capacityLimits", min_length=1, max_length=5)
    sharing: _Sharing | None = Field(default=None, alias="resourceSharingConfiguration")
    preemption: _Preemption | None = Field(default=None, alias="preemptionConfiguration")
    state: _Switch = "ENABLED"
    tags: dict[str, str] = {}


def aws_quota_share(
    data: object, node_specs: Mapping[str, NodeSpec], pool: str | None = None, file: str = "AWS quota share"
) -> dict[str, object]:
    """`{name: keys}` of the share that an AWS quota share describes, ready to stand under `shares:`.

    A capacity unit names one of `node_specs`; the nominal is maxCapacity times all its kinds, in `pool`, else in the
    pool called like the job queue. `tags` describe the AWS resource and are not taken over. Raises ConfigError."""
    share = _validated(_QuotaShare, data, file)
    problems = Problems(Lines(file))
    where = pool or (share.queue or "").rsplit("/", 1)[-1]
    if not where:
        problems.add(("jobQueue",), "is required where no pool is named")
    nominal = _nominal(share, node_specs, problems)
    problems.check()
    keys: dict[str, object] = {"preset": "aws", "nominal": {where: nominal}}
    if share.sharing is not None:
        limit = share.sharing.borrow_limit
        percent = -1 if limit == -1 else f"{limit}%"
        keys["sharing"] = {"strategy": _STRATEGIES[share.sharing.strategy], "borrow_limit": percent}
    if share.preemption is not None:
        keys["preemption"] = {"in_share": share.preemption.in_share == "ENABLED"}
    keys["state"] = "open" if share.state == "ENABLED" else "stopped"
    return {share.name: keys}


def _nominal(share: _QuotaShare, node_specs: Mapping[str, NodeSpec], problems: Problems) -> dict[str, object]:
    parts, seen = [], set[str]()
    for number, limit in enumerate(share.limits):
        path = ("capacityLimits", number, "capacityUnit")
        if limit.unit not in node_specs:
            problems.add(path, f"there is no node spec {limit.unit}" + nearest(limit.unit, node_specs))
        elif limit.unit in seen:
            problems.add(path, f"duplicate limit for {limit.unit}")
        else:
            parts.append(scaled(node_specs[limit.unit].amounts(), limit.most))
        seen.add(limit.unit)
    return amounts_to_keys(added(parts))


def read_json(path: str | Path) -> object:
    """The value of a JSON file. A key given twice is an error. Raises ConfigError."""
    file = str(path)
    try:
        with Path(path).open("rb") as source:
            raw = source.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise ValueError(f"is larger than {MAX_BYTES} bytes")
        return json.loads(raw.decode("utf-8-sig"), object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise _failed(file, error.lineno, f"is not valid JSON: {error.msg}") from None
    except UnicodeDecodeError as error:
        raise _failed(file, None, f"is not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise _failed(file, None, f"cannot be read: {error.strerror or error}") from None
    except RecursionError:
        raise _failed(file, None, "is nested too deeply") from None
    except ValueError as error:
        raise _failed(file, None, str(error)) from None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key}: duplicate key")
        found[key] = value
    return found


def _failed(file: str, line: int | None, reason: str) -> ConfigError:
    return ConfigError([Problem(file, line, "", reason)])


def _validated(model: type[K], data: object, file: str) -> K:
    problems = Problems(Lines(file))
    found = validated(model, data, problems)
    if found is None:
        raise ConfigError(problems.found)
    return found
