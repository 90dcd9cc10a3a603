"""Nodes, and the pools in which they stand: what is left on each, indexed for whoever looks for room.

Indexes here are derived: `check.check` rebuilds and compares them. Only the state (state.py) changes them."""

from typing import Final

from msgspec import Struct, field

from raysched.core.free_index import FreeIndex
from raysched.core.model import Health, JobId, NodeId, NodeSpec, PoolId
from raysched.core.room import Room
from raysched.core.stock import Stock
from raysched.core.units import MILLI, Amounts

DOWN: Final = frozenset({"failed", "validating", "quarantined"})
TOPOLOGY_LABELS: Final = ("nvlink_domain", "rack")  # narrowest first


SpecKey = tuple[int, str, int, int, tuple[tuple[str, int], ...]]


class Fact(Struct):
    """A latch that is closed: since when, and what was seen."""

    since_ms: int
    detail: str


class Node(Struct, gc=False):
    """One host identity. `present`: Ray lists it alive; `reported`: its agent has ever spoken. `first_bad_ms` is when
    it first became abnormal without `healthy_after` clean in between (semantics 9.2). `indexed`: its room stands in the
    indexes of its pool."""

    node: NodeId
    ray_id: str
    spec: NodeSpec
    pool: PoolId
    labels: dict[str, str]
    room: Room
    health: Health = "unknown"
    why: str = "never reported"
    cordoned: str | None = None
    present: bool = True
    reported: bool = False
    measured: bool = False
    boot_id: str | None = None
    silent_ms: int | None = None
    stale: bool = False
    disputed: str | None = None
    fatal: dict[str, Fact] = field(default_factory=dict)
    degraded: dict[str, Fact] = field(default_factory=dict)
    first_bad_ms: int | None = None
    clean_ms: int | None = None
    suspect_ms: int | None = None
    suspect_signal: str = ""
    failed_ms: int | None = None
    swapped: bool = False
    indexed: bool = False
    reset_seen: bool = False
    jobs: set[JobId] = field(default_factory=set)

    @property
    def usable(self) -> bool:
        """Whether new work may be placed here and its room counts as capacity (pools are looked at by the caller)."""
        return (
            self.health == "healthy"
            and self.present
            and self.cordoned is None
            and not self.bad
            and not self.stale
            and self.disputed is None
        )

    @property
    def bad(self) -> bool:
        """Whether anything is abnormal now."""
        return bool(self.fatal) or self.silent_ms is not None

    @property
    def dubious(self) -> str | None:
        """Why the node's room is not evidence, when nothing else is wrong with it: DISPUTED, STALE or UNKNOWN."""
        if self.fatal or self.cordoned is not None or self.health in DOWN:
            return None
        if not self.reported:
            return "UNKNOWN"
        if self.disputed is not None:
            return "DISPUTED"
        return "STALE" if self.stale or self.silent_ms is not None else None


class PoolRoom(Struct):
    """One pool's nodes and the room of its usable ones. `models` counts nodes per GPU model; `total` is the capacity of
    the nodes that reported and are not failed, `specs` their different specs with counts. `by_whole[model]` has nodes
    by how many GPUs are wholly free (one at least); `by_part[model]` by (thousandths left on a partly used device,
    wholly free GPUs); `by_cores` by (has GPUs, −free cores, jobs), and only once somebody has looked for cores alone.
    `stocks[model]` are nodes by all that is left, likewise. `cores_per_gpu[model]`, in thousandths, and `most_gpus` are
    the least and the most any node ever had."""

    nodes: dict[NodeId, Node] = field(default_factory=dict)
    models: dict[str, int] = field(default_factory=dict)
    total: Amounts = field(default_factory=dict)
    specs: dict[SpecKey, tuple[NodeSpec, int]] = field(default_factory=dict)
    free: Amounts = field(default_factory=dict)
    by_whole: dict[str | None, FreeIndex[int]] = field(default_factory=dict)
    by_part: dict[str | None, FreeIndex[tuple[int, int]]] = field(default_factory=dict)
    by_cores: FreeIndex[tuple[bool, int, int]] | None = None
    stocks: dict[str | None, Stock] = field(default_factory=dict)
    cores_per_gpu: dict[str | None, int] = field(default_factory=dict)
    most_gpus: int = 0
    reported: int = 0
    dubious: set[NodeId] = field(default_factory=set)
    domains: dict[str, dict[str, set[NodeId]]] = field(default_factory=dict)

    def put(self, node: Node) -> None:
        """Have a node stand in the indexes as it is now."""
        room, model, name = node.room, node.spec.gpu_model, node.node
        whole = room.whole if node.indexed else 0
        wholes = self.by_whole.get(model)
        if wholes is None:
            wholes = self.by_whole[model] = FreeIndex()
        wholes.put(name, (whole,) if whole else ())
        parts = self.by_part.get(model)
        if room.gpu_milli != room.whole * MILLI or parts is not None:
            if parts is None:
                parts = self.by_part[model] = FreeIndex()
            parts.put(name, room.parts() if node.indexed else ())
        if self.by_cores is not None:
            self.by_cores.put(name, (cores_key(node),) if node.indexed else ())
        stock = self.stocks.get(model)
        if stock is not None:
            stock.put(name, room if node.indexed else None)

    def stock(self, model: str | None) -> Stock:
        """The nodes of one GPU model by what is left on them, kept from the first call on."""
        found = self.stocks.get(model)
        if found is None:
            found = self.stocks[model] = Stock()
            for node in self.nodes.values():
                if node.indexed and node.spec.gpu_model == model:
                    found.put(node.node, node.room)
        return found

    def cores(self) -> FreeIndex[tuple[bool, int, int]]:
        """`by_cores`, kept from the first call on."""
        if self.by_cores is None:
            self.by_cores = FreeIndex()
            for node in self.nodes.values():
                if node.indexed:
                    self.by_cores.put(node.node, (cores_key(node),))
        return self.by_cores


def spec_key(spec: NodeSpec) -> SpecKey:
    """Equal for equal specs, and ordered."""
    attach = tuple(sorted(spec.attach.items()))
    return (spec.gpu, spec.gpu_model or "", spec.cpu_milli, spec.memory_bytes, attach)


def cores_key(node: Node) -> tuple[bool, int, int]:
    """Where a job without GPUs looks first: nodes without GPUs, then most free cores, then fewest jobs."""
    return (node.spec.gpu > 0, -node.room.cpu_milli, len(node.jobs))


# Of one entry of a placement: its node, itself, its bundle, what its room gave, and whether the node knew the job.
