"""`raysched import`: policies of other systems as keys of the configuration, printed as YAML or applied."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml

from raysched.cli.change import changed
from raysched.cli.files import checked
from raysched.cli.output import emit
from raysched.cli.session import DryRun, Json, client_of
from raysched.client.errors import BadSpec
from raysched.core.model import NodeSpec

app = typer.Typer(help="Read policies of other systems.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(metavar="FILE", show_default=False)]
Apply = Annotated[bool, typer.Option("--apply", help="change the share; without, the keys are only printed")]


@app.command("tione-policy")
def tione(
    context: typer.Context,
    file: File,
    share: Annotated[str | None, typer.Option(help="the share that gets the policy", show_default=False)] = None,
    apply: Apply = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Read a TI-ONE policy (JSON): preset, priority, queue and preemption of a share."""
    from raysched.importers import read_json, tione_policy

    keys = checked(lambda: tione_policy(read_json(file), str(file)), as_json, "BAD_POLICY")
    if not apply and not dry_run:
        _print(keys if share is None else {share: keys}, as_json)
        return
    if share is None:
        raise BadSpec("give the share that gets the policy: --share NAME")
    changed(context, "set_share", {**keys, "name": share}, f"share {share} is changed", dry_run, as_json)


@app.command("aws-quota-share")
def aws(
    context: typer.Context,
    file: File,
    pool: Annotated[str | None, typer.Option(help="where it owns (default: the pool called like its queue)")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="where the node specs stand (default: the running cluster)")
    ] = None,
    apply: Apply = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Read an AWS quota share (JSON): a whole share, its capacity units being node specs."""
    from raysched.importers import aws_quota_share, read_json

    data = checked(lambda: read_json(file), as_json, "BAD_POLICY")
    specs = _specs(context, config, as_json)
    shares = checked(lambda: aws_quota_share(data, specs, pool, str(file)), as_json, "BAD_POLICY")
    if not apply and not dry_run:
        _print(shares, as_json)
        return
    ((name, keys),) = shares.items()
    assert isinstance(keys, dict)
    if any(row["share"] == name for row in client_of(context).shares(name)):
        changed(context, "set_share", {**keys, "name": name}, f"share {name} is changed", dry_run, as_json)
    else:
        changed(context, "create_share", {"name": name, "share": keys}, f"share {name} is there", dry_run, as_json)


def _specs(context: typer.Context, config: Path | None, as_json: bool) -> dict[str, NodeSpec]:
    if config is None:
        return msgspec.convert(client_of(context).node_specs(), dict[str, NodeSpec])
    from raysched.config import load_config

    path = config
    return dict(checked(lambda: load_config(path), as_json, "BAD_CONFIG").node_specs)


def _print(keys: Any, as_json: bool) -> None:
    emit(keys, as_json, lambda: yaml.safe_dump(keys, sort_keys=False, allow_unicode=True).rstrip())
