"""What callers send. Quantities and durations are written as in the configuration file; unknown keys are errors."""

import json
from typing import Any, Literal, Self, cast

from pydantic import BaseModel, ConfigDict, Field, model_validator

from raysched.client.spec import JobOptions

Quantity = int | float | str
Duration = int | float | str


class Storable(BaseModel):
    """A body that can be kept: JSON can write half a character and NaN, the books cannot hold them."""

    @model_validator(mode="after")
    def _is_storable(self) -> Self:
        try:
            json.dumps(self.model_dump(), ensure_ascii=False, allow_nan=False).encode()
        except ValueError as error:
            raise ValueError(f"holds text that is not Unicode, or a number that is not finite: {error}") from error
        return self


class Sent(Storable):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class BundleIn(Sent):
    """Resources that must be on one node, `count` times."""

    gpu: Quantity = Field(default=0, examples=[8, 0.5], description="whole, or a part of one GPU")
    cpu: Quantity = Field(default=0, examples=[96, "500m"])
    memory: Quantity = Field(default=0, examples=["512Gi"])
    count: int = Field(default=1, ge=1)
    attach: dict[str, int] = Field(default_factory=dict, examples=[{"disks": 2}])


class JobIn(Sent):
    """A job without what it runs: enough for a diagnosis. The owner is the caller, never a field."""

    share: str
    workspace: str | None = None
    gpu: Quantity | None = None
    cpu: Quantity | None = None
    memory: Quantity | None = None
    count: int | None = Field(default=None, ge=1)
    bundles: list[BundleIn] | None = Field(default=None, min_length=1, description="instead of gpu, cpu, memory, count")
    workload: str | None = Field(default=None, examples=["training"])
    priority: int | str | None = Field(default=None, examples=["P3"], description="P0 is the highest")
    tags: dict[str, str] | None = None
    max_runtime: Duration | None = Field(default=None, examples=["2h"])
    checkpoint_every: Duration | None = None
    grace: Duration | None = None
    name: str | None = Field(default=None, description="the job's id; must be new; made where it is left out")
    model: str | None = Field(default=None, examples=["H100"], description="GPU model")
    pool: str | None = None
    cross_pool: bool | None = None
    confirm: bool | None = None
    retries: int | None = Field(default=None, ge=0)
    reservation: str | None = None
    topology: Literal["preferred", "required"] | None = None

    def options(self) -> JobOptions:
        """The same as the client's options."""
        return cast(JobOptions, self.model_dump(exclude_none=True, include=set(JobIn.model_fields)))


class SubmitIn(JobIn):
    """A command to run. `working_dir` is the digest that `POST /v1/blobs` returned for a zip archive."""

    command: str | list[str] = Field(
        examples=[["python", "train.py"]], description="text is split as a shell would; nothing is expanded"
    )
    working_dir: str | None = None
    env: dict[str, str] | None = None
    runtime_env: dict[str, Any] | None = None


class PriorityIn(Sent):
    priority: int | str = Field(examples=["P1"])


class MoveIn(Sent):
    share: str


class ResizeIn(Sent):
    bundles: list[BundleIn] = Field(min_length=1)


class CrossPoolIn(Sent):
    value: bool


class SettingsIn(Storable):
    """Keys of the configuration file, each replaced as a whole; the scheduler checks them and names a wrong one."""

    model_config = ConfigDict(extra="allow")

    def settings(self) -> dict[str, Any]:
        """What was sent."""
        return self.model_dump()


class ShareIn(SettingsIn):
    """A new share: `name` and the keys of a share in the configuration file."""

    name: str


class RollbackIn(Sent):
    version: int = Field(ge=1, description="the share as it was at this ledger version")


class GroupIn(Sent):
    members: list[str]


class CordonIn(Sent):
    reason: str = ""


class RepoolIn(Sent):
    pool: str


class RepairIn(Sent):
    open: bool


class ReservedIn(Sent):
    """A reserved total that another book counts, by kind as in the configuration file."""

    amounts: dict[str, Quantity]


class OwnerIn(Sent):
    share: str | None = None
    user: str | None = None


class ReservationIn(Sent):
    """Capacity kept for an owner. Neither `expiry` nor `release_condition`: on hold."""

    name: str
    owner: OwnerIn
    pool: str
    amounts: dict[str, Quantity] | None = None
    bundles: list[BundleIn] | None = None
    start: str | None = Field(default=None, examples=["2026-01-01T20:00:00Z"])
    expiry: str | None = None
    release_condition: str | None = None
    reason: str | None = None


class OverrideIn(Sent):
    """A recorded exception: raises the limit of a user or share by `amounts`, until `until` or `for` so long."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, serialize_by_alias=True)

    user: str | None = None
    share: str | None = None
    pool: str | None = None
    amounts: dict[str, Quantity]
    start: str | None = None
    until: str | None = Field(default=None, examples=["2026-01-02T00:00:00Z"])
    lasts: Duration | None = Field(default=None, alias="for", examples=["1d"])
    reason: str
    authority: str | None = None
