"""What a configuration file becomes: core values, and the part of the file that later changes still need."""

from msgspec import Struct, field

from raysched.config.schema import FENCE_AFTER_MS
from raysched.core.entries import AnyEntry, GroupSet, PoolSet, SettingsSet, ShareSet
from raysched.core.model import GroupId, NodeSpec, Pool, PoolId, Settings, Share, UserId


class Layer(Struct, frozen=True):
    """The settings one place of the file gives. `sections` maps `sharing`, `preemption`, `reclaim` and `limits` to
    the core fields that were set there, `share` to those that are fields of the share itself."""

    preset: str | None = None
    sections: dict[str, dict[str, object]] = field(default_factory=dict)


class LocalNode(Struct, frozen=True):
    """A node that `raysched up` starts on this machine, with declared GPUs."""

    name: str
    pool: PoolId
    spec: NodeSpec


class ClusterConfig(Struct, frozen=True, kw_only=True):
    """A whole configuration. `pools` are in file order (`Pool.index`); presets are resolved in `shares`.

    `layers` (by pool) and `preset` (of `defaults:`) are what a share made later falls back to; `fence_after_ms` is
    for the agents (semantics 9.3a), `settings.fence_wait_ms` for the scheduler."""

    settings: Settings = Settings()
    node_specs: dict[str, NodeSpec] = field(default_factory=dict)
    pools: tuple[Pool, ...] = ()
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    shares: tuple[Share, ...] = ()
    cohorts: tuple[str, ...] = ("main",)
    preset: str = "none"
    layers: dict[str, Layer] = field(default_factory=dict)
    fence_after_ms: int = FENCE_AFTER_MS
    local_nodes: tuple[LocalNode, ...] = ()


def entries(config: ClusterConfig, at_ms: int, by: str) -> list[AnyEntry]:
    """The ledger lines that fill the books on first start: settings, pools, groups, shares, in file order."""
    user = UserId(by)
    lines: list[AnyEntry] = [SettingsSet(at_ms=at_ms, settings=config.settings, by=user)]
    lines += [PoolSet(at_ms=at_ms, pool=pool, by=user) for pool in config.pools]
    for group, members in config.groups.items():
        users = tuple(UserId(member) for member in members)
        lines.append(GroupSet(at_ms=at_ms, group=GroupId(group), members=users, by=user))
    lines += [ShareSet(at_ms=at_ms, share=share, by=user) for share in config.shares]
    return lines
