"""`raysched bench muri`: completion times of the event simulator next to Muri's printed digits.

Exit status 1 when a printed digit differs."""

import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raysched.cli.bench_fgd import Traces
from raysched.cli.output import console, print_json, table
from raysched.cli.root import REFUSED
from raysched.cli.session import Json
from raysched.client.errors import BadSpec, RayschedError

if TYPE_CHECKING:
    from raysched.sim.muri import Completion

QUICK = ("trace3", "trace1")


def register(app: typer.Typer) -> None:
    """Add the sub-command."""
    app.command("muri")(muri)


def muri(
    traces: Traces,
    as_json: Json = False,
    full: Annotated[bool, typer.Option("--full", help="all eight traces")] = False,
    trace: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="only these; may be repeated", show_default=False)
    ] = None,
) -> None:
    """Average and 99th percentile of completion times and makespan under SRTF and SRSF; printed values in brackets."""
    from raysched.sim.muri import ORDERS
    from raysched.sim.muri_published import TRACES

    asked = [(name, order) for name in trace or (TRACES if full else QUICK) for order in ORDERS]
    found = _run(traces, asked)
    if as_json:
        print_json(found)
    else:
        console().print(table(_COLUMNS, [_shown(row) for row in found], "nothing was run"))
    if any(row["differs"] for row in found):
        raise typer.Exit(REFUSED)


_COLUMNS = ("TRACE", "ORDER", "JOBS", "AVERAGE s", "P99 s", "MAKESPAN s", "TOOK s", "DIGITS")
_VALUES = ("average_s", "p99_s", "makespan_s")


def _run(traces: Path, asked: list[tuple[str, str]]) -> list[dict[str, Any]]:
    from rich.progress import track

    from raysched.sim.muri import ORDERS, completion
    from raysched.sim.traces import muri as reader
    from raysched.sim.traces.reading import TraceError

    try:
        jobs = {name: reader.read_jobs(traces / reader.FOLDER, name) for name, _ in asked}
    except TraceError as error:
        raise RayschedError(str(error), code=BadSpec.code, status=422) from None
    found: list[dict[str, Any]] = []
    quiet = not sys.stderr.isatty()
    for name, order in track(asked, "traces", console=console(stderr=True), transient=True, disable=quiet):
        start = perf_counter()
        result = completion(jobs[name], ORDERS[order])
        found.append(_row(name, order, result, perf_counter() - start))
    return found


def _row(name: str, order: str, result: "Completion", seconds: float) -> dict[str, Any]:
    from raysched.sim.muri_published import PRINTED

    printed = PRINTED.get((name, order))
    values = {key: getattr(result, key) for key in _VALUES}
    return {
        "trace": name,
        "order": order,
        "jobs": result.jobs,
        **values,
        "printed": None if printed is None else {key: float(getattr(printed, key)) for key in _VALUES},
        "differs": [] if printed is None else list(printed.differences(**values)),
        "seconds": round(seconds, 3),
    }


def _shown(row: dict[str, Any]) -> list[Any]:
    printed = row["printed"]
    cells = [f"{row[key]:,.0f}" + ("" if printed is None else f" ({printed[key]:,.0f})") for key in _VALUES]
    if printed is None:
        digits = "not printed"
    else:
        digits = "differ: " + ", ".join(row["differs"]) if row["differs"] else "all the same"
    return [row["trace"], row["order"], row["jobs"], *cells, f"{row['seconds']:.2f}", digits]
