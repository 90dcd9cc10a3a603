"""The sections a pool or a share may set: sharing, queue, priority, preemption, reclaim, limits.

A model knows which of its keys were given; `changes()` hands exactly those to the core's fields, so that what was left
out can come from the pool, the preset or the defaults."""

from typing import Annotated, Literal

from msgspec import structs
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from raysched.config.fields import (
    BorrowField,
    Count,
    Cpu,
    Duration,
    Memory,
    Name,
    PositiveCount,
    PresetName,
    Priority,
    Quantities,
    User,
    WholeGpu,
    Workload,
    Workloads,
    located,
    raise_all,
)
from raysched.core.model import (
    BorrowLimit,
    GroupId,
    LimitRule,
    PriorityRule,
    QueuePolicy,
    ReclaimPolicy,
    Resolve,
    Strategy,
    UserId,
)


class Keys(BaseModel):
    """A mapping of the file. Unknown keys are errors; nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    def changes(self) -> dict[str, object]:
        """The core's fields that the given keys set."""
        return {name: _frozen(getattr(self, name)) for name in type(self).model_fields if name in self.model_fields_set}


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


class SharingKeys(Keys):
    """`sharing:`"""

    strategy: Strategy = "reserve"
    borrow_limit: BorrowField = BorrowLimit()
    lend_limit: dict[Name, Quantities] | None = None
    lend_workloads: Workloads | None = None


class QueueKeys(Keys):
    """`queue:`"""

    policy: QueuePolicy = "fifo_within_priority"


class PriorityRuleKeys(Keys):
    tags: Annotated[dict[str, str], Field(min_length=1)]
    priority: Priority


class PriorityKeys(Keys):
    """`priority:`"""

    default: Priority = 5
    rules: list[PriorityRuleKeys] = []

    def changes(self) -> dict[str, object]:
        found: dict[str, object] = {}
        if "default" in self.model_fields_set:
            found["priority_default"] = self.default
        if "rules" in self.model_fields_set:
            found["priority_rules"] = tuple(PriorityRule(rule.tags, rule.priority) for rule in self.rules)
        return found


class PreemptionKeys(Keys):
    """`preemption:`; `true` or `false` alone stands for `{default: …}`."""

    in_share: bool = False
    default: bool = True
    workloads: dict[Workload, bool] = {}
    grace: Duration = 30_000
    max_preemptions: Count | None = None

    def changes(self) -> dict[str, object]:
        return _renamed(super().changes(), "grace", "grace_ms")


class ReclaimKeys(Keys):
    """`reclaim:`"""

    policy: ReclaimPolicy = "restore"
    grace: Duration = 30_000

    def changes(self) -> dict[str, object]:
        return _renamed(super().changes(), "grace", "grace_ms")


def _renamed(changes: dict[str, object], old: str, new: str) -> dict[str, object]:
    return {new if name == old else name: value for name, value in changes.items()}


class DefaultRuleKeys(Keys):
    """The amounts of a limit; an empty one is unlimited."""

    gpu: WholeGpu
    cpu: Cpu | None = None
    memory: Memory | None = None

    def rule(self) -> LimitRule:
        return LimitRule(self.gpu, cpu=self.cpu, memory=self.memory)


class RuleKeys(DefaultRuleKeys):
    """One entry of `limits.rules`."""

    user: User | None = None
    group: Name | None = None
    mode: Literal["each", "total"] = "each"

    @model_validator(mode="after")
    def _names_one(self) -> "RuleKeys":
        if (self.user is None) == (self.group is None):
            raise ValueError("must name either a user or a group")
        if self.mode == "total" and self.group is None:
            raise_all([located(("mode",), "total is for groups only", self.mode)])
        return self

    def rule(self) -> LimitRule:
        user = None if self.user is None else UserId(self.user)
        group = None if self.group is None else GroupId(self.group)
        return structs.replace(super().rule(), user=user, group=group, mode=self.mode)


def _no_duplicates(rules: list[RuleKeys]) -> list[RuleKeys]:
    built = [rule.rule() for rule in rules]
    first = [built.index(rule) for rule in built]
    raise_all([located((n,), f"duplicate of rules[{first[n]}]", None) for n in range(len(built)) if first[n] != n])
    return rules


class LimitsKeys(Keys):
    """`limits:` of a share or a pool."""

    enabled: bool = False
    resolve: Resolve = "smallest_gpu"
    on_exceed: Literal["reject", "confirm"] = "reject"
    default: DefaultRuleKeys | None = None
    rules: Annotated[list[RuleKeys], AfterValidator(_no_duplicates)] = []
    max_rules: PositiveCount | None = None

    def changes(self) -> dict[str, object]:
        found = super().changes()
        if "default" in found:
            found["default"] = None if self.default is None else self.default.rule()
        if "rules" in found:
            found["rules"] = tuple(rule.rule() for rule in self.rules)
        return found


def _preemption(given: object) -> object:
    return {"default": given} if isinstance(given, bool) else given


class SettingKeys(Keys):
    """The settings that a preset gives and that a pool or a share may give itself."""

    preset: PresetName | None = None
    sharing: SharingKeys = SharingKeys()
    queue: QueueKeys = QueueKeys()
    priority: PriorityKeys = PriorityKeys()
    preemption: Annotated[PreemptionKeys, BeforeValidator(_preemption)] = PreemptionKeys()
    reclaim: ReclaimKeys = ReclaimKeys()
    resize: Literal["any_time", "when_stopped"] = "any_time"
    overbook: bool = True
    shrink_floor: Literal["none", "smaller", "larger"] = "none"
    limits: LimitsKeys = LimitsKeys()
