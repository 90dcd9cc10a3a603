"""The cheapest change that would start a waiting job now (semantics 8.3).

Steps are tried on the real state and books and taken back: first what the owner can do, then what an admin can grant
without touching anybody, then what costs somebody something. What is offered has been planned with: it does
start the job."""

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct, structs

from raysched.core import entries as e
from raysched.core import events as ev
from raysched.core.admission import Assessment, assess
from raysched.core.draft import Draft
from raysched.core.explain import waiting_reasons
from raysched.core.ledger import Ledger
from raysched.core.model import Override, ReservationId, Share, ShareId, UserId
from raysched.core.plan import plan
from raysched.core.queue import is_behind_head, options
from raysched.core.record import QuotaRow
from raysched.core.state import Job, State
from raysched.core.units import Amounts, format_amounts

MOST_STEPS = 4  # a change of more parts is no help to anybody
MOST_TRIED = 40  # nodes or jobs looked at for one step
FOR_MS = 86_400_000  # how long an override that is offered lasts: a day
BY = UserId("raysched")

Undo = Callable[[], None]


class Step(Struct, frozen=True):
    """One call of the service: `method` and its arguments, and the same in words."""

    text: str
    method: str
    params: dict[str, Any]


class Change(Struct, frozen=True):
    """Steps that together start the job."""

    text: str
    steps: tuple[Step, ...]


def cheapest_change(state: State, ledger: Ledger, job: Job, now_ms: int) -> Change | None:
    """The change, or None when nothing that may be changed would start the job now. Nothing is left changed."""
    if job.state != "queued" or job.share not in ledger.shares:
        return None
    return Search(state, ledger, job, now_ms).run()


