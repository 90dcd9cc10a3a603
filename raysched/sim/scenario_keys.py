"""The keys of every action of a scenario, as pydantic models; those of expectations are in scenario_expected.py."""

from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from raysched.config.bundles import Bundles
from raysched.config.fields import (
    Duration,
    Name,
    PositiveCount,
    Priority,
    Quantities,
    User,
    Users,
)
from raysched.config.jobs import JobKeys, OverrideKeys, ReservationKeys
from raysched.config.schema import ShareKeys
from raysched.config.sections import Keys, LimitsKeys
from raysched.sim.crash import CrashStep


class GroupKeys(Keys):
    """One entry of `nodes:`, and `add_nodes`."""

    pool: Name
    spec: Name
    count: PositiveCount = 1
    prefix: Name | None = None
    reporting: bool = True


class ScenarioKeys(Keys):
    """The top of the file; the parts are read one by one."""

    scenario: Annotated[str, Field(min_length=1)]
    config: dict[str, Any] | None = None
    config_file: Annotated[str, Field(min_length=1)] | None = None
    nodes: list[GroupKeys] = []
    start: object = "2026-01-01T00:00:00Z"
    timeline: list[Any]


class Acting(Keys):
    """An action that somebody does."""

    by: User | None = None


class SubmitKeys(JobKeys):
    runtime: Duration | None = None
    by: User | None = None


class JobActing(Acting):
    job: Name


class FinishKeys(Keys):
    job: Name
    ok: bool = True


class ResizeKeys(JobActing):
    bundles: Bundles


class SetPriorityKeys(JobActing):
    priority: Priority


class SetCrossPoolKeys(JobActing):
    value: bool


class MoveKeys(JobActing):
    share: Name


class ReportReservedKeys(Acting):
    pool: Name
    amounts: Quantities


class PoolActing(Acting):
    pool: Name


class ShareActing(Acting):
    share: Name


class SetShareKeys(ShareKeys):
    """`set_share`, `create_share`. Of the share's own keys only the names are looked at here: see SERVICE_CHECKS."""

    share: Name
    by: User | None = None


class SetLimitsKeys(LimitsKeys):
    share: Name | None = None
    pool: Name | None = None
    by: User | None = None


class SetGroupKeys(Acting):
    group: Name
    members: Users


class ReserveKeys(ReservationKeys):
    by: User | None = None


class ReleaseKeys(Acting):
    reservation: Name


class OverrideActing(OverrideKeys):
    by: User | None = None


NodeName = Annotated[str, Field(min_length=1)]


class NodeKeys(Keys):
    """`node: "*"` means all."""

    node: NodeName


class FailNodeKeys(NodeKeys):
    signal: Name = "gpu_lost"


class RepairTaskKeys(NodeKeys):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)

    is_open: bool = Field(default=True, alias="open")


class NodeActing(Acting):
    node: NodeName


class CordonKeys(NodeActing):
    reason: str = ""


class RepoolKeys(NodeActing):
    pool: Name


class CrashKeys(Keys):
    step: CrashStep


class NothingKeys(Keys):
    """`restart_scheduler:` takes no keys."""


class ErrorKeys(Keys):
    """`expect_error:`"""

    contains: Annotated[str, Field(min_length=1)]


ACTION_KEYS: Final[dict[str, type[Keys]]] = {
    "submit": SubmitKeys,
    "cancel": JobActing,
    "finish": FinishKeys,
    "resize": ResizeKeys,
    "set_priority": SetPriorityKeys,
    "set_cross_pool": SetCrossPoolKeys,
    "report_reserved": ReportReservedKeys,
    "reconcile": PoolActing,
    "move": MoveKeys,
    "diagnose": SubmitKeys,
    "set_limits": SetLimitsKeys,
    "set_share": SetShareKeys,
    "stop_share": ShareActing,
    "open_share": ShareActing,
    "delete_share": ShareActing,
    "create_share": SetShareKeys,
    "set_group": SetGroupKeys,
    "reserve": ReserveKeys,
    "release": ReleaseKeys,
    "override": OverrideActing,
    "fail_node": FailNodeKeys,
    "recover_node": NodeKeys,
    "silence_node": NodeKeys,
    "repair_task": RepairTaskKeys,
    "add_nodes": GroupKeys,
    "remove_node": NodeActing,
    "cordon": CordonKeys,
    "uncordon": NodeActing,
    "repool_node": RepoolKeys,
    "restart_scheduler": NothingKeys,
    "restart_quota": NothingKeys,
    "crash_at": CrashKeys,
}
SERVICE_CHECKS: Final = ("set_limits", "set_share", "create_share")  # their values are refused by the service itself
