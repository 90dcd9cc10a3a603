"""How much may be charged, and to whom the rest belongs: shares with a cohort above them, and limits beside them.

One recursion both checks and charges. In every pool and kind a share has a *local* part of its nominal, never lent,
and gives the rest to its cohort; a charge fills the local part first and passes the remainder up. What a share can
still be charged is what is left of its local part plus what the cohort has left, up to its borrow limit. (The form
of this recursion is Kueue's; the rules are semantics 2 to 4.) All sums are kept, none is recomputed on a check."""

from collections.abc import Iterable

from msgspec import Struct, field

from raysched.core.limits import LimitBook
from raysched.core.model import CohortId, Override, PoolId, Share, ShareId, UserId
from raysched.core.record import QuotaRow, Reason
from raysched.core.units import GPU, MODEL_PREFIX, Amounts, Kind, add_into


class Ask(Struct, frozen=True, gc=False):
    """A request to charge `amounts` to a share and a user in one pool, for work of one workload kind."""

    share: ShareId
    user: UserId
    pool: PoolId
    workload: str
    amounts: Amounts


class Account(Struct):
    """One share in one pool. `nominal` counts only governed kinds and is without overrides; `local` is the part that
    is never lent, overrides included; `borrow_limit` None in a kind = as much as the lenders have."""

    share: ShareId
    pool: PoolId
    nominal: Amounts
    local: Amounts
    borrows: bool
    lends: bool
    borrow_limit: Amounts
    accepts: frozenset[str] | None
    override: Amounts = field(default_factory=dict)
    unauthorised: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    used_by_workload: dict[str, Amounts] = field(default_factory=dict)

    def owned(self, kind: Kind) -> int:
        """Nominal plus what active overrides add."""
        return self.nominal.get(kind, 0) + self.override.get(kind, 0)

    def borrowed(self, kind: Kind) -> int:
        """max(0, charged − owned): the share's loan in this pool and kind (semantics 4.3)."""
        return max(0, self.used.get(kind, 0) - self.owned(kind))

    def idle_lendable(self, kind: Kind) -> int:
        """What others could use of this share now."""
        local, owned = self.local.get(kind, 0), self.owned(kind)
        return max(0, owned - local - max(0, self.used.get(kind, 0) - local))


class Commons(Struct):
    """A cohort in one pool: what its shares lend in all (`lendable`), and what is used of it (`taken`: every share's
    use beyond its local part)."""

    lendable: Amounts = field(default_factory=dict)
    taken: Amounts = field(default_factory=dict)
    accounts: list[Account] = field(default_factory=list)
    restricted: bool = False


