"""Sharing against not sharing: the same jobs played both ways, share by share.

Philly: every virtual cluster keeps to what it owns, in strict order of arrival; against lending and borrowing. Tenants:
each of ten clusters alone on its own quota; against all of them in one cluster of the same size."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from raysched.core.model import QueuePolicy, ShareId
from raysched.core.units import GPU, MILLI
from raysched.sim.outcome import JobLine, Played, Spread, spread
from raysched.sim.run import play
from raysched.sim.workloads import itp, philly
from raysched.sim.workloads.workload import Workload, bounds

ALL: Final = ShareId("all")
UNRECORDED: Final = "no record"  # stood behind a job of its share that asked for the same, and was not looked at
NOTABLE_MS: Final = 1_000  # starts differ by some tenths of a second for no reason that matters
SHARING: Final[QueuePolicy] = "fifo_within_priority"

Playing = Callable[[Workload], Played]


class ShareResult(Struct, frozen=True):
    """How one share fared. `gpus` is what it owns, utilisation is of that, from the first to the last submission of all
    shares; the makespan counts from its own first submission."""

    share: ShareId
    gpus: int
    jobs: int
    not_played: int
    offered_load: float
    wait: Spread
    jct: Spread
    utilisation: float
    makespan_ms: int


class Pair(Struct, frozen=True):
    """One share without sharing and with it. `later` and `sooner`: jobs that started more than a second later or sooner
    with sharing; `later_by`: why those that started later waited, when they shared."""

    share: ShareId
    without: ShareResult
    sharing: ShareResult
    later: int
    sooner: int
    later_by: dict[str, int]

    @property
    def is_hurt(self) -> bool:
        """Whether sharing made the mean or the 99th percentile of its waits longer, by more than a second."""
        without, sharing = self.without.wait, self.sharing.wait
        return sharing.mean_ms > without.mean_ms + NOTABLE_MS or sharing.p99_ms > without.p99_ms + NOTABLE_MS


class Comparison(Struct, frozen=True):
    """The same jobs both ways: each share, and all together. `seconds` of real time."""

    name: str
    gpus: int
    pairs: tuple[Pair, ...]
    total: Pair
    seconds: float


def compare_philly(
    folder: Path,
    *,
    jobs: int | None = None,
    from_day: float = 0,
    shrink: float = 1,
    policy: QueuePolicy = SHARING,
    playing: Playing = play,
) -> Comparison:
    """Strict order of arrival without sharing, against lending and borrowing under `policy`. Raises TraceError."""
    made = partial(philly.workload, folder, jobs=jobs, from_day=from_day, shrink=shrink)
    without = playing(made(policy="strict_fifo", strategy="reserve"))
    shared = made(policy=policy, strategy="lend_and_borrow")
    return _compared(shared.name, shared, [without], playing(shared))


def compare_tenants(
    folder: Path,
    *,
    days: float | None = None,
    percentile: float = itp.PERCENTILE,
    policy: QueuePolicy = SHARING,
    playing: Playing = play,
) -> Comparison:
    """Each ITP cluster alone on its own quota, against all in one cluster under the same policy. Raises TraceError."""
    return compare_alone(itp.workload(folder, days=days, percentile=percentile, policy=policy), policy, playing)


def compare_alone(shared: Workload, policy: QueuePolicy = SHARING, playing: Playing = play) -> Comparison:
    """Each share of a workload alone in a cluster as large as what it owns, against all of them together."""
    shares = [share.share for share in shared.config.shares]
    without = [playing(itp.alone(shared, share, policy)) for share in shares]
    return _compared(shared.name, shared, without, playing(shared))


# ── both ways next to each other ──────────────────────────────────────────────────────────────────────────────────


def _compared(name: str, workload: Workload, without: Sequence[Played], sharing: Played) -> Comparison:
    owned = {
        share.share: sum(amounts.get(GPU, 0) for amounts in share.nominal.values()) // MILLI
        for share in workload.config.shares
    }
    before = [line for played in without for line in played.lines]
    pairs = [_pair(share, gpus, workload, before, sharing.lines) for share, gpus in sorted(owned.items())]
    return Comparison(
        name=name,
        gpus=workload.gpus,
        pairs=tuple(pair for pair in pairs if pair.sharing.jobs or pair.sharing.not_played),
        total=_pair(ALL, sum(owned.values()), workload, before, sharing.lines),
        seconds=sum(played.seconds for played in (*without, sharing)),
    )


def _pair(share: ShareId, gpus: int, workload: Workload, before: Iterable[JobLine], after: Iterable[JobLine]) -> Pair:
    mine = [[line for line in lines if share in (ALL, line.share)] for lines in (before, after)]
    starts = {line.job: line.start_ms for line in mine[0]}
    later = sooner = 0
    reasons: Counter[str] = Counter()
    for line in mine[1]:
        start_ms = starts.get(line.job)
        if start_ms is None or line.start_ms is None:
            continue
        if line.start_ms > start_ms + NOTABLE_MS:
            later += 1
            reasons.update(line.held_by or (UNRECORDED,))
        elif line.start_ms < start_ms - NOTABLE_MS:
            sooner += 1
    without, sharing = (_result(share, gpus, workload, lines) for lines in mine)
    return Pair(share, without, sharing, later, sooner, dict(reasons.most_common()))


def _result(share: ShareId, gpus: int, workload: Workload, lines: Sequence[JobLine]) -> ShareResult:
    window_ms = max((job.submit_ms for job in workload.jobs), default=0)
    played = [line for line in lines if line.state != "dropped"]
    jobs = [job for job in workload.jobs if share in (ALL, job.spec.share)]
    spent = sum(_ran_within(line, window_ms) * line.gpu_milli for line in played)
    first_ms = min((line.submit_ms for line in played), default=0)
    return ShareResult(
        share=share,
        gpus=gpus,
        jobs=len(played),
        not_played=sum(line.state in ("dropped", "refused", "unfinished") for line in lines),
        offered_load=bounds(jobs, gpus).gpu_ms / (gpus * window_ms) if gpus and window_ms else 0.0,
        wait=spread(line.wait_ms for line in played),
        jct=spread(line.jct_ms for line in played),
        utilisation=spent / (gpus * MILLI * window_ms) if gpus and window_ms else 0.0,
        makespan_ms=max((line.end_ms for line in played if line.end_ms is not None), default=first_ms) - first_ms,
    )


def _ran_within(line: JobLine, until_ms: int) -> int:
    """How long a job ran before a moment; exact for one that ran in one go."""
    return 0 if line.start_ms is None else max(0, min(line.ran_ms, until_ms - line.start_ms))
