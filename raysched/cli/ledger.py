"""The ledger: its rows, the decisions on a job with all they were made from, and whether every row still agrees."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from raysched.cli.output import emit, moment, table, text
from raysched.cli.session import JobName, Json, client_of
from raysched.client.client import Row
from raysched.client.errors import RayschedError
from raysched.core.units import format_amount

if TYPE_CHECKING:
    from raysched.store.ledger_store import LedgerStore

app = typer.Typer(help="Look into the ledger, and decide its rows again.", no_args_is_help=True)
_OWN_COLUMNS = frozenset({"type", "at_ms", "job", "attempt"})
_WORDS = ("reservation_lifecycle", "contention_state", "admission_state", "override_authority", "evidence")
_AMOUNTS = ("quota_limit", "quota_used", "quota_remaining", "capacity_allocatable", "reserved_by_others")
MOST = 10_000


@app.command()
def rows(
    context: typer.Context,
    job: Annotated[str | None, typer.Option(help="only of this job")] = None,
    after: Annotated[int, typer.Option(min=0, help="only versions above this")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="at most so many")] = 100,
    as_json: Json = False,
) -> None:
    """List rows of the ledger."""
    found = client_of(context).ledger(job, after, limit)
    columns = ["VERSION", "AT", "ENTRY", "JOB", "ATTEMPT", "WHAT"]
    emit(found, as_json, lambda: table(columns, (_row(row) for row in found), "no rows"))


@app.command()
def show(context: typer.Context, job: JobName, as_json: Json = False) -> None:
    """Show every decision on a job with all that it was made from."""
    found = [row for row in client_of(context).ledger(job, 0, MOST) if row["entry"].get("record")]
    told = [{"version": row["version"], **row["entry"]["record"]} for row in found]
    emit(told, as_json, lambda: "\n\n".join(map(_decision, told)) or f"no decisions on {job}")


@app.command()
def verify(
    context: typer.Context,
    store: Annotated[
        str | None, typer.Option(help="a ledger's database (URL, or a SQLite file), read without the cluster")
    ] = None,
    as_json: Json = False,
) -> int:
    """Decide every row again and compare: with the row, and with the books before it. Exit status 1 if any differs."""
    found = client_of(context).verify() if store is None else _verified(store)
    wrong = bool(found["disagreements"] or found.get("chain"))
    emit(found, as_json, lambda: "\n".join(_verdict(found)))
    return 1 if wrong else 0


# ── a store without its cluster ───────────────────────────────────────────────────────────────────────────────────


def _verified(store: str) -> Row:
    from raysched.store.errors import CorruptStore, StoreFailed
    from raysched.store.ledger_store import LedgerStore

    try:
        table = LedgerStore(store if "://" in store else f"sqlite:///{Path(store).absolute()}", writer=False)
        try:
            return {**_decided(table), "chain": table.verify_chain()}
        finally:
            table.close()
    except (StoreFailed, CorruptStore) as failed:
        raise RayschedError(str(failed), code="STORE_FAILED", status=503) from failed


def _decided(table: "LedgerStore") -> Row:
    """Every row up to the first that cannot be read: what follows it cannot be judged."""
    from raysched.core.verify import Verifier
    from raysched.store.errors import CorruptStore

    verifier, rows, most, unread = Verifier(), 0, MOST, []
    while True:
        try:
            page = table.read(rows, most)
        except CorruptStore as corrupt:
            bad = corrupt.row or rows + 1
            unread = [{"version": bad, "job": None, "what": f"cannot be read: {corrupt}"}]
            most = bad - 1 - rows
            page = table.read(rows, most) if most else []
        for rows, entry in page:
            verifier.entry(rows, entry)
        if not page or unread:
            break
    told = [msgspec.to_builtins(each) for each in verifier.found] + unread
    counts = {"rows": rows, "decided": verifier.decided, "compared": verifier.compared}
    return {**counts, "disagreements": told}


def _verdict(found: Row) -> list[str]:
    counts = f"{found['rows']} rows, {found['decided']} decisions decided again"
    lines = [f"{counts}, {found['compared']} compared with the books before them"]
    for each in found["disagreements"]:
        lines.append(
            f"version {each['version']}" + (f", job {each['job']}" if each["job"] else "") + f": {each['what']}"
        )
    if "chain" in found:
        broken = ", ".join(map(str, found["chain"]))
        lines.append(f"not what was appended: version {broken}" if broken else "the chain of digests is whole")
    return [*lines, "all rows agree"] if not found["disagreements"] and not found.get("chain") else lines


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
