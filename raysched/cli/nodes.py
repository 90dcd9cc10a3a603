"""Nodes and pools: `nodes`, `pools`, `cordon`, `uncordon`."""

from typing import Annotated, Any

import typer

from raysched.cli.change import changed
from raysched.cli.output import ago, amounts, emit, table, tree
from raysched.cli.session import DryRun, Json, client_of
from raysched.client.client import Row
from raysched.core import units

Node = Annotated[str, typer.Argument(metavar="NODE", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (nodes, pools, cordon, uncordon):
        app.command()(command)


def nodes(
    context: typer.Context,
    pool: Annotated[str | None, typer.Option(help="only in this pool")] = None,
    as_json: Json = False,
) -> None:
    """List nodes with their health, what is free on them and what runs there."""
    rows = [row for row in client_of(context).nodes() if pool in (None, row.get("pool"))]
    emit(rows, as_json, lambda: _nodes_table(rows))


def pools(context: typer.Context, as_json: Json = False) -> None:
    """List pools."""
    rows = client_of(context).pools()
    emit(rows, as_json, lambda: tree({str(row.get("pool", "-")): row for row in rows}))


def cordon(
    context: typer.Context,
    node: Node,
    reason: Annotated[str, typer.Option(help="why, for those who come later")] = "",
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Place nothing new on a node; what runs there stays."""
    changed(context, "cordon", {"node": node, "reason": reason}, f"{node} is cordoned", dry_run, as_json)


def uncordon(context: typer.Context, node: Node, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Place gangs on a node again."""
    changed(context, "uncordon", {"node": node}, f"{node} is no longer cordoned", dry_run, as_json)


def _nodes_table(rows: list[Row]) -> Any:
    columns = ["NODE", "POOL", "ROLE", "HEALTH", "SPEC", "FREE", "RUNS", "REPORTED", "WHY"]
    return table(columns, (_node_row(row) for row in rows), "no nodes")


def _node_row(row: Row) -> list[Any]:
    health = row["health"] + (f", cordoned ({row['cordoned']})" if row.get("cordoned") else "")
    reported = row.get("last_report_ms")
    since = "-" if reported is None else f"{ago(reported)} ago"
    spec = _spec(row.get("spec") or {}, row.get("measured"))
    free = amounts(row.get("free"))
    return [
        row["node"],
        row.get("pool"),
        row.get("role"),
        health,
        spec,
        free,
        row.get("attempts"),
        since,
        row.get("why"),
    ]


def _spec(spec: Row, measured: bool | None) -> str:
    """`8 H100, 96 cpu, 1Ti memory`; a GPU inventory that nobody measured says so."""
    parts = []
    if spec.get("gpu"):
        parts.append(f"{spec['gpu']} {spec.get('gpu_model') or 'gpu'}" + (" (declared)" if measured is False else ""))
    if spec.get("cpu_milli"):
        parts.append(f"{units.format_amount(units.CPU, spec['cpu_milli'])} cpu")
    if spec.get("memory_bytes"):
        parts.append(f"{units.format_amount(units.MEMORY, spec['memory_bytes'])} memory")
    return ", ".join(parts) or "-"
