"""The ledger: its rows, the decisions on a job with all they were made from, and whether every row still agrees."""

import json
from typing import Annotated, Any

import typer

from raysched.cli import ledger_store
from raysched.cli.output import emit, moment, table, text
from raysched.cli.session import JobName, Json, client_of
from raysched.cli.times import past_ms
from raysched.client.client import Row
from raysched.core.units import format_amount

app = typer.Typer(help="Look into the ledger, and decide its rows again.", no_args_is_help=True)
_OWN_COLUMNS = frozenset({"type", "at_ms", "job", "attempt"})
_WORDS = ("reservation_lifecycle", "contention_state", "admission_state", "override_authority", "evidence")
_AMOUNTS = ("quota_limit", "quota_used", "quota_remaining", "capacity_allocatable", "reserved_by_others")
MOST = 10_000


@app.command()
def rows(
    context: typer.Context,
    job: Annotated[str | None, typer.Option(help="only of this job")] = None,
    user: Annotated[str | None, typer.Option(help="only decisions on jobs of this user")] = None,
    share: Annotated[str | None, typer.Option(help="only what names this share")] = None,
    since: Annotated[str | None, typer.Option(help="2026-01-01T00:00:00Z, or an age such as 30d")] = None,
    until: Annotated[str | None, typer.Option(help="only before this")] = None,
    after: Annotated[int, typer.Option(min=0, help="only versions above this")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="at most so many")] = 100,
    as_json: Json = False,
) -> None:
    """List rows of the ledger."""
    since_ms, until_ms = (None if given is None else past_ms(given) for given in (since, until))
    about = {"user": user, "share": share}
    found = client_of(context).ledger(job, after, limit, **about, since_ms=since_ms, until_ms=until_ms)
    columns = ["VERSION", "AT", "ENTRY", "JOB", "ATTEMPT", "WHAT"]
    emit(found, as_json, lambda: table(columns, (_row(row) for row in found), "no rows"))


@app.command()
def show(context: typer.Context, job: JobName, as_json: Json = False) -> None:
    """Show every decision on a job with all that it was made from."""
    found = [row for row in client_of(context).ledger(job, 0, MOST) if row["entry"].get("record")]
    told = [{"version": row["version"], **row["entry"]["record"]} for row in found]
    emit(told, as_json, lambda: "\n\n".join(map(_decision, told)) or f"no decisions on {job}")


ledger_store.register(app)


# ── how rows and decisions are shown ──────────────────────────────────────────────────────────────────────────────


def _row(row: Row) -> list[Any]:
    entry = row["entry"]
    record = entry.get("record") or {}
    rest = {key: value for key, value in entry.items() if key not in _OWN_COLUMNS and key != "record"}
    what = json.dumps(rest, ensure_ascii=False) if rest else _verdict_of(record)
    at = moment(row.get("at_ms", entry.get("at_ms")))
    return [row["version"], at, entry.get("type"), entry.get("job", record.get("job")), entry.get("attempt"), what]


def _verdict_of(record: Row) -> str | None:
    return ", ".join(record[key] for key in ("admission_state", "reason") if record.get(key)) or None


def _decision(record: Row) -> str:
    kind = str(record["kind"])
    refused = f": {', '.join(record['refused'])}" if record.get("refused") else ""
    lines = [f"version {record['version']}: attempt {record['attempt']}: {_verdict_of(record)}{refused}"]
    fields: Row = {"decided_at": moment(record.get("decided_at_ms")), "scope": record["scope"], "resource_kind": kind}
    fields |= {key: _amount(kind, record.get(key)) for key in _AMOUNTS}
    fields["request_quantity"] = _amount(kind, record.get("request_quantity"))
    fields |= {key: record.get(key) for key in _WORDS}
    fields |= {"evidence_ref": record.get("evidence_ref"), "reservation": record.get("reservation")}
    fields["bundles"] = f"{record['bundles_fit']} of {record['bundles_asked']} fit"
    lines += [f"  {key}: {text(value)}" for key, value in fields.items()]
    lines += [f"  ceiling {_ceiling(*row)}" for row in record.get("quota_rows") or []]
    return "\n".join([*lines, *(f"  nodes {_nodes(*row)}" for row in record.get("capacity_rows") or [])])


def _ceiling(
    scope: str, kind: str, limit: int, used: int, asked: int, reason: str, override: int = 0, unauthorised: int = 0
) -> str:
    more = f", override {format_amount(kind, override)}" if override else ""
    more += f", {format_amount(kind, unauthorised)} without authority" if unauthorised else ""
    numbers = f"{format_amount(kind, used)} of {format_amount(kind, limit)} {kind} used{more}"
    verdict = reason if asked > limit - used + override else "fits"
    return f"{scope}: {numbers}, asked {format_amount(kind, asked)}: {verdict}"


def _nodes(kind: str, free: int | None, reserved: int, on_hold: int, asked: int) -> str:
    held = f" ({format_amount(kind, on_hold)} of it on hold)" if on_hold else ""
    numbers = (
        f"{_amount(kind, free) or 'unknown'} {kind} free, {format_amount(kind, reserved)} reserved by others{held}"
    )
    return f"{numbers}, asked {format_amount(kind, asked)}"


def _amount(kind: str, amount: int | None) -> str | None:
    return None if amount is None else format_amount(kind, amount)
