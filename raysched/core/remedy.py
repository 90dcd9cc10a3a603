"""The cheapest change that would start a waiting job now (semantics 8.3).

Steps are tried on the real state and books and taken back: first what the owner can do, then what an admin can grant
without touching anybody, then what costs somebody something; steps that later ones made needless are left out. What is
offered has been planned with: it does start the job."""

from collections.abc import Callable
from functools import partial

from msgspec import Struct, structs

from raysched.core import entries as e
from raysched.core import steps
from raysched.core.admission import Assessment, assess
from raysched.core.books import Claim, ReservationBook
from raysched.core.ledger import Ledger
from raysched.core.model import ACTIVE, JobId, LimitRule, Limits, Override, PoolId, ShareId, UserId
from raysched.core.pools import Node
from raysched.core.queue import is_behind_head, options
from raysched.core.record import QuotaRow
from raysched.core.reservation import owns
from raysched.core.resize import Resize, resize
from raysched.core.state import Job, State
from raysched.core.steps import Step
from raysched.core.trying import Trials, Try, Undo
from raysched.core.units import GPU, MILLI, Amounts

MOST_STEPS = 4  # a change of more parts is no help to anybody
MOST_TRIED = 40  # nodes or groups of jobs looked at for one step
DAYS = 1  # how long an override that is offered lasts
BY = UserId("raysched")


class Change(Struct, frozen=True):
    """Steps that together start the job."""

    text: str
    steps: tuple[Step, ...]


def cheapest_change(state: State, ledger: Ledger, job: Job, now_ms: int) -> Change | None:
    """The change, or None when nothing that may be changed would start the job now. Nothing is left changed.

    A job that is to be cancelled takes its time to go; then the other starts."""
    if job.state != "queued" or job.share not in ledger.shares:
        return None
    return Search(state, ledger, job, now_ms).run()


