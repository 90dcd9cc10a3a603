"""`raysched apply FILE`: what differs between a configuration file and the books, as ordinary changes with all checks.

On first start the file fills the books; later the books win, and differences are only listed until they are applied.
Each change is checked on the books as the ones before it leave them: one share may grow into what another gives up."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from msgspec import Struct, structs

from raysched.config import ClusterConfig, share_to_keys
from raysched.core import entries as e
from raysched.core.books import Undo
from raysched.core.ledger import Ledger
from raysched.core.model import GroupId, Share, ShareId, UserId
from raysched.core.sharebook import refuses_change, refuses_delete, refuses_size
from raysched.core.state import State


class Difference(Struct, frozen=True):
    """One thing the file says otherwise. `refused`: why it cannot be changed now."""

    subject: str
    before: Any
    after: Any
    entry: e.AnyEntry
    refused: str | None = None


Pending = Callable[[], Difference]


def differences(
    state: State, ledger: Ledger, config: ClusterConfig, by: UserId, now_ms: int, prune: bool
) -> list[Difference]:
    """Every difference in the order in which it would be applied. With `prune`, shares that the file does not have are
    deleted; without it they stay. Nothing is left changed."""
    found: list[Difference] = []
    undone: list[Undo] = []
    try:
        for difference in _books(ledger, config, by, now_ms):
            found.append(_tried(ledger, difference, undone))
        found += _shares(state, ledger, config, by, now_ms, prune, undone)
    finally:
        while undone:
            undone.pop()()
    return found


def _tried(ledger: Ledger, difference: Difference, undone: list[Undo]) -> Difference:
    """The difference, tried on the books; refused with their reason if they do not take it."""
    failing, undo = ledger.try_post([difference.entry])
    if failing:
        return structs.replace(difference, refused=failing[0][1])
    undone.append(undo)
    return difference


def _books(ledger: Ledger, config: ClusterConfig, by: UserId, now_ms: int) -> Iterator[Difference]:
    """Settings, pools and groups."""
    if config.settings != ledger.settings:
        entry = e.SettingsSet(at_ms=now_ms, settings=config.settings, by=by)
        yield Difference("settings", ledger.settings, config.settings, entry)
    for pool in config.pools:
        before = ledger.pools.get(pool.pool)
        if before != pool:
            yield Difference(f"pool {pool.pool}", before, pool, e.PoolSet(at_ms=now_ms, pool=pool, by=by))
    for name, members in config.groups.items():
        users, old = tuple(UserId(member) for member in members), ledger.groups.get(GroupId(name), ())
        if old != users:
            set_group = e.GroupSet(at_ms=now_ms, group=GroupId(name), members=users, by=by)
            yield Difference(f"group {name}", list(old), list(users), set_group)


def _shares(
    state: State,
    ledger: Ledger,
    config: ClusterConfig,
    by: UserId,
    now_ms: int,
    prune: bool,
    undone: list[Undo],
) -> list[Difference]:
    """Shares in an order in which they can be changed: who must wait for another's quota is tried again after it."""
    wanted = {share.share: share for share in config.shares}
    gone = sorted(name for name in ledger.shares if prune and name not in wanted)
    waiting: dict[ShareId, Pending] = {}
    for name in gone:
        waiting[name] = partial(_deletion, state, ledger, name, by, now_ms)
    for name, share in wanted.items():
        if ledger.shares.get(name) != share:
            waiting[name] = partial(_change, state, ledger, share, by, now_ms)
    found: list[Difference] = []
    while waiting:
        tried = {name: _tried_share(ledger, each(), undone) for name, each in waiting.items()}
        done = [name for name, difference in tried.items() if difference.refused is None]
        found += [tried[name] for name in done]
        if not done:
            return found + list(tried.values())
        waiting = {name: each for name, each in waiting.items() if name not in done}
    return found


def _tried_share(ledger: Ledger, difference: Difference, undone: list[Undo]) -> Difference:
    return difference if difference.refused is not None else _tried(ledger, difference, undone)


def _deletion(state: State, ledger: Ledger, name: ShareId, by: UserId, now_ms: int) -> Difference:
    old, entry = ledger.shares[name], e.ShareDeleted(at_ms=now_ms, share=name, by=by)
    return Difference(f"share {name}", share_to_keys(old), None, entry, refuses_delete(state, old))


def _change(state: State, ledger: Ledger, new: Share, by: UserId, now_ms: int) -> Difference:
    old = ledger.shares.get(new.share)
    refused = refuses_size(state, ledger, None, new) if old is None else refuses_change(state, ledger, old, new)
    before = None if old is None else share_to_keys(old)
    entry = e.ShareSet(at_ms=now_ms, share=new, by=by)
    return Difference(f"share {new.share}", before, share_to_keys(new), entry, refused)
