"""The admission pass: jobs that fit their share's own quota first, over all shares, then borrowers; in each step shares
take turns, one job each (semantics 5.2a)."""

from heapq import heapify, heappop, heapreplace

from msgspec import Struct, field

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
NO_WEIGHT = 0  # shares without a weight take their turn after all that have one
PARTS = 1_000_000  # a fraction of quota in use is compared in millionths


def admit(making: Making) -> None:
    """Claim for every job that may start now, and record why the others looked at may not."""
    Admission(making).run()


class Look(Struct, gc=False):
    """One look at a waiting job: its record as it stands, and of the places it was refused in, in order, the reasons
    and the first record. `must_borrow`: it will be asked again as a borrower."""

    job: Job
    group: Alike
    standing: AdmissionRecord | None
    first: AdmissionRecord | None = None
    reasons: list[Reason | None] = field(default_factory=list)
    must_borrow: bool = False

    def ask(self, option: Option) -> Ask:
        """What it asks in a place."""
        job, (pool, model) = self.job, option
        return Ask(job.share, job.user, pool, job.spec.workload, self.group.amounts(model))


class Admission:
    """One tick's admission. Room only shrinks while it lasts, so a shape that found none is not searched again."""

    def __init__(self, making: Making) -> None:
        self.making = making
        self.no_room: dict[tuple[Option, Shape, ShareId | None], Reason] = {}
        self.blocked: dict[JobId, tuple[AdmissionRecord, int]] = {}
        self.admitted: set[JobId] = set()
        self.taken: dict[tuple[Alike, UserId], int] = {}
        self.retrying: set[tuple[Alike, UserId]] = set()
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
            _, _, share, walk = turns[0]
            if self._next(walk, own_only, borrowers):
                heapreplace(turns, (*self._turn(share), share, walk))
            else:
                heappop(turns)
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
                self.retrying.add((group, user))
                walk.passed(starts=False)
                continue
            look = Look(job, group, self.making.ledger.records.get(job_id))
            if self._starts(look, choice, own_only):
                walk.passed(starts=True)
                return True
            if self.full:
                return False
            self._refused(walk, look, borrowers)
        return False

    def _starts(self, look: Look, choice: list[Option], own_only: bool) -> bool:
        """Try the options in order; the look holds what was found in those that refused."""
        for option in choice:
            reason = None if look.first is None and look.standing is None else self._standing(look, option)
            if reason is not None:
                look.first = look.first or look.standing
                look.reasons.append(reason)
                continue
            ask = look.ask(option)
            borrows = own_only and not self.making.ledger.quota.fits_own(ask)
            if borrows and self._asked_again(look, option):
                look.must_borrow = True
                look.reasons.append(None)
                continue
            found = assess(self.making.draft, look.job, option, self.making.now_ms, borrows, ask)
            if found.placement is not None:
                return self._admit(look.job, found, option)
            if not borrows:
                self._remember(look.group, option, found.record)
            look.must_borrow = look.must_borrow or (borrows and found.record.reason not in HELD_ALONE)
            look.first = look.first or found.record
            look.reasons.append(found.record.reason)
        return False

    def _refused(self, walk: Walk, look: Look, borrowers: set[ShareId]) -> None:
        """What a refusal means for those behind the job, and what is recorded of it."""
        job, group = look.job, look.group
        if HELD_ALONE.isdisjoint(look.reasons) and not self.personal:
            walk.closed()
        if look.must_borrow:
            borrowers.add(job.share)
            walk.refused(None)
            return
        if look.first is not None and look.first is not look.standing:
            self.blocked[job.job] = (look.first, len(self.making.entries))
        else:
            # Nothing has changed, so nothing is decided and nothing recorded.
            self.blocked.pop(job.job, None)
            if self._may_sleep(look):
                self.tired[group, job.user] = None
        walk.refused(None if look.first is None else look.first.reason)

    def _may_sleep(self, look: Look) -> bool:
        """Whether the same will be decided of the whole line until something of its user's is given back: the user's
        own limit refuses it in every place it may ever run, and nothing else can have come before or come now."""
        choice = self.making.state.pending.choices[look.group.share][look.group.choice]
        return (
            look.reasons == ["USER_LIMIT"] * len(choice)
            and (look.group, look.job.user) not in self.retrying
            and not self.making.ledger.quota.limits.is_excepted(look.job.user)
            and all(pool not in self.unclear for pool, _ in choice)
        )

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

    def _standing(self, look: Look, option: Option) -> Reason | None:
        """Why the job is refused here, where that is sure without a decision: a limit or quota refuses it, or its shape
        found no room this tick. In the first place of all, only if its standing record says just that."""
        if look.first is not None:
            return self._known(look, option)
        last = look.standing
        if last is None or last.reason is None or (last.pool, last.model) != option:
            return None
        reason = self._known(look, option)
        return reason if reason == last.reason else None

    def _known(self, look: Look, option: Option) -> Reason | None:
        if option[0] in self.unclear and not self._is_evident(look, option):
            return None
        blocks = self.making.ledger.quota.first_block(look.ask(option))
        return self.no_room.get(self._room_of(look.group, option)) if blocks is None else blocks

    def _room_of(self, group: Alike, option: Option) -> tuple[Option, Shape, ShareId | None]:
        """Who finds the same room: all of a shape, where no reservation makes a difference between shares."""
        return option, group.shape, group.share if self.making.ledger.reservations else None

    def _is_evident(self, look: Look, option: Option) -> bool:
        """Whether nodes that are not evidence make no difference to this shape: it fits without them, or not even with
        them. Worked out once for all alike, until somebody else takes room in the pool."""
        pool, ledger = option[0], self.making.ledger
        if ledger.reservations or pool in ledger.reported or not self.making.state.pool_room(pool).reported:
            return False
        key = (option, look.group.shape)
        mark, known = self.placed.get(pool, 0), self.evident.get(key)
        if known is None or known[0] != mark:
            draft = self.making.draft
            fits = isinstance(find_room(draft, look.job, option, NOTHING_KEPT), Placed)
            known = self.evident[key] = (mark, fits or evidence_of(draft, look.job, option)[0] == "VALID")
        return known[1]

    def _asked_again(self, look: Look, option: Option) -> bool:
        """Whether a job that must borrow is sure to be asked again as a borrower, so that nothing is decided now."""
        if option[0] in self.unclear and not self._is_evident(look, option):
            return False
        return self.making.ledger.quota.first_block(look.ask(option)) not in HELD_ALONE

    def _remember(self, group: Alike, option: Option, record: AdmissionRecord) -> None:
        if record.reason in NO_ROOM and not record.reserved_by_others:
            self.no_room[self._room_of(group, option)] = record.reason
