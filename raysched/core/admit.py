"""The admission pass: jobs that fit their share's own quota first, over all shares, then borrowers; in each step shares
take turns, one job each (semantics 5.2a)."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from raysched.core import entries as e
from raysched.core.admission import Assessment, Option, assess
from raysched.core.making import Making
from raysched.core.model import Bundle, JobId, ShareId
from raysched.core.queue import HELD_ALONE, Walk
from raysched.core.quota import Ask
from raysched.core.record import AdmissionRecord
from raysched.core.state import Job
from raysched.core.units import Amounts, add_into

Shape = tuple[Option, tuple[tuple[object, ...], ...], str]
NO_ROOM = ("NO_CAPACITY", "FRAGMENTED")
NO_WEIGHT = 0  # shares without a weight take their turn after all that have one
PARTS = 1_000_000  # a fraction of quota in use is compared in millionths


def admit(making: Making) -> None:
    """Claim for every job that may start now, and record why the others looked at may not."""
    Admission(making).run()


class Admission:
    """One tick's admission. Room only shrinks while it lasts, so a shape that found none is not searched again."""

    def __init__(self, making: Making) -> None:
        self.making = making
        self.no_room: dict[Shape, str] = {}
        self.blocked: dict[JobId, tuple[AdmissionRecord, int]] = {}
        self.admitted: set[JobId] = set()
        self.full = False

    def run(self) -> None:
        """Both steps, then a record for every job whose reason has changed."""
        shares = [share for share in sorted(self.making.state.pending) if share in self.making.ledger.shares]
        borrowers = self._step(shares, own_only=True)
        if borrowers and not self.full:
            self._step(sorted(borrowers), own_only=False)
        self._record()

    def _record(self) -> None:
        """Each record stands among the entries where it was decided, so that the books before it are those it saw."""
        for job, (record, place) in sorted(self.blocked.items(), key=lambda item: item[1][1], reverse=True):
            last = self.making.ledger.records.get(job)
            if last is None or (last.admission_state, last.reason) != (record.admission_state, record.reason):
                self.making.entries.insert(place, e.Recorded(at_ms=self.making.now_ms, record=record))

    def _step(self, shares: list[ShareId], own_only: bool) -> set[ShareId]:
        """One step over all shares in turn; returns those with a job that must borrow."""
        borrowers: set[ShareId] = set()
        walks = {share: Walk(self.making.state, self.making.ledger, share) for share in shares}
        places = {share: iter(walk) for share, walk in walks.items()}
        turns = [(*self._turn(share), share) for share in shares]
        heapify(turns)
        while turns and not self.full:
            share = heappop(turns)[-1]
            if self._next(walks[share], places[share], own_only, borrowers):
                heappush(turns, (*self._turn(share), share))
        return borrowers

    def _turn(self, share: ShareId) -> tuple[int, int]:
        """(charged / nominal of the dominant kind, in millionths; weight, falling)."""
        ledger = self.making.ledger
        used: Amounts = {}
        owned: Amounts = {}
        for pool in ledger.pools:
            account = ledger.quota.account(share, pool)
            add_into(owned, account.nominal)
            add_into(used, {kind: account.used.get(kind, 0) for kind in account.nominal})
        dominant = max((amount * PARTS // owned.get(kind, 1) for kind, amount in used.items()), default=0)
        return dominant, -(ledger.shares[share].weight or NO_WEIGHT)

    def _next(
        self, walk: Walk, places: Iterator[tuple[Job, list[Option]]], own_only: bool, borrowers: set[ShareId]
    ) -> bool:
        """Go on with a share until one of its jobs starts; False when none is left."""
        for job, options in places:
            # Who got in with the first step still stands in the queues until the plan is folded.
            if job.job in self.admitted:
                continue
            if job.retry_ms > self.making.now_ms:
                self.making.wake(job.retry_ms)
                continue
            if self._try(walk, job, options, own_only, borrowers):
                return True
            if self.full:
                return False
        return False

    def _try(self, walk: Walk, job: Job, options: list[Option], own_only: bool, borrowers: set[ShareId]) -> bool:
        first: AdmissionRecord | None = None
        must_borrow = False
        for option in options:
            if self._known(job, option):
                first = self.making.ledger.records[job.job] if first is None else first
                continue
            found = assess(self.making.draft, job, option, self.making.now_ms, own_only)
            if found.placement is not None and (found.own or not own_only):
                return self._admit(job, found, option)
            self._remember(job, option, found, own_only)
            must_borrow = must_borrow or (own_only and not found.own)
            first = found.record if first is None else first
        reason = first.reason if first is not None else None
        if must_borrow and reason not in HELD_ALONE:
            borrowers.add(job.share)
            walk.blocked(job, None)
            return False
        if first is not None:
            self.blocked[job.job] = (first, len(self.making.entries))
        walk.blocked(job, reason)
        return False

    def _admit(self, job: Job, found: Assessment, option: Option) -> bool:
        placement = found.placement
        assert placement is not None
        making = self.making
        if making.creating and making.creating + len(placement) > making.ledger.settings.max_creating:
            self.full = True
            return False
        making.admit(job, found, *option)
        self.admitted.add(job.job)
        self.blocked.pop(job.job, None)
        return True

    def _known(self, job: Job, option: Option) -> bool:
        """Whether the job's standing record says just what deciding again would say: the same limit or quota blocks it,
        or this shape found no room this tick. Then nothing is decided and nothing recorded."""
        ledger, (pool, model) = self.making.ledger, option
        last = ledger.records.get(job.job)
        if last is None or last.reason is None or (last.pool, last.model) != option:
            return False
        state = self.making.state
        room = state.pool_room(pool)
        if room.dubious or not room.reported or pool in ledger.reported:
            return False
        blocks = ledger.quota.first_block(Ask(job.share, job.user, pool, job.spec.workload, state.amounts(job, model)))
        if blocks is not None:
            return blocks == last.reason
        return self.no_room.get(_shape(job, option)) == last.reason

    def _remember(self, job: Job, option: Option, found: Assessment, own_only: bool) -> None:
        plain = not found.record.reserved_by_others and (found.own or not own_only)
        if plain and found.record.reason in NO_ROOM:
            self.no_room[_shape(job, option)] = str(found.record.reason)


def _shape(job: Job, option: Option) -> Shape:
    """What decides whether there is room: the bundles, where, and whether one topology domain must hold them."""
    return option, tuple(_bundle_shape(bundle) for bundle in job.bundles), job.spec.topology


def _bundle_shape(bundle: Bundle) -> tuple[object, ...]:
    attach = tuple(sorted(bundle.attach.items())) if bundle.attach else ()
    return bundle.gpu_milli, bundle.cpu_milli, bundle.memory_bytes, bundle.count, attach
