"""`raysched bench ledger`: rows posted, size on disk, questions, verifying, archiving."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from raysched.cli.output import console, print_json, table
from raysched.cli.session import Json
from raysched.client.errors import RayschedError

if TYPE_CHECKING:
    from raysched.sim.bench_ledger import Measured

QUICK, FULL = 200_000, 10_000_000


def register(app: typer.Typer) -> None:
    """Add the sub-command."""
    app.command("ledger")(ledger)


def ledger(
    as_json: Json = False,
    full: Annotated[bool, typer.Option("--full", help=f"{FULL:,} rows; about 40 minutes")] = False,
    rows: Annotated[int | None, typer.Option(min=50_000, help="so many rows")] = None,
    folder: Annotated[Path | None, typer.Option(help="an existing folder on the disk to be measured")] = None,
) -> None:
    """Post rows to a ledger on disk, ask it, verify it, archive three quarters of a year and verify again."""
    from raysched.sim.bench_ledger import NoRoom, measure

    screen = console(stderr=True)
    with tempfile.TemporaryDirectory(dir=folder) as directory, screen.status("beginning") as status:
        try:
            found = measure(rows or (FULL if full else QUICK), Path(directory), status.update)
        except NoRoom as problem:
            raise RayschedError(str(problem), code="NO_ROOM", status=507) from problem
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        _show(found)


def _show(found: "Measured") -> None:
    shown = console()
    posts = [
        (each.batch, f"{each.commit_ms:.2f}", f"{each.rows_per_s:,.0f}", f"{each.plain_commit_ms:.2f}")
        + (f"{each.plain_rows_per_s:,.0f}",)
        for each in found.posts
    ]
    heads = ("ROWS PER POST", "COMMIT ms", "ROWS/s", "PLAIN SQLITE ms", "ROWS/s")
    shown.print(table(heads, posts, "nothing was posted"))
    asked = [(q.about, f"{q.rows:,}", f"{q.median_ms:.2f}", f"{q.worst_ms:.2f}") for q in found.questions]
    shown.print(table(("\nQUESTION", "\nROWS", "\nMEDIAN ms", "\nWORST ms"), asked, "nothing was asked"))
    shown.print(table(("\nWHAT", "\nFIGURE"), _facts(found), "nothing was measured"))
    shown.print("plain SQLite: the sqlite3 module, payloads of the same size, the same durability, no index, no chain")


def _facts(found: "Measured") -> list[tuple[str, str]]:
    million = found.rows / 1_000_000
    return [
        ("rows", f"{found.rows:,}"),
        ("posted by thousands", f"{found.fill_s:,.1f} s"),
        ("on disk", f"{_mib(found.store_bytes)}, {found.store_bytes // found.rows} bytes a row"),
        ("of it JSON", f"{found.payload_bytes} bytes a row"),
        ("chain verified", f"{found.chain_s:,.1f} s, {found.chain_s / million:,.1f} s per million rows"),
        ("quota actor starts in", f"{found.restart_s:,.1f} s"),
        ("rows archived", f"{found.archived_rows:,} in {found.archive_s:,.1f} s"),
        ("archive", f"{_mib(found.archive_bytes)}, {found.archive_bytes // found.archived_rows} bytes a row"),
        ("on disk then", _mib(found.store_after_bytes)),
        ("quota actor starts in", f"{found.restart_after_s:,.1f} s"),
        ("archive and ledger verified", f"{found.verify_s:,.1f} s, {found.verify_s / million:,.1f} s per million rows"),
        ("memory, most", f"{found.memory_mib:,} MiB"),
    ]


def _mib(size: int) -> str:
    return f"{size / (1 << 20):,.0f} MiB"
