"""A plan while it is being made: the draft, and what has been decided so far. Every pass writes through these verbs, so
that entries, events and decisions of one thing always leave together."""

from msgspec import Struct, structs

from raysched.core import entries as e
from raysched.core import events as ev
from raysched.core.admission import Assessment
from raysched.core.decisions import CreateGang, Decision, RemoveGang, StartAttempt, StopAttempt
from raysched.core.draft import Draft
from raysched.core.ledger import Ledger
from raysched.core.model import Placement, PoolId
from raysched.core.state import Job, State


class Plan(Struct, frozen=True):
    """What should be done now. Entries are posted first; then the events are journaled and folded; then decisions are
    performed. `wake_ms`: when time alone will change something; None = only an event will."""

    now_ms: int
    ledger_version: int
    entries: tuple[e.AnyEntry, ...]
    events: tuple[ev.AnyEvent, ...]
    decisions: tuple[Decision, ...]
    wake_ms: int | None

    @property
    def decides(self) -> bool:
        """Whether anything is to be posted, folded or done."""
        return bool(self.entries or self.events or self.decisions)


class Making:
    """Collects one plan."""

    def __init__(self, state: State, ledger: Ledger, now_ms: int) -> None:
        self.state, self.ledger, self.now_ms = state, ledger, now_ms
        self.draft = Draft(state, ledger)
        self.entries: list[e.AnyEntry] = []
        self.events: list[ev.AnyEvent] = []
        self.decisions: list[Decision] = []
        self.wake_ms: int | None = None
        self.creating = sum(state.creating.values())

    def plan(self) -> Plan:
        """The finished plan; the draft is still open."""
        return Plan(
            self.now_ms,
            self.ledger.version,
            tuple(self.entries),
            tuple(self.events),
            tuple(self.decisions),
            self.wake_ms,
        )

    def wake(self, at_ms: int | None) -> None:
        """Ask to be called again at `at_ms`, if not sooner."""
        if at_ms is not None:
            self.wake_ms = at_ms if self.wake_ms is None else min(self.wake_ms, at_ms)

    def fenced(self, job: Job) -> bool:
        """Whether nothing of the job's last attempt can still run: swept by the agents of its nodes, or the lease of
        those that could not confirm it is over (semantics 9.3a). Asks to be called when it is."""
        settings, due = self.ledger.settings, 0
        for name in job.unfenced:
            node = self.state.nodes.get(name)
            if node is not None:
                silent = node.silent_ms
                heard = (job.gone_ms or 0) if silent is None else silent - settings.silent_after_ms
                due = max(due, heard + settings.fence_wait_ms)
        if self.now_ms < due:
            self.wake(due)
        return self.now_ms >= due

    # ── attempts ──────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, job: Job) -> None:
        self.entries.append(e.Committed(at_ms=self.now_ms, job=job.job, attempt=job.attempt))
        self.events.append(ev.StartOrdered(at_ms=self.now_ms, job=job.job, attempt=job.attempt))
        self.decisions.append(StartAttempt(job.job, job.attempt))

    def stop(self, job: Job, why: ev.StopReason, grace_ms: int) -> None:
        self.events.append(
            ev.StopOrdered(at_ms=self.now_ms, job=job.job, attempt=job.attempt, why=why, grace_ms=grace_ms)
        )
        self.decisions.append(StopAttempt(job.job, job.attempt, grace_ms, why))

    def remove(self, job: Job) -> None:
        self.events.append(ev.RemoveOrdered(at_ms=self.now_ms, job=job.job, attempt=job.attempt))
        self.decisions.append(RemoveGang(job.job, job.attempt))

    def end(self, job: Job, state: str, detail: str = "") -> None:
        """Release the claim and end the job."""
        self._release(job, state)
        assert state in ("succeeded", "failed", "cancelled")
        self.events.append(ev.JobEnded(at_ms=self.now_ms, job=job.job, state=state, detail=detail))  # type: ignore[arg-type]

    def requeue(self, job: Job, why: str, front: bool) -> None:
        """Release the claim and put the job back into its queue."""
        self._release(job, why)
        self.events.append(ev.Requeued(at_ms=self.now_ms, job=job.job, front=front, why=why))

    def _release(self, job: Job, why: str) -> None:
        if job.job not in self.ledger.claims:
            return
        self.draft.release(job.job)
        self.draft.moved.add(job.job)
        if job.ended is not None and job.ended.outcome == "never_started":
            self.entries.append(e.Voided(at_ms=self.now_ms, job=job.job, attempt=job.attempt, why=why))
        else:
            self.entries.append(e.Released(at_ms=self.now_ms, job=job.job, attempt=job.attempt, why=why))

    def hold(self, job: Job) -> None:
        """Keep the claim of an attempt that its node ended."""
        self.events.append(ev.GangHeld(at_ms=self.now_ms, job=job.job, attempt=job.attempt))

    def go_on(self, job: Job, placement: Placement, why: str) -> None:
        """The next attempt of an admitted job: release(n) and claim(n+1) in one post."""
        claim, record = self.ledger.claims[job.job], self.ledger.records[job.job]
        self.draft.release(job.job)
        self.draft.moved.add(job.job)
        self.entries.append(e.Released(at_ms=self.now_ms, job=job.job, attempt=job.attempt, why=why))
        record = structs.replace(record, attempt=job.attempt + 1)
        self.entries.append(
            claim.claimed(record, at_ms=self.now_ms, attempt=record.attempt, placement=placement, continues=True)
        )
        self.draft.charge(claim.ask())
        if claim.reservation is not None:
            self.draft.draw(claim.reservation, claim.draws)
        self.draft.hold(job.job, placement, job.bundles)
        self._create(job, job.attempt + 1, claim.pool, claim.model, placement)

    def admit(self, job: Job, assessed: Assessment, pool: PoolId, model: str | None) -> None:
        """Claim for an admitted job and order its group."""
        placement = assessed.placement
        assert placement is not None
        self.draft.charge(assessed.ask)
        self.draft.hold(job.job, placement, job.bundles)
        self.draft.moved.add(job.job)
        drawing = assessed.drawing
        if drawing.reservation is not None and drawing.amounts:
            self.draft.draw(drawing.reservation, drawing.amounts)
        self.entries.append(
            e.Claimed(
                at_ms=self.now_ms,
                job=job.job,
                attempt=job.attempt + 1,
                user=job.user,
                share=job.share,
                pool=pool,
                model=model,
                workload=job.spec.workload,
                priority=job.priority,
                amounts=assessed.ask.amounts,
                placement=placement,
                record=assessed.record,
                reservation=drawing.reservation if drawing.amounts else None,
                draws=drawing.amounts,
            )
        )
        self._create(job, job.attempt + 1, pool, model, placement)

    def _create(self, job: Job, attempt: int, pool: PoolId, model: str | None, placement: Placement) -> None:
        self.creating += len(placement)
        self.events.append(
            ev.Admitted(at_ms=self.now_ms, job=job.job, attempt=attempt, pool=pool, model=model, placement=placement)
        )
        self.decisions.append(gang_of(self.state, job, attempt, placement))

    # ── alerts ────────────────────────────────────────────────────────────────────────────────────────────────────

    def alert(self, alert: str, subject: str, text: str | None) -> None:
        """Raise, change or (text None) clear one alert; nothing when it already stands so."""
        open_alert = self.state.alerts.get((alert, subject))
        if text is None:
            if open_alert is not None:
                self.events.append(ev.AlertCleared(at_ms=self.now_ms, alert=alert, subject=subject))
        elif open_alert is None or open_alert.text != text:
            self.events.append(ev.AlertRaised(at_ms=self.now_ms, alert=alert, subject=subject, text=text))


def gang_of(state: State, job: Job, attempt: int, placement: Placement) -> CreateGang:
    """The order to make the group of an attempt, with the nodes' current Ray ids."""
    spec = job.spec if job.bundles is job.spec.bundles else structs.replace(job.spec, bundles=job.bundles)
    nodes = state.nodes
    ray_ids = {placed.node: nodes[placed.node].ray_id for placed in placement if placed.node in nodes}
    return CreateGang(job.job, attempt, job.user, job.share, job.priority, spec, placement, ray_ids)
