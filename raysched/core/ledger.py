"""The ledger: the entitlement, reservation and admission books, and the one door through which they change.

`try_post` checks every entry on the present books and applies all or none. The quota actor posts; the scheduler keeps
a copy by folding the same entries (`fold`), and charges its drafts with the same functions."""

from collections.abc import Sequence
from functools import partial

from raysched.core import entries as e
from raysched.core.accounts import Ask
from raysched.core.books import (
    Claim,
    ReservationBook,
    Undo,
    describe,
    drop,
    put,
    remover,
    run_back,
    same_charge,
    subject_of,
)
from raysched.core.model import (
    Bundle,
    GroupId,
    JobId,
    Override,
    Placement,
    Pool,
    PoolId,
    ReservationId,
    Settings,
    Share,
    ShareId,
    UserId,
)
from raysched.core.quota import QuotaTree
from raysched.core.record import AdmissionRecord
from raysched.core.units import Amounts, add_into


class Ledger:
    """The books as they stand after `version` entries. `now_ms` is the latest time any entry or plan has shown."""

    def __init__(self) -> None:
        self.version = 0
        self.now_ms = 0
        self.settings = Settings()
        self.pools: dict[PoolId, Pool] = {}
        self.groups: dict[GroupId, tuple[UserId, ...]] = {}
        self.shares: dict[ShareId, Share] = {}
        self.changed: dict[str, int] = {}
        self.reservations: dict[ReservationId, ReservationBook] = {}
        self.overrides: dict[str, Override] = {}
        self.reported: dict[PoolId, Amounts] = {}
        self.claims: dict[JobId, Claim] = {}
        self.records: dict[JobId, AdmissionRecord] = {}
        self.quota = QuotaTree()
        self._released: tuple[int, Claim] | None = None
        self._edges: tuple[int, ...] = ()

    # ── posting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def try_post(self, posted: Sequence[e.AnyEntry]) -> tuple[list[tuple[int, str]], Undo]:
        """Check and apply entries in order. Returns (failing, undo): with any failing entry, as (index, why), nothing
        was applied. `undo` takes everything back, for a store that could not keep it."""
        failing: list[tuple[int, str]] = []
        undone: list[Undo] = []
        before = self.version

        def back() -> None:
            run_back(undone)
            self.version = before

        for index, entry in enumerate(posted):
            self.advance(entry.at_ms)
            why = self._refuses(entry)
            if why is not None:
                failing.append((index, why))
            else:
                undone.append(self._apply(entry))
        if failing:
            back()
            return failing, lambda: None
        return [], back

    def fold(self, entry: e.AnyEntry) -> None:
        """Apply an entry that was posted: it is not checked again."""
        self.advance(entry.at_ms)
        self._apply(entry)

    def fold_kept(self, entry: e.AnyEntry) -> None:
        """Apply an entry of a plan whose draft was kept: what it charges and draws is charged and drawn."""
        self.advance(entry.at_ms)
        if isinstance(entry, e.Claimed):
            self.claims[entry.job] = self._claim_of(entry)
            self.records[entry.job] = entry.record
        elif isinstance(entry, e.Voided | e.Expired | e.Released):
            self._released = (self.version + 1, self.claims.pop(entry.job))
        else:
            self._change(entry)
        self.version += 1

    def advance(self, now_ms: int) -> None:
        """Move the books' clock; overrides whose window opened or closed begin or cease to count. Never goes back."""
        if now_ms <= self.now_ms:
            return
        crossed = any(self.now_ms < edge <= now_ms for edge in self._edges)
        self.now_ms = now_ms
        if crossed:
            self._refresh_overrides()

    # ── checks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _refuses(self, entry: e.AnyEntry) -> str | None:
        if isinstance(entry, e.Edit) and entry.base is not None:
            subject = subject_of(entry)
            changed = self.changed.get(subject, 0)
            if changed > entry.base:
                return f"{subject} was changed in version {changed}, after version {entry.base} that was edited"
        match entry:
            case e.Claimed():
                return self._refuses_claim(entry)
            case e.Committed() | e.Voided() | e.Expired() | e.Released():
                claim = self.claims.get(entry.job)
                if claim is None or claim.attempt != entry.attempt:
                    return f"job {entry.job} has no claim of attempt {entry.attempt}"
            case e.Moved():
                return self._refuses_move(entry)
            case e.Resized():
                return self._refuses_resize(entry)
            case e.ShareDeleted():
                if entry.share not in self.shares:
                    return f"UNKNOWN_SHARE: share {entry.share} does not exist"
                held = sum(1 for claim in self.claims.values() if claim.share == entry.share)
                if held:
                    return f"share {entry.share} is charged by {held} unfinished jobs"
            case e.ReservationReleased():
                book = self.reservations.get(entry.reservation)
                if book is None or book.released_ms is not None:
                    return f"reservation {entry.reservation} does not exist or was released"
            case _:
                pass
        return None

    def _refuses_claim(self, entry: e.Claimed) -> str | None:
        if entry.share not in self.shares:
            return f"UNKNOWN_SHARE: share {entry.share} does not exist"
        held = self.claims.get(entry.job)
        if held is not None:
            return f"job {entry.job} already holds the claim of attempt {held.attempt}"
        if entry.continues:
            last = self._released
            if last is None or last[0] != self.version or not same_charge(last[1], entry):
                return f"job {entry.job}: attempt {entry.attempt} does not continue a claim released in this post"
            return None
        ask = Ask(entry.share, entry.user, entry.pool, entry.workload, entry.amounts)
        if self.quota.first_block(ask) is not None:
            return describe(self.quota.charge(ask)[0])
        return None

    def _refuses_move(self, entry: e.Moved) -> str | None:
        claim = self.claims.get(entry.job)
        if claim is None:
            return f"job {entry.job} has no claim"
        if entry.share not in self.shares:
            return f"UNKNOWN_SHARE: share {entry.share} does not exist"
        old = claim.ask()
        self.quota.uncharge(old)
        new = Ask(entry.share, claim.user, claim.pool, claim.workload, claim.amounts)
        blocked = self.quota.charge(new)
        if not blocked:
            self.quota.uncharge(new)
        self.quota.charge(old, check=False)
        return describe(blocked[0]) if blocked else None

    def _refuses_resize(self, entry: e.Resized) -> str | None:
        claim = self.claims.get(entry.job)
        if claim is None:
            return f"job {entry.job} has no claim"
        old = claim.ask()
        new = Ask(claim.share, claim.user, claim.pool, claim.workload, entry.amounts)
        self.quota.uncharge(old)
        grown = {kind for kind, amount in entry.amounts.items() if amount > claim.amounts.get(kind, 0)}
        blocked = [
            row for row in self.quota.rows(new) if row.kind in grown and row.request > row.remaining + row.override
        ]
        self.quota.charge(old, check=False)
        return describe(blocked[0]) if blocked else None

    # ── changes, each with its inverse ────────────────────────────────────────────────────────────────────────────

    def _apply(self, entry: e.AnyEntry) -> Undo:
        """Apply one entry; the way back leaves `version` to the caller."""
        undo = self._change(entry)
        self.version += 1
        if not isinstance(entry, e.Edit):
            return undo
        unmark = put(self.changed, subject_of(entry), self.version)

        def back() -> None:
            unmark()
            undo()

        return back

    def _change(self, entry: e.AnyEntry) -> Undo:
        match entry:
            case e.Claimed():
                return self._claim(entry)
            case e.Committed():
                return self._commit(entry)
            case e.Voided() | e.Expired() | e.Released():
                return self._release(entry.job)
            case e.Moved():
                return self._recharge(entry.job, share=entry.share)
            case e.Resized():
                return self._recharge(entry.job, None, entry.amounts, entry.placement, entry.bundles)
            case e.Recorded():
                return put(self.records, entry.record.job, entry.record)
            case e.ReservationSet() | e.ReservationReleased():
                return self._reserve(entry)
            case e.ReservedReported():
                return put(self.reported, entry.pool, dict(entry.amounts))
            case e.Reconciled():
                return drop(self.reported, entry.pool)
            case _:
                return self._set_book(entry)

    def _claim_of(self, entry: e.Claimed) -> Claim:
        last = self._released[1] if entry.continues and self._released is not None else None
        return Claim(
            entry.job,
            entry.attempt,
            entry.user,
            entry.share,
            entry.pool,
            entry.model,
            entry.workload,
            entry.priority,
            entry.amounts,
            entry.placement,
            entry.at_ms,
            admitted_ms=entry.at_ms if last is None or last.job != entry.job else last.admitted_ms,
            reservation=entry.reservation,
            draws=entry.draws,
        )

    def _claim(self, entry: e.Claimed) -> Undo:
        claim, job = self._claim_of(entry), entry.job
        ask, before = claim.ask(), self.records.get(job)
        self.quota.charge(ask, check=False)
        self._draw(claim, 1)
        self.records[job], self.claims[job] = entry.record, claim

        return partial(self._unclaim, claim, ask, before)

    def _unclaim(self, claim: Claim, ask: Ask, before: AdmissionRecord | None) -> None:
        del self.claims[claim.job]
        if before is None:
            del self.records[claim.job]
        else:
            self.records[claim.job] = before
        self._draw(claim, -1)
        self.quota.uncharge(ask)

    def _commit(self, entry: e.Committed) -> Undo:
        claim = self.claims[entry.job]
        before, claim.committed = claim.committed, True

        def undo() -> None:
            claim.committed = before

        return undo

    def _release(self, job: JobId) -> Undo:
        claim = self.claims.pop(job)
        self.quota.uncharge(claim.ask())
        self._draw(claim, -1)
        before, self._released = self._released, (self.version + 1, claim)

        def undo() -> None:
            self._released = before
            self.claims[job] = claim
            self.quota.charge(claim.ask(), check=False)
            self._draw(claim, 1)

        return undo

    def _recharge(
        self,
        job: JobId,
        share: ShareId | None = None,
        amounts: Amounts | None = None,
        placement: Placement | None = None,
        bundles: tuple[Bundle, ...] = (),
    ) -> Undo:
        claim = self.claims[job]
        before = (claim.share, claim.amounts, claim.placement, claim.bundles)
        resized = claim.amounts if amounts is None else amounts
        after = (share or claim.share, resized, placement or claim.placement, bundles or claim.bundles)

        def become(new: tuple[ShareId, Amounts, Placement, tuple[Bundle, ...]]) -> None:
            self.quota.uncharge(claim.ask())
            claim.share, claim.amounts, claim.placement, claim.bundles = new
            self.quota.charge(claim.ask(), check=False)

        become(after)
        return lambda: become(before)

    def _draw(self, claim: Claim, sign: int) -> None:
        if claim.reservation is not None and claim.reservation in self.reservations:
            add_into(self.reservations[claim.reservation].drawn, claim.draws, sign)

    def _reserve(self, entry: e.ReservationSet | e.ReservationReleased) -> Undo:
        if isinstance(entry, e.ReservationReleased):
            book = self.reservations[entry.reservation]
            book.released_ms = entry.at_ms
            book.history.append(("released", entry.at_ms))

            def reopen() -> None:
                book.released_ms = None
                book.history.pop()

            return reopen
        name = entry.reservation.reservation
        old = self.reservations.get(name)
        if old is None:
            self.reservations[name] = ReservationBook(entry.reservation, [("created", entry.at_ms)])
            return remover(self.reservations, name)
        before = old.reservation
        old.reservation = entry.reservation
        old.history.append(("changed", entry.at_ms))

        def unchange() -> None:
            old.reservation = before
            old.history.pop()

        return unchange

    def _set_book(self, entry: e.AnyEntry) -> Undo:
        match entry:
            case e.SettingsSet():
                before, self.settings = self.settings, entry.settings

                def undo() -> None:
                    self.settings = before

                return undo
            case e.PoolSet():
                undo = put(self.pools, entry.pool.pool, entry.pool)
            case e.PoolDeleted():
                undo = drop(self.pools, entry.pool)
            case e.GroupSet():
                undo = put(self.groups, entry.group, entry.members)
            case e.ShareSet():
                undo = put(self.shares, entry.share.share, entry.share)
            case e.ShareDeleted():
                undo = drop(self.shares, entry.share)
            case e.OverrideSet():
                undo = put(self.overrides, entry.override.override, entry.override)
            case _:
                raise AssertionError(f"no book for {type(entry).__name__}")
        self._refresh()

        def back() -> None:
            undo()
            self._refresh()

        return back

    def _refresh(self) -> None:
        self.quota.limits.set_groups(self.groups)
        self.quota.limits.set_pools({pool.pool: pool.limits for pool in self.pools.values()})
        self.quota.set_shares(self.shares, self.pool_order())
        self._edges = tuple(edge for o in self.overrides.values() for edge in (o.start_ms, o.until_ms))
        self._refresh_overrides()

    def _refresh_overrides(self) -> None:
        self.quota.set_overrides(self.active_overrides(self.now_ms))

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def pool_order(self) -> list[PoolId]:
        """Pools in configuration order."""
        return sorted(self.pools, key=lambda pool: (self.pools[pool].index, pool))

    def active_overrides(self, now_ms: int) -> list[Override]:
        """Overrides whose window is open, by name."""
        return [o for _, o in sorted(self.overrides.items()) if o.start_ms <= now_ms < o.until_ms]

    def next_edge_ms(self, now_ms: int) -> int | None:
        """When the next override or reservation begins or ends to count."""
        edges = [edge for edge in self._edges if edge > now_ms]
        for book in self.reservations.values():
            if book.released_ms is None:
                window = (book.reservation.start_ms, book.reservation.expiry_ms)
                edges += [edge for edge in window if edge is not None and edge > now_ms]
        return min(edges, default=None)
