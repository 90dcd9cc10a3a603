"""Shares, limits, groups, usage, loans and the personal overview."""

from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Response

from raysched.api.doors import Base, Caller, DryRun, change
from raysched.api.problems import ApiError
from raysched.api.requests import GroupIn, RollbackIn, SettingsIn, ShareIn
from raysched.api.views import Changed, Loan, Row, ShareVersion, ShareView, Usage

router = APIRouter(tags=["shares"])


@router.get("/shares", response_model=list[ShareView])
def list_shares(client: Caller, name: str | None = None, pool: str | None = None, workspace: str | None = None) -> Any:
    """Shares with what they use, own, borrow and lend per kind."""
    return client.shares(name, pool, workspace)


@router.post("/shares", status_code=201, response_model=Changed)
def create_share(body: ShareIn, client: Caller, response: Response, dry_run: DryRun = False) -> Any:
    settings = body.settings()
    name = settings.pop("name")
    if dry_run:
        response.status_code = 200
    else:
        response.headers["Location"] = f"/v1/shares/{quote(name, safe='')}"
    return change(client, "create_share", {"name": name, "share": settings}, dry_run=dry_run)


@router.get("/shares/{share}", response_model=ShareView)
def show_share(share: str, client: Caller, response: Response) -> Any:
    """One share. Its ETag, sent back as If-Match, keeps an edit from undoing somebody else's."""
    found = [row for row in client.shares(share) if row["share"] == share]
    if not found:
        raise ApiError(f"there is no share {share!r}", code="UNKNOWN_SHARE", status=404)
    if "version" in found[0]:
        response.headers["ETag"] = f'"{found[0]["version"]}"'
    return found[0]


@router.patch("/shares/{share}", response_model=Changed)
def set_share(share: str, body: SettingsIn, client: Caller, base: Base, dry_run: DryRun = False) -> Any:
    """Replace the named keys of a share, each as a whole; the others stay."""
    return change(client, "set_share", {**body.settings(), "name": share}, dry_run=dry_run, base=base)


@router.delete("/shares/{share}", response_model=Changed)
def delete_share(share: str, client: Caller, base: Base, dry_run: DryRun = False) -> Any:
    """Delete a stopped share without unfinished jobs; its quota goes back to the pool."""
    return change(client, "delete_share", {"name": share}, dry_run=dry_run, base=base)


@router.post("/shares/{share}/stop", response_model=Changed)
def stop_share(share: str, client: Caller, base: Base, dry_run: DryRun = False) -> Any:
    """No new jobs; those present run out."""
    return change(client, "stop_share", {"name": share}, dry_run=dry_run, base=base)


@router.post("/shares/{share}/open", response_model=Changed)
def open_share(share: str, client: Caller, base: Base, dry_run: DryRun = False) -> Any:
    return change(client, "open_share", {"name": share}, dry_run=dry_run, base=base)


@router.get("/shares/{share}/history", response_model=list[ShareVersion])
def history(share: str, client: Caller) -> Any:
    """Every version of a share, oldest first."""
    return client.share_history(share)


@router.post("/shares/{share}/rollback", response_model=Changed)
def rollback(share: str, body: RollbackIn, client: Caller, base: Base, dry_run: DryRun = False) -> Any:
    """Make a share what it was at a ledger version; an ordinary change with all its checks."""
    return change(client, "rollback", {"name": share, "version": body.version}, dry_run=dry_run, base=base)


@router.get("/shares/{share}/limits", response_model=Row)
def show_limits(share: str, client: Caller, response: Response) -> Any:
    """The limits of a share; their ETag is that of the share."""
    found = client.limits(share)
    if "version" in found:
        response.headers["ETag"] = f'"{found["version"]}"'
    return found


@router.patch("/shares/{share}/limits", response_model=Changed)
def set_share_limits(share: str, body: SettingsIn, client: Caller, base: Base, dry_run: DryRun = False) -> Any:
    """Replace the named keys of a share's limits: enabled, resolve, on_exceed, default, rules."""
    return change(client, "set_limits", {**body.settings(), "name": share}, dry_run=dry_run, base=base)


@router.get("/pools/{pool}/limits", response_model=Row)
def show_pool_limits(pool: str, client: Caller, response: Response) -> Any:
    """The limits of a pool. Their ETag, sent back as If-Match, keeps an edit from undoing somebody else's."""
    found = client.limits(pool=pool)
    if "version" in found:
        response.headers["ETag"] = f'"{found["version"]}"'
    return found


@router.patch("/pools/{pool}/limits", response_model=Changed)
def set_pool_limits(pool: str, body: SettingsIn, client: Caller, base: Base, dry_run: DryRun = False) -> Any:
    """Replace the named keys of a pool's limits."""
    return change(client, "set_limits", {**body.settings(), "pool": pool}, dry_run=dry_run, base=base)


@router.get("/groups", response_model=list[Row])
def list_groups(client: Caller) -> Any:
    return client.groups()


@router.put("/groups/{group}", response_model=Changed)
def set_group(group: str, body: GroupIn, client: Caller, base: Base, dry_run: DryRun = False) -> Any:
    """Replace the members of a group."""
    return change(client, "set_group", {"group": group, "members": body.members}, dry_run=dry_run, base=base)


@router.get("/usage", response_model=Usage)
def usage(client: Caller) -> Any:
    """What every share and user is charged now."""
    return client.usage()


@router.get("/loans", response_model=list[Loan])
def loans(client: Caller) -> Any:
    """Who borrows what from whom."""
    return client.loans()


@router.get("/quota", response_model=list[Row])
def quota(client: Caller, user: str | None = None, share: str | None = None) -> Any:
    """The personal overview, of the caller where no user is named: used, idle and limit per kind and share."""
    return client.quota(user, share)
