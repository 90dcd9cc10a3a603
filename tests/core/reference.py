"""The rules of quota once more, as plainly and as slowly as possible: everything is recomputed from a list of claims.

Written from semantics 2 to 4 and not from core/quota.py, so that the two can disagree. Amounts are small in the tests
that use it: what a share may still be charged is found by trying, and loans are put on lenders by a maximum flow."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from raysched.core.accounts import Ask
from raysched.core.limits import resolve
from raysched.core.model import Override, PoolId, Share, ShareId, UserId
from raysched.core.units import GPU, MODEL_PREFIX, Amounts, Kind

Key = tuple[str, ...]


@dataclass(frozen=True)
class Books:
    """Shares, pools and overrides that count now, and every charge that stands."""

    shares: dict[ShareId, Share]
    pools: tuple[PoolId, ...]
    claims: tuple[Ask, ...] = ()
    overrides: tuple[Override, ...] = ()
    groups: dict[str, tuple[UserId, ...]] = field(default_factory=dict)

    def plus(self, ask: Ask) -> "Books":
        return replace(self, claims=(*self.claims, ask))

    # ── what is owned ─────────────────────────────────────────────────────────────────────────────────────────────

    def nominal(self, share: ShareId, pool: PoolId) -> Amounts:
        """The governed kinds and what the share owns of them, without overrides (semantics 3.1)."""
        listed = self.shares[share].nominal.get(pool)
        if listed is not None:
            models = sum(amount for kind, amount in listed.items() if kind.startswith(MODEL_PREFIX))
            return {GPU: models, **listed}
        friends = [other for other in self.shares.values() if other.cohort == self.shares[share].cohort]
        return {kind: 0 for other in friends for kind in (GPU, *other.nominal.get(pool, {}))}

    def raised(self, share: ShareId, pool: PoolId, kind: Kind) -> int:
        """What overrides with authority add to the share."""
        return sum(
            override.amounts.get(kind, 0)
            for override in self.overrides
            if override.user is None
            and override.share == share
            and override.pool in (None, pool)
            and override.authority is not None
        )

    def owned(self, share: ShareId, pool: PoolId, kind: Kind) -> int:
        return self.nominal(share, pool).get(kind, 0) + self.raised(share, pool, kind)

    def lendable(self, share: ShareId, pool: PoolId, kind: Kind) -> int:
        """What the others may use at most: overrides are the share's own."""
        sharing, nominal = self.shares[share].sharing, self.nominal(share, pool).get(kind, 0)
        if not sharing.lends:
            return 0
        if sharing.lend_limit is None:
            return nominal
        return min(nominal, sharing.lend_limit.get(pool, {}).get(kind, nominal))

    def local(self, share: ShareId, pool: PoolId, kind: Kind) -> int:
        return self.owned(share, pool, kind) - self.lendable(share, pool, kind)

    # ── what is used ──────────────────────────────────────────────────────────────────────────────────────────────

    def used(self, share: ShareId, pool: PoolId, kind: Kind, workload: str | None = None) -> int:
        return sum(
            claim.amounts.get(kind, 0)
            for claim in self.claims
            if (claim.share, claim.pool) == (share, pool) and workload in (None, claim.workload)
        )

    def borrowed(self, share: ShareId, pool: PoolId, kind: Kind) -> int:
        return max(0, self.used(share, pool, kind) - self.owned(share, pool, kind))

    def most_borrowed(self, share: ShareId, pool: PoolId, kind: Kind) -> int | None:
        """What may be borrowed here beside what is borrowed in other pools; None: as much as is lent."""
        sharing = self.shares[share].sharing
        if not sharing.borrows:
            return 0
        bound = self._borrow_limit(share, kind)
        if bound is None:
            return None
        return max(0, bound - sum(self.borrowed(share, other, kind) for other in self.pools if other != pool))

    def _borrow_limit(self, share: ShareId, kind: Kind) -> int | None:
        limit = self.shares[share].sharing.borrow_limit
        if limit.amounts is not None:
            return limit.amounts.get(kind)
        pools = self.shares[share].nominal
        if limit.percent is None or (kind != GPU and not any(kind in listed for listed in pools.values())):
            return None
        return sum(self.nominal(share, pool).get(kind, 0) for pool in pools) * limit.percent // 100

    def cohort(self, share: ShareId, pool: PoolId, kind: Kind) -> list[ShareId]:
        """The shares that may lend to one another and whose use of `kind` is bounded here."""
        cohort = self.shares[share].cohort
        return [s for s, other in self.shares.items() if other.cohort == cohort and kind in self.nominal(s, pool)]

    # ── what may still be charged ─────────────────────────────────────────────────────────────────────────────────

    def available(self, share: ShareId, pool: PoolId, kind: Kind) -> int:
        """The largest amount, found by trying, that the share's own part, the cohort and the borrow limit allow.
        Amounts of the tests add up to less than 1000; what is allowed once is allowed for less."""
        low, high = -1_000, 1_000
        assert self._allows(share, pool, kind, low) and not self._allows(share, pool, kind, high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._allows(share, pool, kind, middle) else (low, middle)
        return low

    def _allows(self, share: ShareId, pool: PoolId, kind: Kind, more: int) -> bool:
        used = self.used(share, pool, kind) + more
        bound = self.most_borrowed(share, pool, kind)
        if bound is not None and used > self.owned(share, pool, kind) + bound:
            return False
        return used - self.local(share, pool, kind) <= self.left_by_others(share, pool, kind)

    def left_by_others(self, share: ShareId, pool: PoolId, kind: Kind) -> int:
        """What the cohort lends in all, less what the other shares use beyond their local parts."""
        friends = self.cohort(share, pool, kind)
        lent = sum(self.lendable(s, pool, kind) for s in friends)
        others = [s for s in friends if s != share]
        return lent - sum(max(0, self.used(s, pool, kind) - self.local(s, pool, kind)) for s in others)

    def uncovered(self, share: ShareId, pool: PoolId, kind: Kind) -> int:
        """How much of what the cohort uses finds no quota of its own and no lender that accepts its work."""
        friends = self.cohort(share, pool, kind)
        arcs: dict[tuple[Key, Key], int] = {}
        for s in friends:
            owned = self.owned(s, pool, kind)
            arcs[("own", s), ("sink",)] = owned
            beyond_local = max(0, self.used(s, pool, kind) - self.local(s, pool, kind))
            arcs[("idle", s), ("sink",)] = max(0, self.lendable(s, pool, kind) - beyond_local)
            for workload in sorted({claim.workload for claim in self.claims}):
                need = self.used(s, pool, kind, workload)
                if need:
                    arcs[("source",), ("use", s, workload)] = need
                    arcs[("use", s, workload), ("own", s)] = need
                    for lender in friends:
                        if lender != s and self._accepts(lender, workload):
                            arcs[("use", s, workload), ("idle", lender)] = need
        return sum(self.used(s, pool, kind) for s in friends) - flow(arcs, ("source",), ("sink",))

    def _accepts(self, lender: ShareId, workload: str) -> bool:
        sharing = self.shares[lender].sharing
        return sharing.lends and (sharing.lend_workloads is None or workload in sharing.lend_workloads)

    def passes(self, ask: Ask) -> bool:
        """Whether a charge may be made: user and group limits, then in every governed kind what is available, and no
        loan left without a lender that was not without one before."""
        if self.over_limits(ask):
            return False
        after = self.plus(ask)
        for kind, amount in ask.amounts.items():
            if kind in self.nominal(ask.share, ask.pool):
                if amount > self.available(ask.share, ask.pool, kind):
                    return False
                if after.uncovered(ask.share, ask.pool, kind) > self.uncovered(ask.share, ask.pool, kind):
                    return False
        return True

    # ── users and groups ──────────────────────────────────────────────────────────────────────────────────────────

    def over_limits(self, ask: Ask) -> list[str]:
        """The limits of the share that the ask would pass, in words."""
        limits = self.shares[ask.share].limits
        if not limits.enabled:
            return []
        found: list[str] = []
        mine = [group for group, members in sorted(self.groups.items()) if ask.user in members]
        ceiling = resolve(limits, ask.user, [*mine]) or {}  # type: ignore[list-item]
        for kind, top in ceiling.items():
            held = self._held(ask.share, [ask.user], kind) + ask.amounts.get(kind, 0)
            if kind in ask.amounts and held > top + self._raised_user(ask, kind):
                found.append(f"user {ask.user} would hold {held} {kind} of {top}")
        for rule in limits.rules:
            if rule.mode == "total" and rule.group in mine:
                for kind, top in rule.amounts().items():
                    held = self._held(ask.share, self.groups[str(rule.group)], kind) + ask.amounts.get(kind, 0)
                    if kind in ask.amounts and held > top:
                        found.append(f"group {rule.group} would hold {held} {kind} of {top}")
        return found

    def _held(self, share: ShareId, users: Iterable[UserId], kind: Kind) -> int:
        return sum(c.amounts.get(kind, 0) for c in self.claims if c.share == share and c.user in set(users))

    def _raised_user(self, ask: Ask, kind: Kind) -> int:
        return sum(
            override.amounts.get(kind, 0)
            for override in self.overrides
            if override.user == ask.user
            and override.authority is not None
            and override.pool in (None, ask.pool)
            and override.share in (None, ask.share)
        )


def flow(arcs: dict[tuple[Key, Key], int], source: Key, sink: Key) -> int:
    """The maximum flow, by shortest augmenting paths."""
    left = dict(arcs)
    near: dict[Key, set[Key]] = {}
    for start, end in arcs:
        near.setdefault(start, set()).add(end)
        near.setdefault(end, set()).add(start)
        left.setdefault((end, start), 0)
    total = 0
    while path := _path(left, near, source, sink):
        part = min(left[step] for step in path)
        for start, end in path:
            left[start, end] -= part
            left[end, start] += part
        total += part
    return total


def _path(left: dict[tuple[Key, Key], int], near: dict[Key, set[Key]], source: Key, sink: Key) -> list[tuple[Key, Key]]:
    came: dict[Key, Key] = {source: source}
    queue = deque([source])
    while queue and sink not in came:
        here = queue.popleft()
        for there in sorted(near.get(here, ())):
            if there not in came and left[here, there] > 0:
                came[there] = here
                queue.append(there)
    steps: list[tuple[Key, Key]] = []
    at = sink
    while sink in came and at != source:
        steps.append((came[at], at))
        at = came[at]
    return steps
