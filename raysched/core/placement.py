"""Where a whole gang goes: GPU jobs packed for least fragmentation, CPU-only jobs spread (semantics 6).

A gang takes the fewest nodes: the smallest free room that holds all that is left, else the largest. Candidates come
from indexes over free whole GPUs, so cost grows with the nodes a gang touches and not with the pool. A trial keeps
its own copy of the few rooms it has touched; the state is not changed."""

from collections.abc import Iterable, Iterator
from copy import copy

from msgspec import Struct

from raysched.core.model import Bundle, JobId, NodeId, PlacedBundle, Placement, PoolId
from raysched.core.room import Room
from raysched.core.state import TOPOLOGY_LABELS, Node, PoolRoom, State

TRIAL = JobId("")


class Ground(Struct, frozen=True):
    """Where to look: a pool, one GPU model (None: a job without GPUs), and nodes counted beside the usable ones."""

    pool: PoolId
    model: str | None
    extra: tuple[NodeId, ...] = ()
    within: frozenset[NodeId] | None = None


class Placed(Struct, frozen=True):
    """A whole gang's placement."""

    placement: Placement


class Unplaced(Struct, frozen=True):
    """How many bundles of how many found room; nothing is placed by halves."""

    fit: int
    asked: int


def place(state: State, ground: Ground, bundles: tuple[Bundle, ...], required: bool = False) -> Placed | Unplaced:
    """Place all bundles on `ground`, or say how many would fit. Prefers one topology domain (`required`: insists on
    it) where labels say so. Deterministic: ties end on the node's id."""
    asked = sum(bundle.count for bundle in bundles)
    best = Unplaced(0, asked)
    if asked > 1 or required:
        found = _in_one_domain(state, ground, bundles)
        if isinstance(found, Placed):
            return found
        if required and found is not None:
            return found
    whole = Trial(state, ground).gang(bundles)
    return whole if isinstance(whole, Placed) or whole.fit > best.fit else best


def _in_one_domain(state: State, ground: Ground, bundles: tuple[Bundle, ...]) -> Placed | Unplaced | None:
    """The gang within one value of a topology label; None where no node carries one."""
    room = state.pool_room(ground.pool)
    best: Unplaced | None = None
    for key in TOPOLOGY_LABELS:
        domains = sorted(room.domains.get(key, {}).items())
        for _, nodes in domains:
            inside = frozenset(nodes) if ground.within is None else ground.within & nodes
            found = Trial(state, Ground(ground.pool, ground.model, ground.extra, inside)).gang(bundles)
            if isinstance(found, Placed):
                return found
            best = found if best is None or found.fit > best.fit else best
    return best


