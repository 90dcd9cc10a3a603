"""`raysched bench core` and `bench restart`: the scheduler itself, without Ray, at sizes nobody runs by hand."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from raysched.cli.output import console, print_json, table
from raysched.cli.session import Json

QUICK, FULL = (1_000, 5_000), (1_000, 5_000, 10_000, 50_000)
PEERS = "kube-scheduler's gate 810/s, Nomad C1M 3,750/s, Slurm about 500/s by its guide"


def register(app: typer.Typer) -> None:
    """Add the sub-commands."""
    app.command("core")(core)
    app.command("restart")(restart)


def core(
    as_json: Json = False,
    full: Annotated[bool, typer.Option("--full", help="up to 50,000 nodes")] = False,
    nodes: Annotated[list[int] | None, typer.Option(min=50, help="only this size; may be repeated")] = None,
    disk: Annotated[bool, typer.Option("--disk", help="keep the ledger on disk")] = False,
) -> None:
    """Decisions per second with limits, borrowing, records and the ledger on; 20 jobs wait per node."""
    from raysched.sim.bench_core import measure

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        for size in nodes or (FULL if full else QUICK):
            found = measure(size, size * 20, ticks=6, directory=Path(directory) if disk else None)
            rows.append({**msgspec.to_builtins(found), "per_second": round(found.per_second)})
    if as_json:
        print_json(rows)
        return
    columns = ("NODES", "WAITING", "LEDGER", "DECISIONS", "PER SECOND", "P99 TICK ms")
    keys = ("nodes", "pending", "store", "decisions", "per_second", "tick_p99_ms")
    console().print(table(columns, [[_number(row[key]) for key in keys] for row in rows], "nothing was run"))
    console().print(f"peers, on their own machines: {PEERS}")


def restart(
    as_json: Json = False,
    jobs: Annotated[int, typer.Option(min=1, help="jobs in the journal")] = 100_000,
    running: Annotated[int, typer.Option(min=1, help="of them running")] = 10_000,
) -> None:
    """Seconds from nothing to the first plan, on a journal and a ledger on disk."""
    from raysched.sim.bench_core import restart as measure

    with tempfile.TemporaryDirectory() as directory:
        found = msgspec.to_builtins(measure(jobs, running, Path(directory)))
    if as_json:
        print_json(found)
        return
    columns = tuple(key.upper().replace("_", " ") for key in found)
    console().print(table(columns, [[_number(value) for value in found.values()]], "nothing was run"))
    console().print("peer, on its own machine: YuniKorn 8 min at 5,000 nodes; our goal is 10 s")


def _number(value: Any) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
