"""Pending jobs, so kept that a plan looks at few of them.

Jobs of one share that ask for the same thing stand together (`Alike`), those of each user in a line of their own. What
the share, its lenders or the nodes refuse to one of them they refuse to all; what a limit refuses to the first of a
line it refuses to the whole line. So only the heads of lines are looked at, and of those no more than up to the first
that the share is refused. A line whose head stands refused by a limit sleeps until something of its user's is given
back: the same would be decided, and nothing written. (Kueue does the like with equal workloads of one ClusterQueue.)"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from msgspec import Struct, field

from raysched.core.model import Bundle, JobId, JobSpec, PoolId, ReservationId, ShareId, UserId, gang_amounts
from raysched.core.units import Amounts

ClassKey = tuple[PoolId | None, str | None, bool, bool, str]
OrderKey = tuple[int, int, int, int, JobId]
BundleShape = tuple[int, int, int, int, tuple[tuple[str, int], ...]]
Shape = tuple[tuple[BundleShape, ...], str, ReservationId | None, int | None]
Head = tuple[OrderKey, UserId]


def class_key(spec: JobSpec, cross_pool: bool) -> ClassKey:
    """Jobs with the same key have the same choice of pools and models."""
    return (spec.pool, spec.model, spec.uses_gpu, cross_pool, spec.workload)


def shape_of(spec: JobSpec, bundles: tuple[Bundle, ...]) -> Shape:
    """What, beside the choice of pools, decides about a request of one share: the bundles, whether one topology domain
    must hold them, the reservation it names, and how long it may run."""
    shapes = tuple(
        (b.gpu_milli, b.cpu_milli, b.memory_bytes, b.count, tuple(sorted(b.attach.items())) if b.attach else ())
        for b in bundles
    )
    return (shapes, spec.topology, spec.reservation, spec.max_runtime_ms)


class Alike(Struct, eq=False):
    """Jobs of one share that ask for the same thing. `lines`: each user's, in queue order; `heads`: the first of every
    line that is awake, in queue order; `asleep`: whose line sleeps. `sums`: what one job is charged, by GPU model."""

    share: ShareId
    choice: ClassKey
    shape: Shape
    bundles: tuple[Bundle, ...]
    lines: dict[UserId, list[OrderKey]] = field(default_factory=dict)
    heads: list[Head] = field(default_factory=list)
    asleep: set[UserId] = field(default_factory=set)
    sums: dict[str | None, Amounts] = field(default_factory=dict)

    def amounts(self, model: str | None) -> Amounts:
        """What one of these jobs is charged on GPUs of `model`."""
        found = self.sums.get(model)
        if found is None:
            found = self.sums[model] = gang_amounts(self.bundles, model)
        return found

    def first(self) -> OrderKey:
        """The job before all others, asleep or awake."""
        return min(line[0] for line in self.lines.values())

    def add(self, user: UserId, order: OrderKey) -> None:
        line = self.lines.get(user)
        if line is None:
            self.lines[user] = [order]
            insort(self.heads, (order, user))
            return
        if order < line[0]:
            self._step_back(user, line[0])
            insort(self.heads, (order, user))
        insort(line, order)

    def remove(self, user: UserId, order: OrderKey) -> None:
        line = self.lines[user]
        index = bisect_left(line, order)
        assert index < len(line) and line[index] == order, f"job {order[-1]} is not in its queue"
        del line[index]
        if index:
            return
        self._step_back(user, order)
        if line:
            insort(self.heads, (line[0], user))
        else:
            del self.lines[user]

    def _step_back(self, user: UserId, order: OrderKey) -> None:
        """Take a line's head away: whoever comes in its place is looked at."""
        if user in self.asleep:
            self.asleep.discard(user)
        elif self.heads[0][1] == user:
            del self.heads[0]
        else:
            del self.heads[bisect_left(self.heads, (order, user))]

    def sleep(self, user: UserId) -> None:
        """Let a line sleep that is awake."""
        self._step_back(user, self.lines[user][0])
        self.asleep.add(user)

    def wake(self, user: UserId) -> None:
        if user in self.asleep:
            self.asleep.discard(user)
            insort(self.heads, (self.lines[user][0], user))


class Queues:
    """The pending jobs of every share, and who sleeps. Sleep is a memory of the planner's, not a fact: `rouse` ends it
    whenever a look might find something new. So are `choices`: where jobs of a share and class may run, in order."""

    def __init__(self) -> None:
        self.shares: dict[ShareId, dict[tuple[ClassKey, Shape], Alike]] = {}
        self.where: dict[JobId, Alike] = {}
        self._sleepers: dict[UserId, tuple[int, set[Alike]]] = {}
        self._seen: object = None
        self.choices: dict[ShareId, dict[ClassKey, list[tuple[PoolId, str | None]]]] = {}

    def add(
        self, share: ShareId, spec: JobSpec, bundles: tuple[Bundle, ...], cross_pool: bool, order: OrderKey
    ) -> None:
        """Put a job where it belongs."""
        key = (class_key(spec, cross_pool), shape_of(spec, bundles))
        groups = self.shares.get(share)
        if groups is None:
            groups = self.shares[share] = {}
        found = groups.get(key)
        if found is None:
            found = groups[key] = Alike(share, *key, bundles)
        found.add(spec.user, order)
        self.where[spec.job] = found

    def remove(self, user: UserId, order: OrderKey) -> None:
        """Take a job out."""
        found = self.where.pop(order[-1])
        found.remove(user, order)
        if not found.lines:
            groups = self.shares[found.share]
            del groups[found.choice, found.shape]
            if not groups:
                del self.shares[found.share]

    def orders(self, share: ShareId | None = None) -> Iterator[OrderKey]:
        """All pending jobs, of one share or of all, in no order."""
        for groups in self.shares.values() if share is None else [self.shares.get(share, {})]:
            for group in groups.values():
                for line in group.lines.values():
                    yield from line

    # ── sleep ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def sleep(self, group: Alike, user: UserId, serial: int) -> None:
        """A look at this line at `serial` of the limit book found what stands already."""
        group.sleep(user)
        since, groups = self._sleepers.get(user, (serial, set()))
        self._sleepers[user] = (min(since, serial), groups)
        groups.add(group)

    def rouse(self, seen: object, eased: dict[UserId, int]) -> None:
        """Wake everybody when `seen` (whatever decisions rest on beside charges) is not what it was at the last call,
        else those users for whom something was given back since they fell asleep."""
        if seen != self._seen:
            self._seen = seen
            self.choices = {}
            woken = list(self._sleepers)
        else:
            woken = [user for user, (since, _) in self._sleepers.items() if eased.get(user, 0) > since]
        self._wake(woken)

    def wake_all(self) -> None:
        """Forget who sleeps: the next plan looks at everybody, and must come to the same."""
        self._sleepers, self.choices = {}, {}
        for groups in self.shares.values():
            for group in groups.values():
                for user in sorted(group.asleep):
                    group.wake(user)

    def _wake(self, users: list[UserId]) -> None:
        for user in users:
            for group in self._sleepers.pop(user)[1]:
                group.wake(user)
