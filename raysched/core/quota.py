"""How much may be charged, and to whom the rest belongs: shares with a cohort above them, and limits beside them.

One recursion both checks and charges. In every pool and kind a share has a *local* part of its nominal, never lent,
and gives the rest to its cohort; a charge fills the local part first and passes the remainder up. What a share can
still be charged is what is left of its local part plus what the cohort has left, up to its borrow limit. (The form
of this recursion is Kueue's; the rules are semantics 2 to 4.) All sums are kept, none is recomputed on a check."""

from collections.abc import Iterable

from raysched.core.accounts import Account, Ask, Commons, borrow_limit, uncovered
from raysched.core.limits import LimitBook
from raysched.core.model import CohortId, Override, PoolId, Share, ShareId
from raysched.core.record import QuotaRow, Reason
from raysched.core.units import GPU, MODEL_PREFIX, Amounts, Kind, add_into


class QuotaTree:
    """All accounts, with the sums of what is charged. Shares and overrides are set by the ledger."""

    def __init__(self) -> None:
        self.shares: dict[ShareId, Share] = {}
        self._accounts: dict[tuple[ShareId, PoolId], Account] = {}
        self._commons: dict[tuple[CohortId, PoolId], Commons] = {}
        self._stale = False
        self._of_share: dict[ShareId, list[Account]] = {}
        self._weighed: dict[ShareId, list[tuple[Kind, int, list[Amounts]]]] = {}
        self.limits = LimitBook()
        self._overrides: tuple[Override, ...] = ()
        self._pools: tuple[PoolId, ...] = ()
        self._nominal: dict[PoolId, Amounts] = {}
        self._kinds: dict[tuple[CohortId, PoolId], tuple[Kind, ...]] = {}

    # ── structure ─────────────────────────────────────────────────────────────────────────────────────────────────

    def set_shares(self, shares: dict[ShareId, Share], pools: Iterable[PoolId]) -> None:
        """Replace every share and pool; what is charged stays charged."""
        self.shares, self._pools = dict(shares), tuple(pools)
        self.limits.set_shares(self.shares)
        self._stale = True

    def set_overrides(self, overrides: Iterable[Override]) -> None:
        """Replace the overrides whose window is open now."""
        self._overrides = tuple(overrides)
        self.limits.set_overrides(self._overrides)
        self._stale = True

    @property
    def accounts(self) -> dict[tuple[ShareId, PoolId], Account]:
        """Every share in every pool."""
        if self._stale:
            self._rebuild()
        return self._accounts

    @property
    def commons(self) -> dict[tuple[CohortId, PoolId], Commons]:
        """Every cohort in every pool."""
        if self._stale:
            self._rebuild()
        return self._commons

    def account(self, share: ShareId, pool: PoolId) -> Account:
        """The account of a share in a pool; an unknown pair has an empty one. KeyError for an unknown share."""
        if self._stale:
            self._rebuild()
        found = self._accounts.get((share, pool))
        if found is None:
            found = self._accounts[share, pool] = self._open(self.shares[share], pool)
            self._enter(found)
            if found.common.restricted:
                found.by_workload = {}
        return found

    def _enter(self, account: Account) -> None:
        account.common.accounts.append(account)
        self._of_share.setdefault(account.share, []).append(account)
        self._weighed.pop(account.share, None)

    def _rebuild(self) -> None:
        """Set up all accounts anew, at the first question after a change: of many changes at once only one is worth
        it. What is charged stays charged."""
        self._stale = False
        old, self._accounts, self._commons, self._nominal = self._accounts, {}, {}, {}
        self._of_share, self._weighed, self._kinds = {}, {}, self._governed_kinds()
        keys = dict.fromkeys((s, p) for s in sorted(self.shares) for p in self._pools)
        for share_id, pool in {**keys, **dict.fromkeys(key for key in old if key[0] in self.shares)}:
            account = self._open(self.shares[share_id], pool)
            before = old.get((share_id, pool))
            if before is not None:
                account.used = before.used
            self._accounts[share_id, pool] = account
        for account in self._accounts.values():
            common = account.common
            self._enter(account)
            add_into(self._nominal.setdefault(account.pool, {}), account.nominal)
            common.restricted = common.restricted or (account.lends and account.accepts is not None)
            for kind in account.nominal:
                gives = account.owned(kind) - account.local.get(kind, 0)
                takes = max(0, account.used.get(kind, 0) - account.local.get(kind, 0))
                add_into(common.lendable, {kind: gives})
                add_into(common.taken, {kind: takes})
        for account in self._accounts.values():
            if account.common.restricted:
                account.by_workload = account.used_by_workload()

    def _open(self, share: Share, pool: PoolId) -> Account:
        nominal = self._governed_nominal(share, pool)
        sharing = share.sharing
        lend_limit = None if sharing.lend_limit is None else sharing.lend_limit.get(pool, {})
        local: Amounts = {}
        for kind, own in nominal.items():
            lent = own if lend_limit is None else min(own, lend_limit.get(kind, own))
            local[kind] = own - lent if sharing.lends else own
        account = Account(
            share=share.share,
            pool=pool,
            nominal=nominal,
            local=local,
            borrows=sharing.borrows,
            lends=sharing.lends,
            borrow_limit=borrow_limit(share) if sharing.borrows else {},
            accepts=None if sharing.lend_workloads is None else frozenset(sharing.lend_workloads),
            common=self._commons.setdefault((share.cohort, pool), Commons()),
            people=self.limits.people(share.share, pool),
        )
        for override in self._overrides:
            if override.user is None and override.share == share.share and override.pool in (None, pool):
                target = account.override if override.authority is not None else account.unauthorised
                add_into(target, {kind: n for kind, n in override.amounts.items() if kind in nominal})
        add_into(local, account.override)
        return account

    def _governed_nominal(self, share: Share, pool: PoolId) -> Amounts:
        own = share.nominal.get(pool)
        if own is not None:
            nominal = dict(own)
            models = [kind for kind in nominal if kind.startswith(MODEL_PREFIX)]
            nominal.setdefault(GPU, sum(nominal[kind] for kind in models))
            return nominal
        return dict.fromkeys(self._kinds.get((share.cohort, pool), (GPU,)), 0)

    def _governed_kinds(self) -> dict[tuple[CohortId, PoolId], tuple[Kind, ...]]:
        """What some share of a cohort owns in a pool; the others may borrow it there, and own none."""
        found: dict[tuple[CohortId, PoolId], set[Kind]] = {}
        for share in self.shares.values():
            for pool, nominal in share.nominal.items():
                found.setdefault((share.cohort, pool), {GPU}).update(nominal)
        return {key: tuple(sorted(kinds)) for key, kinds in found.items()}

    def nominal_in_pool(self, pool: PoolId) -> Amounts:
        """The sum of all shares' nominal quota in one pool."""
        if self._stale:
            self._rebuild()
        return self._nominal.get(pool, {})

    def dominant(self, share: ShareId, parts: int) -> int:
        """used / nominal of the share over all pools in the kind where it is largest, in `parts`; a kind that it owns
        nowhere counts as one unit."""
        if self._stale:
            self._rebuild()
        kinds = self._weighed.get(share)
        if kinds is None:
            kinds = self._weighed[share] = self._weigh(share)
        most = 0
        for kind, owned, uses in kinds:
            amount = 0
            for used in uses:
                amount += used.get(kind, 0)
            if amount * parts > most * owned:
                most = amount * parts // owned
        return most

    def _weigh(self, share: ShareId) -> list[tuple[Kind, int, list[Amounts]]]:
        """Of each kind that some account of the share governs: what it owns, at least one, and where it is used."""
        accounts = self._of_share.get(share, [])
        kinds = sorted({kind for account in accounts for kind in account.nominal})
        return [
            (
                kind,
                sum(account.nominal.get(kind, 0) for account in accounts) or 1,
                [account.used for account in accounts if kind in account.nominal],
            )
            for kind in kinds
        ]

    # ── the recursion ─────────────────────────────────────────────────────────────────────────────────────────────

    def available(self, share: ShareId, pool: PoolId, kind: Kind) -> int:
        """What `share` could still be charged in `kind`: own local quota first, then what the cohort has left, up to
        the borrow limit. Amount as in units.py; negative after quota was cut below use: then nothing may be
        admitted. Overrides with authority are counted. Ignores `lend_workloads`. KeyError for an unknown share."""
        return self._available(self.account(share, pool), kind)

    def _available(self, account: Account, kind: Kind) -> int:
        local, used, common = account.local.get(kind, 0), account.used.get(kind, 0), account.common
        from_cohort = common.lendable.get(kind, 0) - common.taken.get(kind, 0)
        most = self._borrow_room(account, kind)
        if most is not None:
            given = account.nominal.get(kind, 0) + account.override.get(kind, 0) - local
            from_cohort = min(from_cohort, given - (used - local if used > local else 0) + most)
        return (local - used if local > used else 0) + from_cohort

    def _borrow_room(self, account: Account, kind: Kind) -> int | None:
        """How much the share may borrow here at most, what it borrows in other pools taken off; None = no bound."""
        if not account.borrows:
            return 0
        limit = account.borrow_limit.get(kind)
        if limit is None or len(self._pools) == 1:
            return limit
        elsewhere = sum(
            other.borrowed(kind)
            for pool in self._pools
            if pool != account.pool and (other := self._accounts.get((account.share, pool))) is not None
        )
        return max(0, limit - elsewhere)

    def rows(self, ask: Ask) -> tuple[QuotaRow, ...]:
        """Every ceiling that `ask` must pass, in the order limit → quota → loan, as they stand now."""
        account = self.account(ask.share, ask.pool)
        found = self.limits.rows(ask.share, ask.user, ask.pool, ask.amounts)
        for kind, amount in ask.amounts.items():
            if kind in account.nominal:
                found.append(self._share_row(account, ask, kind, amount))
        return tuple(found)

    def _share_row(self, account: Account, ask: Ask, kind: Kind, amount: int) -> QuotaRow:
        used, override = account.used.get(kind, 0), account.override.get(kind, 0)
        available = self._available(account, kind)
        if account.common.restricted and amount <= available:
            available = self._coverable(account, ask.workload, kind, amount, available)
        reason = self._share_reason(account, kind, used + amount)
        return QuotaRow(
            f"share {account.share}",
            kind,
            used + available - override,
            used,
            amount,
            reason,
            override,
            account.unauthorised.get(kind, 0),
        )

    def _share_reason(self, account: Account, kind: Kind, wanted: int) -> Reason:
        if wanted <= account.owned(kind):
            return "WAITING_RECLAIM"
        if not account.borrows:
            return "SHARE_QUOTA"
        most = self._borrow_room(account, kind)
        return "BORROW_LIMIT" if most is not None and wanted > account.owned(kind) + most else "NO_LENDER"

    def first_block(self, ask: Ask) -> Reason | None:
        """The reason of the first row of `rows` that blocks, without making rows; None when all let it pass.

        Says what `admission.decide` says of those rows: OVERRIDE_BLOCKED where only an override without authority would
        cover the request."""
        found = self.limits.first_block(ask.share, ask.user, ask.pool, ask.amounts)
        if found is not None:
            return found
        account = self.account(ask.share, ask.pool)
        nominal, restricted = account.nominal, account.common.restricted
        for kind, amount in ask.amounts.items():
            if kind not in nominal:
                continue
            available = self._available(account, kind)
            if restricted and amount <= available:
                available = self._coverable(account, ask.workload, kind, amount, available)
            if amount > available:
                if amount <= available + account.unauthorised.get(kind, 0):
                    return "OVERRIDE_BLOCKED"
                return self._share_reason(account, kind, account.used.get(kind, 0) + amount)
        return None

    def fits_own(self, ask: Ask) -> bool:
        """Whether `ask` stays within the share's own quota in every governed kind."""
        account = self.account(ask.share, ask.pool)
        used, asked, override = account.used, ask.amounts, account.override
        for kind, nominal in account.nominal.items():
            if kind in asked and used.get(kind, 0) + asked[kind] > nominal + override.get(kind, 0):
                return False
        return True

    def charge(self, ask: Ask, *, check: bool = True) -> tuple[QuotaRow, ...]:
        """Check and charge in one step; returns the rows that block, and then nothing was charged.

        `check=False` charges what has been decided before (a replay, the next attempt of an admitted job)."""
        if check:
            blocked = tuple(row for row in self.rows(ask) if row.request > row.remaining + row.override)
            if blocked:
                return blocked
        self._add(ask, 1)
        return ()

    def uncharge(self, ask: Ask) -> None:
        """Take a charge back."""
        self._add(ask, -1)

    def _add(self, ask: Ask, sign: int) -> None:
        account = self.account(ask.share, ask.pool)
        used, nominal, taken = account.used, account.nominal, account.common.taken
        if sign < 0:
            for kind, asked in ask.amounts.items():
                left = used.get(kind, 0) - asked
                assert left >= 0, f"share {account.share} would be charged {left} {kind} in {account.pool}"
        for kind, asked in ask.amounts.items():
            before = used.get(kind, 0)
            after = used[kind] = before + sign * asked
            if kind in nominal:
                own = account.local.get(kind, 0)
                beyond = (after - own if after > own else 0) - (before - own if before > own else 0)
                if beyond:
                    now = taken.get(kind, 0) + beyond
                    if now:
                        taken[kind] = now
                    else:
                        del taken[kind]
        if account.by_workload is not None:
            add_into(account.by_workload.setdefault(ask.workload, {}), ask.amounts, sign)
        self.limits.add(account.people, ask.user, ask.workload, ask.amounts, sign)

    # ── lenders that accept only some workload kinds ──────────────────────────────────────────────────────────────

    def _coverable(self, account: Account, workload: str, kind: Kind, amount: int, available: int) -> int:
        """The part of `available` that lenders who accept `workload` can cover; only exact below `amount`."""
        common = account.common
        if self._covers(common, kind, account, workload, amount):
            return available
        low, high = 0, amount
        while low < high - 1:
            middle = (low + high) // 2
            if self._covers(common, kind, account, workload, middle):
                low = middle
            else:
                high = middle
        return low

    def _covers(self, common: Commons, kind: Kind, account: Account, workload: str, more: int) -> bool:
        """Whether `more` leaves no more of the cohort's loans uncovered than there are now: a loan that a change of the
        books left without a lender must not stop shares from using what they own."""
        before = uncovered(common.accounts, kind)
        self._bump(account, workload, kind, more)
        try:
            return uncovered(common.accounts, kind) <= before
        finally:
            self._bump(account, workload, kind, -more)

    def _bump(self, account: Account, workload: str, kind: Kind, more: int) -> None:
        add_into(account.used, {kind: more})
        assert account.by_workload is not None
        add_into(account.by_workload.setdefault(workload, {}), {kind: more})