class Trial:
    """One attempt to place a gang."""

    def __init__(self, state: State, ground: Ground) -> None:
        self.state, self.ground = state, ground
        self.room: PoolRoom = state.pool_room(ground.pool)
        self.touched: dict[NodeId, Room] = {}
        self.placed: list[PlacedBundle] = []

    def gang(self, bundles: tuple[Bundle, ...]) -> Placed | Unplaced:
        """Largest bundles first; ranks stay in the order of the request."""
        asked, fit = sum(bundle.count for bundle in bundles), 0
        order = sorted(range(len(bundles)), key=lambda i: (-bundles[i].gpu_milli, -bundles[i].cpu_milli, i))
        for index in order:
            fit += self._bundles(index, bundles[index])
        if fit < asked:
            return Unplaced(fit, asked)
        return Placed(tuple(sorted(self.placed, key=lambda placed: placed.bundle)))

    def _bundles(self, index: int, bundle: Bundle) -> int:
        left = bundle.count
        while left:
            node = self._node(bundle, left)
            if node is None:
                break
            room = self._room(node)
            take = 1 if bundle.is_fraction else min(left, room.fits(bundle))
            if take > 1 and not bundle.gpu_milli:
                take = min(take, self._even(bundle, left))
            devices = room.pick(bundle, take) if bundle.gpu_milli else ()
            milli = min(bundle.gpu_milli, 1000)
            placed = PlacedBundle(node.node, index, take, devices, milli if devices else 0)
            room.take(TRIAL, placed, bundle)
            self.placed.append(placed)
            left -= take
        return bundle.count - left

    def _room(self, node: Node) -> Room:
        found = self.touched.get(node.node)
        if found is None:
            found = copy(node.room)
            found.devices, found.attach, found.holds = list(found.devices), dict(found.attach), []
            self.touched[node.node] = found
        return found

    def _seen(self, node: Node) -> Room:
        return self.touched.get(node.node, node.room)

    def _node(self, bundle: Bundle, left: int) -> Node | None:
        if bundle.is_fraction:
            return self._for_fraction(bundle)
        if bundle.gpu_milli:
            return self._for_whole(bundle, left)
        return self._for_cpu(bundle)

    def _for_whole(self, bundle: Bundle, left: int) -> Node | None:
        """The smallest room that takes all that is left; else the room that takes most of it."""
        size = bundle.whole_gpus
        for _, node in self._by_whole(size * left):
            if self._seen(node).fits(bundle) >= left:
                return node
        best: tuple[int, NodeId] | None = None
        for whole, node in self._by_whole(size, falling=True):
            if best is not None and -best[0] >= whole // size:
                break
            fits = min(left, self._seen(node).fits(bundle))
            if fits and (best is None or (-fits, node.node) < best):
                best = (-fits, node.node)
        return None if best is None else self.state.nodes[best[1]]

    def _for_fraction(self, bundle: Bundle) -> Node | None:
        """The node whose fullest fitting device leaves the least; a wholly free device only when none is partly
        used, and then on the node with the fewest."""
        best: tuple[int, int, NodeId] | None = None
        partial = self.room.partial.get(self.ground.model, set())
        for node in [*(self.state.nodes[n] for n in partial), *self._touched_nodes(), *self._extras()]:
            room = self._seen(node)
            if self._allowed(node) and room.fits(bundle):
                left = room.devices[room.pick(bundle, 1)[0]]
                key = (left, room.whole, node.node)
                best = key if best is None or key < best else best
        if best is None or best[0] == 1000:
            first = next((n for _, n in self._by_whole(1) if self._seen(n).fits(bundle)), None)
            return first if first is not None else None if best is None else self.state.nodes[best[2]]
        return self.state.nodes[best[2]]

    def _for_cpu(self, bundle: Bundle) -> Node | None:
        """The node with the most free cores, nodes without GPUs first: spread, and keep GPU nodes for GPU jobs."""
        best: tuple[bool, int, int, NodeId] | None = None
        for node in self._all():
            room = self._seen(node)
            if room.fits(bundle):
                key = (node.spec.gpu > 0, -room.cpu_milli, len(node.jobs), node.node)
                best = key if best is None or key < best else best
        return None if best is None else self.state.nodes[best[3]]

    def _even(self, bundle: Bundle, left: int) -> int:
        """How many of `left` bundles without GPUs one node takes when they are spread over all that have room."""
        nodes = sum(1 for node in self._all() if self._seen(node).fits(bundle))
        return -(-left // nodes)

    # ── candidates ────────────────────────────────────────────────────────────────────────────────────────────────

    def _by_whole(self, least: int, falling: bool = False) -> Iterator[tuple[int, Node]]:
        """Nodes with at least `least` wholly free GPUs, fewest first (or most), then by id; touched ones by what
        is left of them."""
        buckets = self.room.by_whole.get(self.ground.model, {})
        moved: dict[int, list[NodeId]] = {}
        for node in [*self._touched_nodes(), *self._extras()]:
            moved.setdefault(self._seen(node).whole, []).append(node.node)
        for whole in sorted({*buckets, *moved}, reverse=falling):
            if whole < least:
                continue
            for node_id in _merge(buckets.get(whole, ()), sorted(set(moved.get(whole, ())))):
                node = self.state.nodes[node_id]
                if self._seen(node).whole == whole and self._allowed(node):
                    yield whole, node

    def _touched_nodes(self) -> list[Node]:
        return [self.state.nodes[node_id] for node_id in self.touched]

    def _extras(self) -> list[Node]:
        return [self.state.nodes[node_id] for node_id in self.ground.extra]

    def _all(self) -> Iterator[Node]:
        seen = {node.node: node for node in self.room.nodes.values() if node.usable}
        seen.update({node.node: node for node in self._extras()})
        return (
            node for _, node in sorted(seen.items()) if self.ground.within is None or node.node in self.ground.within
        )

    def _allowed(self, node: Node) -> bool:
        within = self.ground.within
        return node.spec.gpu_model == self.ground.model and (within is None or node.node in within)


def _merge(first: Iterable[NodeId], second: Iterable[NodeId]) -> Iterator[NodeId]:
    extra = list(second)
    if not extra:
        return iter(first)
    return iter(sorted({*first, *extra}))


def fit_rest(
    state: State, ground: Ground, bundles: tuple[Bundle, ...], kept: Placement, lost: dict[NodeId, NodeId]
) -> Placement:
    """The same placement with each lost node replaced by its spare; devices are picked anew on the spares."""
    trial = Trial(state, ground)
    result: list[PlacedBundle] = []
    for placed in kept:
        spare = lost.get(placed.node)
        if spare is None:
            result.append(placed)
            continue
        room, bundle = trial._room(state.nodes[spare]), bundles[placed.bundle]
        devices = room.pick(bundle, placed.count) if bundle.gpu_milli else ()
        moved = PlacedBundle(spare, placed.bundle, placed.count, devices, placed.milli)
        room.take(TRIAL, moved, bundle)
        result.append(moved)
    return tuple(result)
