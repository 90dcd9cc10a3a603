"""The five presets (semantics 10) as prototypes of a share, and the order in which settings are found:
share key, pool key, share preset, pool preset, defaults."""

from collections.abc import Sequence
from typing import Final, TypeVar

from msgspec import Struct, structs

from raysched.config.sections import SettingKeys
from raysched.config.values import ClusterConfig, Layer
from raysched.core.model import BorrowLimit, Limits, Preemption, Reclaim, Share, ShareId, Sharing

S = TypeVar("S", bound=Struct)

TIONE_MAX_RULES: Final = 50  # semantics 2.7a

_UNLIMITED = BorrowLimit()
_NOBODY_STOPPED = Preemption(in_share=False, default=False)
_PROTOTYPE = Share(ShareId("prototype"), {})

PRESETS: Final[dict[str, Share]] = {
    "none": structs.replace(
        _PROTOTYPE,
        limits=Limits(resolve="smallest_gpu", on_exceed="reject"),
        queue="fifo_within_priority",
        sharing=Sharing("reserve", _UNLIMITED),
        preemption=Preemption(in_share=False, default=True),
        reclaim=Reclaim("restore"),
    ),
    "baige": structs.replace(
        _PROTOTYPE,
        limits=Limits(resolve="smallest_gpu", on_exceed="confirm"),
        queue="strict_fifo",
        sharing=Sharing("reserve", _UNLIMITED),
        preemption=_NOBODY_STOPPED,
        reclaim=Reclaim("wait"),
    ),
    "xirang": structs.replace(
        _PROTOTYPE,
        workspaces=(),  # none linked = usable nowhere (semantics 3.3)
        limits=Limits(resolve="smallest_gpu", on_exceed="reject"),
        queue="strict_fifo",
        sharing=Sharing("lend", _UNLIMITED),
        preemption=_NOBODY_STOPPED,
        reclaim=Reclaim("wait"),
        resize="when_stopped",
        overbook=False,
        shrink_floor="smaller",
    ),
    "tione": structs.replace(
        _PROTOTYPE,
        limits=Limits(resolve="largest_each", on_exceed="reject", max_rules=TIONE_MAX_RULES),
        queue="strict_fifo",
        sharing=Sharing("reserve", _UNLIMITED, lend_workloads=("training", "service")),
        preemption=Preemption(in_share=True, default=True),
        reclaim=Reclaim("force"),
    ),
    "aws": structs.replace(
        _PROTOTYPE,
        limits=Limits(resolve="smallest_gpu", on_exceed="reject"),
        queue="strict_fifo",
        sharing=Sharing("reserve", _UNLIMITED),
        preemption=Preemption(in_share=False, default=True),
        reclaim=Reclaim("restore"),
    ),
}

# The keys of one section go to one field of the share; the others are fields of the share themselves.
_SECTIONS = ("sharing", "preemption", "reclaim", "limits")
_SCALARS = ("resize", "overbook", "shrink_floor")


def layer_of(keys: SettingKeys) -> Layer:
    """The settings that `keys` gives, and no others."""
    given = keys.model_fields_set
    own: dict[str, object] = {name: getattr(keys, name) for name in _SCALARS if name in given}
    if "queue" in given:
        own["queue"] = keys.queue.policy
    own |= keys.priority.changes()
    sections = {
        "share": own,
        "sharing": keys.sharing.changes(),
        "preemption": keys.preemption.changes(),
        "reclaim": keys.reclaim.changes(),
        "limits": keys.limits.changes(),
    }
    return Layer(keys.preset, {name: changes for name, changes in sections.items() if changes})


def settled(share: Layer, pools: Sequence[str], config: ClusterConfig) -> Share:
    """A prototype with every setting found: `share` is the share's own layer, `pools` are those of its nominal.

    Of several pools that give a setting the first in file order counts. A pool's `limits` are the pool's own."""
    layers = [config.layers[pool.pool] for pool in config.pools if pool.pool in pools and pool.pool in config.layers]
    preset = next((found.preset for found in (share, *layers) if found.preset is not None), config.preset)
    result = structs.replace(PRESETS[preset], preset=preset)
    for found in reversed(layers):
        shared = {name: changes for name, changes in found.sections.items() if name != "limits"}
        result = _overlaid(result, shared)
    return _overlaid(result, share.sections)


def pool_limits(pool: Layer, default_preset: str) -> Limits | None:
    """The limits of a pool, or None where it sets none."""
    changes = pool.sections.get("limits")
    if changes is None:
        return None
    return _replaced(PRESETS[pool.preset or default_preset].limits, changes)


def _overlaid(share: Share, sections: dict[str, dict[str, object]]) -> Share:
    own = dict(sections.get("share", {}))
    for name in _SECTIONS:
        if name in sections:
            own[name] = _replaced(getattr(share, name), sections[name])
    return _replaced(share, own)


def _replaced(value: S, changes: dict[str, object]) -> S:
    return structs.replace(value, **changes)
