"""Shares, limits and groups: create, change, stop, open, delete, roll back."""

from typing import Annotated, Any

import typer

from raysched.cli.admin.settings import Base, File, Settings, settings
from raysched.cli.change import changed
from raysched.cli.differences import difference_lines
from raysched.cli.output import emit, moment, table
from raysched.cli.session import DryRun, Json, client_of
from raysched.client.client import Row
from raysched.client.errors import BadSpec

shares_app = typer.Typer(help="Create, change, stop, open and delete shares.")
limits_app = typer.Typer(help="Change the limits of users and groups in a share or pool.")
groups_app = typer.Typer(help="Change the members of groups.")
Share = Annotated[str, typer.Argument(metavar="SHARE", show_default=False)]


@shares_app.command("create")
def create(
    context: typer.Context,
    share: Share,
    words: Settings = None,
    file: File = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Create a share: admin shares create nlp 'nominal={train: {gpu: 64}}' weight=80"""
    params = {"name": share, "share": settings(words, file)}
    changed(context, "create_share", params, f"share {share} is there", dry_run, as_json)


@shares_app.command("set")
def set_share(
    context: typer.Context,
    share: Share,
    words: Settings = None,
    file: File = None,
    base: Base = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Replace keys of a share, each as a whole; the others stay."""
    params = {**settings(words, file), "name": share, "base": base}
    changed(context, "set_share", params, f"share {share} is changed", dry_run, as_json)


@shares_app.command("stop")
def stop(
    context: typer.Context, share: Share, base: Base = None, dry_run: DryRun = False, as_json: Json = False
) -> None:
    """Take no new jobs; those present run out."""
    changed(context, "stop_share", {"name": share, "base": base}, f"share {share} is stopped", dry_run, as_json)


@shares_app.command("open")
def open_share(
    context: typer.Context, share: Share, base: Base = None, dry_run: DryRun = False, as_json: Json = False
) -> None:
    """Take new jobs again."""
    changed(context, "open_share", {"name": share, "base": base}, f"share {share} is open", dry_run, as_json)


@shares_app.command("delete")
def delete(
    context: typer.Context, share: Share, base: Base = None, dry_run: DryRun = False, as_json: Json = False
) -> None:
    """Delete a stopped share without unfinished jobs."""
    changed(context, "delete_share", {"name": share, "base": base}, f"share {share} is deleted", dry_run, as_json)


@shares_app.command("history")
def history(context: typer.Context, share: Share, as_json: Json = False) -> None:
    """List every version of a share: when it was changed, by whom, and what."""
    found = client_of(context).share_history(share)
    emit(found, as_json, lambda: table(["VERSION", "AT", "BY", "CHANGED"], _versions(share, found), "no versions"))


@shares_app.command("rollback")
def rollback(
    context: typer.Context,
    share: Share,
    version: Annotated[int, typer.Option(min=1, help="the share as it was at this ledger version", show_default=False)],
    base: Base = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Make a share what it was at a ledger version; this is an ordinary change with all its checks."""
    params = {"name": share, "version": version, "base": base}
    changed(context, "rollback", params, f"share {share} is as it was at version {version}", dry_run, as_json)


def _versions(share: str, found: list[Row]) -> list[list[Any]]:
    rows, before = [], None
    for each in found:
        changes = difference_lines(f"share {share}", before, each["share"])
        what = "; ".join(line.removeprefix(f"share {share}: ") for line in changes)
        if before is None or each["share"] is None:
            what = "deleted" if each["share"] is None else "created"
        rows.append([each["version"], moment(each["at_ms"]), each["by"], what])
        before = each["share"]
    return rows


@limits_app.command("set")
def set_limits(
    context: typer.Context,
    words: Settings = None,
    share: Annotated[str | None, typer.Option(help="limits of this share")] = None,
    pool: Annotated[str | None, typer.Option(help="limits of this pool")] = None,
    file: File = None,
    base: Base = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Replace keys of limits: admin limits set --share nlp enabled=true 'rules=[{user: ana, gpu: 30}]'"""
    if (share is None) == (pool is None):
        raise BadSpec("give either --share or --pool")
    params = {**settings(words, file), "name": share, "pool": pool, "base": base}
    changed(context, "set_limits", params, f"limits of {share or pool} are changed", dry_run, as_json)


@groups_app.command("list")
def list_groups(context: typer.Context, as_json: Json = False) -> None:
    """List groups and their members."""
    rows = client_of(context).groups()
    emit(rows, as_json, lambda: table(["GROUP", "MEMBERS"], ((r["group"], r["members"]) for r in rows), "no groups"))


@groups_app.command("set")
def set_group(
    context: typer.Context,
    group: Annotated[str, typer.Argument(metavar="GROUP", show_default=False)],
    members: Annotated[list[str] | None, typer.Argument(metavar="USER...", show_default=False)] = None,
    base: Base = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Replace the members of a group; without users it becomes empty."""
    params = {"group": group, "members": members or [], "base": base}
    changed(context, "set_group", params, f"group {group} has {len(members or [])} members", dry_run, as_json)
