"""Placement groups of ours in Ray: how a placement becomes bundles, names, making, watching, removing, finding again.

Ray holds back whole amounts only in sums, so a job's whole-GPU and CPU bundles on one node are one Ray bundle; a part
of a GPU must come from one device, so each fraction is a Ray bundle of its own (ray.md 1.2, 2)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import ray
from msgspec import Struct
from ray._private import state as ray_state
from ray.exceptions import RaySystemError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from raysched.core.decisions import CreateGang
from raysched.core.model import Bundle, JobId, NodeId, Placement
from raysched.core.units import MILLI

DEADLINE_MS: Final = 5_000  # a pinned group on a free node is there after 3-7 ms, one that waits for room after 1 s
DEADLINE_PER_BUNDLE_MS: Final = 50  # Ray makes one group at a time; eight bundles took up to 130 ms under load
NOTHING: Final = {"CPU": 0.001}  # Ray refuses an empty bundle

_NAME = re.compile(r"^raysched/(?P<cluster>[^/]+)/(?P<job>[^/]+)/.*#(?P<attempt>\d+)$", re.DOTALL)

Key = tuple[JobId, int]


class RankPlace(NamedTuple):
    """Where one rank runs: its node, the entry of the placement, the bundle of the spec, the Ray bundle."""

    rank: int
    node: NodeId
    entry: int
    bundle: Bundle
    ray_bundle: int


class Layout(Struct, frozen=True):
    """A placement as Ray sees it: `bundles` with the node of each, and one place per rank, in rank order."""

    bundles: tuple[dict[str, float], ...]
    nodes: tuple[NodeId, ...]
    ranks: tuple[RankPlace, ...]


class Group(Struct, frozen=True):
    """A placement group of ours that exists in Ray. `ray_ids` are the nodes of its bundles, as far as placed."""

    job: JobId
    attempt: int
    ray_id: str
    ready: bool
    ray_ids: tuple[str, ...]


def layout(placement: Placement, bundles: Sequence[Bundle]) -> Layout:
    """Map a placement of a spec's bundles to Ray bundles and ranks. Ranks follow the placement's order."""
    made: list[dict[str, float]] = []
    nodes: list[NodeId] = []
    summed: dict[NodeId, int] = {}
    ranks: list[RankPlace] = []
    for entry, placed in enumerate(placement):
        asked = bundles[placed.bundle]
        for _ in range(placed.count):
            if asked.is_fraction or placed.node not in summed:
                made.append({})
                nodes.append(placed.node)
                index = len(made) - 1
                if not asked.is_fraction:
                    summed[placed.node] = index
            else:
                index = summed[placed.node]
            _add(made[index], resources(asked))
            ranks.append(RankPlace(len(ranks), placed.node, entry, asked, index))
    return Layout(tuple(bundle or dict(NOTHING) for bundle in made), tuple(nodes), tuple(ranks))


def nodes_of(plan: Layout) -> tuple[NodeId, ...]:
    """The nodes of a gang, each once, in rank order."""
    return tuple(dict.fromkeys(place.node for place in plan.ranks))


def resources(bundle: Bundle) -> dict[str, float]:
    """One bundle in Ray's words and units."""
    amounts: dict[str, float] = {
        "GPU": bundle.gpu_milli / MILLI,
        "CPU": bundle.cpu_milli / MILLI,
        "memory": bundle.memory_bytes,
        **bundle.attach,
    }
    return {name: amount for name, amount in amounts.items() if amount}


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for name, amount in more.items():
        total[name] = round(total.get(name, 0) + amount, 3)


def group_name(cluster: str, create: CreateGang) -> str:
    """The name an operator sees: whose it is, and which attempt; unique by job and attempt."""
    owner = f"{create.share}/{create.user}"
    return f"raysched/{cluster}/{create.job}/{owner}/p{create.priority}#{create.attempt}"


def parse_name(cluster: str, name: str) -> Key | None:
    """The (job, attempt) of a group's name; None if it is not one of this cluster's."""
    match = _NAME.match(name or "")
    if match is None or match["cluster"] != cluster:
        return None
    return JobId(match["job"]), int(match["attempt"])


def deadline_ms(bundles_ahead: int) -> int:
    """How long a group may take that has this many bundles, its own included, to wait for."""
    return DEADLINE_MS + DEADLINE_PER_BUNDLE_MS * bundles_ahead


# ── in Ray; each of these calls blocks for a round trip to the GCS ──────────────────────────────────────────────────


def create_group(cluster: str, create: CreateGang, plan: Layout) -> PlacementGroup:
    """Ask Ray for the group, every bundle pinned to its node; the group of that name if there is one already."""
    name = group_name(cluster, create)
    try:
        made: PlacementGroup = placement_group(
            [dict(bundle) for bundle in plan.bundles],
            strategy="PACK",
            name=name,
            lifetime="detached",
            bundle_label_selector=[{"ray.io/node-id": create.ray_ids[node]} for node in plan.nodes],
        )
    except RaySystemError as problem:
        if "already exists" not in str(problem):
            raise
        made = ray.util.get_placement_group(name)
    return made


def handle_of(ray_id: str) -> PlacementGroup:
    """A handle from the hex id."""
    return PlacementGroup(ray._raylet.PlacementGroupID(bytes.fromhex(ray_id)))


def condition(ray_id: str) -> tuple[str, str]:
    """The group's state and scheduling state: `("PENDING", "QUEUED")`; `("REMOVED", "")` for an unknown id."""
    row = ray_state.state.placement_group_table(handle_of(ray_id).id)  # type: ignore[no-untyped-call]
    if not row:
        return "REMOVED", ""
    return row["state"], row["stats"]["scheduling_state"]


def remove_group(ray_id: str) -> None:
    """Remove the group; whatever still runs in it is killed by Ray. Repeats are harmless."""
    remove_placement_group(handle_of(ray_id))


def list_groups(cluster: str) -> dict[Key, Group]:
    """All groups of ours that are not removed. Slow, because Ray's table keeps removed ones for ever (0.1 s per
    1000): for recovery only."""
    found: dict[Key, Group] = {}
    for ray_id, row in ray_state.state.placement_group_table().items():  # type: ignore[no-untyped-call]
        key = parse_name(cluster, row["name"])
        if key is not None and row["state"] != "REMOVED":
            found[key] = Group(*key, ray_id, row["state"] == "CREATED", _ray_ids(row))
    return found


def _ray_ids(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(sorted({node for node in row["bundles_to_node_id"].values() if node}))


def shown_groups() -> set[str]:
    """The ids of groups that hold room somewhere in the GCS's view. A removed group leaves it after 30-100 ms; a new
    one made earlier on the same room waits for a whole second (ray.md 1.3)."""
    shown: set[str] = set()
    for amounts in ray_state.available_resources_per_node().values():  # type: ignore[no-untyped-call]
        shown.update(name.rpartition("_")[2] for name in amounts if name.startswith("bundle_group_"))
    return shown
