"""Policies of other systems: read strictly, given back as keys of the configuration, on request made a share's."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query

from raysched.api.doors import Base, Caller, DryRun, change
from raysched.api.problems import ApiError
from raysched.api.requests import SettingsIn
from raysched.api.views import Imported
from raysched.client.client import Client
from raysched.config import ConfigError
from raysched.core.model import NodeSpec
from raysched.importers import aws_quota_share, tione_policy

router = APIRouter(tags=["import"])
Apply = Annotated[bool, Query(description="change the share; without, the keys are only returned")]
Share = Annotated[str | None, Query(description="the share that gets the policy")]


@router.post("/import/tione-policy", response_model=Imported)
def tione(
    body: SettingsIn, client: Caller, base: Base, share: Share = None, apply: Apply = False, dry_run: DryRun = False
) -> Any:
    """Read a TI-ONE policy: preset, priority, queue and preemption of a share."""
    try:
        keys = tione_policy(body.settings())
    except ConfigError as error:
        raise _unreadable(error) from error
    if not apply and not dry_run:
        return {"keys": keys}
    if share is None:
        raise ApiError("share: name the share that gets the policy", code="BAD_REQUEST", status=422)
    return {"keys": keys, "applied": change(client, "set_share", {**keys, "name": share}, dry_run=dry_run, base=base)}


@router.post("/import/aws-quota-share", response_model=Imported)
def aws(
    body: SettingsIn,
    client: Caller,
    base: Base,
    pool: Annotated[str | None, Query(description="where it owns; else the pool called like its queue")] = None,
    apply: Apply = False,
    dry_run: DryRun = False,
) -> Any:
    """Read an AWS quota share: a whole share by its name, its capacity units being node specs."""
    specs = msgspec.convert(client.node_specs(), dict[str, NodeSpec])
    try:
        shares = aws_quota_share(body.settings(), specs, pool)
    except ConfigError as error:
        raise _unreadable(error) from error
    if not apply and not dry_run:
        return {"keys": shares}
    ((name, keys),) = shares.items()
    assert isinstance(keys, dict)
    return {"keys": shares, "applied": _made(client, name, keys, dry_run, base)}


def _made(client: Client, name: str, keys: dict[str, Any], dry_run: bool, base: int | None) -> Any:
    if any(row["share"] == name for row in client.shares(name)):
        return change(client, "set_share", {**keys, "name": name}, dry_run=dry_run, base=base)
    return change(client, "create_share", {"name": name, "share": keys}, dry_run=dry_run)


def _unreadable(error: ConfigError) -> ApiError:
    reasons = "; ".join(f"{each.path}: {each.reason}" if each.path else each.reason for each in error.problems)
    return ApiError(reasons, code="BAD_POLICY", status=422)
