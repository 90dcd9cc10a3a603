"""`raysched sim …`: whole workloads played under a virtual clock, by the same scheduler as live.

Exit status 1 when a job of the workload never ended."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from raysched.cli import sim_sharing
from raysched.cli.root import REFUSED
from raysched.cli.session import Json
from raysched.cli.sim_output import Folder, Policy, bad_request, folder_of, progress, read, show, shrunk, write

if TYPE_CHECKING:
    from raysched.core.model import QueuePolicy
    from raysched.sim.pictures import Format
    from raysched.sim.workloads.workload import Workload

app = typer.Typer(help="Play workloads, from traces or made up, under a virtual clock.", no_args_is_help=True)

Kind = Literal["openb", "philly", "muri", "itp"]
QUICK = {"openb": None, "philly": 20_000, "muri": None, "itp": 20_000}  # jobs that end in about half a minute
FIRST = {"openb": "default", "muri": "trace1"}

Out = Annotated[Path | None, typer.Option(metavar="DIR", help="write jobs.csv, samples.csv, summary.json here")]
Pictures = Annotated[bool, typer.Option("--pictures", help="draw pictures into --out as well (needs matplotlib)")]
PictureFormat = Annotated[Literal["svg", "png"], typer.Option("--format", help="of the pictures")]
Samples = Annotated[int, typer.Option(min=1, help="looks at the cluster, evenly over the least makespan")]


@app.callback()
def sim() -> None:
    """Play workloads, from traces or made up, under a virtual clock."""


@app.command()
def trace(
    kind: Annotated[Kind, typer.Argument(show_default=False)],
    folder: Folder,
    jobs: Annotated[int | None, typer.Option(min=1, help="only the first so many jobs", show_default=False)] = None,
    full: Annotated[bool, typer.Option("--full", help="all jobs")] = False,
    name: Annotated[
        str | None, typer.Option("--trace", help="which of openb's workloads or Muri's traces", show_default=False)
    ] = None,
    from_day: Annotated[float, typer.Option(min=0, help="leave out what came before (openb, philly)")] = 0,
    shrink: Annotated[
        float, typer.Option(min=1, help="divide the cluster's nodes (openb, philly), so that it is loaded")
    ] = 1,
    policy: Policy = "fifo_within_priority",
    samples: Samples = 400,
    out: Out = None,
    pictures: Pictures = False,
    picture_format: PictureFormat = "svg",
    as_json: Json = False,
) -> None:
    """Play a public trace: openb (Alibaba), philly and itp (Microsoft), muri (Philly as Muri's authors cut it)."""

    if name is not None and kind not in FIRST:
        raise bad_request(f"--trace is for {' and '.join(FIRST)}; {kind} has one trace")
    count = jobs if jobs is not None or full else QUICK[kind]
    found = read(lambda: _traced(kind, folder_of(kind, folder), name, count, from_day, shrink, policy))
    _play(found, samples, out, picture_format if pictures else None, as_json)


@app.command()
def synthetic(
    days: Annotated[float, typer.Option(min=0.01, help="how long jobs come")] = 7,
    nodes: Annotated[int, typer.Option(min=1, help="of 8 GPUs")] = 32,
    standby: Annotated[int, typer.Option(min=0, help="spare nodes")] = 2,
    load: Annotated[float, typer.Option(min=0.01, help="work that comes over what the GPUs can do")] = 0.9,
    failures: Annotated[
        float, typer.Option(min=0, help="mean days between failures of one node; 0: nodes never fail")
    ] = 60,
    repair: Annotated[float, typer.Option(min=0.01, help="mean hours until a node is repaired")] = 6,
    seed: Annotated[int, typer.Option(help="another seed, another workload")] = 1,
    policy: Policy = "fifo_within_priority",
    samples: Samples = 400,
    out: Out = None,
    pictures: Pictures = False,
    picture_format: PictureFormat = "svg",
    as_json: Json = False,
) -> None:
    """Play a made-up cluster: day and week, fractions, gangs, jobs without GPUs, failing nodes and standby."""
    from raysched.sim.workloads import synthetic as maker

    try:
        plan = maker.Plan(
            days=days,
            nodes=nodes,
            standby=standby,
            load=load,
            seed=seed,
            fails_every_days=failures or None,
            repair_hours=repair,
            policy=policy,
        )
    except ValueError as error:
        raise bad_request(str(error)) from None
    _play(maker.workload(plan), samples, out, picture_format if pictures else None, as_json)


sim_sharing.register(app)


def _traced(
    kind: Kind, folder: Path, name: str | None, jobs: int | None, from_day: float, shrink: float, policy: "QueuePolicy"
) -> "Workload":
    from raysched.sim.workloads import itp, muri, openb, philly

    match kind:
        case "openb":
            which = name or FIRST[kind]
            return openb.workload(folder, which, jobs=jobs, from_day=from_day, shrink=shrunk(shrink), policy=policy)
        case "philly":
            return philly.workload(folder, jobs=jobs, from_day=from_day, shrink=shrink, policy=policy)
        case "muri":
            return muri.workload(folder, name or FIRST[kind], jobs=jobs, policy=policy)
        case "itp":
            return itp.workload(folder, jobs=jobs, policy=policy)


def _play(workload: "Workload", samples: int, out: Path | None, pictures: "Format | None", as_json: bool) -> None:
    from raysched.sim.run import play

    if pictures is not None and out is None:
        raise bad_request("--pictures needs --out DIR to write them to")
    if not workload.jobs:
        raise bad_request(f"{workload.name}: no job of the source can be played")
    with progress(not as_json) as bar:
        tell = bar.task(workload.name, len(workload.jobs))
        played = play(workload, samples=samples, progress=tell)
    files = [] if out is None else write(played, out, pictures)
    show(played, files, as_json)
    if any(line.state == "unfinished" for line in played.lines):
        raise typer.Exit(REFUSED)