class Search:
    """Takes step after step against whatever blocks first, until a plan starts the job."""

    def __init__(self, state: State, ledger: Ledger, job: Job, now_ms: int) -> None:
        self.state, self.ledger, self.job, self.now_ms = state, ledger, job, now_ms
        self.draft = Draft(state, ledger)
        self.taken: list[tuple[Step, Undo]] = []

    def run(self) -> Change | None:
        """See `cheapest_change`."""
        try:
            for _ in range(MOST_STEPS + 1):
                if self._starts():
                    steps = tuple(step for step, _ in self.taken)
                    return Change("; ".join(step.text for step in steps), steps) if steps else None
                if len(self.taken) == MOST_STEPS or not self._step():
                    return None
            return None
        finally:
            while self.taken:
                self.taken.pop()[1]()

    def _starts(self) -> bool:
        made = plan(self.state, self.ledger, self.now_ms)
        return any(isinstance(event, ev.Admitted) and event.job == self.job.job for event in made.events)

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
            return False
        if found.placement is not None:
            return self._pass_head()
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
        return self._uncordon(found) or self._shrink(found) or self._cancel_other(found)

    # ── what the owner can do ─────────────────────────────────────────────────────────────────────────────────────

    def _pass_head(self) -> bool:
        head = is_behind_head(self.state, self.ledger, self.job, waiting_reasons(self.state, self.ledger, self.job))
        if head is None:
            return False
        if head.priority > 0:
            wanted = head.priority - 1
            text = f"raise the priority of {self.job.job} to P{wanted}, before {head.job}"
            step = Step(text, "set_priority", {"job": self.job.job, "priority": wanted})
            return self._take(step, self._requeue(lambda: setattr(self.job, "priority", wanted)))
        step = Step(f"cancel {head.job}, which is before it", "cancel", {"job": head.job})
        self.state.dequeue(head)
        return self._take(step, lambda: self.state.enqueue(head))

    def _cross_pool(self) -> bool:
        if self.job.cross_pool:
            return False
        undo = self._requeue(lambda: setattr(self.job, "cross_pool", True))
        found = self._assess()
        if found is None or found.placement is None:
            undo()
            return False
        step = Step(
            f"let {self.job.job} run in another pool that lends",
            "set_cross_pool",
            {"job": self.job.job, "value": True},
        )
        return self._take(step, undo)

    def _shrink(self, found: Assessment) -> bool:
        """Fewer bundles, where the gang is of one kind and some fit."""
        fit = found.record.bundles_fit
        if len(self.job.bundles) != 1 or not 0 < fit < self.job.bundles[0].count:
            return False
        smaller = (structs.replace(self.job.bundles[0], count=fit),)
        text = f"ask for {fit} bundles instead of {self.job.bundles[0].count}"
        step = Step(text, "resize", {"job": self.job.job, "bundles": smaller})
        return self._take(step, self._requeue(lambda: setattr(self.job, "bundles", smaller)))

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

    # ── what an admin can grant ───────────────────────────────────────────────────────────────────────────────────

    def _grant(self, found: Assessment, rows: list[QuotaRow]) -> bool:
        """An override for whoever the first blocking rows are about; a group's total has none and is raised."""
        reason, scope = rows[0].reason, rows[0].scope
        if reason == "GROUP_LIMIT":
            return self._raise_total(rows[0])
        mine = [row for row in rows if row.scope == scope]
        short: Amounts = {row.kind: row.request - row.remaining - row.override for row in mine}
        names = self.ledger.settings.authorities
        who: dict[str, Any] = {"user": self.job.user} if reason == "USER_LIMIT" else {"share": self.job.share}
        override = Override(
            override=f"for-{self.job.job}-{len(self.taken)}",
            amounts=short,
            start_ms=self.now_ms,
            until_ms=self.now_ms + FOR_MS,
            reason=f"start {self.job.job}",
            authority=names[0] if names else str(BY),
            pool=found.record.pool,
            **who,
        )
        whom = " ".join(f"{key} {value}" for key, value in who.items())
        step = Step(
            f"an override of {format_amounts(short)} for {whom}",
            "override",
            {**who, "pool": found.record.pool, "amounts": short, "reason": override.reason},
        )
        return self._post(step, e.OverrideSet(at_ms=self.now_ms, override=override, by=BY))

    def _raise_total(self, row: QuotaRow) -> bool:
        """`scope` is `group G in share S`; pools' totals are left to a person."""
        words = row.scope.split()
        share = self.ledger.shares.get(ShareId(words[-1])) if words[2:4] == ["in", "share"] else None
        if share is None:
            return False
        wanted = row.used + row.request
        rules = tuple(
            structs.replace(rule, **{row.kind: wanted}) if rule.mode == "total" and rule.group == words[1] else rule
            for rule in share.limits.rules
        )
        raised: Share = structs.replace(share, limits=structs.replace(share.limits, rules=rules))
        step = Step(
            f"raise the total of group {words[1]} in share {share.share} to {format_amounts({row.kind: wanted})}",
            "raise_total",
            {"share": share.share, "group": words[1], "kind": row.kind, "amount": wanted},
        )
        return self._post(step, e.ShareSet(at_ms=self.now_ms, share=raised, by=BY))

    def _reconcile(self, found: Assessment) -> bool:
        pool = found.record.pool
        if pool is None or pool not in self.ledger.reported:
            return False
        step = Step(f"reconcile the reserved total of pool {pool}", "reconcile", {"pool": pool})
        return self._post(step, e.Reconciled(at_ms=self.now_ms, pool=pool, by=BY))

    def _uncordon(self, found: Assessment) -> bool:
        cordoned = [n for _, n in sorted(self.state.nodes.items()) if n.cordoned and n.pool == found.record.pool]
        for node in cordoned[:MOST_TRIED]:
            before = node.cordoned
            self.state.unindex(node)
            node.cordoned = None
            self.state.index(node)

            def undo(node: Any = node, before: Any = before) -> None:
                self.state.unindex(node)
                node.cordoned = before
                self.state.index(node)

            better = self._assess()
            if better is not None and (better.placement or better.record.bundles_fit > found.record.bundles_fit):
                return self._take(Step(f"uncordon {node.node}", "uncordon", {"node": node.node}), undo)
            undo()
        return False

    # ── what costs somebody something ─────────────────────────────────────────────────────────────────────────────

    def _release_reservation(self, found: Assessment) -> bool:
        books = [b for b in self.ledger.reservations.values() if b.reservation.pool == found.record.pool]
        live = [book for book in books if book.state(self.now_ms) in ("active", "coming", "on_hold")]
        live.sort(key=lambda book: (sum(book.reservation.amounts.values()), book.reservation.reservation))
        for book in live:
            name: ReservationId = book.reservation.reservation
            step = Step(f"release reservation {name}", "release", {"reservation": name})
            if self._post(step, e.ReservationReleased(at_ms=self.now_ms, reservation=name, by=BY)):
                better = self._assess()
                if better is None or better.placement is not None or better.record.reason != found.record.reason:
                    return True
                if len(live) > 1:
                    continue
                self.taken.pop()[1]()
        return bool(self.taken) and self.taken[-1][0].method == "release"

    def _cancel_other(self, found: Assessment) -> bool:
        """End the smallest job whose room is enough. The job starts once it is gone."""
        claims = [claim for claim in self.ledger.claims.values() if claim.pool == found.record.pool]
        claims.sort(key=lambda claim: (sum(claim.amounts.values()), claim.admitted_ms, claim.job))
        for claim in claims[:MOST_TRIED]:
            mark = self.draft.mark()
            self.draft.release(claim.job)
            better = self._assess()
            if better is not None and better.placement is not None:
                step = Step(f"cancel {claim.job} of {claim.user}", "cancel", {"job": claim.job})
                return self._take(step, partial(self.draft.rollback, mark))
            self.draft.rollback(mark)
        return False

    def _post(self, step: Step, entry: e.AnyEntry) -> bool:
        failing, undo = self.ledger.try_post([entry])
        return not failing and self._take(step, undo)

    def _take(self, step: Step, undo: Undo) -> bool:
        self.taken.append((step, undo))
        return True
