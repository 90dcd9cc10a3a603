"""A witness of the laws: reads the ledger and the journal as they grow and says what must not have happened.

It believes nothing that the planner computed. Quota is judged by the slow reference on the list of claims, room by
recounting placements, running by what the simulated cluster really started."""

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from raysched.core import entries as e
from raysched.core import events as ev
from raysched.core.accounts import Ask
from raysched.core.model import ACTIVE, JobId, NodeId, Override, Placement, PoolId, Share, ShareId, placement_nodes
from raysched.core.state import Job, State
from raysched.core.transitions import apply
from raysched.core.units import add_into
from tests.core.reference import Books
from tests.model.digest import digest

Broken = list[tuple[int, str]]  # (law, what happened)


class QuotaWitness:
    """Laws 2 and 3 on every charge that was checked when it was made."""

    def __init__(self) -> None:
        self.broken: Broken = []
        self.read = 0
        self.books = Books({}, ())
        self.claims: dict[JobId, Ask] = {}
        self.overrides: dict[str, Override] = {}
        self.borrowings = self.overridden = 0  # how often the histories went there
        self._pools: dict[PoolId, int] = {}

    def hear(self, entries: Sequence[e.AnyEntry]) -> None:
        """Take the entries that were not seen yet."""
        for entry in entries[self.read :]:
            self._one(entry)
            self.read += 1

    def _one(self, entry: e.AnyEntry) -> None:
        match entry:
            case e.PoolSet():
                self._pools[entry.pool.pool] = entry.pool.index
                ordered = sorted(self._pools, key=lambda pool: (self._pools[pool], pool))
                self.books = replace(self.books, pools=tuple(ordered))
            case e.GroupSet():
                self.books = replace(self.books, groups={**self.books.groups, entry.group: entry.members})
            case e.ShareSet():
                shares: dict[ShareId, Share] = {**self.books.shares, entry.share.share: entry.share}
                self.books = replace(self.books, shares=shares)
            case e.ShareDeleted():
                left = {name: share for name, share in self.books.shares.items() if name != entry.share}
                self.books = replace(self.books, shares=left)
            case e.OverrideSet():
                self.overrides[entry.override.override] = entry.override
            case e.Claimed():
                ask = Ask(entry.share, entry.user, entry.pool, entry.workload, entry.amounts)
                self.overridden += entry.record.admission_state == "ADMITTED_OVERRIDE"
                if not entry.continues:
                    self._judge(entry, ask, set(entry.amounts))
                self.claims[entry.job] = ask
            case e.Voided() | e.Expired() | e.Released():
                self.claims.pop(entry.job, None)
            case e.Moved():
                old = self.claims.pop(entry.job)
                moved = structs.replace(old, share=entry.share)
                self._judge(entry, moved, set(moved.amounts))
                self.claims[entry.job] = moved
            case e.Resized():
                old = self.claims.pop(entry.job)
                grown = {kind for kind, amount in entry.amounts.items() if amount > old.amounts.get(kind, 0)}
                resized = structs.replace(old, amounts=entry.amounts)
                self._judge(entry, resized, grown)
                self.claims[entry.job] = resized
            case _:
                pass

    def _judge(self, entry: e.Claimed | e.Moved | e.Resized, ask: Ask, kinds: set[str]) -> None:
        active = tuple(o for o in self.overrides.values() if o.start_ms <= entry.at_ms < o.until_ms)
        before = replace(self.books, overrides=active, claims=tuple(self.claims.values()))
        after, who = before.plus(ask), f"entry {self.read + 1}: job {entry.job} in {ask.share}"
        narrowed = structs.replace(ask, amounts={kind: n for kind, n in ask.amounts.items() if kind in kinds})
        self.broken += [(2, f"{who}: {why}") for why in before.over_limits(narrowed)]
        self.borrowings += any(after.borrowed(ask.share, ask.pool, kind) for kind in kinds & {"gpu"})
        for kind in sorted(kinds & before.nominal(ask.share, ask.pool).keys()):
            self.broken += [(law, f"{who}: {why}") for law, why in _charged(before, after, ask, kind)]


def _charged(before: Books, after: Books, ask: Ask, kind: str) -> Broken:
    """What one charge breaks in one governed kind. Overruns that were there before it are not its doing."""
    found: Broken = []
    share, pool = ask.share, ask.pool
    used, owned, bound = after.used(share, pool, kind), after.owned(share, pool, kind), None
    bound = before.most_borrowed(share, pool, kind)
    if bound is not None and used > owned + bound:
        found.append((2, f"{used} {kind} in use, {owned} owned, at most {bound} borrowed"))
    local = after.local(share, pool, kind)
    takes = max(0, used - local)
    if takes > max(0, before.used(share, pool, kind) - local) and takes > after.left_by_others(share, pool, kind):
        found.append((2, f"takes {takes} {kind} of the cohort, {after.left_by_others(share, pool, kind)} were left"))
    if after.uncovered(share, pool, kind) > before.uncovered(share, pool, kind):
        found.append((2, f"{after.uncovered(share, pool, kind)} {kind} on loan from nobody"))
    friends = after.cohort(share, pool, kind)
    charged, all_owned = (sum(f(s, pool, kind) for s in friends) for f in (after.used, after.owned))
    if charged > all_owned:
        found.append((3, f"{charged} {kind} charged in {pool}, the cohort owns {all_owned}"))
    return found


