"""Ceilings on users and groups in a share or a pool: never lent, never borrowed (semantics 2).

A rule of a group counts for each member separately; `mode: total` caps the group together. What counts is all that a
user holds there, over every workload kind; queued jobs do not count."""

from collections.abc import Iterable

from raysched.core.model import GroupId, LimitRule, Limits, Override, PoolId, Share, ShareId, UserId
from raysched.core.record import QuotaRow, Reason
from raysched.core.units import GPU, Amounts, add_into

Place = tuple[str, str]
# What each user holds in one share and pool, by workload kind.
People = dict[UserId, dict[str, Amounts]]


class LimitBook:
    """The limits in force and what each user holds where. A place is ("share", id) or ("pool", id).

    `edition` changes with every change of limits, groups or overrides; `eased` says for each user at which `serial`
    something that counts for their limits was last given back. Who knows both knows when to ask again."""

    def __init__(self) -> None:
        self.groups: dict[GroupId, tuple[UserId, ...]] = {}
        self.edition = 0
        self.serial = 0
        self.eased: dict[UserId, int] = {}
        self._people: dict[tuple[ShareId, PoolId], People] = {}
        self._at: dict[Place, list[People]] = {}
        self._places: dict[tuple[ShareId, PoolId], tuple[tuple[Place, dict[UserId, Amounts]], ...]] = {}
        self._limits: dict[Place, Limits] = {}
        self._on: set[Place] = set()
        self._with_totals: set[Place] = set()
        self._groups_of: dict[UserId, tuple[GroupId, ...]] = {}
        self._overrides: dict[UserId, list[Override]] = {}
        self._resolved: dict[Place, dict[UserId, Amounts]] = {}

    @property
    def used(self) -> dict[tuple[Place, UserId], Amounts]:
        """What every user who holds anything holds, by place."""
        users = {(place, user) for place, found in self._at.items() for people in found for user in people}
        return {(place, user): held for place, user in users if (held := self.held(place, user))}

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
        self._places.clear()
        self.edition += 1

    def set_overrides(self, active: Iterable[Override]) -> None:
        self._overrides = {}
        self.edition += 1
        for override in active:
            if override.user is not None:
                self._overrides.setdefault(override.user, []).append(override)

    def _replace(self, what: str, limits: dict[str, Limits]) -> None:
        self._limits = {place: kept for place, kept in self._limits.items() if place[0] != what}
        self._limits.update({(what, name): found for name, found in limits.items()})
        self._on = {place for place, found in self._limits.items() if found.enabled}
        self._with_totals = {place for place in self._on if any(r.mode == "total" for r in self._limits[place].rules)}
        self._resolved.clear()
        self._places.clear()
        self.edition += 1

    def people(self, share: ShareId, pool: PoolId) -> People:
        """What users hold in a share and pool: kept up by `add`, never replaced."""
        found = self._people.get((share, pool))
        if found is None:
            found = self._people[share, pool] = {}
            self._at.setdefault(("share", share), []).append(found)
            self._at.setdefault(("pool", pool), []).append(found)
        return found

    def add(self, people: People, user: UserId, workload: str, amounts: Amounts, sign: int) -> None:
        """Count a charge (+1) or take it back (−1) among `people`."""
        lines = people.get(user)
        if lines is None:
            lines = people[user] = {}
        held = lines.get(workload)
        if held is None:
            held = lines[workload] = {}
        for kind, amount in amounts.items():
            held[kind] = held.get(kind, 0) + sign * amount
        if sign < 0:
            self.serial += 1
            self.eased[user] = self.serial
            if not any(held.values()):
                del lines[workload]
                if not lines:
                    del people[user]

    def is_excepted(self, user: UserId) -> bool:
        """Whether an override without authority is active for the user: then what refuses first may change as they use
        more."""
        return any(override.authority is None for override in self._overrides.get(user, ()))

    def held(self, place: Place, user: UserId) -> Amounts:
        """What `user` holds there now."""
        total: Amounts = {}
        for people in self._at.get(place, ()):
            for amounts in people.get(user, {}).values():
                add_into(total, amounts)
        return total

    def _uses(self, place: Place, user: UserId, kind: str) -> int:
        total = 0
        for people in self._at.get(place, ()):
            lines = people.get(user)
            if lines is not None:
                for amounts in lines.values():
                    total += amounts.get(kind, 0)
        return total

    def limit(self, place: Place, user: UserId) -> Amounts | None:
        """The user's effective ceiling there, kinds without one absent; None when no limit applies."""
        return self._ceiling(place, self._resolved.setdefault(place, {}), user) if place in self._on else None

    def _ceiling(self, place: Place, known: dict[UserId, Amounts], user: UserId) -> Amounts:
        """`limit` where limits are on; nothing stands for no limit."""
        found = known.get(user)
        if found is None:
            found = known[user] = resolve(self._limits[place], user, self._groups_of.get(user, ())) or {}
        return found

    def on_exceed_confirms(self, share: ShareId) -> bool:
        """Whether a request over the limit may be confirmed instead of being refused."""
        limits = self._limits.get(("share", str(share)))
        return limits is not None and limits.on_exceed == "confirm"

    def rows(self, share: ShareId, user: UserId, pool: PoolId, ask: Amounts) -> list[QuotaRow]:
        """The user's ceilings, then those of groups with a total, in the share and in the pool."""
        found: list[QuotaRow] = []
        places = self._places_on(share, pool)
        for place, known in places:
            for kind, top in self._ceiling(place, known, user).items():
                if kind in ask:
                    found.append(self._user_row(place, user, pool, kind, top, self._uses(place, user, kind), ask))
        for place, _ in places:
            if place in self._with_totals:
                found += self._total_rows(place, user, ask)
        return found

    def _total_rows(self, place: Place, user: UserId, ask: Amounts) -> list[QuotaRow]:
        found: list[QuotaRow] = []
        for rule, group in self._totals(place, user):
            used, scope = self._group_used(place, group), f"group {group} in {place[0]} {place[1]}"
            found += [
                QuotaRow(scope, kind, top, used.get(kind, 0), ask[kind], "GROUP_LIMIT")
                for kind, top in rule.amounts().items()
                if kind in ask
            ]
        return found

    def first_block(self, share: ShareId, user: UserId, pool: PoolId, ask: Amounts) -> Reason | None:
        """The reason of the first row of `rows` that blocks; see QuotaTree.first_block."""
        places = self._places_on(share, pool)
        for place, known in places:
            for kind, top in self._ceiling(place, known, user).items():
                if kind in ask and (used := self._uses(place, user, kind)) + ask[kind] > top:
                    row = self._user_row(place, user, pool, kind, top, used, ask)
                    if row.request > row.remaining + row.override:
                        covered = row.request <= row.remaining + row.override + row.unauthorised
                        return "OVERRIDE_BLOCKED" if covered else "USER_LIMIT"
        for place, _ in places:
            if place in self._with_totals and any(r.request > r.remaining for r in self._total_rows(place, user, ask)):
                return "GROUP_LIMIT"
        return None

    def _places_on(self, share: ShareId, pool: PoolId) -> tuple[tuple[Place, dict[UserId, Amounts]], ...]:
        """Where limits are on, of the two that a request passes, each with the ceilings that are known there."""
        found = self._places.get((share, pool))
        if found is None:
            both: tuple[Place, Place] = (("share", share), ("pool", pool))
            found = tuple((place, self._resolved.setdefault(place, {})) for place in both if place in self._on)
            self._places[share, pool] = found
        return found

    def _user_row(
        self, place: Place, user: UserId, pool: PoolId, kind: str, top: int, used: int, ask: Amounts
    ) -> QuotaRow:
        authorised = unauthorised = 0
        for override in self._overrides.get(user, ()):
            if override.pool in (None, pool) and (override.share is None or place == ("share", override.share)):
                if override.authority is not None:
                    authorised += override.amounts.get(kind, 0)
                else:
                    unauthorised += override.amounts.get(kind, 0)
        scope = f"user {user} in {place[0]} {place[1]}"
        return QuotaRow(scope, kind, top, used, ask[kind], "USER_LIMIT", authorised, unauthorised)

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
