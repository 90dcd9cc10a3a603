"""`raysched bench kueue`: Kueue's three generators on the real scheduler, next to their bounds and Kueue's figures.

Exit status 1 when a workload did not end."""

import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from raysched.cli.output import console, print_json, table
from raysched.cli.root import REFUSED
from raysched.cli.session import Json

if TYPE_CHECKING:
    from raysched.sim.kueue.generators import Generator
    from raysched.sim.kueue.run import Played

Which = Literal["baseline", "large-scale", "tas", "all"]
QUICK = {"baseline": (5, 6), "large-scale": (2, 100), "tas": (1, 6)}  # cohorts, queues in each: about a minute in all
NOTES = """\
Virtual spans count from the first arrival. BOUND: all work at the whole quota; OVER: the makespan over it. WITH
ARRIVALS: no schedule ends sooner, because little has come in the first moments. REAL s is everything from the first
arrival on: service, plan, books, journal and ledger on disk (STORE s of it), fold, simulated cluster. Every commit
waits for the disk; BARE SYNC is one fdatasync of a page there.
Kueue's figures are means of its CI, in real time on its machines and with its API server: its waits hold the time of
its decisions, ours are virtual and hold none. raysched has no preemption yet: a large workload stops no smaller one.
Priorities 200, 100, 50 became 0, 1, 2. Without topology one node holds all quotas. Required and preferred racks are
raysched's own; balanced does not exist here: such a gang is kept in one rack, which is stricter."""


def register(app: typer.Typer) -> None:
    """Add the sub-command."""
    app.command("kueue")(kueue)


def kueue(
    generator: Annotated[Which, typer.Option(help="which of the three")] = "all",
    full: Annotated[bool, typer.Option("--full", help="all cohorts and queues, as in Kueue's files")] = False,
    as_json: Json = False,
) -> None:
    """Makespan against its bound, admissions per second of real time with durable books, and waits by class."""
    from raysched.sim.kueue.generators import GENERATORS

    names = list(GENERATORS) if generator == "all" else [generator]
    found = _run([GENERATORS[name] if full else GENERATORS[name].reduced(*QUICK[name]) for name in names])
    if as_json:
        print_json([_row(each) for each in found])
    else:
        _show(found)
    if any(each.ended < each.workloads for each in found):
        raise typer.Exit(REFUSED)


def _run(generators: "list[Generator]") -> "list[Played]":
    from rich.progress import track

    found = []
    shown = console(stderr=True)
    # A process for each, so that the peak of memory is its own.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        for each in track(generators, "generators", console=shown, transient=True, disable=not sys.stderr.isatty()):
            found.append(pool.submit(_play, each).result())
    return found


def _play(generator: "Generator") -> "Played":
    from raysched.sim.kueue.run import Play

    with tempfile.TemporaryDirectory() as directory:
        return Play(generator, Path(directory)).run()


# ── how it is shown ───────────────────────────────────────────────────────────────────────────────────────────────


def _row(played: "Played") -> dict[str, Any]:
    import msgspec

    from raysched.sim.kueue.generators import GENERATORS
    from raysched.sim.kueue.published import PUBLISHED

    published = PUBLISHED[played.generator]
    full = GENERATORS[played.generator].workloads
    return {
        **msgspec.to_builtins(played),
        "is_full": played.workloads == full,
        "over_percent": round((played.makespan_ms / played.bound_ms - 1) * 100, 1),
        "per_second": round(played.per_second, 1),
        "kueue": {**msgspec.to_builtins(published), "per_second": round(full / published.wall_s, 1)},
    }


def _show(found: "list[Played]") -> None:
    rows = [_row(each) for each in found]
    shown = console()
    shown.print(table(_SPANS, [_span(row) for row in rows], "nothing was run"))
    shown.print()
    shown.print(table(_RATES, [_rate(row) for row in rows], "nothing was run"))
    shown.print()
    shown.print(table(_WAITS, [_wait(row, wait) for row in rows for wait in row["waits"]], "nothing has ended"))
    shown.print("\n" + NOTES)
    if not all(row["is_full"] for row in rows):
        shown.print("Fewer cohorts or queues than Kueue's files have; each queue's load is the same. --full runs all.")


_SPANS = ("GENERATOR", "QUEUES", "WORKLOADS", "ENDED", "MAKESPAN s", "BOUND s", "OVER", "WITH ARRIVALS s", "KUEUE s")
_RATES = (
    "GENERATOR",
    "ADMISSIONS/s",
    "KUEUE/s",
    "REAL s",
    "STORE s",
    "COMMITS",
    "BARE SYNC ms",
    "ROWS",
    "CLAIMS A POST",
    "PEAK MiB",
)
_WAITS = ("GENERATOR", "CLASS", "COUNT", "MEAN WAIT s", "P99 s", "KUEUE MEAN s", "KUEUE AT MOST s")


def _span(row: dict[str, Any]) -> list[Any]:
    virtual = [f"{row[key] / 1_000:.2f}" for key in ("makespan_ms", "bound_ms", "late_bound_ms")]
    counts = [f"{row[key]:,}" for key in ("queues", "workloads", "ended")]
    over = f"{row['over_percent']:+.1f} %"
    return [row["generator"], *counts, *virtual[:2], over, virtual[2], f"{row['kueue']['wall_s']:,.1f}"]


def _rate(row: dict[str, Any]) -> list[Any]:
    claims = f"{row['mean_claims']:.1f}, at most {row['most_claims']:,}"
    seconds = [f"{row[key]:.1f}" for key in ("seconds", "store_seconds")]
    peak = f"{row['peak_bytes'] / (1 << 20):,.0f}"
    rates = [f"{row['per_second']:,.0f}", row["kueue"]["per_second"]]
    commits = [f"{row['commits']:,}", f"{row['sync_ms']:.2f}", f"{row['rows']:,}"]
    return [row["generator"], *rates, *seconds, *commits, claims, peak]


def _wait(row: dict[str, Any], wait: dict[str, Any]) -> list[Any]:
    kueue = [row["kueue"][key].get(wait["name"]) for key in ("mean_ms", "most_ms")]
    spans = [wait["mean_ms"], wait["p99_ms"], *kueue]
    return [
        row["generator"],
        wait["name"],
        f"{wait['count']:,}",
        *(None if ms is None else f"{ms / 1_000:,.1f}" for ms in spans),
    ]
