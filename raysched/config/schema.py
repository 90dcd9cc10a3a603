"""The keys of the cluster configuration file, as pydantic models: what may stand where, and how each is read."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainValidator, model_validator

from raysched.config.fields import (
    Count,
    Cpu,
    Duration,
    Memory,
    Name,
    PositiveCount,
    PositiveDuration,
    PresetName,
    Texts,
    Users,
    Workloads,
    located,
    raise_all,
    read_amounts,
)
from raysched.config.sections import Keys, SettingKeys
from raysched.core.model import NodeSpec, Settings
from raysched.core.units import CPU, GPU, MEMORY, MODEL_PREFIX, Amounts

_BUILT_IN = Settings()
FENCE_AFTER_MS = 45_000  # an agent without an answer for this long kills its attempts (semantics 9.3a)
FENCE_MARGIN_MS = _BUILT_IN.fence_wait_ms - FENCE_AFTER_MS  # the scheduler waits this much longer: lost answers, pauses


class DefaultsKeys(Keys):
    """`defaults:`"""

    preset: PresetName = "none"
    evidence_max_age: PositiveDuration = _BUILT_IN.evidence_max_age_ms
    silent_after: PositiveDuration = _BUILT_IN.silent_after_ms
    failed_after: PositiveDuration = _BUILT_IN.failed_after_ms
    healthy_after: PositiveDuration = _BUILT_IN.healthy_after_ms
    validate_for: Duration = _BUILT_IN.validate_for_ms
    fence_after: PositiveDuration = FENCE_AFTER_MS
    fence_wait: PositiveDuration | None = None
    reservation_horizon: PositiveDuration = _BUILT_IN.reservation_horizon_ms
    max_creating: PositiveCount = _BUILT_IN.max_creating
    swaps_in_flight: PositiveCount = _BUILT_IN.swaps_in_flight

    @model_validator(mode="after")
    def _fence_in_order(self) -> "DefaultsKeys":
        if self.fence_wait is not None and self.fence_wait <= self.fence_after:
            reason = f"must be longer than fence_after ({self.fence_after} ms), got {self.fence_wait} ms"
            raise_all([located(("fence_wait",), reason, self.fence_wait)])
        return self

    def settings(self) -> Settings:
        """The cluster-wide numbers, without the names that stand at the top of the file."""
        wait = self.fence_after + FENCE_MARGIN_MS if self.fence_wait is None else self.fence_wait
        return Settings(
            evidence_max_age_ms=self.evidence_max_age,
            silent_after_ms=self.silent_after,
            failed_after_ms=self.failed_after,
            healthy_after_ms=self.healthy_after,
            validate_for_ms=self.validate_for,
            fence_wait_ms=wait,
            reservation_horizon_ms=self.reservation_horizon,
            max_creating=self.max_creating,
            swaps_in_flight=self.swaps_in_flight,
        )


def _attachable(name: str) -> str:
    if name in (GPU, CPU, MEMORY) or name.startswith(MODEL_PREFIX):
        raise ValueError(f"{name} is a key of its own, not an attachable")
    return name


Attachable = Annotated[Name, AfterValidator(_attachable)]


class NodeSpecKeys(Keys):
    """One entry of `node_specs:`"""

    gpu: Annotated[int, Field(ge=0, le=1024)] = 0
    gpu_model: Name | None = None
    cpu: Cpu = 0
    memory: Memory = 0
    attach: dict[Attachable, Count] = {}

    @model_validator(mode="after")
    def _is_a_node(self) -> "NodeSpecKeys":
        if self.gpu_model is not None and not self.gpu:
            raise_all([located(("gpu_model",), "is given, but gpu is 0", self.gpu_model)])
        if not self.gpu and not self.cpu:
            raise ValueError("a node needs a gpu or a cpu")
        return self

    def spec(self) -> NodeSpec:
        return NodeSpec(self.gpu, self.gpu_model, self.cpu, self.memory, self.attach)


class PlacementKeys(Keys):
    """`placement:` of a pool. Semantics 6.1 has one rule; the keys say so and leave room for another."""

    gpu: Literal["pack"] = "pack"
    cpu: Literal["spread"] = "spread"


class SizeKeys(Keys):
    """Nominal as an instance size times a count."""

    size: str
    count: PositiveCount


def _nominal(given: object) -> SizeKeys | Amounts:
    if isinstance(given, dict) and ("size" in given or "count" in given):
        return SizeKeys.model_validate(given)
    return read_amounts(given)


class PoolKeys(SettingKeys):
    """One entry of `pools:`"""

    region: Name = "default"
    match: dict[str, str] = {}
    role: Literal["normal", "standby"] = "normal"
    placement: PlacementKeys = PlacementKeys()


class ShareKeys(SettingKeys):
    """One entry of `shares:`"""

    description: Annotated[str, Field(max_length=4000)] = ""
    cohort: Name = "main"
    nominal: dict[Name, Annotated[SizeKeys | Amounts, PlainValidator(_nominal)]]
    workloads: Workloads = []
    workspaces: Texts = []
    admins: Users = []
    weight: Annotated[int, Field(ge=1, le=100)] | None = None
    state: Literal["open", "stopped"] = "open"


class LocalNodesKeys(Keys):
    """One entry of `local_nodes:`: nodes that `raysched up` starts on this machine, as in a scenario."""

    pool: Name
    spec: Name
    count: PositiveCount = 1
    prefix: str | None = None


class CohortKeys(Keys):
    """One entry of `cohorts:`; nothing can be set on one yet."""


class ClusterKeys(Keys):
    """The whole file."""

    version: Literal[1]
    cluster: Name = _BUILT_IN.cluster
    defaults: DefaultsKeys = DefaultsKeys()
    authorities: Texts | None = None
    admins: Users = []
    node_specs: dict[Name, NodeSpecKeys] = {}
    pools: Annotated[dict[Name, PoolKeys], Field(min_length=1)]
    groups: dict[Name, Users] = {}
    cohorts: dict[Name, CohortKeys] = {}
    shares: dict[Name, ShareKeys] = {}
    local_nodes: list[LocalNodesKeys] = []
