"""Nodes and pools: look, cordon, repair, move, remove."""

from typing import Any

from fastapi import APIRouter

from raysched.api.doors import Caller, DryRun, change
from raysched.api.problems import ApiError
from raysched.api.requests import CordonIn, RepairIn, RepoolIn, ReservedIn
from raysched.api.views import Changed, NodeView, Row

router = APIRouter(tags=["nodes"])


@router.get("/nodes", response_model=list[NodeView])
def list_nodes(client: Caller, pool: str | None = None, health: str | None = None) -> Any:
    """Nodes with their health, what is free on them and what runs there."""
    rows = client.nodes()
    return [row for row in rows if pool in (None, row.get("pool")) and health in (None, row["health"])]


@router.get("/nodes/{node}", response_model=NodeView)
def show_node(node: str, client: Caller) -> Any:
    for row in client.nodes():
        if row["node"] == node:
            return row
    raise ApiError(f"there is no node {node!r}", code="UNKNOWN_NODE", status=404)


@router.post("/nodes/{node}/cordon", response_model=Changed)
def cordon(node: str, client: Caller, body: CordonIn | None = None, dry_run: DryRun = False) -> Any:
    """No new gang is placed on the node; what runs there stays."""
    reason = body.reason if body else ""
    return change(client, "cordon", {"node": node, "reason": reason}, dry_run=dry_run)


@router.post("/nodes/{node}/uncordon", response_model=Changed)
def uncordon(node: str, client: Caller, dry_run: DryRun = False) -> Any:
    return change(client, "uncordon", {"node": node}, dry_run=dry_run)


@router.post("/nodes/{node}/repool", response_model=Changed)
def repool(node: str, body: RepoolIn, client: Caller, dry_run: DryRun = False) -> Any:
    """Move a node to another pool."""
    return change(client, "repool_node", {"node": node, "pool": body.pool}, dry_run=dry_run)


@router.post("/nodes/{node}/repair", response_model=Changed)
def repair(node: str, body: RepairIn, client: Caller, dry_run: DryRun = False) -> Any:
    """Open or close a repair task; a node with an open one is bad."""
    return change(client, "repair_task", {"node": node, "open": body.open}, dry_run=dry_run)


@router.delete("/nodes/{node}", response_model=Changed)
def remove(node: str, client: Caller, dry_run: DryRun = False) -> Any:
    """Take a node out for good."""
    return change(client, "remove_node", {"node": node}, dry_run=dry_run)


@router.get("/pools", response_model=list[Row])
def list_pools(client: Caller) -> Any:
    return client.pools()


@router.post("/pools/{pool}/reserved", response_model=Changed)
def report_reserved(pool: str, body: ReservedIn, client: Caller, dry_run: DryRun = False) -> Any:
    """Report the reserved total another book counts; a difference makes the pool's kind disputed."""
    return change(client, "report_reserved", {"pool": pool, "amounts": body.amounts}, dry_run=dry_run)


@router.post("/pools/{pool}/reconcile", response_model=Changed)
def reconcile(pool: str, client: Caller, dry_run: DryRun = False) -> Any:
    """Take our own reservations as right again."""
    return change(client, "reconcile", {"pool": pool}, dry_run=dry_run)
