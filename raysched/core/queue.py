"""The order in which pending jobs are looked at, and who holds whom back (semantics 5.1 to 5.3).

A queue is one (share, pool, model). A share's pending jobs stand with those that are alike (lines.py), so a blocked
head closes whole groups at once and jobs behind it are never looked at."""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush, heapreplace

from raysched.core.admission import Option
from raysched.core.ledger import Ledger
from raysched.core.lines import Alike, ClassKey, OrderKey
from raysched.core.model import JobId, JobSpec, PoolId, PriorityRule, QueuePolicy, Share, ShareId, UserId
from raysched.core.record import Reason
from raysched.core.state import Job, State

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


# Where a job stands, its group and user, its number in the line, and the line's among the heads (−1: not the first).
Step = tuple[OrderKey, Alike, UserId, int, int]


class Walk:
    """One pass over a share's pending jobs in queue order. The planner says what became of each: `passed`, `refused` or
    `closed`; of a line that was refused, and of a group that was closed, no further job is looked at. `taken` says of
    how many jobs a line has been relieved already by this plan, which still stand in it."""

    def __init__(
        self,
        groups: Iterable[Alike],
        policy: QueuePolicy,
        choices: dict[ClassKey, list[Option]],
        taken: dict[tuple[Alike, UserId], int],
    ) -> None:
        self._policy, self._choices, self._taken = policy, choices, taken
        self._floor: dict[Option, int] = {}
        self._closed: set[Alike] = set()
        self._heap: list[Step] = []
        for group in groups:
            first = self._come_up(group, 0)
            if first is not None:
                heappush(self._heap, first)
        self._at: Step | None = None

    def _come_up(self, group: Alike, at: int) -> Step | None:
        """Head number `at` of a group, which comes into the walk when the one before it is looked at."""
        for number in range(at, len(group.heads)):
            order, user = group.heads[number]
            taken = self._taken.get((group, user), 0) if self._taken else 0
            if not taken:
                return (order, group, user, 0, number)
            line = group.lines[user]
            if taken < len(line):
                heappush(self._heap, (line[taken], group, user, taken, -1))
        return None

    def next(self) -> tuple[JobId, Alike, UserId, list[Option]] | None:
        """The next job, and the options that are open to it; jobs behind a blocked head in all their queues are left
        out. None when all have been looked at."""
        while self._heap:
            self._at = order, group, user, _, at = self._heap[0]
            if group in self._closed:
                heappop(self._heap)
                continue
            # Whoever comes up stands after this one, so this one is still the first.
            after = self._come_up(group, at + 1) if at >= 0 else None
            if after is not None:
                heapreplace(self._heap, after)
            else:
                heappop(self._heap)
            choice = self._choices[group.choice]
            found = [o for o in choice if self._is_open(o, order[0])] if self._floor else choice
            if found:
                return order[-1], group, user, found
            # Later jobs of the group have the same or a lower priority: what is closed now stays closed.
            self._closed.add(group)
        return None

    def passed(self, starts: bool) -> None:
        """The job starts, or is not to be looked at now: the next one of its line may."""
        assert self._at is not None
        _, group, user, index, _ = self._at
        if starts and self._taken.get((group, user), 0) == index:
            self._taken[group, user] = index + 1
        line = group.lines[user]
        if index + 1 < len(line):
            heappush(self._heap, (line[index + 1], group, user, index + 1, -1))

    def refused(self, reason: Reason | None) -> None:
        """The job did not get in: close the queues it heads, as the policy says."""
        assert self._at is not None
        order, group, _, _, _ = self._at
        if reason in HELD_ALONE or self._policy == "any_fit":
            return
        for option in self._choices[group.choice]:
            if self._policy == "fifo_within_priority":
                self._floor[option] = min(self._floor.get(option, order[0]), order[0])
            else:
                self._floor[option] = -1

    def closed(self) -> None:
        """All that are alike would be refused the same."""
        assert self._at is not None
        self._closed.add(self._at[1])

    def _is_open(self, option: Option, priority: int) -> bool:
        floor = self._floor.get(option)
        return floor is None or priority <= floor


def is_behind_alike(state: State, job: Job) -> bool:
    """Whether an earlier job of the share waits that asks for the same thing: then this one was not looked at by
    itself, and what the newest record of it says may be out of date."""
    group = state.pending.where.get(job.job)
    return group is not None and group.first() < job.order()


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
    mine, known = job.order(), dict[ClassKey, bool]()
    for group in state.pending.shares.get(job.share, {}).values():
        if group.choice not in known:
            known[group.choice] = option in options(state, ledger, job.share, group.choice)
        if not known[group.choice]:
            continue
        # Lines that sleep are held by a limit of their own, and hold nobody.
        for order in (order for _, user in group.heads for order in _looked_at(state, ledger, group.lines[user])):
            if order >= mine or (policy == "fifo_within_priority" and order[0] >= job.priority):
                continue
            record = ledger.records.get(order[-1])
            if record is not None and record.reason is not None and record.reason not in HELD_ALONE:
                return state.jobs[order[-1]]
    return None


def _looked_at(state: State, ledger: Ledger, line: list[OrderKey]) -> Iterator[OrderKey]:
    """Those of a line that a plan looks at while nobody of it starts: up to the first that is not in its retry."""
    for order in line:
        yield order
        if state.jobs[order[-1]].retry_ms <= ledger.now_ms:
            return
