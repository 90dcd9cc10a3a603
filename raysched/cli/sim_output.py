"""What the commands of `raysched sim` have in common: folders of traces, the progress bar, files, tables."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from raysched.cli.output import console, print_json, table
from raysched.client.errors import BadSpec, RayschedError

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from raysched.sim.outcome import Played, Spread
    from raysched.sim.pictures import Format

TRACES_VARIABLE = "RAYSCHED_TRACES"
T = TypeVar("T")

Folder = Annotated[
    Path,
    typer.Argument(metavar="FOLDER", envvar=TRACES_VARIABLE, help="of the trace, or of all traces", show_default=False),
]
Policy = Annotated[
    Literal["strict_fifo", "fifo_within_priority", "any_fit", "backfill"], typer.Option(help="of every share's queue")
]
NOTE = """\
Waits are from submission to the first start, which is 0.3 s after admission; P99 is the element floor(0.99 n). BOUND
of the makespan: no schedule ends sooner; of the mean completion time: every job runs at once; of the utilisation while
jobs come (from the first to the last submission): the offered load, all work over what the GPUs can do in that time."""


def bad_request(message: str) -> RayschedError:
    """An option that does not go with the others."""
    return RayschedError(message, code="BAD_REQUEST", status=422)


def folder_of(kind: str, folder: Path) -> Path:
    """The folder of one trace: the folder given, or the one in it that has the trace's name."""
    from raysched.sim.traces import itp, muri, openb, philly

    inner = folder / {"openb": openb, "philly": philly, "muri": muri, "itp": itp}[kind].FOLDER
    return inner if inner.is_dir() else folder


def shrunk(shrink: float) -> int:
    """`--shrink` for a trace with nodes of its own, of which every so manieth is kept."""
    if shrink % 1:
        raise bad_request(f"--shrink {shrink:g}: openb keeps every so manieth node, so this must be a whole number")
    return int(shrink)


def read(making: Callable[[], T]) -> T:
    """What `making` makes of a trace; a trace that cannot be read becomes an error for people."""
    from raysched.sim.traces.reading import TraceError

    try:
        return making()
    except TraceError as error:
        raise RayschedError(str(error), code=BadSpec.code, status=422) from None


class Bars:
    """Progress of one or several plays; None: nobody watches."""

    def __init__(self, shown: "RichProgress | None") -> None:
        self._shown = shown

    def task(self, name: str, jobs: int) -> Callable[[int, int], None] | None:
        """What a play tells its progress to."""
        shown = self._shown
        if shown is None:
            return None
        task = shown.add_task(name, total=jobs)
        return lambda ended, _: shown.update(task, completed=ended)


@contextmanager
def progress(wanted: bool) -> Iterator[Bars]:
    """Bars on stderr, if that is a terminal and they are wanted."""
    if not wanted or not sys.stderr.isatty():
        yield Bars(None)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("jobs"))
    with Progress(*columns, TimeElapsedColumn(), console=console(stderr=True), transient=True) as shown:
        yield Bars(shown)


def write(played: "Played", out: Path, pictures: "Format | None") -> list[Path]:
    """Write the files of a play, and the pictures if a format is given."""
    from raysched.sim import outcome_files

    draw = None if pictures is None else _drawing()
    try:
        found = list(outcome_files.write(played, out))
        return found if draw is None else [*found, *draw(played, out, pictures)]
    except OSError as error:
        raise RayschedError(f"{out}: cannot be written: {error}", code="BAD_REQUEST", status=422) from None


def _drawing() -> Callable[..., tuple[Path, ...]]:
    try:
        from raysched.sim.pictures import draw
    except ImportError as error:
        message = f"{error.name} is missing; it comes with the extra `sim`: pip install 'raysched[sim]'"
        raise RayschedError(message, code="MISSING_EXTRA", status=501) from None
    return draw


def show(played: "Played", files: list[Path], as_json: bool) -> None:
    """The summary of a play, as JSON or as tables."""
    from raysched.sim.outcome import summary
    from raysched.sim.outcome_files import summary_json

    if as_json:
        print_json({**summary_json(played), "files": [str(file) for file in files]})
        return
    found, shown = summary(played), console()
    ended = ", ".join(f"{count:,} {state}" for state, count in found.ended.items())
    shown.print(f"{found.name}: {found.jobs:,} jobs ({ended}) on {found.gpus:,} GPUs, {found.seconds:.1f} s real time")
    shown.print()
    shown.print(table(("", "", "BOUND"), _against_bounds(found), ""))
    shown.print()
    waits = [[name, *_spread(wait)] for name, wait in [("all", found.wait), *found.waits.items()]]
    shown.print(table(("GPUS OF A JOB", "STARTED", "MEAN WAIT", "MEDIAN", "P99", "LONGEST"), waits, ""))
    shown.print("\n" + "\n".join(_facts(found, summary_json(played)["not_played"])))
    shown.print(NOTE)
    for file in files:
        shown.print(f"wrote {file}")


def _against_bounds(found: Any) -> list[list[str]]:
    return [
        ["makespan", span(found.makespan_ms), span(found.makespan_bound_ms)],
        ["mean completion time", span(found.jct.mean_ms), span(found.jct_bound_ms)],
        ["utilisation while jobs come", percent(found.utilisation_arrival), percent(found.offered_load)],
        ["utilisation to the end", percent(found.utilisation), percent(found.utilisation_bound)],
    ]


def _facts(found: Any, not_played: dict[str, int]) -> list[str]:
    held = ", ".join(f"{reason} {jobs:,}" for reason, jobs in found.held_by.items()) or "none"
    lines = [
        f"jobs that ever waited, by reason: {held}",
        f"on loan: {found.loans_mean_gpus:.1f} GPUs in the mean, at most {found.loans_most_gpus:.1f}; "
        f"free but of no use to typical jobs: {percent(found.fragmented_part)} of the GPUs",
        f"nodes failed: {found.failures}, swapped: {found.swaps}; attempts: {found.attempts:,}; "
        f"GPU time lost: {found.lost_gpu_ms / 3_600_000:,.1f} h",
    ]
    return [*lines, *(f"not played: {count:,}: {reason}" for reason, count in not_played.items())]


def _spread(found: "Spread") -> list[str]:
    spans = (found.mean_ms, found.median_ms, found.p99_ms, found.most_ms)
    return [f"{found.count:,}", *(span(ms) for ms in spans)]


def span(ms: float) -> str:
    """A time for people: seconds with a decimal below a minute."""
    from raysched.core.units import format_duration

    return f"{ms / 1_000:.1f}s" if ms < 60_000 else format_duration(round(ms))


def percent(part: float) -> str:
    """A part of 1."""
    return f"{part * 100:.1f} %"
