"""The loop: drain, fold, plan, post, perform. It imports no Ray; the same loop runs live, under the simulator's clock
and in tests.

Order of a tick: what happened is journaled and folded; a plan is made; its entries are posted; its events are journaled
and folded; its decisions are performed. A crash between any two steps is repaired by `recover`: the ledger and the
journal are read, what the journal had not seen of the ledger is folded, and what Ray really has is compared."""

from collections.abc import Iterable, Sequence

from raysched.core import events as ev
from raysched.core.decisions import Decision, RemoveGang, StartAttempt, StopAttempt
from raysched.core.draft import Draft
from raysched.core.entries import AnyEntry
from raysched.core.ledger import Ledger
from raysched.core.making import gang_of
from raysched.core.plan import Plan, drafted
from raysched.core.snapshot import restore
from raysched.core.state import State
from raysched.core.transitions import apply, late
from raysched.core.unseen import unseen
from raysched.runtime.inbox import Inbox
from raysched.runtime.memory import loading
from raysched.runtime.ports import Answer, Clock, Cluster, Journal, Posted, Quota, Refused, Stale, StoreFailed

ROUNDS = 16  # plans per tick: each sees the events of the one before; the rest waits for the next tick


class Fenced(Exception):
    """A newer scheduler exists: this one must stop at once."""


