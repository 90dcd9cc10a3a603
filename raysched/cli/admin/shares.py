"""Shares, limits and groups: create, change, stop, open, delete."""

from typing import Annotated

import typer

from raysched.cli.admin.settings import Base, File, Settings, settings
from raysched.cli.change import changed
from raysched.cli.output import emit, table
from raysched.cli.session import DryRun, Json, client_of
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
def stop(context: typer.Context, share: Share, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Take no new jobs; those present run out."""
    changed(context, "stop_share", {"name": share}, f"share {share} is stopped", dry_run, as_json)


@shares_app.command("open")
def open_share(context: typer.Context, share: Share, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Take new jobs again."""
    changed(context, "open_share", {"name": share}, f"share {share} is open", dry_run, as_json)


@shares_app.command("delete")
def delete(
    context: typer.Context, share: Share, base: Base = None, dry_run: DryRun = False, as_json: Json = False
) -> None:
    """Delete a stopped share without unfinished jobs."""
    changed(context, "delete_share", {"name": share, "base": base}, f"share {share} is deleted", dry_run, as_json)


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
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Replace the members of a group; without users it becomes empty."""
    params = {"group": group, "members": members or []}
    changed(context, "set_group", params, f"group {group} has {len(members or [])} members", dry_run, as_json)
