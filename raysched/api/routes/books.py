"""Reservations, overrides, the ledger and alerts."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from raysched.api.doors import Caller, DryRun, change
from raysched.api.requests import OverrideIn, ReservationIn
from raysched.api.views import Changed, LedgerRow, Row

router = APIRouter(tags=["books"])


@router.get("/reservations", response_model=list[Row])
def list_reservations(client: Caller) -> Any:
    """Reservations, past ones too, with what they commit now and their history."""
    return client.reservations()


@router.post("/reservations", status_code=201, response_model=Changed)
def reserve(body: ReservationIn, client: Caller, response: Response, dry_run: DryRun = False) -> Any:
    """Keep capacity for an owner in a window."""
    if dry_run:
        response.status_code = 200
    return change(client, "reserve", body.model_dump(exclude_none=True), dry_run=dry_run)


@router.delete("/reservations/{reservation}", response_model=Changed)
def release(reservation: str, client: Caller, dry_run: DryRun = False) -> Any:
    """Release a reservation; its history stays."""
    return change(client, "release", {"reservation": reservation}, dry_run=dry_run)


@router.get("/overrides", response_model=list[Row])
def list_overrides(client: Caller) -> Any:
    return client.overrides()


@router.post("/overrides", status_code=201, response_model=Changed)
def override(body: OverrideIn, client: Caller, response: Response, dry_run: DryRun = False) -> Any:
    """Record an exception. Without authority it blocks instead of admitting."""
    if dry_run:
        response.status_code = 200
    return change(client, "override", body.model_dump(exclude_none=True), dry_run=dry_run)


@router.get("/ledger", response_model=list[LedgerRow])
def ledger(
    client: Caller,
    job: str | None = None,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
) -> Any:
    """Ledger rows with a version above `after`, in order."""
    return client.ledger(job, after, limit)


@router.get("/alerts", response_model=list[Row])
def alerts(client: Caller) -> Any:
    return client.alerts()
