"""Reservations, overrides, the ledger, and the configuration as a whole."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from raysched.api.doors import Base, Caller, DryRun, change
from raysched.api.requests import OverrideIn, ReservationIn, SettingsIn
from raysched.api.views import Applied, Changed, Checked, LedgerRow, Row, Verified

LAST_MS = 2**62  # what fits into a database
router = APIRouter(tags=["books"])


@router.get("/reservations", response_model=list[Row])
def list_reservations(client: Caller) -> Any:
    """Reservations, past ones too, with what they commit now and their history."""
    return client.reservations()


@router.post("/reservations", status_code=201, response_model=Changed)
def reserve(body: ReservationIn, client: Caller, response: Response, base: Base, dry_run: DryRun = False) -> Any:
    """Keep capacity for an owner in a window."""
    if dry_run:
        response.status_code = 200
    return change(client, "reserve", body.model_dump(exclude_none=True), dry_run=dry_run, base=base)


@router.delete("/reservations/{reservation}", response_model=Changed)
def release(reservation: str, client: Caller, base: Base, dry_run: DryRun = False) -> Any:
    """Release a reservation; its history stays."""
    return change(client, "release", {"reservation": reservation}, dry_run=dry_run, base=base)


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
    user: str | None = None,
    share: str | None = None,
    since_ms: Annotated[int | None, Query(ge=0, le=LAST_MS, description="decided at or after")] = None,
    until_ms: Annotated[int | None, Query(ge=0, le=LAST_MS, description="decided before")] = None,
) -> Any:
    """Ledger rows with a version above `after`, in order. Commits and releases name the job alone."""
    return client.ledger(job, after, limit, user=user, share=share, since_ms=since_ms, until_ms=until_ms)


@router.get("/ledger/verify", response_model=Verified)
def verify(client: Caller) -> Any:
    """Decide every stored row again and compare: with the row, and with the books before it. Reads the whole ledger."""
    return client.verify()


@router.get("/check", response_model=Checked)
def check(client: Caller) -> Any:
    """Check every invariant of state and books."""
    return {"broken": client.check()}


@router.post("/apply", response_model=Applied)
def apply(
    body: SettingsIn,
    client: Caller,
    dry_run: DryRun = False,
    prune: Annotated[bool, Query(description="also delete shares that the configuration does not have")] = False,
) -> Any:
    """Make the books say what a configuration says (the keys of its file): every difference, or none of them."""
    return client.apply(body.settings(), dry_run=dry_run, prune=prune)


@router.get("/alerts", response_model=list[Row])
def alerts(client: Caller) -> Any:
    return client.alerts()