class QuotaTree:
    """All accounts, with the sums of what is charged. Shares and overrides are set by the ledger."""

    def __init__(self) -> None:
        self.shares: dict[ShareId, Share] = {}
        self.accounts: dict[tuple[ShareId, PoolId], Account] = {}
        self.commons: dict[tuple[CohortId, PoolId], Commons] = {}
        self.limits = LimitBook()
        self._overrides: tuple[Override, ...] = ()
        self._pools: tuple[PoolId, ...] = ()
        self._nominal: dict[PoolId, Amounts] = {}

    # ── structure ─────────────────────────────────────────────────────────────────────────────────────────────────

    def set_shares(self, shares: dict[ShareId, Share], pools: Iterable[PoolId]) -> None:
        """Replace every share and pool; what is charged stays charged."""
        self.shares, self._pools = dict(shares), tuple(pools)
        self.limits.set_shares(self.shares)
        self._rebuild()

    def set_overrides(self, overrides: Iterable[Override]) -> None:
        """Replace the overrides whose window is open now."""
        self._overrides = tuple(overrides)
        self.limits.set_overrides(self._overrides)
        self._rebuild()

    def account(self, share: ShareId, pool: PoolId) -> Account:
        """The account of a share in a pool; an unknown pair has an empty one. KeyError for an unknown share."""
        found = self.accounts.get((share, pool))
        if found is None:
            found = self.accounts[share, pool] = self._open(self.shares[share], pool)
            self._common(found).accounts.append(found)
        return found

    def _rebuild(self) -> None:
        old, self.accounts, self.commons, self._nominal = self.accounts, {}, {}, {}
        keys = dict.fromkeys((s, p) for s in sorted(self.shares) for p in self._pools)
        for share_id, pool in {**keys, **dict.fromkeys(key for key in old if key[0] in self.shares)}:
            account = self._open(self.shares[share_id], pool)
            before = old.get((share_id, pool))
            if before is not None:
                account.used, account.used_by_workload = before.used, before.used_by_workload
            self.accounts[share_id, pool] = account
        for account in self.accounts.values():
            common = self._common(account)
            common.accounts.append(account)
            add_into(self._nominal.setdefault(account.pool, {}), account.nominal)
            common.restricted = common.restricted or (account.lends and account.accepts is not None)
            for kind in self.governed(account):
                gives = account.owned(kind) - account.local.get(kind, 0)
                takes = max(0, account.used.get(kind, 0) - account.local.get(kind, 0))
                add_into(common.lendable, {kind: gives})
                add_into(common.taken, {kind: takes})

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
            borrow_limit=_borrow_limit(share) if sharing.borrows else {},
            accepts=None if sharing.lend_workloads is None else frozenset(sharing.lend_workloads),
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
        kinds = {GPU}
        for other in self.shares.values():
            if other.cohort == share.cohort:
                kinds.update(other.nominal.get(pool, ()))
        return dict.fromkeys(sorted(kinds), 0)

    def _common(self, account: Account) -> Commons:
        return self.commons.setdefault((self.shares[account.share].cohort, account.pool), Commons())

    def nominal_in_pool(self, pool: PoolId) -> Amounts:
        """The sum of all shares' nominal quota in one pool."""
        return self._nominal.get(pool, {})

    def commons_of(self, account: Account) -> Commons:
        """The cohort of an account, in its pool."""
        return self._common(account)

    # ── the recursion ─────────────────────────────────────────────────────────────────────────────────────────────

    def governed(self, account: Account) -> Iterable[Kind]:
        """The kinds whose use the account bounds."""
        return account.nominal

    def available(self, share: ShareId, pool: PoolId, kind: Kind) -> int:
        """What `share` could still be charged in `kind`: own local quota first, then what the cohort has left, up to
        the borrow limit. Amount as in units.py; negative after quota was cut below use: then nothing may be
        admitted. Overrides with authority are counted. Ignores `lend_workloads`. KeyError for an unknown share."""
        return self._available(self.account(share, pool), kind)

    def _available(self, account: Account, kind: Kind) -> int:
        local, used = account.local.get(kind, 0), account.used.get(kind, 0)
        common = self._common(account)
        from_cohort = common.lendable.get(kind, 0) - common.taken.get(kind, 0)
        most = self._borrow_room(account, kind)
        if most is not None:
            given = account.owned(kind) - local
            from_cohort = min(from_cohort, given - max(0, used - local) + most)
        return max(0, local - used) + from_cohort

    def _borrow_room(self, account: Account, kind: Kind) -> int | None:
        """How much the share may borrow here at most, what it borrows in other pools taken off; None = no bound."""
        if not account.borrows:
            return 0
        limit = account.borrow_limit.get(kind)
        if limit is None:
            return None
        elsewhere = sum(
            other.borrowed(kind)
            for pool in self._pools
            if pool != account.pool and (other := self.accounts.get((account.share, pool))) is not None
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
        if self._common(account).restricted and amount <= available:
            available = self._coverable(account, ask.workload, kind, amount, available)
        reason = self._share_reason(account, kind, used + amount)
        return QuotaRow(
            scope=f"share {account.share}",
            kind=kind,
            limit=used + available - override,
            used=used,
            request=amount,
            reason=reason,
            override=override,
            unauthorised=account.unauthorised.get(kind, 0),
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
        nominal, restricted = account.nominal, self._common(account).restricted
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
        return all(
            account.used.get(kind, 0) + amount <= account.owned(kind)
            for kind, amount in ask.amounts.items()
            if kind in account.nominal
        )

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
        common = self._common(account)
        add_into(account.used_by_workload.setdefault(ask.workload, {}), ask.amounts, sign)
        for kind, amount in ask.amounts.items():
            before = account.used.get(kind, 0)
            after = before + sign * amount
            assert after >= 0, f"share {account.share} would be charged {after} {kind} in {account.pool}"
            account.used[kind] = after
            if kind in account.nominal:
                local = account.local.get(kind, 0)
                add_into(common.taken, {kind: max(0, after - local) - max(0, before - local)})
        self.limits.add(ask.share, ask.user, ask.pool, ask.amounts, sign)

    # ── lenders that accept only some workload kinds ──────────────────────────────────────────────────────────────

    def _coverable(self, account: Account, workload: str, kind: Kind, amount: int, available: int) -> int:
        """The part of `available` that lenders who accept `workload` can cover; only exact below `amount`."""
        common = self._common(account)
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
        add_into(account.used_by_workload.setdefault(workload, {}), {kind: more})


def uncovered(accounts: Iterable[Account], kind: Kind) -> int:
    """How much of what shares use beyond what they own finds no idle quota of a lender that accepts its work.

    Hall's condition with its deficit: loans are covered when for every set W of workload kinds, borrowed(W) ≤ idle of
    lenders accepting any of W (semantics 4.3). borrowed(W) of one share is what its W-jobs need beyond all it owns."""
    governed = [account for account in accounts if kind in account.nominal]
    kinds = sorted({w for account in governed for w, used in account.used_by_workload.items() if used.get(kind)})
    worst = 0
    for bits in range(1, 1 << len(kinds)):
        wanted = {w for i, w in enumerate(kinds) if bits >> i & 1}
        borrowed = sum(
            max(0, sum(a.used_by_workload[w].get(kind, 0) for w in wanted if w in a.used_by_workload) - a.owned(kind))
            for a in governed
        )
        if borrowed <= worst:
            continue
        idle = sum(a.idle_lendable(kind) for a in governed if a.lends and (a.accepts is None or a.accepts & wanted))
        worst = max(worst, borrowed - idle)
    return worst


def _borrow_limit(share: Share) -> Amounts:
    """The bound per kind; an absent kind has none."""
    limit = share.sharing.borrow_limit
    if limit.amounts is not None:
        return dict(limit.amounts)
    if limit.percent is None:
        return {}
    owned: Amounts = {GPU: 0}
    for nominal in share.nominal.values():
        models = sum(amount for kind, amount in nominal.items() if kind.startswith(MODEL_PREFIX))
        for kind, amount in {GPU: models, **nominal}.items():
            owned[kind] = owned.get(kind, 0) + amount
    return {kind: amount * limit.percent // 100 for kind, amount in owned.items()}
