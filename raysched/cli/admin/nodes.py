"""Nodes and pools: remove, move, repair; what another book says is reserved."""

from typing import Annotated

import typer

from raysched.cli.admin.settings import amounts_of
from raysched.cli.change import changed
from raysched.cli.session import DryRun, Json

nodes_app = typer.Typer(help="Remove nodes, move them between pools, open and close repair tasks.")
pools_app = typer.Typer(help="Compare the reserved totals of pools with another book.")
Node = Annotated[str, typer.Argument(metavar="NODE", show_default=False)]
Pool = Annotated[str, typer.Argument(metavar="POOL", show_default=False)]


@nodes_app.command("remove")
def remove(context: typer.Context, node: Node, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Take a node out for good."""
    changed(context, "remove_node", {"node": node}, f"{node} is removed", dry_run, as_json)


@nodes_app.command("repool")
def repool(context: typer.Context, node: Node, pool: Pool, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Move a node to another pool."""
    changed(context, "repool_node", {"node": node, "pool": pool}, f"{node} is in {pool}", dry_run, as_json)


@nodes_app.command("repair")
def repair(
    context: typer.Context,
    node: Node,
    open_task: Annotated[bool, typer.Option("--open/--close", help="open or close the repair task")] = True,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Open or close a repair task; a node with an open one is bad."""
    done = f"repair task of {node} is {'open' if open_task else 'closed'}"
    changed(context, "repair_task", {"node": node, "open": open_task}, done, dry_run, as_json)


@pools_app.command("report")
def report(
    context: typer.Context,
    pool: Pool,
    amounts: Annotated[list[str], typer.Argument(metavar="KIND=AMOUNT...", show_default=False)],
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Report the reserved total another book counts."""
    params = {"pool": pool, "amounts": amounts_of(amounts)}
    changed(context, "report_reserved", params, f"{pool}: reserved total is reported", dry_run, as_json)


@pools_app.command("reconcile")
def reconcile(context: typer.Context, pool: Pool, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Take our own reservations as right again."""
    changed(context, "reconcile", {"pool": pool}, f"{pool} is reconciled", dry_run, as_json)
