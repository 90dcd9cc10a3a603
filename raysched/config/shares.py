"""Shares from the keys of a file or of an admin action, and back.

A share is read completely: every setting the keys leave out comes from the pool, the preset or the defaults. A change
(`base` given) is read the same way, and then only what it names is taken over."""

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import structs

from raysched.config.door import as_keys, validated
from raysched.config.nominal import check_kinds, read_nominal
from raysched.config.presets import layer_of, settled
from raysched.config.problems import Lines, Path, Problems, nearest
from raysched.config.schema import ShareKeys
from raysched.config.sections import LimitsKeys
from raysched.config.values import ClusterConfig
from raysched.core.model import CohortId, Limits, Pool, PoolId, Share, ShareId, UserId
from raysched.core.units import GPU

# Which fields of a share a key sets; a key that is not listed sets the field of its own name.
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "nominal": ("nominal", "instances"),
    "priority": ("priority_default", "priority_rules"),
    "state": ("stopped",),
}
# What a preset decides. A change of the preset alone sets these anew; rules of limits, graces and names stay.
_PRESET_FIELDS: Final = ("queue", "resize", "overbook", "shrink_floor", "sharing", "preemption", "reclaim")


def share_from_keys(name: str, keys: Mapping[str, object], base: Share | None, config: ClusterConfig) -> Share:
    """A share from the keys of the file. With `base`, each key named replaces what `base` has as a whole (what it
    leaves out of a section comes from pool, preset and defaults again), and all others stay.

    Naming another `preset` sets anew what presets decide. `config` gives pools, node specs, groups and the other
    shares. Raises ConfigError."""
    problems = Problems(Lines(f"share {name}"))
    data = as_keys(keys)
    if base is not None and isinstance(data, dict):
        data = {"nominal": {}, "preset": base.preset} | data
    model = validated(ShareKeys, data, problems)
    problems.check()
    assert model is not None
    share = read_share(name, model, config, problems, (), base)
    if base is not None:
        share = _changed(base, share, set(keys))
    check_share(share, config, problems, (), None if base is None else set(keys))
    problems.check()
    return share


def read_share(
    name: str, keys: ShareKeys, config: ClusterConfig, problems: Problems, at: Path, base: Share | None = None
) -> Share:
    """The whole share that `keys` describe; pools of the nominal are those of `base` where the keys list none."""
    nominal = read_nominal(keys.nominal, config, problems, (*at, "nominal"))
    pools = list(keys.nominal) or ([] if base is None else list(base.nominal))
    given = keys.model_fields_set
    share = structs.replace(
        settled(layer_of(keys), pools, config),
        share=ShareId(name),
        nominal=nominal.amounts,
        instances=nominal.instances,
        cohort=CohortId(keys.cohort),
        description=keys.description,
        admins=tuple(UserId(user) for user in keys.admins),
        weight=keys.weight,
        stopped=keys.state == "stopped",
    )
    if "workloads" in given:
        share = structs.replace(share, workloads=tuple(keys.workloads))
    if "workspaces" in given:
        share = structs.replace(share, workspaces=tuple(keys.workspaces))
    return share


def _changed(base: Share, fresh: Share, named: set[str]) -> Share:
    fields = {field for key in named for field in _FIELDS.get(key, (key,))}
    if fresh.preset != base.preset:
        fields.update(_PRESET_FIELDS)
    changes = {field: getattr(fresh, field) for field in fields}
    if fresh.preset != base.preset and "limits" not in named:
        from_preset = {name: getattr(fresh.limits, name) for name in ("resolve", "on_exceed", "max_rules")}
        changes["limits"] = structs.replace(base.limits, **from_preset)
    return structs.replace(base, **changes)


def check_share(
    share: Share, config: ClusterConfig, problems: Problems, at: Path, named: Collection[str] | None = None
) -> None:
    """What a share says about pools, groups and other shares. `named`: look only at these keys (None: at all)."""

    def looked_at(*keys: str) -> bool:
        return named is None or any(key in named for key in keys)

    if looked_at("cohort", "weight"):
        _check_cohort(share, config, problems, at)
    if looked_at("sharing", "nominal"):
        _check_sharing(share, config, problems, at)
    if looked_at("limits", "preset"):
        check_limits(share.limits, config.groups, problems, (*at, "limits"))
    if looked_at("limits", "nominal"):
        _check_accelerator(share, problems, (*at, "limits", "enabled"))


