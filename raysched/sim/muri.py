"""Muri's simulator of completion times: shortest remaining time first, on 8 nodes of 8 GPUs, with its start-up costs.

Reproduces the averages of its paper's figures 9 and 10 to every printed digit, so its conventions are kept: all jobs
are placed anew at every event, the start-up cost is charged to a running job at every event but not to its last
stretch, and a larger job that does not fit is passed over. Times are seconds."""

from collections.abc import Callable, Sequence
from math import inf, isclose
from operator import attrgetter, itemgetter
from typing import TypeVar

from msgspec import Struct

from raysched.sim.traces.muri import MuriJob

NODES = 8
GPUS_PER_NODE = 8
SLOWDOWN = 1.015  # the simulator's run time over iterations x iteration time
SAME_TIME = 1e-9  # relative: events this close are one; after a year of simulated time that is 30 ms
LOOK_BACK = 64  # groups: submissions come sorted, and no more than 64 jobs can run and end
SIZES = (1, 2, 4, 8, 16, 32)
OTHER_OVERHEAD_S = 10  # of a model that was not profiled
OVERHEAD_S = {
    "vgg16": (7, 7, 8, 9, 9, 10),
    "vgg19": (7, 7, 8, 9, 10, 10),
    "resnet18": (4, 5, 5, 7, 7, 7),
    "shufflenet_v2_x1_0": (4, 4, 5, 5, 7, 8),
    "bert": (10, 10, 10, 10, 10, 10),
    "gpt2": (10, 10, 10, 10, 10, 10),
    "a2c": (38, 39, 39, 46, 46, 46),
    "dqn": (5, 5, 6, 6, 8, 8),
}  # to start or resume a job on 1, 2, 4, 8, 16 or 32 GPUs, profiled by Muri's authors


class Completion(Struct, frozen=True):
    """How a trace went: average and 99th percentile of end - submission, and the last end, in seconds."""

    jobs: int
    average_s: float
    p99_s: float
    makespan_s: float


class Live(Struct, eq=False):
    """A job that was submitted and has not ended. What is left is kept in iterations, as Muri keeps it: the same sum
    in seconds rounds differently, and where two jobs have equally much left the order decides the last digits."""

    job: MuriJob
    iteration_s: float
    iterations_left: float
    overhead_s: int
    seen_s: float
    left_s: float
    left_gpu_s: float
    ends_s: float = 0.0


T = TypeVar("T")
Order = Callable[[Live], float]
ORDERS: dict[str, Order] = {
    "srtf": attrgetter("left_s"),  # the shortest remaining time first
    "srsf": attrgetter("left_gpu_s"),  # the least remaining time x GPUs first
}


def completion(jobs: Sequence[MuriJob], order: Order) -> Completion:
    """Play all jobs of a trace. Raises ValueError for none, or for a job that the whole cluster cannot hold."""
    if not jobs:
        raise ValueError("a trace without jobs has no completion times")
    for job in jobs:
        if job.gpus > NODES * GPUS_PER_NODE or _nodes(job.gpus) > NODES:
            raise ValueError(f"job {job.job} asks {job.gpus} GPUs of {NODES * GPUS_PER_NODE}")
    ended = _play(jobs, order)
    spans = sorted(end - job.submit_ms / 1000 for job, end in ended)
    start = min(job.submit_ms for job in jobs) / 1000
    last = max(end for _, end in ended)
    return Completion(len(jobs), sum(spans) / len(spans), spans[int(0.99 * len(spans))], last - start)


def _play(jobs: Sequence[MuriJob], order: Order) -> list[tuple[MuriJob, float]]:
    """Every job with its end."""
    coming = _grouped(sorted(jobs, key=attrgetter("submit_ms")), lambda job: job.submit_ms / 1000)
    coming.reverse()
    live: list[Live] = []
    running: list[Live] = []
    ended: list[tuple[MuriJob, float]] = []
    while coming or live:
        end_s, ending = _next_end(running)
        submit_s = coming[-1][0] if coming else inf
        now_s = min(submit_s, end_s)
        if end_s == now_s:
            ended += [(each.job, now_s) for each in ending]
            live = [each for each in live if each not in ending]
            running = [each for each in running if each not in ending]
        if submit_s == now_s:
            live += [_submitted(job, now_s) for job in coming.pop()[1]]
        _advance(running, now_s)
        live.sort(key=order)
        running = _place(live, now_s)
    return ended


def _next_end(running: Sequence[Live]) -> tuple[float, list[Live]]:
    first_s = min((each.ends_s for each in running), default=inf)
    # Only what is near the first end can be in its group, so the rest need not be grouped.
    near = [each for each in running if each.ends_s <= first_s * (1 + 4 * SAME_TIME)]
    return min(_grouped(near, attrgetter("ends_s")), key=itemgetter(0), default=(inf, []))


def _grouped(values: Sequence[T], time_s: Callable[[T], float]) -> list[tuple[float, list[T]]]:
    """Events: what happens at nearly the same time happens at the time of the first of it, as in Muri's simulator."""
    groups: list[tuple[float, list[T]]] = []
    for value in values:
        at_s = time_s(value)
        near = next((group for group in groups[-LOOK_BACK:] if isclose(group[0], at_s, rel_tol=SAME_TIME)), None)
        if near is None:
            groups.append((at_s, [value]))
        else:
            near[1].append(value)
    return groups


def _submitted(job: MuriJob, now_s: float) -> Live:
    overheads = OVERHEAD_S.get(job.model)
    overhead_s = overheads[SIZES.index(job.gpus)] if overheads and job.gpus in SIZES else OTHER_OVERHEAD_S
    iteration_s = job.iteration_ms * SLOWDOWN / 1000
    left_s = job.iterations * iteration_s
    return Live(job, iteration_s, float(job.iterations), overhead_s, now_s, left_s, left_s * job.gpus)


def _advance(running: Sequence[Live], now_s: float) -> None:
    """Take the time since the last event, less the start-up cost, off all that ran."""
    for each in running:
        each.iterations_left -= max(0.0, now_s - each.seen_s - each.overhead_s) / each.iteration_s
        each.left_s = each.iterations_left * each.iteration_s
        each.left_gpu_s = each.left_s * each.job.gpus


def _place(live: Sequence[Live], now_s: float) -> list[Live]:
    """Empty the cluster and place in order: one node for up to 8 GPUs, wholly idle nodes for more."""
    free = [GPUS_PER_NODE] * NODES
    total = NODES * GPUS_PER_NODE
    running: list[Live] = []
    for each in live:
        gpus = each.job.gpus
        if gpus <= total and _take(free, gpus):
            total -= gpus
            each.seen_s, each.ends_s = now_s, now_s + each.left_s
            running.append(each)
            if not total:
                break
    return running


def _take(free: list[int], gpus: int) -> bool:
    if gpus <= GPUS_PER_NODE:
        for node, left in enumerate(free):
            if left >= gpus:
                free[node] = left - gpus
                return True
        return False
    idle = [node for node, left in enumerate(free) if left == GPUS_PER_NODE][: _nodes(gpus)]
    if len(idle) < _nodes(gpus):
        return False
    for node in idle:
        taken = min(gpus, GPUS_PER_NODE)
        free[node] -= taken
        gpus -= taken
    return True


def _nodes(gpus: int) -> int:
    return -(-gpus // GPUS_PER_NODE)
