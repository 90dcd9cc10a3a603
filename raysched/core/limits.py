"""Ceilings on users and groups in a share or a pool: never lent, never borrowed (semantics 2).

A rule of a group counts for each member separately; `mode: total` caps the group together. What counts is all that a
user holds there, over every workload kind; queued jobs do not count."""

from collections.abc import Iterable

from raysched.core.model import GroupId, LimitRule, Limits, Override, PoolId, Share, ShareId, UserId
from raysched.core.record import QuotaRow, Reason
from raysched.core.units import GPU, Amounts, add_into

Place = tuple[str, str]


class LimitBook:
    """The limits in force and what each user holds where. A place is ("share", id) or ("pool", id)."""

    def __init__(self) -> None:
        self.groups: dict[GroupId, tuple[UserId, ...]] = {}
        self.used: dict[tuple[Place, UserId], Amounts] = {}
        self._limits: dict[Place, Limits] = {}
        self._groups_of: dict[UserId, tuple[GroupId, ...]] = {}
        self._overrides: dict[UserId, list[Override]] = {}
        self._resolved: dict[tuple[Place, UserId], Amounts | None] = {}

    def set_shares(self, shares: dict[ShareId, Share]) -> None:
        self._replace("share", {str(share.share): share.limits for share in shares.values()})

    def set_pools(self, pools: dict[PoolId, Limits | None]) -> None:
        self._replace("pool", {str(pool): limits for pool, limits in pools.items() if limits is not None})

    def set_groups(self, groups: dict[GroupId, tuple[UserId, ...]]) -> None:
        self.groups = dict(groups)
        members: dict[UserId, list[GroupId]] = {}
        for group in sorted(groups):
            for user in groups[group]:
                members.setdefault(user, []).append(group)
        self._groups_of = {user: tuple(found) for user, found in members.items()}
        self._resolved.clear()

    def set_overrides(self, active: Iterable[Override]) -> None:
        self._overrides = {}
        for override in active:
            if override.user is not None:
                self._overrides.setdefault(override.user, []).append(override)

    def _replace(self, what: str, limits: dict[str, Limits]) -> None:
        self._limits = {place: kept for place, kept in self._limits.items() if place[0] != what}
        self._limits.update({(what, name): found for name, found in limits.items()})
        self._resolved.clear()

    def add(self, share: ShareId, user: UserId, pool: PoolId, amounts: Amounts, sign: int) -> None:
        """Count a charge (+1) or take it back (−1)."""
        for place in (("share", str(share)), ("pool", str(pool))):
            used = self.used.setdefault((place, user), {})
            add_into(used, amounts, sign)
            if not used:
                del self.used[place, user]

    def held(self, place: Place, user: UserId) -> Amounts:
        """What `user` holds there now."""
        return self.used.get((place, user), {})

    def limit(self, place: Place, user: UserId) -> Amounts | None:
        """The user's effective ceiling there, kinds without one absent; None when no limit applies."""
        limits = self._limits.get(place)
        if limits is None or not limits.enabled:
            return None
        key = (place, user)
        if key not in self._resolved:
            self._resolved[key] = resolve(limits, user, self._groups_of.get(user, ()))
        return self._resolved[key]

    def on_exceed_confirms(self, share: ShareId) -> bool:
        """Whether a request over the limit may be confirmed instead of being refused."""
        limits = self._limits.get(("share", str(share)))
        return limits is not None and limits.on_exceed == "confirm"

    def rows(self, share: ShareId, user: UserId, pool: PoolId, ask: Amounts) -> list[QuotaRow]:
        """The user's ceilings, then those of groups with a total, in the share and in the pool."""
        found: list[QuotaRow] = []
        places = [place for place in (("share", str(share)), ("pool", str(pool))) if self._on(place)]
        for place in places:
            limit = self.limit(place, user)
            if limit:
                used = self.held(place, user)
                found += [
                    self._user_row(place, user, pool, kind, limit[kind], used, ask) for kind in limit if kind in ask
                ]
        for place in places:
            for rule, group in self._totals(place, user):
                used = self._group_used(place, group)
                found += [
                    QuotaRow(
                        f"group {group} in {place[0]} {place[1]}",
                        kind,
                        top,
                        used.get(kind, 0),
                        ask[kind],
                        "GROUP_LIMIT",
                    )
                    for kind, top in rule.amounts().items()
                    if kind in ask
                ]
        return found

    def first_block(self, share: ShareId, user: UserId, pool: PoolId, ask: Amounts) -> Reason | None:
        """The reason of the first row of `rows` that blocks; see QuotaTree.first_block."""
        places = [place for place in (("share", str(share)), ("pool", str(pool))) if self._on(place)]
        for place in places:
            limit = self.limit(place, user)
            if not limit:
                continue
            used = self.held(place, user)
            for kind, top in limit.items():
                if kind in ask and used.get(kind, 0) + ask[kind] > top:
                    row = self._user_row(place, user, pool, kind, top, used, ask)
                    if row.request > row.remaining + row.override:
                        covered = row.request <= row.remaining + row.override + row.unauthorised
                        return "OVERRIDE_BLOCKED" if covered else "USER_LIMIT"
        for place in places:
            for rule, group in self._totals(place, user):
                used = self._group_used(place, group)
                if any(kind in ask and used.get(kind, 0) + ask[kind] > top for kind, top in rule.amounts().items()):
                    return "GROUP_LIMIT"
        return None

    def _on(self, place: Place) -> bool:
        limits = self._limits.get(place)
        return limits is not None and limits.enabled

    def _user_row(
        self, place: Place, user: UserId, pool: PoolId, kind: str, top: int, used: Amounts, ask: Amounts
    ) -> QuotaRow:
        authorised = unauthorised = 0
        for override in self._overrides.get(user, ()):
            if override.pool in (None, pool) and (override.share is None or place == ("share", override.share)):
                if override.authority is not None:
                    authorised += override.amounts.get(kind, 0)
                else:
                    unauthorised += override.amounts.get(kind, 0)
        scope = f"user {user} in {place[0]} {place[1]}"
        return QuotaRow(scope, kind, top, used.get(kind, 0), ask[kind], "USER_LIMIT", authorised, unauthorised)

    def _totals(self, place: Place, user: UserId) -> list[tuple[LimitRule, GroupId]]:
        mine = self._groups_of.get(user, ())
        return [
            (rule, rule.group)
            for rule in self._limits[place].rules
            if rule.mode == "total" and rule.group is not None and rule.group in mine
        ]

    def _group_used(self, place: Place, group: GroupId) -> Amounts:
        total: Amounts = {}
        for user in self.groups.get(group, ()):
            add_into(total, self.held(place, user))
        return total


def resolve(limits: Limits, user: UserId, groups: Iterable[GroupId]) -> Amounts | None:
    """The one ceiling that counts for a user with several rules (semantics 2.5, 2.6); None = none applies.

    `smallest_gpu` takes the rule with the smallest GPU number as a whole, a tie goes to the user rule, then to the
    group's name; `largest_each` and `smallest_each` work kind by kind, an unlimited kind being the largest."""
    mine = set(groups)
    rules = [
        rule
        for rule in limits.rules
        if rule.mode == "each" and (rule.user == user if rule.user is not None else rule.group in mine)
    ]
    if not rules:
        return None if limits.default is None else limits.default.amounts()
    if limits.resolve == "smallest_gpu":
        return min(rules, key=lambda r: (r.gpu, r.user is None, r.group or "")).amounts()
    ceilings = [rule.amounts() for rule in rules]
    kinds = sorted({kind for ceiling in ceilings for kind in ceiling}, key=lambda kind: (kind != GPU, kind))
    if limits.resolve == "smallest_each":
        return {kind: min(c[kind] for c in ceilings if kind in c) for kind in kinds}
    return {kind: max(c[kind] for c in ceilings) for kind in kinds if all(kind in c for c in ceilings)}
