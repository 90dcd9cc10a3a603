"""Reservations and overrides: list, make, release."""

from typing import Annotated

import typer

from raysched.cli.admin.settings import Base, amounts_of
from raysched.cli.change import changed
from raysched.cli.job_options import bundle
from raysched.cli.output import emit, tree
from raysched.cli.session import DryRun, Json, client_of
from raysched.client.errors import BadSpec

reservations_app = typer.Typer(help="Keep capacity for an owner in a window.")
overrides_app = typer.Typer(help="Record exceptions that raise a limit for a while.")
Share = Annotated[str | None, typer.Option(help="the share it is for")]
User = Annotated[str | None, typer.Option(help="the user it is for")]
Amounts = Annotated[list[str] | None, typer.Argument(metavar="KIND=AMOUNT...", show_default=False)]


@reservations_app.command("list")
def list_reservations(context: typer.Context, as_json: Json = False) -> None:
    """List reservations, past ones too."""
    rows = client_of(context).reservations()
    emit(
        rows,
        as_json,
        lambda: tree({str(row.get("reservation", "-")): row for row in rows}) if rows else "no reservations",
    )


@reservations_app.command("create")
def reserve(
    context: typer.Context,
    name: Annotated[str, typer.Argument(show_default=False)],
    pool: Annotated[str, typer.Option(help="where", show_default=False)],
    amounts: Amounts = None,
    share: Share = None,
    user: User = None,
    bundles: Annotated[list[str] | None, typer.Option("--bundle", metavar="gpu=8,count=2")] = None,
    start: Annotated[str | None, typer.Option(help="ISO 8601 with zone (default: now)")] = None,
    expiry: Annotated[str | None, typer.Option(help="ISO 8601 with zone")] = None,
    release_condition: Annotated[str | None, typer.Option(help="what ends it, where no time does")] = None,
    reason: Annotated[str | None, typer.Option(help="why")] = None,
    base: Base = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Reserve: admin reservations create night gpu=32 --pool train --share nlp --expiry 2026-01-02T06:00:00Z"""
    if not amounts and not bundles:
        raise BadSpec("nothing to reserve: give KIND=AMOUNT words or --bundle")
    params = {
        "name": name,
        "owner": _owner(share, user),
        "pool": pool,
        "amounts": amounts_of(amounts) if amounts else None,
        "bundles": [bundle(word) for word in bundles] if bundles else None,
        "start": start,
        "expiry": expiry,
        "release_condition": release_condition,
        "reason": reason,
        "base": base,
    }
    changed(context, "reserve", params, f"reservation {name} is made", dry_run, as_json)


@reservations_app.command("release")
def release(
    context: typer.Context,
    name: Annotated[str, typer.Argument(show_default=False)],
    base: Base = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Release a reservation; its history stays."""
    changed(
        context, "release", {"reservation": name, "base": base}, f"reservation {name} is released", dry_run, as_json
    )


@overrides_app.command("list")
def list_overrides(context: typer.Context, as_json: Json = False) -> None:
    """List overrides, past ones too."""
    rows = client_of(context).overrides()
    emit(rows, as_json, lambda: tree({str(row.get("override", "-")): row for row in rows}) if rows else "no overrides")


@overrides_app.command("create")
def override(
    context: typer.Context,
    amounts: Annotated[list[str], typer.Argument(metavar="KIND=AMOUNT...", show_default=False)],
    reason: Annotated[str, typer.Option(help="why", show_default=False)],
    until: Annotated[str | None, typer.Option(help="ISO 8601 with zone")] = None,
    lasts: Annotated[str | None, typer.Option("--for", help="how long, instead of --until: 1d")] = None,
    authority: Annotated[str | None, typer.Option(help="who allowed it; without, it blocks")] = None,
    share: Share = None,
    user: User = None,
    pool: Annotated[str | None, typer.Option(help="only in this pool")] = None,
    start: Annotated[str | None, typer.Option(help="ISO 8601 with zone (default: now)")] = None,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Raise a limit: admin overrides create gpu=2 --share c --until 2026-01-02T00:00:00Z --reason demo"""
    owner = _owner(share, user)
    if (until is None) == (lasts is None):
        raise BadSpec("give either --until or --for")
    asked = {"amounts": amounts_of(amounts), "until": until, "for": lasts, "reason": reason, "authority": authority}
    params = {**owner, "pool": pool, "start": start, **asked}
    changed(context, "override", params, f"override for {share or user} is recorded", dry_run, as_json)


def _owner(share: str | None, user: str | None) -> dict[str, str]:
    if share is not None and user is None:
        return {"share": share}
    if user is not None and share is None:
        return {"user": user}
    raise BadSpec("give either --share or --user")
