"""`raysched bench core` and `bench restart`: the scheduler itself, without Ray, at sizes nobody runs by hand."""

import tempfile
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from raysched.cli.output import console, print_json, table
from raysched.cli.session import Json

QUICK, FULL = (1_000, 5_000, 10_000), (1_000, 5_000, 10_000, 50_000)
GROWTH = (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
WAITING, PER_NODE = 100_000, 10  # jobs in the queue; beyond 10,000 nodes so many per node
PEERS = "kube-scheduler's gate 810/s, Nomad C1M 3,750/s, Slurm about 500/s by its guide"
GOAL = "goal: 20,000/s in memory, 10,000/s with the ledger on disk, at 5,000 and 10,000 nodes with 100,000 jobs waiting"


def register(app: typer.Typer) -> None:
    """Add the sub-commands."""
    app.command("core")(core)
    app.command("restart")(restart)


def core(
    as_json: Json = False,
    full: Annotated[bool, typer.Option("--full", help="50,000 nodes too")] = False,
    nodes: Annotated[list[int] | None, typer.Option(min=50, help="only this size; may be repeated")] = None,
    growth: Annotated[bool, typer.Option("--growth", help="100 to 100,000 nodes, 1,000 to 1,000,000 jobs")] = False,
    picture: Annotated[Path | None, typer.Option(help="draw how cost grows, to this file")] = None,
) -> None:
    """Decisions per second with limits, borrowing, priorities, records and the ledger on."""
    from raysched.sim.bench_core import Measured, measure_apart

    sizes = tuple(nodes) if nodes else GROWTH if growth else FULL if full else QUICK
    rows: list[Measured] = []
    for size in sizes:
        waiting = size * PER_NODE if growth else max(WAITING, size * PER_NODE)
        rows.append(measure_apart(size, waiting))
        if not growth:
            with tempfile.TemporaryDirectory() as directory:
                rows.append(measure_apart(size, waiting, Path(directory)))
    if picture is not None:
        from raysched.sim.bench_picture import draw_growth

        draw_growth([row for row in rows if row.store == "memory"], picture)
    if as_json:
        print_json([msgspec.to_builtins(row) for row in rows])
        return
    columns = ("NODES", "WAITING", "LEDGER", "ADMITTED", "FILLING/s", "STEADY/s", "TICK p50 ms", "p99 ms")
    shown = [
        (r.nodes, r.waiting, r.store, r.admitted, round(r.filling), round(r.steady), r.tick_p50_ms, r.tick_p99_ms)
        + (r.node_bytes, r.job_bytes)
        for r in rows
    ]
    lines = [[_number(value) for value in row] for row in shown]
    console().print(table((*columns, "BYTES/node", "BYTES/job"), lines, "nothing was run"))
    console().print(f"{GOAL}\npeers, on their own machines: {PEERS}")


def restart(
    as_json: Json = False,
    jobs: Annotated[int, typer.Option(min=1, help="jobs in the journal")] = 100_000,
    running: Annotated[int, typer.Option(min=1, help="of them running")] = 10_000,
) -> None:
    """Seconds from nothing to the first plan, on a journal and a ledger on disk."""
    from raysched.sim.bench_restart import restart as measure

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