class Loop:
    """One scheduler. Not thread-safe: the caller serialises `tick`, `record` and `post`."""

    def __init__(self, clock: Clock, journal: Journal, quota: Quota, cluster: Cluster) -> None:
        self.clock, self.journal, self.quota, self.cluster = clock, journal, quota, cluster
        self.state, self.ledger = State(), Ledger()
        self.inbox = Inbox(self.ledger.settings)
        self.epoch = 0
        self.ticks = 0
        self.store_error: str | None = None
        self.last: Plan | None = None
        self._plans = 0
        self._untold: list[ev.AnyEvent] = []
        self._owed: tuple[tuple[ev.AnyEvent, ...], tuple[Decision, ...]] | None = None

    # ── start ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def recover(self) -> None:
        """Rebuild state and books from the store and take the cluster up again. Raises StoreFailed."""
        self.epoch = self.quota.open_epoch()
        with loading():
            self._take_books()
            for _, event in self.journal.read():
                apply(self.state, event)
        now_ms = self.clock.now_ms()
        self.inbox = Inbox(self.ledger.settings)
        self.inbox.restart(self.state, now_ms)
        self.record([*unseen(self.state, self.ledger, now_ms), ev.Restarted(at_ms=now_ms, epoch=self.epoch)])
        self._reconcile()

    def _take_books(self) -> None:
        """The books as the quota port has them: those that its rows begin with, then all rows, in pages."""
        opening = self.quota.opening()
        self.ledger = Ledger() if opening is None else restore(opening)
        while changes := self.quota.read(self.ledger.version):
            for change in changes:
                self.ledger.fold(change.entry)

    def _reconcile(self) -> None:
        """Take up what exists, make again what was ordered and is not there, remove what nobody holds."""
        state = self.state
        mine = {(job, state.jobs[job].attempt) for job in sorted(state.active)}
        there = self.cluster.observe()
        strangers = [RemoveGang(g.job, g.attempt) for g in there if (g.job, g.attempt) not in mine]
        orders: list[Decision] = list(strangers)
        adopted = []
        for job_id in sorted(state.active):
            job = state.jobs[job_id]
            gang = gang_of(state, job, job.attempt, job.placement)
            if job.gang == "creating" or (job.gang == "ready" and job.ended is None):
                adopted.append(gang)
                if job.gang == "creating":
                    orders.append(gang)
                elif job.started:
                    orders.append(StartAttempt(job_id, job.attempt))
            elif job.gang == "removing":
                orders.append(RemoveGang(job_id, job.attempt))
            if job.stop is not None and job.ended is None:
                orders.append(StopAttempt(job_id, job.attempt, job.stop.grace_ms, job.stop.why))
            state.unsettled.add(job_id)
        self.cluster.adopt(adopted)
        self.cluster.perform(orders)

    # ── one tick ──────────────────────────────────────────────────────────────────────────────────────────────────

    def tick(self) -> int | None:
        """Fold what happened, plan until nothing more follows, and do it. Returns when to be called again at the
        latest; None = when something happens. Raises Fenced. A store that fails stops the tick; nothing is lost."""
        now_ms = self.clock.now_ms()
        self.ticks += 1
        try:
            self.pay()
            self._take(now_ms)
            wake_ms = self._plan(now_ms)
            self.store_error = None
        except StoreFailed as failed:
            self.store_error = str(failed)
            return now_ms + 1_000
        due = self.inbox.next_due_ms()
        return min((at for at in (wake_ms, due) if at is not None), default=None)

    def _take(self, now_ms: int) -> None:
        # What a broken store kept back comes first: news out of their order would tell another story.
        self._untold += [*self.cluster.poll(), *self.inbox.drain(self.state, now_ms)]
        events = [event for event in self._untold if not self._is_late(event)]
        if events:
            self.record(events)
        self._untold = []

    def _is_late(self, event: ev.AnyEvent) -> bool:
        """News of an attempt that is over is dropped before it costs a line of the journal."""
        news = ev.GangReady | ev.GangFailed | ev.AttemptStarted | ev.AttemptEnded | ev.GangRemoved
        return isinstance(event, news) and late(self.state, event.job, event.attempt)

    def _plan(self, now_ms: int) -> int | None:
        wake_ms: int | None = None
        for _ in range(ROUNDS):
            made, draft = drafted(self.state, self.ledger, now_ms)
            self.last, wake_ms = made, made.wake_ms
            tick = ev.TickStarted(at_ms=now_ms, ledger_version=made.ledger_version)
            if self._carry_out(made, draft, (tick, *made.events) if made.decides else ()) and not made.decides:
                return wake_ms
        return now_ms

    def _carry_out(self, made: Plan, draft: Draft, events: tuple[ev.AnyEvent, ...]) -> bool:
        """Post a plan's entries, journal and fold its events, perform its decisions; False when the entries did not
        hold on the present books. The draft is kept when nothing else has been posted since it was begun and the
        journal has taken the events; else it is rolled back and all is folded anew. Raises as `post` does."""
        before = self.ledger.version
        try:
            answer = self._asked(made.entries)
        except BaseException:
            draft.rollback()
            raise
        if answer.version != before + len(made.entries) or isinstance(answer, Stale):
            draft.rollback()
            self._fold(answer, made.entries)
            if isinstance(answer, Posted):
                self._owe(events, made.decisions)
                self.pay()
            return isinstance(answer, Posted)
        try:
            if events:
                self.journal.append(events)
        except BaseException:
            # Until the journal takes them nothing has happened to the state; so it must not look as if.
            draft.rollback()
            self._fold(answer, made.entries)
            self._owe(events, made.decisions)
            raise
        draft.keep()
        for entry in made.entries:
            self.ledger.fold_kept(entry)
        self.state.unsettled.clear()
        for event in events:
            apply(self.state, event)
        self.cluster.perform(made.decisions)
        return True

    def _owe(self, events: tuple[ev.AnyEvent, ...], decisions: tuple[Decision, ...]) -> None:
        # Whatever still has to follow for unsettled jobs is in the plan's events, which name them again.
        self.state.unsettled.clear()
        self._owed = (events, decisions) if events else None

    def pay(self) -> None:
        """Journal, fold and perform what was posted; kept until the journal took it."""
        if self._owed is None:
            return
        events, decisions = self._owed
        self._keep(events)
        self._owed = None
        self.cluster.perform(decisions)

    # ── doors for commands ────────────────────────────────────────────────────────────────────────────────────────

    def record(self, events: Sequence[ev.AnyEvent]) -> None:
        """Journal events, then fold them; what was posted before and is still owed goes first. Raises StoreFailed; then
        nothing happened."""
        self.pay()
        self._keep(events)

    def _keep(self, events: Sequence[ev.AnyEvent]) -> None:
        self.journal.append(events)
        for event in events:
            apply(self.state, event)

    def enact(self, entries: tuple[AnyEntry, ...], events: Sequence[ev.AnyEvent]) -> Answer:
        """Post a command's entries and journal its events. Once posted, the events are owed until the journal takes
        them, so that the books and the state cannot part. Raises StoreFailed, Fenced."""
        answer = self.ask(entries)
        if isinstance(answer, Posted):
            self._owed = (tuple(events), ())
            self.pay()
        return answer

    def post(self, entries: Iterable[AnyEntry]) -> bool:
        """Post entries and fold every change since; False when they did not hold on the present books.

        Raises StoreFailed when the ledger cannot be written, Fenced when a newer scheduler exists."""
        answer = self.ask(tuple(entries))
        return isinstance(answer, Posted)

    def ask(self, entries: tuple[AnyEntry, ...]) -> Answer:
        """Like `post`, with the whole answer."""
        self.pay()
        answer = self._asked(entries)
        self._fold(answer, entries)
        return answer

    def _asked(self, entries: tuple[AnyEntry, ...]) -> Posted | Stale:
        self._plans += 1
        answer = self.quota.post(entries, self.ledger.version, self.epoch, f"{self.epoch}-{self._plans}")
        if isinstance(answer, Refused):
            if answer.code == "FENCED":
                raise Fenced(answer.reason)
            raise StoreFailed(answer.reason)
        return answer

    def _fold(self, answer: Posted | Stale, posted: tuple[AnyEntry, ...]) -> None:
        """Fold what an answer says has been posted, by whomever, since the version this ledger has."""
        for entry in [change.entry for change in answer.changes] or (posted if isinstance(answer, Posted) else ()):
            self.ledger.fold(entry)
        if self.inbox.settings is not self.ledger.settings:
            self.inbox.settings = self.ledger.settings
