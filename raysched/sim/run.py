"""A workload played to its end by the same service, loop, books and core as live, under the virtual clock."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import groupby
from time import perf_counter
from typing import Any, Final

import msgspec

from raysched.core import entries as e
from raysched.core import events as ev
from raysched.core.model import JobId, UserId
from raysched.core.units import MILLI
from raysched.sim.cluster import Delays
from raysched.sim.outcome import Ended, JobLine, Played, size_of
from raysched.sim.recording import Recorder
from raysched.sim.simulation import Runtime, Simulation
from raysched.sim.workloads.workload import NodeFailure, Workload, WorkloadJob, bounds

START_MS: Final = 1_800_000_000_000
SAMPLES: Final = 400  # about as many as a picture is wide
MOST_SAMPLES: Final = 4  # times as many as were asked for
QUIET_MS: Final = 30 * 86_400_000  # nothing runs and nothing is due for so long: what still waits waits for ever
BY: Final = "sim"

Progress = Callable[[int, int], None]  # jobs that have ended or were refused, jobs in all


def play(
    workload: Workload,
    *,
    samples: int = SAMPLES,
    progress: Progress | None = None,
    delays: Delays = Delays(),
) -> Played:
    """Play a workload until every job has ended, or nothing can happen any more. About `samples` samples are taken, up
    to four times as many if the run lasts longer than its bound."""
    return Play(workload, samples, delays).run(progress)


class Play:
    """The simulation of one workload. Whatever is planned for a moment stands in a heap: (time, order, what)."""

    def __init__(self, workload: Workload, samples: int = SAMPLES, delays: Delays = Delays()) -> None:
        self.workload = workload
        self.sim = Simulation(workload.config, START_MS, delays=delays)
        for node in workload.nodes:
            self.sim.add_node(node.node, node.pool, node.spec)
        self.sim.settle()
        self.bounds = bounds(workload.jobs, workload.gpus)
        self.wanted, self.every_ms = samples, max(1, round(self.bounds.makespan_ms / samples))
        pools = dict.fromkeys(node.pool for node in workload.working_nodes)
        self.recorder = Recorder(self.sim, workload.jobs, pools)
        self.refused: dict[JobId, str] = {}
        self.failed = 0
        self._coming = len(workload.jobs)
        self._count = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, progress: Progress | None = None) -> Played:
        """Play it."""
        begun = perf_counter()
        for at_ms, jobs in groupby(self.workload.jobs, lambda job: job.submit_ms):
            batch = list(jobs)
            self._at(at_ms, lambda batch=batch: self.submit(batch))  # type: ignore[misc]
        for failure in self.workload.failures:
            self._at(failure.at_ms, lambda failure=failure: self._fail(failure))  # type: ignore[misc]
        next_sample = 0
        while not self._is_over():
            at_ms = self._due[0][0] if self._due else None
            if at_ms is not None and at_ms <= next_sample:
                _, _, happens = heappop(self._due)
                self.sim.go_to(START_MS + at_ms)
                happens()
                continue
            self.sim.go_to(START_MS + next_sample)
            self.recorder.take()
            if len(self.recorder.samples) >= MOST_SAMPLES * self.wanted:
                # It lasts far longer than its bound: look half as often, and keep half of what was seen.
                self.recorder.thin_out()
                self.every_ms *= 2
            next_sample = (next_sample // self.every_ms + 1) * self.every_ms
            if progress is not None:
                progress(self._ended(), len(self.workload.jobs))
        return self._played(perf_counter() - begun)

    def _at(self, at_ms: int, happens: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._due, (at_ms, self._count, happens))

    def _ended(self) -> int:
        state = self.sim.service.state
        return len(self.workload.jobs) - self._coming - len(state.active) - len(state.pending.where)

    def _is_over(self) -> bool:
        """Whether every job has ended, or those that have not never will."""
        state = self.sim.service.state
        if self._coming or state.active:
            return False
        if not state.pending.where:
            return True
        next_ms = self.sim.next_ms()
        return not self._due and (next_ms is None or next_ms - self.sim.clock.at_ms > QUIET_MS)

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, batch: list[WorkloadJob]) -> None:
        """Jobs that come now."""
        for job in batch:
            self.sim.runtimes[job.spec.job] = Runtime(job.runtime_ms, job.spec.checkpoint_every_ms)
        answers: Any = self.sim.service.submit_many([msgspec.to_builtins(job.spec) for job in batch], BY)
        for job, answer in zip(batch, answers, strict=True):
            if "error" in answer:
                self.refused[job.spec.job] = str(answer["error"]["message"])
        self._coming -= len(batch)

    def _fail(self, failure: NodeFailure) -> None:
        self.failed += 1
        self.sim.cluster.fail(failure.node, failure.signal)
        self._at(failure.repaired_ms, lambda: self.sim.cluster.recover(failure.node, True))

    # ── how it went ───────────────────────────────────────────────────────────────────────────────────────────────

    def _played(self, seconds: float) -> Played:
        runs = self._runs()
        lines = tuple(sorted([*self._lines(runs), *self._dropped()], key=lambda line: (line.submit_ms, line.job)))
        first_ms = min((job.submit_ms for job in self.workload.jobs), default=0)
        last_ms = max((line.end_ms for line in lines if line.end_ms is not None), default=first_ms)
        until_ms = first_ms + self.bounds.arrival_ms
        milli = {job.spec.job: job.gpu_milli for job in self.workload.jobs}
        spans = [(start, end, milli[name] / MILLI) for name, found in runs.items() for start, end in found]
        events = self.sim.disk.events
        return Played(
            name=self.workload.name,
            gpus=self.workload.gpus,
            bounds=self.bounds,
            lines=lines,
            samples=tuple(self.recorder.samples),
            makespan_ms=last_ms - first_ms,
            busy_ms=sum((end - start) * gpus for start, end, gpus in spans),
            busy_arrival_ms=sum(max(0, min(end, until_ms) - start) * gpus for start, end, gpus in spans),
            failures=self.failed,
            swaps=sum(1 for event in events if isinstance(event, ev.NodeSwapped)),
            seconds=seconds,
        )

    def _runs(self) -> dict[JobId, list[tuple[int, int]]]:
        """When each job's attempts ran, from the journal, from the workload's start."""
        begun: dict[tuple[JobId, int], int] = {}
        found: dict[JobId, list[tuple[int, int]]] = defaultdict(list)
        for event in self.sim.disk.events:
            if isinstance(event, ev.AttemptStarted):
                begun.setdefault((event.job, event.attempt), event.at_ms)
            elif isinstance(event, ev.AttemptEnded):
                start_ms = begun.pop((event.job, event.attempt), None)
                if start_ms is not None:
                    found[event.job].append((start_ms - START_MS, event.at_ms - START_MS))
        return found

    def _lines(self, runs: dict[JobId, list[tuple[int, int]]]) -> Iterator[JobLine]:
        held_by = self._held_by()
        for job in self.workload.jobs:
            spec, ran = job.spec, runs.get(job.spec.job, [])
            state, reason, end_ms = self._end_of(spec.job)
            yield JobLine(
                job=spec.job,
                share=spec.share,
                user=spec.user,
                size=size_of(job.gpu_milli),
                gpu_milli=job.gpu_milli,
                nodes=sum(bundle.count for bundle in spec.bundles),
                submit_ms=job.submit_ms,
                start_ms=ran[0][0] if ran else None,
                end_ms=end_ms,
                runtime_ms=job.runtime_ms,
                ran_ms=sum(end - start for start, end in ran),
                attempts=len(ran),
                state=state,
                reason=reason,
                held_by=held_by.get(spec.job, ()),
            )

    def _end_of(self, name: JobId) -> tuple[Ended, str, int | None]:
        if name in self.refused:
            return "refused", self.refused[name], None
        job = self.sim.service.state.jobs[name]
        match job.state:
            case "succeeded" | "failed" | "cancelled":
                assert job.ended_ms is not None
                return job.state, job.detail, job.ended_ms - START_MS
            case _:
                record = self.sim.service.ledger.records.get(name)
                return "unfinished", (record.reason or "") if record is not None else "", None

    def _dropped(self) -> Iterator[JobLine]:
        for each in self.workload.dropped:
            yield JobLine(
                job=each.job,
                share=each.share,
                user=UserId(""),
                size=size_of(each.gpu_milli),
                gpu_milli=each.gpu_milli,
                nodes=0,
                submit_ms=each.submit_ms,
                start_ms=None,
                end_ms=None,
                runtime_ms=0,
                ran_ms=0,
                attempts=0,
                state="dropped",
                reason=each.reason,
            )

    def _held_by(self) -> dict[JobId, tuple[str, ...]]:
        """For what reasons each job waited, from the ledger."""
        held: dict[JobId, set[str]] = defaultdict(set)
        for entry in self.sim.disk.entries:
            if isinstance(entry, e.Recorded) and entry.record.reason is not None:
                held[entry.record.job].add(entry.record.reason)
        return {job: tuple(sorted(reasons)) for job, reasons in held.items()}
