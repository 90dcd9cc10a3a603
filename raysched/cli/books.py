"""How things stand: `records`, `alerts`, `health`, `check`."""

from typing import Any

import typer

from raysched.cli.output import emit, moment, table, tree
from raysched.cli.session import JobName, Json, client_of
from raysched.client.client import Row
from raysched.core.units import format_amount


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (records, alerts, health, check):
        app.command()(command)


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


def check(context: typer.Context, as_json: Json = False) -> int:
    """Check every invariant of state and books. Exit status 1 when one does not hold."""
    broken = client_of(context).check()
    emit({"broken": broken}, as_json, lambda: "\n".join(broken) or "all sound")
    return 1 if broken else 0


def _record_row(row: Row) -> list[Any]:
    kind = row.get("kind")
    keys = ("quota_limit", "quota_used", "quota_remaining", "capacity_allocatable", "request_quantity")
    numbers = [None if row.get(key) is None else format_amount(str(kind), row[key]) for key in keys]
    decided = moment(row.get("decided_at_ms"))
    return [decided, row.get("admission_state"), row.get("reason"), row.get("scope"), kind, *numbers]