def _check_cohort(share: Share, config: ClusterConfig, problems: Problems, at: Path) -> None:
    others = [other for other in config.shares if other.share != share.share]
    cohorts = {*config.cohorts, *(other.cohort for other in others)}
    if share.cohort not in cohorts:
        problems.add((*at, "cohort"), f"{share.cohort} is not listed under cohorts" + nearest(share.cohort, cohorts))
    for other in others:
        if share.weight is not None and other.weight == share.weight and other.cohort == share.cohort:
            reason = f"{share.weight} is already the weight of {other.share}; weights are unique in a cohort"
            problems.add((*at, "weight"), reason)


def _check_sharing(share: Share, config: ClusterConfig, problems: Problems, at: Path) -> None:
    path = (*at, "sharing", "borrow_limit")
    if share.sharing.borrow_limit.amounts is not None:
        check_kinds(share.sharing.borrow_limit.amounts, config, problems, path)
    for pool, amounts in (share.sharing.lend_limit or {}).items():
        path = (*at, "sharing", "lend_limit", pool)
        if pool not in share.nominal:
            problems.add(path, "the share has no nominal in this pool" + nearest(pool, share.nominal))
        else:
            check_kinds(amounts, config, problems, path)


def _check_accelerator(share: Share, problems: Problems, at: Path) -> None:
    if share.limits.enabled and not any(amounts.get(GPU, 0) for amounts in share.nominal.values()):
        problems.add(at, "limits cannot be turned on: no accelerator (the nominal of the share has no GPU)")


def check_limits(limits: Limits, groups: Collection[str] | None, problems: Problems, at: Path) -> None:
    """Groups exist (None: not known here), and there are no more rules than the preset allows."""
    for number, rule in enumerate(limits.rules):
        if groups is not None and rule.group is not None and rule.group not in groups:
            reason = f"there is no group {rule.group}" + nearest(rule.group, groups)
            problems.add((*at, "rules", number, "group"), reason)
    if limits.max_rules is not None and len(limits.rules) > limits.max_rules:
        problems.add((*at, "rules"), f"at most {limits.max_rules} rules, got {len(limits.rules)}")


def limits_from_keys(keys: Mapping[str, object], base: Limits | None, groups: Collection[str] | None = None) -> Limits:
    """Limits from the keys of the file; each key named replaces what `base` has, the others stay. Rules equal to one
    another, unknown groups (where `groups` is given) and too many rules raise ConfigError.

    Does not know whose limits they are: `share_with_limits` and `pool_with_limits` also check for a GPU."""
    problems = Problems(Lines("limits"))
    model = validated(LimitsKeys, as_keys(keys), problems)
    problems.check()
    assert model is not None
    limits = structs.replace(base or Limits(), **model.changes())
    check_limits(limits, groups, problems, ())
    problems.check()
    return limits


def share_with_limits(share: Share, keys: Mapping[str, object], config: ClusterConfig) -> Share:
    """`share` after `set_limits`. Raises ConfigError."""
    changed = structs.replace(share, limits=limits_from_keys(keys, share.limits, config.groups))
    problems = Problems(Lines(f"share {share.share}"))
    _check_accelerator(changed, problems, ("limits", "enabled"))
    problems.check()
    return changed


def pool_with_limits(pool: Pool, keys: Mapping[str, object], config: ClusterConfig) -> Pool:
    """`pool` after `set_limits`. Raises ConfigError."""
    problems = Problems(Lines(f"pool {pool.pool}"))
    if pool.role == "standby":
        problems.add(("limits",), "a standby pool takes no limits: nothing is placed there")
    changed = structs.replace(pool, limits=limits_from_keys(keys, pool.limits, config.groups))
    check_pool_accelerator(changed, config, problems, ())
    problems.check()
    return changed


def check_pool_accelerator(pool: Pool, config: ClusterConfig, problems: Problems, at: Path) -> None:
    """A pool without any GPU cannot turn limits on (semantics 2.2)."""
    if pool.limits is not None and pool.limits.enabled and not _has_gpu(pool.pool, config):
        reason = "limits cannot be turned on: no accelerator (no share owns a GPU in this pool)"
        problems.add((*at, "limits", "enabled"), reason)


def _has_gpu(pool: PoolId, config: ClusterConfig) -> bool:
    """Whether GPUs are owned in the pool; where nobody owns anything in it, whether there are GPU nodes at all."""
    owned = [share.nominal[pool] for share in config.shares if pool in share.nominal]
    if owned:
        return any(amounts.get(GPU, 0) for amounts in owned)
    return not config.node_specs or any(spec.gpu for spec in config.node_specs.values())
