"""One generator played to its end: the real service, loop, books and core, journal and ledger on disk.

The clock is virtual and the cluster simulated, without delays: as in Kueue's runner a workload runs from its admission,
and its quota is free when it ends. Kueue creates objects one by one; here the workloads of one moment are submitted
with one call. What is measured in real time is everything from the first of them on: service, plan, books, both
stores with their commits, fold and the simulated cluster."""

import resource
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from time import perf_counter
from typing import Final

from msgspec import Struct

from raysched.core.model import FINAL, QueuePolicy
from raysched.core.state import Job
from raysched.sim.cluster import Delays
from raysched.sim.kueue.generators import Arrival, Generator, arrivals, bound_ms, first_ms, late_bound_ms
from raysched.sim.kueue.mapping import config_of, job_of, nodes_of, priorities, spec_of
from raysched.sim.kueue.meter import Meter, MeteredJournal, MeteredLedger, bare_sync_ms
from raysched.sim.simulation import Runtime, Simulation, Stores

START_MS: Final = 1_800_000_000_000
BY: Final = "kueue"
ENDLESS: Final = 20  # times the bound: what has not ended by then never will


class Wait(Struct):
    """From creation to admission, in virtual milliseconds, of one class."""

    name: str
    count: int
    mean_ms: float
    p99_ms: int


class Played(Struct):
    """A generator played to its end. Spans in virtual ms count from the first arrival, `seconds` are real; `sync_ms`
    is a bare fdatasync of a page on the same disk, before and after the run."""

    generator: str
    cohorts: int
    queues: int
    workloads: int
    ended: int
    makespan_ms: int
    bound_ms: float
    late_bound_ms: float
    seconds: float
    store_seconds: float
    sync_ms: float
    commits: int
    rows: int
    posts: int
    mean_claims: float
    most_claims: int
    peak_bytes: int
    waits: list[Wait]

    @property
    def per_second(self) -> float:
        """Admissions per second of real time."""
        return self.workloads / self.seconds


class Play:
    """The cluster of a generator, and its workloads. Journal and ledger lie in `directory`."""

    def __init__(self, generator: Generator, directory: Path, policy: QueuePolicy = "fifo_within_priority") -> None:
        self.generator, self.directory, self.meter = generator, directory, Meter()
        self.journal_url, self.ledger_url = (f"sqlite:///{directory}/{name}.db" for name in ("journal", "ledger"))
        stores = Stores(
            lambda: MeteredJournal(self.journal_url, self.meter), lambda: MeteredLedger(self.ledger_url, self.meter)
        )
        self.sim = Simulation(config_of(generator, policy), START_MS, stores=stores, delays=Delays(0, 0, 0))
        for node in nodes_of(generator):
            self.sim.cluster.add(node)
        self.sim.settle()
        self.ranks = priorities(generator)

    def run(self) -> Played:
        """Create every workload at its time and go on until all have ended."""
        batches = [(at_ms, list(batch)) for at_ms, batch in groupby(arrivals(self.generator), lambda each: each.at_ms)]
        self.meter.seconds, self.meter.commits, self.meter.rows = 0.0, 0, 0
        syncs_ms = [bare_sync_ms(self.directory)]
        begun = perf_counter()
        for at_ms, batch in batches:
            self.sim.run_until(START_MS + at_ms)
            self._create(batch)
        self.sim.run_until(START_MS + int(bound_ms(self.generator) * ENDLESS))
        seconds = perf_counter() - begun
        syncs_ms.append(bare_sync_ms(self.directory))
        return self._played(seconds, sum(syncs_ms) / len(syncs_ms))

    def jobs(self) -> Iterator[tuple[str, Job]]:
        """(class, job) of every workload."""
        for arrival in arrivals(self.generator):
            yield arrival.set.name, self.sim.service.state.jobs[job_of(arrival)]

    def _create(self, batch: list[Arrival]) -> None:
        specs = [spec_of(arrival, self.ranks) for arrival in batch]
        for arrival in batch:
            self.sim.runtimes[job_of(arrival)] = Runtime(arrival.set.runtime_ms)
        refused = [answer for answer in self.sim.service.submit_many(specs, BY) if "error" in answer]
        assert not refused, f"{len(refused)} of {len(specs)} workloads were refused, the first with {refused[0]}"

    def _played(self, seconds: float, sync_ms: float) -> Played:
        done, meter = [(name, job) for name, job in self.jobs() if job.state in FINAL], self.meter
        last_ms = max((job.ended_ms or 0 for _, job in done), default=0)
        return Played(
            generator=self.generator.name,
            cohorts=self.generator.cohorts,
            queues=self.generator.cohorts * self.generator.queues,
            workloads=self.generator.workloads,
            ended=len(done),
            makespan_ms=last_ms - START_MS - first_ms(self.generator),
            bound_ms=bound_ms(self.generator),
            late_bound_ms=late_bound_ms(self.generator),
            seconds=seconds,
            store_seconds=meter.seconds,
            sync_ms=sync_ms,
            commits=meter.commits,
            rows=meter.rows,
            posts=len(meter.claims),
            mean_claims=sum(meter.claims) / max(1, len(meter.claims)),
            most_claims=max(meter.claims, default=0),
            peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            waits=_waits(done),
        )


def _waits(done: list[tuple[str, Job]]) -> list[Wait]:
    by_class: dict[str, list[int]] = {}
    for name, job in done:
        by_class.setdefault(name, []).append((job.claimed_ms or 0) - job.submitted_ms)
    found = []
    for name, waits in by_class.items():
        waits.sort()
        p99_ms = waits[min(len(waits) - 1, len(waits) * 99 // 100)]
        found.append(Wait(name, len(waits), sum(waits) / len(waits), p99_ms))
    return found