class JobWitness:
    """Laws 1, 3 and 5 on every event of the journal, folded into a state of its own. That state is also what a
    scheduler that starts now would recover: `state` is compared with the living one (law 10)."""

    def __init__(self) -> None:
        self.broken: Broken = []
        self.read = 0
        self.state = State()
        self.history: dict[JobId, list[int]] = {}

    def hear(self, events: Sequence[ev.AnyEvent]) -> None:
        """Take the events that were not seen yet."""
        for event in events[self.read :]:
            if isinstance(event, ev.Admitted):
                self._admission(event)
            apply(self.state, event)
            self.read += 1
            if isinstance(event, ev.Admitted | ev.AttemptStarted | ev.BundlesChanged | ev.Requeued):
                self.broken += [(1, f"event {self.read} ({type(event).__name__}): {why}") for why in rooms(self.state)]

    def _admission(self, event: ev.Admitted) -> None:
        job = self.state.jobs[event.job]
        for index, bundle in enumerate(job.bundles):
            placed = sum(p.count for p in event.placement if p.bundle == index)
            if placed != bundle.count:
                self.broken.append((5, f"job {event.job}: {placed} of {bundle.count} bundles were placed"))
        self.history.setdefault(event.job, []).append(event.attempt)
        if job.state == "queued":
            self._capacity(event, event.placement)

    def _capacity(self, event: ev.Admitted, placement: Placement) -> None:
        """Law 3: what is admitted stands on healthy capacity of its pool."""
        for name in placement_nodes(placement):
            node = self.state.nodes[name]
            if node.health != "healthy" or not node.present or node.cordoned is not None or node.pool != event.pool:
                self.broken.append((3, f"job {event.job} was placed on {name}: {node.health}, pool {node.pool}"))

    def whisper(self) -> None:
        """Law 5: news of attempts that are over, told again, changes nothing."""
        for job, attempts in sorted(self.history.items())[-6:]:
            found = self.state.jobs[job]
            over = [n for n in attempts if n != found.attempt or found.state not in ACTIVE]
            for attempt in over[-2:]:
                before = digest(self.state)
                for event in _news(job, attempt):
                    apply(self.state, event)
                    self.state.seq -= 1
                if digest(self.state) != before:
                    self.broken.append((5, f"news of attempt {attempt} of {job} (now {found.attempt}) changed it"))


def _news(job: JobId, attempt: int) -> list[ev.AnyEvent]:
    return [
        ev.GangReady(at_ms=0, job=job, attempt=attempt),
        ev.AttemptStarted(at_ms=0, job=job, attempt=attempt),
        ev.AttemptEnded(at_ms=0, job=job, attempt=attempt, outcome="failed", exit_code=1),
        ev.GangFailed(at_ms=0, job=job, attempt=attempt, detail="late"),
        ev.GangRemoved(at_ms=0, job=job, attempt=attempt),
    ]


def rooms(state: State) -> list[str]:
    """Law 1, recounted from the jobs: no node holds more than it has, no GPU whose holders were reported twice."""
    left = {name: node.spec.amounts() for name, node in state.nodes.items()}
    for job in state.jobs.values():
        if job.state in ACTIVE:
            _take(state, job, left)
    found = [f"node {name} is overbooked: {amounts}" for name, amounts in left.items() if min(amounts.values()) < 0]
    for name, node in state.nodes.items():
        held: dict[int, int] = {}
        for hold in node.room.holds:
            for index in hold.devices if hold.reported else ():
                held[index] = held.get(index, 0) + hold.milli
        found += [f"GPU {index} of {name} is held {n} thousandths" for index, n in held.items() if n > 1_000]
        free = node.room.gpu_milli
        if free != sum(node.room.devices) or node.room.whole != node.room.devices.count(1_000):
            found.append(f"node {name} counts {free} free GPU and {node.room.whole} whole of {node.room.devices}")
    return found


def _take(state: State, job: Job, left: dict[NodeId, dict[str, int]]) -> None:
    for placed in job.placement:
        node = state.nodes.get(placed.node)
        if node is not None:
            add_into(left[placed.node], {"cpu": 0})
            for kind, amount in job.bundles[placed.bundle].amounts(node.spec.gpu_model).items():
                left[placed.node][kind] = left[placed.node].get(kind, 0) - amount * placed.count


class RunWitness:
    """Law 5 as the hosts see it: which attempts of a job run, those included that a silent agent may still have."""

    def __init__(self) -> None:
        self.broken: Broken = []
        self.running: dict[JobId, dict[int, int | None]] = {}
        self.starts: dict[JobId, set[int]] = {}

    def started(self, job: JobId, attempt: int, now_ms: int) -> None:
        others = self.running.setdefault(job, {})
        for other, until_ms in others.items():
            if other != attempt and (until_ms is None or now_ms < until_ms):
                self.broken.append((5, f"attempt {attempt} of {job} started while attempt {other} may run"))
        self.starts.setdefault(job, set()).add(attempt)
        others[attempt] = None

    def has_started(self, job: JobId, attempt: int) -> bool:
        return attempt in self.starts.get(job, ())

    def ended(self, job: JobId, attempt: int) -> None:
        self.running.get(job, {}).pop(attempt, None)

    def lingers(self, job: JobId, attempt: int, until_ms: int) -> None:
        """Its agent is silent: its processes live until their lease is over."""
        self.running.setdefault(job, {})[attempt] = until_ms

    def swept(self, job: JobId, attempt: int) -> None:
        self.ended(job, attempt)
