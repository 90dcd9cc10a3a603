"""The order in which pending jobs are looked at, and who holds whom back (semantics 5.1 to 5.3).

A queue is one (share, pool, model). A share's pending jobs are kept by class (same choice of pools and models), so a
blocked head closes whole classes at once and jobs behind it are never looked at."""

from collections.abc import Iterator
from heapq import heappop, heappush

from raysched.core.admission import Option
from raysched.core.ledger import Ledger
from raysched.core.model import JobSpec, PoolId, PriorityRule, QueuePolicy, Share, ShareId
from raysched.core.record import Reason
from raysched.core.state import ClassKey, Job, OrderKey, State

# 5.3: whoever is held by one of these holds nobody back
HELD_ALONE: frozenset[Reason] = frozenset({"USER_LIMIT", "GROUP_LIMIT", "RESERVATION_HOLD", "OVERRIDE_BLOCKED"})


def priority_of(share: Share, spec: JobSpec) -> int:
    """The priority asked for, else that of the first rule whose tags the job carries, else the share's default
    (0 is the highest; semantics 5.1)."""
    if spec.priority is not None:
        return spec.priority
    for rule in share.priority_rules:
        if _carries(spec, rule):
            return rule.priority
    return share.priority_default


def _carries(spec: JobSpec, rule: PriorityRule) -> bool:
    return all(spec.tags.get(key) == value for key, value in rule.tags.items())


def options(state: State, ledger: Ledger, share_id: ShareId, key: ClassKey) -> list[Option]:
    """Where a job of this class may run, in the order of trying: its own pools in configuration order, then pools that
    lend, and in each pool the models by name (semantics 4.6, 5.2)."""
    pool, model, uses_gpu, cross_pool, workload = key
    share = ledger.shares[share_id]
    own = [pool] if pool is not None else own_pools(ledger, share)
    pools = [p for p in own if p in ledger.pools and ledger.pools[p].role == "normal"]
    if cross_pool:
        pools += [p for p in lending_pools(ledger, share, workload) if p not in pools]
    found: list[Option] = []
    for each in pools:
        if not uses_gpu:
            found.append((each, None))  # it stands in the queue of no model, whatever GPUs the nodes have
        elif model is not None:
            found.append((each, model))
        else:
            found += [(each, m) for m in state.models(each)] or [(each, None)]
    return found


def own_pools(ledger: Ledger, share: Share) -> list[PoolId]:
    """Pools in which the share has nominal, in configuration order. An entry of 0 is one: there it only borrows."""
    return [pool for pool in ledger.pool_order() if pool in share.nominal]


def lending_pools(ledger: Ledger, share: Share, workload: str) -> list[PoolId]:
    """Pools in which somebody of the cohort lends to this workload kind, by (lender weight, pool id)."""
    best: dict[PoolId, int] = {}
    for other in ledger.shares.values():
        lends = other.sharing.lends and (
            other.sharing.lend_workloads is None or workload in other.sharing.lend_workloads
        )
        if other.share == share.share or other.cohort != share.cohort or not lends:
            continue
        weight = 1_000 if other.weight is None else other.weight
        for pool, nominal in other.nominal.items():
            if any(nominal.values()) and pool in ledger.pools and ledger.pools[pool].role == "normal":
                best[pool] = min(best.get(pool, weight), weight)
    return sorted(best, key=lambda pool: (best[pool], pool))


class Walk:
    """One pass over a share's pending jobs in queue order. The planner says what became of each."""

    def __init__(self, state: State, ledger: Ledger, share: ShareId) -> None:
        self.state, self.share = state, ledger.shares[share]
        self.policy: QueuePolicy = self.share.queue
        self._options: dict[ClassKey, list[Option]] = {}
        self._heap: list[tuple[OrderKey, ClassKey, int]] = []
        self._floor: dict[Option, int] = {}
        for key, keys in state.pending.get(share, {}).items():
            self._options[key] = options(state, ledger, share, key)
            heappush(self._heap, (keys[0], _comparable(key), 0))
        self._keys = {_comparable(key): (key, keys) for key, keys in state.pending.get(share, {}).items()}

    def __iter__(self) -> Iterator[tuple[Job, list[Option]]]:
        """(job, options still open to it), in order; jobs behind a blocked head in all their queues are left out."""
        while self._heap:
            order, comparable, index = heappop(self._heap)
            key, keys = self._keys[comparable]
            open_options = [o for o in self._options[key] if self._open(o, order[0])]
            if not open_options:
                if self._closed_for_good(key):
                    continue
            else:
                yield self.state.jobs[order[-1]], open_options
            if index + 1 < len(keys):
                heappush(self._heap, (keys[index + 1], comparable, index + 1))

    def blocked(self, job: Job, reason: Reason | None) -> None:
        """The job did not get in: close the queues it heads, as the policy says."""
        if reason in HELD_ALONE or self.policy == "any_fit":
            return
        for option in self._options[job.class_key()]:
            if self.policy == "fifo_within_priority":
                self._floor[option] = min(self._floor.get(option, job.priority), job.priority)
            else:
                self._floor[option] = -1

    def _open(self, option: Option, priority: int) -> bool:
        floor = self._floor.get(option)
        return floor is None or priority <= floor

    def _closed_for_good(self, key: ClassKey) -> bool:
        """Later jobs of the class have the same or a lower priority: what is closed now stays closed."""
        return all(option in self._floor for option in self._options[key])


def _comparable(key: ClassKey) -> ClassKey:
    """A class key without None, so that ties in the heap have an order."""
    pool, model, uses_gpu, cross_pool, workload = key
    return (pool or PoolId(""), model or "", uses_gpu, cross_pool, workload)


def is_behind_head(state: State, ledger: Ledger, job: Job) -> Job | None:
    """The earlier job that holds this one back in every queue it stands in, if one does, by its latest record."""
    share = ledger.shares.get(job.share)
    if share is None or share.queue == "any_fit":
        return None
    heads: list[Job] = []
    for option in options(state, ledger, job.share, job.class_key()):
        head = _head(state, ledger, job, option, share.queue)
        if head is None:
            return None
        heads.append(head)
    return min(heads, key=Job.order) if heads else None


def _head(state: State, ledger: Ledger, job: Job, option: Option, policy: QueuePolicy) -> Job | None:
    for key, keys in state.pending.get(job.share, {}).items():
        if option not in options(state, ledger, job.share, key):
            continue
        for order in keys:
            if order >= job.order() or (policy == "fifo_within_priority" and order[0] >= job.priority):
                break
            record = ledger.records.get(order[-1])
            if record is not None and record.reason is not None and record.reason not in HELD_ALONE:
                return state.jobs[order[-1]]
    return None
