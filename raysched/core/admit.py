"""The admission pass: jobs that fit their share's own quota first, over all shares, then borrowers; in each step shares
take turns, one job each (semantics 5.2a)."""

from heapq import heapify, heappop, heappush

from raysched.core import entries as e
from raysched.core.accounts import Ask
from raysched.core.admission import Assessment, Option, assess, evidence_of, find_room
from raysched.core.lines import Alike, Shape
from raysched.core.making import Making
from raysched.core.model import JobId, PoolId, ShareId, UserId
from raysched.core.placement import Placed
from raysched.core.queue import HELD_ALONE, Walk, options
from raysched.core.record import AdmissionRecord, Reason
from raysched.core.reservation import NOTHING_KEPT
from raysched.core.state import Job

NO_ROOM = ("NO_CAPACITY", "FRAGMENTED")
BY_LIMIT: frozenset[Reason | None] = frozenset({"USER_LIMIT", "GROUP_LIMIT"})
NO_WEIGHT = 0  # shares without a weight take their turn after all that have one
PARTS = 1_000_000  # a fraction of quota in use is compared in millionths


def admit(making: Making) -> None:
    """Claim for every job that may start now, and record why the others looked at may not."""
    Admission(making).run()


class Admission:
    """One tick's admission. Room only shrinks while it lasts, so a shape that found none is not searched again."""

    def __init__(self, making: Making) -> None:
        self.making = making
        self.no_room: dict[tuple[Option, Shape], Reason] = {}
        self.blocked: dict[JobId, tuple[AdmissionRecord, int]] = {}
        self.admitted: set[JobId] = set()
        self.taken: dict[tuple[Alike, UserId], int] = {}
        self.tired: dict[tuple[Alike, UserId], None] = {}
        self.unclear = self._unclear()
        # A reservation of one user's own makes room for that user alone.
        self.personal = any(
            book.released_ms is None and book.reservation.user is not None
            for book in making.ledger.reservations.values()
        )
        # Per pool how many were placed, and what was found out about shapes when it was so many.
        self.placed: dict[PoolId, int] = {}
        self.evident: dict[tuple[Option, Shape], tuple[int, bool]] = {}
        self.full = False

    def _unclear(self) -> frozenset[PoolId]:
        """Pools in which evidence decides first (semantics 7.2), so that no standing verdict may be taken as it is."""
        state, ledger = self.making.state, self.making.ledger
        rooms = state.pools.items()
        return frozenset(
            [pool for pool, room in rooms if room.dubious or not room.reported]
            + [pool for pool in ledger.pools if pool not in state.pools or pool in ledger.reported]
        )

    def run(self) -> None:
        """Both steps, then a record for every job whose reason has changed."""
        state, limits = self.making.state, self.making.ledger.quota.limits
        serial = limits.serial
        state.pending.rouse((id(limits), limits.edition, state.models_edition, self.unclear), limits.eased)
        shares = [share for share in sorted(state.pending.shares) if share in self.making.ledger.shares]
        borrowers = self._step(shares, own_only=True)
        if borrowers and not self.full:
            self._step(sorted(borrowers), own_only=False)
        self._record()
        for group, user in self.tired:
            state.pending.sleep(group, user, serial)

    def _record(self) -> None:
        """Each record stands among the entries where it was decided, so that the books before it are those it saw."""
        records, at_ms = self.making.ledger.records, self.making.now_ms
        entries: list[e.AnyEntry] = []
        done = 0
        for job, (record, place) in sorted(self.blocked.items(), key=lambda item: item[1][1]):
            last = records.get(job)
            if last is None or (last.admission_state, last.reason) != (record.admission_state, record.reason):
                entries += self.making.entries[done:place]
                entries.append(e.Recorded(at_ms=at_ms, record=record))
                done = place
        self.making.entries[:done] = entries

    def _step(self, shares: list[ShareId], own_only: bool) -> set[ShareId]:
        """One step over all shares in turn; returns those with a job that must borrow."""
        borrowers: set[ShareId] = set()
        turns = [(*self._turn(share), share, self._walk(share)) for share in shares]
        heapify(turns)
        while turns and not self.full:
            _, _, share, walk = heappop(turns)
            if self._next(walk, own_only, borrowers):
                heappush(turns, (*self._turn(share), share, walk))
        return borrowers

    def _walk(self, share: ShareId) -> Walk:
        state, ledger = self.making.state, self.making.ledger
        groups = state.pending.shares[share].values()
        choices = state.pending.choices.setdefault(share, {})
        for group in groups:
            if group.choice not in choices:
                choices[group.choice] = options(state, ledger, share, group.choice)
        return Walk(groups, ledger.shares[share].queue, choices, self.taken)

    def _turn(self, share: ShareId) -> tuple[int, int]:
        """(charged / nominal of the dominant kind, in millionths; weight, falling)."""
        ledger = self.making.ledger
        return ledger.quota.dominant(share, PARTS), -(ledger.shares[share].weight or NO_WEIGHT)

    def _next(self, walk: Walk, own_only: bool, borrowers: set[ShareId]) -> bool:
        """Go on with a share until one of its jobs starts; False when none is left."""
        while (found := walk.next()) is not None:
            job_id, group, user, choice = found
            # Who got in with the first step still stands in the queues until the plan is folded.
            if job_id in self.admitted:
                walk.passed(starts=False)
                continue
            job = self.making.state.jobs[job_id]
            if job.retry_ms > self.making.now_ms:
                self.making.wake(job.retry_ms)
                walk.passed(starts=False)
            elif self._try(walk, job, group, choice, own_only, borrowers):
                walk.passed(starts=True)
                return True
            if self.full:
                return False
        return False

    def _try(
        self, walk: Walk, job: Job, group: Alike, choice: list[Option], own_only: bool, borrowers: set[ShareId]
    ) -> bool:
        standing = self.making.ledger.records.get(job.job)
        first: AdmissionRecord | None = None
        reasons: list[Reason | None] = []
        must_borrow = False
        for option in choice:
            known = None
            if first is not None or _is_refusal(standing, option):
                known = self._known(job, group, option)
            if known is not None and (first is not None or (standing is not None and standing.reason == known)):
                first = standing if first is None else first
                reasons.append(known)
                continue
            if own_only and self._borrows(job, group, option):
                must_borrow = True
                reasons.append(None)
                continue
            found = assess(self.making.draft, job, option, self.making.now_ms, own_only)
            if found.placement is not None and (found.own or not own_only):
                return self._admit(job, found, option)
            self._remember(group, option, found, own_only)
            must_borrow = must_borrow or not (found.own or found.record.reason in HELD_ALONE)
            first = found.record if first is None else first
            reasons.append(found.record.reason)
        self._refused(walk, job, group, reasons, first, must_borrow, borrowers)
        return False

    def _refused(
        self,
        walk: Walk,
        job: Job,
        group: Alike,
        reasons: list[Reason | None],
        first: AdmissionRecord | None,
        must_borrow: bool,
        borrowers: set[ShareId],
    ) -> None:
        """What a refusal means for those behind the job."""
        reason = first.reason if first is not None else None
        if HELD_ALONE.isdisjoint(reasons) and not self.personal:
            walk.closed()
        if must_borrow:
            borrowers.add(job.share)
            walk.refused(None)
            return
        if first is not None and first is not self.making.ledger.records.get(job.job):
            self.blocked[job.job] = (first, len(self.making.entries))
        else:
            # Nothing has changed, so nothing is decided and nothing recorded.
            self.blocked.pop(job.job, None)
            if BY_LIMIT.issuperset(reasons) and self._is_clear(group):
                self.tired[group, job.user] = None
        walk.refused(reason)

    def _is_clear(self, group: Alike) -> bool:
        """Whether nothing but a limit can have decided, whatever option it was."""
        choice = self.making.state.pending.choices[group.share][group.choice]
        return all(pool not in self.unclear for pool, _ in choice)

    def _admit(self, job: Job, found: Assessment, option: Option) -> bool:
        placement = found.placement
        assert placement is not None
        making = self.making
        if making.creating and making.creating + len(placement) > making.ledger.settings.max_creating:
            self.full = True
            return False
        making.admit(job, found, *option)
        self.placed[option[0]] = self.placed.get(option[0], 0) + 1
        self.admitted.add(job.job)
        self.blocked.pop(job.job, None)
        return True

    def _known(self, job: Job, group: Alike, option: Option) -> Reason | None:
        """What blocks the job here, where that is sure without a decision: a limit or quota does, or its shape found no
        room this tick."""
        pool, model = option
        if pool in self.unclear and not self._is_evident(job, group, option):
            return None
        ask = Ask(job.share, job.user, pool, job.spec.workload, group.amounts(model))
        blocks = self.making.ledger.quota.first_block(ask)
        return self.no_room.get((option, group.shape)) if blocks is None else blocks

    def _is_evident(self, job: Job, group: Alike, option: Option) -> bool:
        """Whether nodes that are not evidence make no difference to this shape: it fits without them, or not even with
        them. Worked out once for all alike, until somebody else takes room in the pool."""
        pool, ledger = option[0], self.making.ledger
        if ledger.reservations or pool in ledger.reported or not self.making.state.pool_room(pool).reported:
            return False
        mark, known = self.placed.get(pool, 0), self.evident.get((option, group.shape))
        if known is None or known[0] != mark:
            draft = self.making.draft
            fits = isinstance(find_room(draft, job, option, NOTHING_KEPT), Placed)
            known = (mark, fits or evidence_of(draft, job, option)[0] == "VALID")
            self.evident[option, group.shape] = known
        return known[1]

    def _borrows(self, job: Job, group: Alike, option: Option) -> bool:
        """Whether the job is sure to be asked again as a borrower, so that nothing need be decided now."""
        pool, model = option
        if pool in self.unclear and not self._is_evident(job, group, option):
            return False
        quota, ask = self.making.ledger.quota, Ask(job.share, job.user, pool, job.spec.workload, group.amounts(model))
        return not quota.fits_own(ask) and quota.first_block(ask) not in HELD_ALONE

    def _remember(self, group: Alike, option: Option, found: Assessment, own_only: bool) -> None:
        reason = found.record.reason
        if reason in NO_ROOM and not found.record.reserved_by_others and (found.own or not own_only):
            self.no_room[option, group.shape] = reason


def _is_refusal(record: AdmissionRecord | None, option: Option) -> bool:
    """Whether the record refuses a job in this place."""
    return record is not None and record.reason is not None and (record.pool, record.model) == option
