"""`raysched sim philly` and `sim tenants`: what sharing does to each share, next to the same jobs without it."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from raysched.cli.output import console, print_json, table
from raysched.cli.session import Json
from raysched.cli.sim_output import Bars, Folder, folder_of, percent, progress, read, span

if TYPE_CHECKING:
    from raysched.sim.outcome import Played
    from raysched.sim.sharing import Comparison, Pair
    from raysched.sim.workloads.workload import Workload

QUICK_JOBS, QUICK_DAYS = 10_000, 21
PROGRESS = 100  # samples, which nobody sees: progress is told with each
QSSF_DAY = 27  # 2017-10-01, from which Helios' experiment with these sizes takes the trace
SHRINKS = (1.0, 4.0)  # the sizes as they are, and so few nodes that the trace loads them
PERCENTILES, FULL_PERCENTILES = (95.0, 50.0), (95.0, 80.0, 50.0)
Sharing = Annotated[
    Literal["fifo_within_priority", "any_fit", "backfill"],
    typer.Option(help="of the queues when shares lend and borrow; with one priority the first two are the same"),
]
COLUMNS = ("GPUS", "JOBS", "LOAD", "MEAN WAIT", "MEDIAN", "P99", "MEAN JCT", "USE", "MAKESPAN", "LATER", "SOONER")
NOTES = """\
Left of each arrow: {before}. Right: {after}.
LOAD: work that comes over what the share owns; USE: what ran over that; both from the first to the last submission of
all. LATER, SOONER: jobs that started more than a second later or sooner with sharing. Nothing is stopped for anybody:
there is no reclaim or preemption yet."""
WHY = {
    "WAITING_RECLAIM": "its quota was on loan, and nothing takes it back before the borrower ends",
    "FRAGMENTED": "enough GPUs were free, but not together on nodes",
    "NO_CAPACITY": "no node had room",
    "no record": "behind a job of its share that asked for the same",
    "NO_LENDER": "it wanted more than its quota, and others had borrowed the rest",
}


def register(app: typer.Typer) -> None:
    """Add the sub-commands."""
    app.command("philly")(philly)
    app.command("tenants")(tenants)


def philly(
    folder: Folder,
    jobs: Annotated[int, typer.Option(min=1, help="so many jobs")] = QUICK_JOBS,
    from_day: Annotated[float, typer.Option(min=0, help="from this day of the trace on")] = QSSF_DAY,
    full: Annotated[bool, typer.Option("--full", help="all jobs of all days")] = False,
    shrink: Annotated[
        list[float] | None,
        typer.Option(min=1, help="divide the nodes of every virtual cluster; may be repeated [default: 1 and 4]"),
    ] = None,
    policy: Sharing = "fifo_within_priority",
    as_json: Json = False,
) -> None:
    """Philly by virtual cluster: strict order of arrival without sharing, against lending and borrowing."""
    from raysched.sim.sharing import compare_philly

    at, found = folder_of("philly", folder), []
    with progress(not as_json) as bars:
        for factor in shrink or SHRINKS:
            found.append(
                read(
                    lambda factor=factor: compare_philly(  # type: ignore[misc]
                        at,
                        jobs=None if full else jobs,
                        from_day=0 if full else from_day,
                        shrink=factor,
                        policy=policy,
                        playing=_Playing(bars),
                    )
                )
            )
    notes = NOTES.format(before="strict_fifo, strategy reserve", after=f"{policy}, lend_and_borrow")
    _tell(found, [f"nodes of philly_vc.csv over {factor:g}" for factor in shrink or SHRINKS], notes, as_json)


def tenants(
    folder: Folder,
    days: Annotated[float, typer.Option(min=0.01, help="of the trace")] = QUICK_DAYS,
    full: Annotated[bool, typer.Option("--full", help="all 60 days, and three sizes of quota")] = False,
    percentile: Annotated[
        list[float] | None,
        typer.Option(min=0, max=100, help="of its demand that a tenant owns; may be repeated [default: 95 and 50]"),
    ] = None,
    policy: Sharing = "fifo_within_priority",
    as_json: Json = False,
) -> None:
    """Ten Microsoft clusters as tenants: each alone on its own quota, against all of them sharing."""
    from raysched.sim.sharing import compare_tenants

    at, found = folder_of("itp", folder), []
    chosen = percentile or (FULL_PERCENTILES if full else PERCENTILES)
    with progress(not as_json) as bars:
        for each in chosen:
            found.append(
                read(
                    lambda each=each: compare_tenants(  # type: ignore[misc]
                        at, days=None if full else days, percentile=each, policy=policy, playing=_Playing(bars)
                    )
                )
            )
    notes = NOTES.format(before="alone on its own nodes", after="all in one cluster, lend_and_borrow")
    quota = "each owns whole nodes for the {:g}th percentile of its concurrent demand, at least for its largest job"
    _tell(found, [quota.format(each) for each in chosen], notes, as_json)


class _Playing:
    """Plays a workload with its progress shown."""

    def __init__(self, bars: Bars) -> None:
        self.bars = bars

    def __call__(self, workload: "Workload") -> "Played":
        from raysched.sim.run import play

        return play(workload, samples=PROGRESS, progress=self.bars.task(workload.name, len(workload.jobs)))


# ── how it is shown ───────────────────────────────────────────────────────────────────────────────────────────────


def _tell(found: "list[Comparison]", titles: list[str], notes: str, as_json: bool) -> None:
    if as_json:
        import msgspec

        print_json(
            [
                {
                    **msgspec.to_builtins(each),
                    "quota": title,
                    "hurt": [pair.share for pair in each.pairs if pair.is_hurt],
                }
                for each, title in zip(found, titles, strict=True)
            ]
        )
        return
    shown = console()
    for each, title in zip(found, titles, strict=True):
        shown.print(f"{each.name}: {title}; {each.gpus:,} GPUs, {each.seconds:.1f} s real time")
        shown.print(table(("SHARE", *COLUMNS), [_row(pair) for pair in (*each.pairs, each.total)], "no jobs"))
        for line in _verdict(each):
            shown.print(line)
        shown.print()
    shown.print(notes)


def _row(pair: "Pair") -> list[Any]:
    before, after = pair.without, pair.sharing
    spans = [
        (before.wait.mean_ms, after.wait.mean_ms),
        (before.wait.median_ms, after.wait.median_ms),
        (before.wait.p99_ms, after.wait.p99_ms),
        (before.jct.mean_ms, after.jct.mean_ms),
    ]
    return [
        pair.share,
        f"{before.gpus:,}",
        f"{before.jobs:,}",
        percent(before.offered_load),
        *(_both(span(left), span(right)) for left, right in spans),
        _both(percent(before.utilisation), percent(after.utilisation)),
        _both(span(before.makespan_ms), span(after.makespan_ms)),
        f"{pair.later:,}",
        f"{pair.sooner:,}",
    ]


def _both(left: str, right: str) -> str:
    return left if left == right else f"{left} → {right}"


def _verdict(found: "Comparison") -> list[str]:
    """Whom sharing hurt, and why the jobs that started later waited."""
    hurt = [pair for pair in found.pairs if pair.is_hurt]
    lines = ["sharing made nobody's mean or 99th percentile of waits longer"] if not hurt else []
    for pair in hurt:
        lines.append(f"sharing hurt {pair.share}: {_reasons(pair)}")
    total = found.total
    if total.later:
        lines.append(f"{total.later:,} of {total.sharing.jobs:,} jobs started later with sharing: {_reasons(total)}")
    if total.sharing.not_played or total.without.not_played:
        counts = _both(f"{total.without.not_played:,}", f"{total.sharing.not_played:,}")
        lines.append(f"not played (too large for their share, or their share has no size) or unfinished: {counts}")
    return lines


def _reasons(pair: "Pair") -> str:
    told = [f"{count:,} {reason} ({WHY.get(reason, 'see explain')})" for reason, count in pair.later_by.items()]
    return "; ".join(told) or "no reason was recorded"
