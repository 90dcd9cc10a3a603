"""Shares in pools, and cohorts of them: what is owned, lent and used, and whether loans find lenders.

The quota tree (quota.py) keeps these up; nobody else changes them."""

from collections.abc import Iterable

from msgspec import Struct, field

from raysched.core.limits import People
from raysched.core.model import PoolId, Share, ShareId, UserId
from raysched.core.units import GPU, MODEL_PREFIX, Amounts, Kind, add_into


class Ask(Struct, frozen=True, gc=False):
    """A request to charge `amounts` to a share and a user in one pool, for work of one workload kind."""

    share: ShareId
    user: UserId
    pool: PoolId
    workload: str
    amounts: Amounts


class Commons(Struct):
    """A cohort in one pool: what its shares lend in all (`lendable`), and what is used of it (`taken`: every share's
    use beyond its local part)."""

    lendable: Amounts = field(default_factory=dict)
    taken: Amounts = field(default_factory=dict)
    accounts: "list[Account]" = field(default_factory=list)
    restricted: bool = False


class Account(Struct):
    """One share in one pool. `nominal` counts only governed kinds and is without overrides; `local` is the part that
    is never lent, overrides included; `borrow_limit` None in a kind = as much as the lenders have. `common` is its
    cohort in the pool, `people` what users hold of `used`; `by_workload` is the same by workload kind, and kept only
    where a lender of the cohort does not take every kind of work."""

    share: ShareId
    pool: PoolId
    nominal: Amounts
    local: Amounts
    borrows: bool
    lends: bool
    borrow_limit: Amounts
    accepts: frozenset[str] | None
    common: Commons
    people: People
    override: Amounts = field(default_factory=dict)
    unauthorised: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)
    by_workload: dict[str, Amounts] | None = None

    def used_by_workload(self) -> dict[str, Amounts]:
        """`used`, by workload kind; recounted."""
        found: dict[str, Amounts] = {}
        for lines in self.people.values():
            for workload, amounts in lines.items():
                add_into(found.setdefault(workload, {}), amounts)
        return found

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


def uncovered(accounts: Iterable[Account], kind: Kind) -> int:
    """How much of what shares use beyond what they own finds no idle quota of a lender that accepts its work.

    Hall's condition with its deficit: loans are covered when for every set W of workload kinds, borrowed(W) ≤ idle of
    lenders accepting any of W (semantics 4.3). borrowed(W) of one share is what its W-jobs need beyond all it owns."""
    governed = [account for account in accounts if kind in account.nominal]
    work = [(a, a.by_workload if a.by_workload is not None else a.used_by_workload()) for a in governed]
    kinds = sorted({w for _, used in work for w, amounts in used.items() if amounts.get(kind)})
    worst = 0
    for bits in range(1, 1 << len(kinds)):
        wanted = {w for i, w in enumerate(kinds) if bits >> i & 1}
        borrowed = sum(
            max(0, sum(used[w].get(kind, 0) for w in wanted if w in used) - a.owned(kind)) for a, used in work
        )
        if borrowed <= worst:
            continue
        idle = sum(a.idle_lendable(kind) for a in governed if a.lends and (a.accepts is None or a.accepts & wanted))
        worst = max(worst, borrowed - idle)
    return worst


def borrow_limit(share: Share) -> Amounts:
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
