"""Quota: `quota`, `shares`, `limits`, `usage`, `loans`."""

from typing import Annotated, Any

import typer

from raysched.cli.output import amounts, emit, moment, table, tree
from raysched.cli.session import Json, client_of
from raysched.client.client import Row
from raysched.core import units

ShareOption = Annotated[str | None, typer.Option(help="only in this share")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (quota, shares, limits, usage, loans):
        app.command()(command)


def quota(
    context: typer.Context,
    share: ShareOption = None,
    user: Annotated[str | None, typer.Option(help="of this user (default: you)")] = None,
    as_json: Json = False,
) -> None:
    """Show what you can still use: idle / limit per kind, `-` where no limit is set."""
    found = client_of(context).quota(user, share)
    emit(found, as_json, lambda: _overview(found))


def shares(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="SHARE", show_default=False)] = None,
    pool: Annotated[str | None, typer.Option(help="only with quota in this pool")] = None,
    workspace: Annotated[str | None, typer.Option(help="only linked to this workspace")] = None,
    as_json: Json = False,
) -> None:
    """List shares with what they use, own, borrow and lend."""
    rows = client_of(context).shares(name, pool, workspace)
    emit(rows, as_json, lambda: _shares_table(rows))


def limits(context: typer.Context, share: str, as_json: Json = False) -> None:
    """Show the limits of users and groups in a share."""
    found = client_of(context).limits(share)
    emit(found, as_json, lambda: tree(found, raw_amounts=False))


def usage(context: typer.Context, as_json: Json = False) -> None:
    """Show what every share and user is charged now."""
    found = client_of(context).usage()
    emit(found, as_json, lambda: tree(found))


def loans(context: typer.Context, as_json: Json = False) -> None:
    """List who borrows what from whom."""
    rows = client_of(context).loans()
    columns = ["BORROWER", "LENDER", "POOL", "AMOUNT", "SINCE", "WHY"]
    emit(rows, as_json, lambda: table(columns, (_loan_row(row) for row in rows), "no loans"))


def _overview(found: list[Row]) -> str:
    if not found:
        return "no limits are set for you, and nothing is in use"
    return tree({row["share"]: row["kinds"] for row in found})


def _shares_table(rows: list[Row]) -> Any:
    columns = [
        "SHARE",
        "STATE",
        "WEIGHT",
        "STRATEGY",
        "QUEUE",
        "USED",
        "OWNED",
        "BORROWED",
        "LENT",
        "RUNNING",
        "QUEUED",
    ]
    return table(columns, (_share_row(row) for row in rows), "no shares")


def _share_row(row: Row) -> list[Any]:
    jobs = row.get("jobs") or {}
    owned = row.get("owned") or row.get("nominal")
    fixed = [row["share"], row.get("state"), row.get("weight"), row.get("strategy"), row.get("queue")]
    sums = [amounts(value) for value in (row.get("used"), owned, row.get("borrowed"), row.get("lent"))]
    return [*fixed, *sums, jobs.get("running"), jobs.get("queued")]


def _loan_row(row: Row) -> list[Any]:
    amount = f"{units.format_amount(row['kind'], row['amount'])} {row['kind']}"
    return [row["borrower"], row["lender"], row.get("pool"), amount, moment(row.get("since_ms")), row.get("why")]
