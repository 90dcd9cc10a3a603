"""`raysched ledger verify` and `ledger archive`: what is done with a ledger's database and its archives as files."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from raysched.cli.output import console, emit
from raysched.cli.session import Json, client_of
from raysched.cli.times import past_ms
from raysched.client.client import Row
from raysched.client.errors import RayschedError

Store = Annotated[str, typer.Option(help="the ledger's database: a URL, or a SQLite file")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(verify)
    app.command()(archive)


def verify(
    context: typer.Context,
    store: Annotated[
        str | None, typer.Option(help="a ledger's database (URL, or a SQLite file), read without the cluster")
    ] = None,
    archives: Annotated[
        list[Path] | None, typer.Option("--archive", help="an archive of older rows; may be repeated")
    ] = None,
    as_json: Json = False,
) -> int:
    """Decide every row again and compare: with the row, and with the books before it. Exit status 1 if any differs."""
    if store is None and not archives:
        found = dict(client_of(context).verify())
    else:
        found = _audited(store, archives or [])
    wrong = bool(found["disagreements"] or found.get("chain"))
    emit(found, as_json, lambda: "\n".join(_verdict(found)))
    return 1 if wrong else 0


def archive(
    store: Store,
    to: Annotated[Path, typer.Option(help="the archive's file, by custom *.jsonl.gz")],
    before: Annotated[
        str | None, typer.Option(help="rows decided before this: 2026-01-01T00:00:00Z, or an age such as 90d")
    ] = None,
    version: Annotated[int | None, typer.Option(min=1, help="rows up to this version")] = None,
    as_json: Json = False,
) -> None:
    """Move the oldest rows into a file, with what is needed to verify them and to go on without them.

    The cluster may go on meanwhile. Nothing leaves the ledger before the file is durable and each row of it was decided
    again; broken off, the same command goes on. Claims, reservations, limits and shares stay, as books."""
    from raysched.store.archiving import archive as move
    from raysched.store.errors import CorruptStore, SchemaTooNew, StoreFailed

    if (before is None) == (version is None):
        raise RayschedError("say either --before or --version", code="BAD_REQUEST", status=422)
    before_ms = None if before is None else past_ms(before)
    try:
        with console(stderr=True).status("opening the ledger") as status:
            done = move(_url(store), to, version, before_ms, status.update)
    except (StoreFailed, CorruptStore, SchemaTooNew, OSError) as failed:
        raise RayschedError(str(failed), code="STORE_FAILED", status=503) from failed
    emit(msgspec.to_builtins(done), as_json, lambda: "\n".join(_done(msgspec.to_builtins(done), to)))


def _url(store: str) -> str:
    return store if "://" in store else f"sqlite:///{Path(store).absolute()}"


def _audited(store: str | None, archives: list[Path]) -> Row:
    from raysched.store.audit import audit
    from raysched.store.errors import CorruptStore, SchemaTooNew, StoreFailed
    from raysched.store.ledger_store import LedgerStore

    try:
        table = None if store is None else LedgerStore(_url(store), writer=False)
        try:
            found = msgspec.to_builtins(audit(table, archives))
        finally:
            if table is not None:
                table.close()
    except (StoreFailed, CorruptStore, SchemaTooNew) as failed:
        raise RayschedError(str(failed), code="STORE_FAILED", status=503) from failed
    chain = found.pop("chain")
    return found if chain is None else {**found, "chain": chain}


def _verdict(found: Row) -> list[str]:
    counts = f"{found['rows']} rows, {found['decided']} decisions decided again"
    lines = [f"{counts}, {found['compared']} compared with the books before them"]
    if found.get("archived"):
        lines.append(f"rows up to version {found['archived']} are archived and were not looked at (--archive FILE)")
    for each in found["disagreements"]:
        lines.append(": ".join([*_where(each), each["what"]]))
    if "chain" in found:
        broken = ", ".join(map(str, found["chain"]))
        lines.append(f"not what was appended: version {broken}" if broken else "the chain of digests is whole")
    return [*lines, "all rows agree"] if not found["disagreements"] and not found.get("chain") else lines


def _where(each: Row) -> list[str]:
    if each["version"] is None:
        return []
    return [f"version {each['version']}" + (f", job {each['job']}" if each["job"] else "")]


def _done(done: dict[str, Any], file: Path) -> list[str]:
    lines = [f"rows {done['first']} to {done['last']} are in {file} ({done['archive_bytes'] / 2**20:,.1f} MiB)"]
    if done["after_bytes"] is not None:
        before, after = done["before_bytes"] / 2**20, done["after_bytes"] / 2**20
        lines.append(f"the ledger's file had {before:,.1f} MiB, has {after:,.1f} MiB")
    if done["kept_pages"]:
        lines.append("it was made by an older raysched and keeps its size: room that became free is used for new rows")
    return [*lines, "keep the archive: `raysched ledger verify --store … --archive …` verifies both together"]
