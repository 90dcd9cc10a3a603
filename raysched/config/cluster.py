"""The whole file: read, checked against itself, turned into core values."""

from pathlib import Path as FilePath

from msgspec import structs

from raysched.config.door import validated
from raysched.config.lines import read_document
from raysched.config.presets import layer_of, pool_limits
from raysched.config.problems import Lines, Path, Problems, nearest
from raysched.config.schema import ClusterKeys, PoolKeys, ShareKeys
from raysched.config.sections import SettingKeys
from raysched.config.shares import check_limits, check_pool_accelerator, check_share, read_share
from raysched.config.values import ClusterConfig, LocalNode
from raysched.core.model import Pool, PoolId, Settings, UserId


def load_config(path: str | FilePath) -> ClusterConfig:
    """Read a cluster configuration file. Raises ConfigError with everything that is wrong in it."""
    data, problems = read_document(path)
    return _read(data, problems)


def parse_config(data: object, source: Lines | None = None) -> ClusterConfig:
    """Like `load_config`, from values already read; `source` says where they stand. Raises ConfigError."""
    return _read(data, Problems(source or Lines("configuration")))


def _read(data: object, problems: Problems) -> ClusterConfig:
    keys = validated(ClusterKeys, data, problems)
    if keys is None:
        problems.check()
    assert keys is not None
    config = ClusterConfig(
        settings=_settings(keys),
        node_specs={name: spec.spec() for name, spec in keys.node_specs.items()},
        pools=tuple(_pool(name, index, pool, keys) for index, (name, pool) in enumerate(keys.pools.items())),
        groups={name: tuple(members) for name, members in keys.groups.items()},
        cohorts=tuple({"main": None} | dict.fromkeys(keys.cohorts)),
        preset=keys.defaults.preset,
        layers={name: layer_of(pool) for name, pool in keys.pools.items()},
        fence_after_ms=keys.defaults.fence_after,
    )
    _check_pools(config, keys.pools, problems)
    config = _with_shares(config, keys.shares, problems)
    config = structs.replace(config, local_nodes=_local_nodes(config, keys, problems))
    for pool in config.pools:
        check_pool_accelerator(pool, config, problems, ("pools", pool.pool))
    problems.check()
    return config


def _settings(keys: ClusterKeys) -> Settings:
    return structs.replace(
        keys.defaults.settings(),
        cluster=keys.cluster,
        authorities=None if keys.authorities is None else tuple(keys.authorities),
        admins=tuple(UserId(user) for user in keys.admins),
    )


def _pool(name: str, index: int, pool: PoolKeys, keys: ClusterKeys) -> Pool:
    return Pool(
        pool=PoolId(name),
        index=index,
        region=pool.region,
        match=pool.match,
        role=pool.role,
        limits=pool_limits(layer_of(pool), keys.defaults.preset),
    )


def _with_shares(config: ClusterConfig, shares: dict[str, ShareKeys], problems: Problems) -> ClusterConfig:
    for name, keys in shares.items():
        at: Path = ("shares", name)
        share = read_share(name, keys, config, problems, at)
        check_share(share, config, problems, at)
        config = structs.replace(config, shares=(*config.shares, share))
    return config


def _local_nodes(config: ClusterConfig, keys: ClusterKeys, problems: Problems) -> tuple[LocalNode, ...]:
    """Numbering goes on over entries with the same prefix, as in a scenario."""
    counted: dict[str, int] = {}
    found: list[LocalNode] = []
    for index, entry in enumerate(keys.local_nodes):
        at: Path = ("local_nodes", index)
        spec = config.node_specs.get(entry.spec)
        if entry.pool not in keys.pools:
            problems.add((*at, "pool"), f"{entry.pool} is no pool here" + nearest(entry.pool, keys.pools))
        if spec is None:
            problems.add((*at, "spec"), f"{entry.spec} is no node spec here" + nearest(entry.spec, config.node_specs))
            continue
        prefix = f"{entry.pool}-" if entry.prefix is None else entry.prefix
        for _ in range(entry.count):
            number = counted.get(prefix, 0)
            counted[prefix] = number + 1
            found.append(LocalNode(f"{prefix}{number}", PoolId(entry.pool), spec))
    return tuple(found)


def _check_pools(config: ClusterConfig, keys: dict[str, PoolKeys], problems: Problems) -> None:
    spares: dict[str, str] = {}
    for number, pool in enumerate(config.pools):
        at: Path = ("pools", pool.pool)
        same = next((other.pool for other in config.pools[:number] if other.match == pool.match), None)
        if same is not None:
            problems.add((*at, "match"), f"is the same as that of {same}: a node would belong to both")
        if pool.limits is not None:
            check_limits(pool.limits, config.groups, problems, (*at, "limits"))
        if pool.role == "standby":
            _check_standby(pool, keys[pool.pool], spares, problems, at)


def _check_standby(pool: Pool, keys: PoolKeys, spares: dict[str, str], problems: Problems, at: Path) -> None:
    first = spares.setdefault(pool.region, pool.pool)
    if first != pool.pool:
        problems.add((*at, "role"), f"region {pool.region} already has the standby pool {first}; one is the most")
    for key in sorted(keys.model_fields_set & set(SettingKeys.model_fields)):
        problems.add((*at, key), "a standby pool takes no queue policy or other settings: nothing is placed there")
