"""`raysched apply FILE`: what differs between a configuration file and the books, as ordinary changes with all checks.

On first start the file fills the books; later the books win, and differences are only listed until they are applied."""

from typing import Any

from msgspec import Struct

from raysched.config import ClusterConfig, share_to_keys
from raysched.core import entries as e
from raysched.core.ledger import Ledger
from raysched.core.model import GroupId, Share, UserId
from raysched.core.sharebook import refuses_change, refuses_delete, refuses_size
from raysched.core.state import State


class Difference(Struct, frozen=True):
    """One thing the file says otherwise. `refused`: why it cannot be changed now."""

    subject: str
    before: Any
    after: Any
    entry: e.AnyEntry
    refused: str | None = None


def differences(
    state: State, ledger: Ledger, config: ClusterConfig, by: UserId, now_ms: int, prune: bool
) -> list[Difference]:
    """Every difference in the order in which it would be applied. With `prune`, shares that the file does not have are
    deleted; without it they stay."""
    found: list[Difference] = []
    if config.settings != ledger.settings:
        entry = e.SettingsSet(at_ms=now_ms, settings=config.settings, by=by)
        found.append(Difference("settings", ledger.settings, config.settings, entry))
    for pool in config.pools:
        if ledger.pools.get(pool.pool) != pool:
            before = ledger.pools.get(pool.pool)
            found.append(Difference(f"pool {pool.pool}", before, pool, e.PoolSet(at_ms=now_ms, pool=pool, by=by)))
    for name, members in config.groups.items():
        users = tuple(UserId(member) for member in members)
        if ledger.groups.get(GroupId(name)) != users:
            set_group = e.GroupSet(at_ms=now_ms, group=GroupId(name), members=users, by=by)
            found.append(
                Difference(f"group {name}", list(ledger.groups.get(GroupId(name), ())), list(users), set_group)
            )
    for share in config.shares:
        found += _share(state, ledger, share, by, now_ms)
    kept = {share.share for share in config.shares}
    for name, old in sorted(ledger.shares.items()):
        if prune and name not in kept:
            deleted = e.ShareDeleted(at_ms=now_ms, share=name, by=by)
            found.append(Difference(f"share {name}", share_to_keys(old), None, deleted, refuses_delete(state, old)))
    return found


def _share(state: State, ledger: Ledger, new: Share, by: UserId, now_ms: int) -> list[Difference]:
    old = ledger.shares.get(new.share)
    if old == new:
        return []
    refused = refuses_size(state, ledger, None, new) if old is None else refuses_change(state, ledger, old, new)
    before = None if old is None else share_to_keys(old)
    entry = e.ShareSet(at_ms=now_ms, share=new, by=by)
    return [Difference(f"share {new.share}", before, share_to_keys(new), entry, refused)]
