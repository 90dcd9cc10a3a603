"""`raysched bench fgd`: how full each packing policy gets the openb cluster, next to the published means."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raysched.cli.output import console, print_json, table
from raysched.cli.session import Json
from raysched.client.errors import BadSpec, RayschedError

if TYPE_CHECKING:
    from raysched.sim.fgd.table import Cell, Setting

TRACES_VARIABLE = "RAYSCHED_TRACES"
QUICK = ("default", "cpu250", "gpushare100", "gpuspec33", "multigpu50")  # one of each kind, the extreme ones
QUICK_SEEDS, FULL_SEEDS = 2, 10
OURS, PEER = "raysched", "fgd"

Traces = Annotated[
    Path, typer.Option(metavar="DIR", envvar=TRACES_VARIABLE, help="folder of the traces", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the sub-command."""
    app.command("fgd")(fgd)


def fgd(
    traces: Traces,
    as_json: Json = False,
    full: Annotated[bool, typer.Option("--full", help="all 17 workloads and 10 seeds")] = False,
    workload: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="only these; may be repeated", show_default=False)
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="how many seeds", show_default=False)] = None,
    first_seed: Annotated[int, typer.Option(min=0, help="published: 42 to 51; held out: 52 to 61")] = 42,
    window: Annotated[
        list[int] | None,
        typer.Option(min=2, metavar="PODS", help="also let the queue reorder so many pods", show_default=False),
    ] = None,
    processes: Annotated[int, typer.Option(min=1, help="runs at the same time")] = max(1, os.cpu_count() or 1),
    picture: Annotated[Path | None, typer.Option(help="draw the first workload and seed, to this file")] = None,
) -> None:
    """GPU allocation when 130 % of the capacity has been asked for; published means in brackets."""
    table_of = _needs_numpy()
    names = tuple(workload or (table_of.WORKLOADS if full else QUICK))
    settings = [table_of.Setting(name, policy) for name in names for policy in _policies()]
    reordered = [
        table_of.Setting(name, policy, pods) for name in names for pods in window or () for policy in (PEER, OURS)
    ]
    count = seeds or (FULL_SEEDS if full else QUICK_SEEDS)
    chosen = range(first_seed, first_seed + count)
    found = _run(traces, [*settings, *reordered], chosen, processes)
    if picture is not None:
        from raysched.sim.fgd.picture import draw_curves

        draw_curves(traces, names[0], first_seed, picture)
    if as_json:
        print_json([_row(cell, chosen) for cell in found])
        return
    _show(found, chosen)


def _needs_numpy() -> Any:
    try:
        from raysched.sim.fgd import table as table_of
    except ImportError as error:
        message = f"{error.name} is missing; it comes with the extra `sim`: pip install 'raysched[sim]'"
        raise RayschedError(message, code="MISSING_EXTRA", status=501) from None
    return table_of


def _policies() -> tuple[str, ...]:
    from raysched.sim.fgd.experiment import POLICIES
    from raysched.sim.fgd.live import LIVE

    return (*POLICIES, LIVE)


def _run(traces: Path, settings: "list[Setting]", seeds: range, processes: int) -> "list[Cell]":
    from rich.progress import Progress

    from raysched.sim.fgd.table import cells
    from raysched.sim.traces.reading import TraceError

    found: list[Cell] = []
    try:
        with Progress(console=console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as progress:
            task = progress.add_task("runs", total=len(settings) * len(seeds))
            steps: Iterator[Cell | None] = cells(traces, settings, seeds, processes)
            for step in steps:
                if step is None:
                    progress.advance(task)
                else:
                    found.append(step)
    except TraceError as error:
        raise RayschedError(str(error), code=BadSpec.code, status=422) from None
    return found


def _row(cell: "Cell", seeds: range) -> dict[str, Any]:
    return {
        "workload": cell.setting.workload,
        "policy": cell.setting.policy,
        "window": cell.setting.window,
        "seeds": list(seeds),
        "allocation_percent": [round(value, 4) for value in cell.allocation],
        "mean_percent": round(cell.mean, 4),
        "deviation_percent": round(cell.deviation, 4),
        "published_percent": None if cell.published is None else round(cell.published, 4),
        "seconds_per_run": round(cell.seconds, 3),
        "decisions_per_run": cell.decisions,
    }


def _show(found: "list[Cell]", seeds: range) -> None:
    plain = [cell for cell in found if cell.setting.window == 1]
    by_key = {(cell.setting.workload, cell.setting.policy): cell for cell in plain}
    workloads, policies = list(dict.fromkeys(c.setting.workload for c in plain)), _policies()
    shown = console()
    shown.print(f"GPU allocation in % at 130 % asked, mean of {len(seeds)} seeds from {seeds[0]} (published mean)")
    rows = [[name, *(_cell(by_key[name, p]) for p in policies), _margin(by_key, name)] for name in workloads]
    rows.append(["seconds a run", *(_seconds([by_key[name, p] for name in workloads]) for p in policies), ""])
    shown.print(table(["WORKLOAD", *(p.upper() for p in policies), "OVER PUBLISHED FGD"], rows, "nothing was run"))
    shown.print(f"{OURS.upper()}: our policy under the same rules. LIVE: the placement of a running cluster")
    _show_windows([cell for cell in found if cell.setting.window > 1], by_key)


def _show_windows(found: "list[Cell]", by_key: "dict[tuple[str, str], Cell]") -> None:
    if not found:
        return
    rows = []
    for cell in found:
        gain = cell.mean - by_key[cell.setting.workload, cell.setting.policy].mean
        rows.append(
            [cell.setting.workload, cell.setting.policy, cell.setting.window, f"{cell.mean:.2f}", f"{gain:+.2f}"]
        )
    shown = console()
    shown.print("\nNot the experiment: what a queue adds that may try the largest GPU ask of so many pods first")
    shown.print(table(["WORKLOAD", "POLICY", "PODS", "ALLOCATION", "OVER NO QUEUE"], rows, "-"))


def _cell(cell: "Cell") -> str:
    return f"{cell.mean:.2f}" if cell.published is None else f"{cell.mean:.2f} ({cell.published:.2f})"


def _margin(by_key: "dict[tuple[str, str], Cell]", name: str) -> str:
    peer = by_key[name, PEER].published
    return "-" if peer is None else f"{by_key[name, OURS].mean - peer:+.2f}"


def _seconds(found: "list[Cell]") -> str:
    return f"{sum(cell.seconds for cell in found) / len(found):.2f}"