class Search(Trials):
    """Takes step after step against whatever blocks first, until a plan starts the job."""

    def run(self) -> Change | None:
        """See `cheapest_change`."""
        try:
            while not self.starts():
                if not self._step() or len(self.taken) > MOST_STEPS:
                    return None
            found = tuple(each.step for each in self.ordered(self.needed()))
            return Change("; ".join(step.text for step in found), found) if found else None
        finally:
            self.back(0)

    def _assess(self) -> Assessment | None:
        """The first option that would admit the job, else the first."""
        first: Assessment | None = None
        for option in options(self.state, self.ledger, self.job.share, self.job.class_key()):
            found = assess(self.draft, self.job, option, self.now_ms)
            if found.placement is not None:
                return found
            first = found if first is None else first
        return first

    def _step(self) -> bool:
        """Take one step against the first blocker; False when there is none to take."""
        found = self._assess()
        if found is None:
            return self._cross_pool()
        if found.placement is not None:
            return self._cross_pool() or self._pass_head()
        if self._cross_pool():
            return True
        reason = found.record.reason
        rows = [row for row in found.record.quota_rows if row.request > row.remaining + row.override]
        if reason == "EVIDENCE_DISPUTED":
            return self._reconcile(found)
        if rows:
            return self._grant(found, rows)
        if reason in ("RESERVED", "RESERVATION_HOLD"):
            return self._release_reservation(found)
        return self._uncordon(found) or self._shrink(found) or self._cancel_others(found)

    # ── what the owner can do ─────────────────────────────────────────────────────────────────────────────────────

    def _pass_head(self) -> bool:
        head = is_behind_head(self.state, self.ledger, self.job)
        if head is None:
            return False
        if head.priority > 0:
            wanted = head.priority - 1
            step = steps.prioritised(self.job.job, wanted, head.job)
            return self.take(Try(step, lambda: self._requeue(lambda: setattr(self.job, "priority", wanted))))
        step = steps.cancelled(head.job, head.user, "which is before it")
        return self.take(Try(step, partial(self._unqueue, head)))

    def _cross_pool(self) -> bool:
        """Another pool, if the job could start there at once."""
        if self.job.cross_pool:
            return False
        step, mark = steps.crossing(self.job.job), len(self.taken)
        self.take(Try(step, lambda: self._requeue(lambda: setattr(self.job, "cross_pool", True))))
        if self.starts():
            return True
        self.back(mark)
        return False

    def _shrink(self, found: Assessment) -> bool:
        """Fewer bundles, where the gang is of one kind and some fit."""
        fit, bundles = found.record.bundles_fit, self.job.bundles
        if len(bundles) != 1 or not 0 < fit < bundles[0].count:
            return False
        smaller = (structs.replace(bundles[0], count=fit),)
        step = steps.resized(self.job, smaller, bundles[0].count)

        def do() -> Undo | None:
            refused = not isinstance(resize(self.state, self.ledger, self.job, smaller, self.now_ms, BY), Resize)
            return None if refused else self._requeue(lambda: setattr(self.job, "bundles", smaller))

        return self.take(Try(step, do))

    def _requeue(self, change: Callable[[], None]) -> Undo:
        """Change the queued job; the undo puts it back as it was."""
        job = self.job
        before = (job.priority, job.cross_pool, job.bundles)
        self.state.dequeue(job)
        change()
        self.state.enqueue(job)

        def undo() -> None:
            self.state.dequeue(job)
            job.priority, job.cross_pool, job.bundles = before
            self.state.enqueue(job)

        return undo

    def _unqueue(self, other: Job) -> Undo:
        self.state.dequeue(other)
        return lambda: self.state.enqueue(other)

    # ── what an admin can grant ───────────────────────────────────────────────────────────────────────────────────

    def _grant(self, found: Assessment, rows: list[QuotaRow]) -> bool:
        """An override for whoever the first blocking rows are about; a group's total has none and is raised."""
        if rows[0].reason == "GROUP_LIMIT":
            return self._raise_total([row for row in rows if row.scope == rows[0].scope])
        authority = self._authority()
        if authority is None:
            return False
        mine = [row for row in rows if row.scope == rows[0].scope]
        short: Amounts = {row.kind: row.request - row.remaining - row.override for row in mine}
        user = self.job.user if rows[0].reason == "USER_LIMIT" else None
        share = None if user is not None else self.job.share
        pool = found.record.pool
        override = Override(
            override=f"for-{self.job.job}-{len(self.taken)}",
            amounts=short,
            start_ms=self.now_ms,
            until_ms=self.now_ms + DAYS * 86_400_000,
            reason=f"start {self.job.job}",
            authority=authority,
            user=user,
            share=share,
            pool=pool,
        )
        who = {"share": str(share)} if user is None else {"user": str(user)}
        step = steps.overridden(self.job.job, who, pool, short, authority, DAYS)
        return self.take(self._posting(step, e.OverrideSet(at_ms=self.now_ms, override=override, by=BY)))

    def _authority(self) -> str | None:
        """Somebody who may grant an override; None where nobody may."""
        settings = self.ledger.settings
        if settings.authorities is not None:
            return next(iter(settings.authorities), None)
        return next(iter(settings.admins), BY)

    def _raise_total(self, rows: list[QuotaRow]) -> bool:
        """The scope is `group G in share S` or `group G in pool P`."""
        group, _, place = rows[0].scope.removeprefix("group ").rpartition(" in ")
        what, _, name = place.partition(" ")
        ceiling = {row.kind: _whole(row.kind, row.used + row.request) for row in rows}
        entry: e.AnyEntry
        if what == "share":
            share = self.ledger.shares[ShareId(name)]
            limits = _with_total(share.limits, group, ceiling)
            entry = e.ShareSet(at_ms=self.now_ms, share=structs.replace(share, limits=limits), by=BY)
        else:
            pool = self.ledger.pools[PoolId(name)]
            assert pool.limits is not None
            limits = _with_total(pool.limits, group, ceiling)
            entry = e.PoolSet(at_ms=self.now_ms, pool=structs.replace(pool, limits=limits), by=BY)
        return self.take(self._posting(steps.raised(what, name, group, ceiling, limits.rules), entry))

    def _reconcile(self, found: Assessment) -> bool:
        pool = found.record.pool
        if pool is None or pool not in self.ledger.reported:
            return False
        entry = e.Reconciled(at_ms=self.now_ms, pool=pool, by=BY)
        return self.take(self._posting(steps.reconciled(pool), entry))

    def _uncordon(self, found: Assessment) -> bool:
        cordoned = [n for _, n in sorted(self.state.nodes.items()) if n.cordoned and n.pool == found.record.pool]
        for node in cordoned[:MOST_TRIED]:
            if self._keep_if_better([Try(steps.uncordoned(node.node), partial(self._open, node))], found):
                return True
        return False

    def _open(self, node: Node) -> Undo:
        def become(cordoned: str | None) -> None:
            self.state.unindex(node)
            node.cordoned = cordoned
            self.state.index(node)

        before = node.cordoned
        become(None)
        return lambda: become(before)

    # ── what costs somebody something ─────────────────────────────────────────────────────────────────────────────

    def _release_reservation(self, found: Assessment) -> bool:
        """The reservation that the job names, or the smallest that stands in its way."""
        live = [book for book in self.ledger.reservations.values() if self._keeps(book, found)]
        named = self.job.spec.reservation
        live.sort(key=lambda b: (b.reservation.reservation != named, sum(b.reservation.amounts.values())))
        tries = [self._releasing(book) for book in live]
        return any(self._keep_if_better([each], found) for each in tries) or (bool(tries) and self.take(tries[0]))

    def _keeps(self, book: ReservationBook, found: Assessment) -> bool:
        if book.reservation.reservation == self.job.spec.reservation:
            return book.released_ms is None
        state = book.state(self.now_ms)
        if book.reservation.pool != found.record.pool:
            return False
        return state == "on_hold" or (state in ("active", "coming") and not owns(book, self.job.spec, self.job.share))

    def _releasing(self, book: ReservationBook) -> Try:
        name = book.reservation.reservation
        entry = e.ReservationReleased(at_ms=self.now_ms, reservation=name, by=BY)
        return self._posting(steps.released(name), entry)

    def _cancel_others(self, found: Assessment) -> bool:
        """End the smallest job whose room is enough, else all jobs of one node, else what helps at all."""
        groups = self._victims(found.record.pool)[:MOST_TRIED]
        for group in groups:
            if self._keep_if_better([self._ending(claim) for claim in group], found, enough=True):
                return True
        return any(self._keep_if_better([self._ending(claim) for claim in group], found) for group in groups)

    def _victims(self, pool: PoolId | None) -> list[list[Claim]]:
        """Single jobs, smallest first, then the jobs of a node together; those that end anyway are left out."""
        ledger, jobs = self.ledger, self.state.jobs
        ending = {each.step.params.get("job") for each, _ in self.taken if each.slow}
        mine = [claim for claim in ledger.claims.values() if claim.pool == pool and _lives(jobs[claim.job])]
        mine = [claim for claim in mine if claim.job not in ending]
        mine.sort(key=lambda claim: (sum(claim.amounts.values()), claim.admitted_ms, claim.job))
        rank = {claim.job: number for number, claim in enumerate(mine)}
        together: dict[tuple[JobId, ...], list[Claim]] = {}
        for _, node in sorted(self.state.nodes.items()):
            there = sorted((job for job in node.jobs if job in rank), key=rank.__getitem__)
            if node.pool == pool and 1 < len(there) <= MOST_STEPS:
                together[tuple(there)] = [ledger.claims[job] for job in there]
        return [*([claim] for claim in mine), *sorted(together.values(), key=len)]

    def _ending(self, claim: Claim) -> Try:
        def do() -> Undo:
            mark = self.draft.mark()
            self.draft.release(claim.job)
            return partial(self.draft.rollback, mark)

        return Try(steps.cancelled(claim.job, claim.user, "which has the room"), do, slow=True)

    def _keep_if_better(self, tries: list[Try], found: Assessment, enough: bool = False) -> bool:
        """Take the steps, and keep them if the job then fits, or (unless it must be `enough`) is nearer to it."""
        mark = len(self.taken)
        if mark + len(tries) > MOST_STEPS or not self.take(*tries):
            return False
        after = self._assess()
        if after is not None and after.placement is not None:
            return True
        if not enough and after is not None:
            was, now = found.record, after.record
            if now.bundles_fit > was.bundles_fit or now.reason != was.reason:
                return True
        self.back(mark)
        return False

    def _posting(self, step: Step, entry: e.AnyEntry) -> Try:
        def do() -> Undo | None:
            failing, undo = self.ledger.try_post([entry])
            return None if failing else undo

        return Try(step, do)


def _lives(job: Job) -> bool:
    """Whether the job holds its room until somebody stops it."""
    return job.state in ACTIVE and job.cancel is None and job.stop is None and job.ended is None


def _whole(kind: str, amount: int) -> int:
    """A ceiling as a rule can say it: whole GPUs."""
    return -(-amount // MILLI) * MILLI if kind == GPU else amount


def _with_total(limits: Limits, group: str, ceiling: Amounts) -> Limits:
    """Every total of the group raised to `ceiling`; rules that then say the same become one."""
    rules: list[LimitRule] = []
    for rule in limits.rules:
        if rule.mode == "total" and rule.group == group:
            bounded = rule.amounts()
            higher = {kind: max(bounded[kind], amount) for kind, amount in ceiling.items() if kind in bounded}
            rule = structs.replace(rule, **higher)
        if rule not in rules:
            rules.append(rule)
    return structs.replace(limits, rules=tuple(rules))
