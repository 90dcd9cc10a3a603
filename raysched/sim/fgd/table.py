"""The experiment's table: workloads by policies, means over seeds, with what was published beside."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from statistics import fmean, pstdev

from msgspec import Struct

from raysched.sim.fgd.experiment import run
from raysched.sim.fgd.workload import Workload, workload_of
from raysched.sim.traces import openb, published
from raysched.sim.traces.openb import OpenbNode

WORKLOADS = (
    *("default", "cpu050", "cpu100", "cpu200", "cpu250"),
    *("gpushare40", "gpushare60", "gpushare80", "gpushare100"),
    *("gpuspec10", "gpuspec20", "gpuspec25", "gpuspec33"),
    *("multigpu20", "multigpu30", "multigpu40", "multigpu50"),
)  # the published ones


class Setting(Struct, frozen=True):
    """What is run with each seed. `window` above 1: the queue may reorder so many pods, which the published did not."""

    workload: str
    policy: str
    window: int = 1


class Cell(Struct, frozen=True):
    """Allocation in per cent, a value per seed; what was published for it, if anything was; seconds of one run."""

    setting: Setting
    allocation: tuple[float, ...]
    published: float | None
    seconds: float
    decisions: int

    @property
    def mean(self) -> float:
        return fmean(self.allocation)

    @property
    def deviation(self) -> float:
        return pstdev(self.allocation)


def cells(traces: Path, settings: Sequence[Setting], seeds: Sequence[int], processes: int = 1) -> Iterator[Cell | None]:
    """Run everything. Yields None after each run, for a progress bar, and a cell after its last seed, in order of
    the settings. Raises TraceError before anything runs when a file cannot be read."""
    known = published.read_allocation(traces / published.FOLDER)
    nodes_of(traces)
    for workload in sorted({setting.workload for setting in settings}):
        workload_of_trace(traces, workload)
    asked = [(traces, setting, seed) for setting in settings for seed in seeds]
    done: list[tuple[float, float, int]] = []
    for index, result in enumerate(_results(asked, processes)):
        done.append(result)
        yield None
        if len(done) == len(seeds):
            setting = settings[index // len(seeds)]
            value = known.get((setting.workload, setting.policy)) if setting.window == 1 else None
            allocation, seconds, decisions = zip(*done, strict=True)
            yield Cell(setting, allocation, value, fmean(seconds), round(fmean(decisions)))
            done.clear()


def _results(asked: Sequence[tuple[Path, Setting, int]], processes: int) -> Iterator[tuple[float, float, int]]:
    if processes == 1:
        yield from map(_one, asked)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_one, asked)


def _one(asked: tuple[Path, Setting, int]) -> tuple[float, float, int]:
    traces, setting, seed = asked
    result = run(workload_of_trace(traces, setting.workload), nodes_of(traces), setting.policy, seed, setting.window)
    return result.allocation_percent, result.seconds, result.arrivals


@lru_cache
def nodes_of(traces: Path) -> tuple[OpenbNode, ...]:
    """The nodes, read once. Raises TraceError."""
    return tuple(openb.read_nodes(traces / openb.FOLDER))


@lru_cache
def workload_of_trace(traces: Path, name: str) -> Workload:
    """A published workload, read once. Raises TraceError."""
    return workload_of(name, openb.read_pods(traces / openb.FOLDER, name))
