"""The books and how things stand: `ledger`, `records`, `alerts`, `health`."""

import json
from typing import Annotated, Any

import typer

from raysched.cli.output import emit, moment, table, tree
from raysched.cli.session import JobName, Json, client_of
from raysched.client.client import Row
from raysched.core.units import format_amount

_OWN_COLUMNS = frozenset({"type", "at_ms", "job", "attempt"})


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (ledger, records, alerts, health):
        app.command()(command)


def ledger(
    context: typer.Context,
    job: Annotated[str | None, typer.Option(help="only of this job")] = None,
    after: Annotated[int, typer.Option(min=0, help="only versions above this")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="at most so many")] = 100,
    as_json: Json = False,
) -> None:
    """List rows of the ledger."""
    rows = client_of(context).ledger(job, after, limit)
    columns = ["VERSION", "AT", "ENTRY", "JOB", "ATTEMPT", "WHAT"]
    emit(rows, as_json, lambda: table(columns, (_ledger_row(row) for row in rows), "no rows"))


def records(context: typer.Context, job: JobName, as_json: Json = False) -> None:
    """List the admission records of a job: each decision with what it was made from."""
    rows = client_of(context).records(job)
    columns = ["DECIDED", "ADMISSION", "REASON", "SCOPE", "KIND", "LIMIT", "USED", "REMAINING", "FREE", "ASKED"]
    emit(rows, as_json, lambda: table(columns, (_record_row(row) for row in rows), "no records"))


def alerts(context: typer.Context, as_json: Json = False) -> None:
    """List what needs an operator."""
    rows = client_of(context).alerts()
    emit(rows, as_json, lambda: tree(rows) if rows else "no alerts")


def health(context: typer.Context, as_json: Json = False) -> None:
    """Say how the scheduler is doing."""
    found = client_of(context).health()
    emit(found, as_json, lambda: tree(found))


def _ledger_row(row: Row) -> list[Any]:
    entry = row["entry"]
    record = entry.get("record") or {}
    rest = {key: value for key, value in entry.items() if key not in _OWN_COLUMNS and key != "record"}
    what = json.dumps(rest, ensure_ascii=False) if rest else _decision(record)
    at = moment(row.get("at_ms", entry.get("at_ms")))
    return [row["version"], at, entry.get("type"), entry.get("job", record.get("job")), entry.get("attempt"), what]


def _decision(record: Row) -> str | None:
    return ", ".join(record[key] for key in ("admission_state", "reason") if record.get(key)) or None


def _record_row(row: Row) -> list[Any]:
    kind = row.get("kind")
    keys = ("quota_limit", "quota_used", "quota_remaining", "capacity_allocatable", "request_quantity")
    numbers = [None if row.get(key) is None else format_amount(str(kind), row[key]) for key in keys]
    decided = moment(row.get("decided_at_ms"))
    return [decided, row.get("admission_state"), row.get("reason"), row.get("scope"), kind, *numbers]
