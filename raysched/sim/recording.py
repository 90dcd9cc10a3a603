"""What a simulation is seen to do: samples of GPUs, queue, shares, loans and fragmentation on a grid of virtual time.

Fragmentation is that of Weng et al. (Beware of Fragmentation, USENIX ATC 2023): of each node's free GPU, what a typical
job could not use there, averaged over the typical jobs by how often each comes. A job can use nothing of a node that
lacks CPU, memory or enough GPUs for one of its bundles, else every GPU with as much left as it asks of each. Typical
are the most frequent requests until they cover 95 % of the jobs. Jobs without GPUs are left out, unlike in the paper:
they never wait for one. `stranded` is plainer: what is free on nodes that are partly used, which no job of whole nodes
can have."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from raysched.core.loans import loans
from raysched.core.model import Bundle, PoolId, ShareId
from raysched.core.pools import Node
from raysched.core.units import GPU, MILLI
from raysched.sim.simulation import Simulation
from raysched.sim.workloads.workload import WorkloadJob

TYPICAL_PART = 0.95


class Sample(Struct, frozen=True):
    """One look. `at_ms` counts from the workload's start; amounts are thousandths of a GPU. `running`: of attempts that
    run; `claimed`: charged, so also what is being made or cleared away; `capacity`: of nodes that can be used."""

    at_ms: int
    capacity: int
    running: int
    claimed: int
    queued_jobs: int
    queued: int
    fragmented: int
    stranded: int
    used: dict[ShareId, int]
    borrowed: dict[ShareId, int]
    lent: dict[ShareId, int]


class Typical(Struct, frozen=True):
    """A request that comes often: what one bundle asks of a node, its model, and its part of all jobs."""

    bundle: Bundle
    model: str | None
    part: float


def typical(jobs: Iterable[WorkloadJob]) -> tuple[Typical, ...]:
    """The most frequent requests with GPUs, by the largest bundle of each job; equal counts: the larger first."""
    counts: Counter[tuple[int, int, int, str | None]] = Counter()
    for job in jobs:
        bundle = max(job.spec.bundles, key=lambda each: each.gpu_milli)
        if bundle.gpu_milli:
            counts[bundle.gpu_milli, bundle.cpu_milli, bundle.memory_bytes, job.spec.model] += 1
    chosen: list[tuple[tuple[int, int, int, str | None], int]] = []
    covered, total = 0, counts.total()
    for key, count in sorted(counts.items(), key=lambda item: (-item[1], -item[0][0], -item[0][1], str(item[0]))):
        if covered >= TYPICAL_PART * total:
            break
        chosen.append((key, count))
        covered += count
    return tuple(
        Typical(Bundle(gpu, cpu, memory), model, count / covered) for (gpu, cpu, memory, model), count in chosen
    )


class Recorder:
    """Takes samples of a running simulation. A look costs the nodes and the jobs that run; what a node's room means is
    worked out once for every state that a node is found in."""

    def __init__(self, sim: Simulation, jobs: Iterable[WorkloadJob], pools: Iterable[PoolId]) -> None:
        self.sim, self.pools = sim, tuple(pools)
        self.typical = typical(jobs)
        self.samples: list[Sample] = []
        self._fragments: dict[tuple[object, ...], float] = {}

    def take(self) -> None:
        """Add a sample of the present moment."""
        state, ledger = self.sim.service.state, self.sim.service.ledger
        used: dict[ShareId, int] = dict.fromkeys(sorted(ledger.shares), 0)
        for (share, _), account in ledger.quota.accounts.items():
            used[share] = used.get(share, 0) + account.used.get(GPU, 0)
        borrowed: Counter[ShareId] = Counter()
        lent: Counter[ShareId] = Counter()
        for loan in loans(ledger):
            if loan.kind == GPU:
                borrowed[loan.borrower] += loan.amount
                lent[loan.lender] += loan.amount
        capacity, fragmented, stranded = self._nodes()
        jobs = state.jobs
        running = [
            state.amounts(jobs[name], None).get(GPU, 0) for name in state.active if jobs[name].state == "running"
        ]
        queued = [group.amounts(None).get(GPU, 0) for group in state.pending.where.values()]
        sample = Sample(
            at_ms=self.sim.clock.at_ms - self.sim.start_ms,
            capacity=capacity,
            running=sum(running),
            claimed=sum(used.values()),
            queued_jobs=len(queued),
            queued=sum(queued),
            fragmented=fragmented,
            stranded=stranded,
            used=used,
            borrowed=dict(borrowed),
            lent=dict(lent),
        )
        self.samples.append(sample)

    def thin_out(self) -> None:
        """Keep every second sample, the last one too if it is one of them."""
        del self.samples[1::2]

    def _nodes(self) -> tuple[int, int, int]:
        """Capacity, fragmented and stranded room of the nodes that can be used."""
        capacity = stranded = 0
        fragmented = 0.0
        for pool in self.pools:
            for node in self.sim.service.state.pool_room(pool).nodes.values():
                if node.usable and node.spec.gpu:
                    all_of_it, free = node.spec.gpu * MILLI, node.room.gpu_milli
                    capacity += all_of_it
                    if free:
                        stranded += free if free < all_of_it else 0
                        fragmented += self._fragment(node)
        return capacity, round(fragmented), stranded

    def _fragment(self, node: Node) -> float:
        room = node.room
        key = (node.spec.gpu_model, room.cpu_milli, room.memory_bytes, *sorted(room.devices))
        found = self._fragments.get(key)
        if found is None:
            found = self._fragments[key] = sum(each.part * _unusable(node, each) for each in self.typical)
        return found


def _unusable(node: Node, asked: Typical) -> int:
    """Free thousandths of a node's GPUs that a typical job could not use."""
    room, bundle = node.room, asked.bundle
    served = room.cpu_milli >= bundle.cpu_milli and room.memory_bytes >= bundle.memory_bytes
    if not served or asked.model not in (None, node.spec.gpu_model):
        return room.gpu_milli
    each = min(bundle.gpu_milli, MILLI)
    usable = [left for left in room.devices if left >= each]
    return room.gpu_milli - (sum(usable) if len(usable) >= -(-bundle.gpu_milli // MILLI) else 0)
