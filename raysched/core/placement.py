"""Where a whole gang goes: GPU jobs packed for least fragmentation, CPU-only jobs spread (semantics 6).

A gang takes the fewest nodes: the smallest free room that holds all that is left, else the largest. Candidates come
from indexes over free whole GPUs, so cost grows with the nodes a gang touches and not with the pool. A trial keeps
its own copy of the few rooms it has touched; the state is not changed."""

from collections.abc import Iterator
from copy import copy
from heapq import merge

from msgspec import Struct

from raysched.core.model import Bundle, JobId, NodeId, PlacedBundle, Placement, PoolId
from raysched.core.pools import TOPOLOGY_LABELS, Node, PoolRoom
from raysched.core.room import Room
from raysched.core.state import State
from raysched.core.units import MILLI

TRIAL = JobId("")


class Ground(Struct, frozen=True, gc=False):
    """Where to look: a pool, one GPU model (None: a job without GPUs), and nodes counted beside the usable ones."""

    pool: PoolId
    model: str | None
    extra: tuple[NodeId, ...] = ()
    within: frozenset[NodeId] | None = None


class Placed(Struct, frozen=True, gc=False):
    """A whole gang's placement."""

    placement: Placement


class Unplaced(Struct, frozen=True):
    """How many bundles of how many found room; nothing is placed by halves."""

    fit: int
    asked: int


def place(state: State, ground: Ground, bundles: tuple[Bundle, ...], required: bool = False) -> Placed | Unplaced:
    """Place all bundles on `ground`, or say how many would fit. Prefers one topology domain (`required`: insists on
    it) where labels say so. Deterministic: ties end on the node's id."""
    asked = bundles[0].count if len(bundles) == 1 else sum(bundle.count for bundle in bundles)
    if asked == 1 and not (required or ground.extra):
        return _alone(state, ground, bundles[0])
    best = Unplaced(0, asked)
    if asked > 1 or required:
        found = _in_one_domain(state, ground, bundles)
        if isinstance(found, Placed):
            return found
        if required and found is not None:
            return found
    whole = Trial(state, ground).gang(bundles)
    return whole if isinstance(whole, Placed) or whole.fit > best.fit else best


def _alone(state: State, ground: Ground, bundle: Bundle) -> Placed | Unplaced:
    """A single bundle, by the rules of `Trial` but without trying anything."""
    node: Node | None = None
    fill = state.fill(ground.pool, ground.model) if bundle.gpu_milli and ground.within is None else None
    if fill is not None:
        best = state.pool_room(ground.pool).stock(ground.model).best(bundle, fill, state.demand.edition)
        node = Trial(state, ground).node(bundle, 1) if best is None else state.nodes[best]
    elif bundle.gpu_milli >= MILLI and ground.within is None:
        index, nodes = state.pool_room(ground.pool).by_whole.get(ground.model), state.nodes
        name = None if index is None else index.first(bundle.whole_gpus, lambda name: nodes[name].room.fits(bundle))
        node = None if name is None else nodes[name]
    else:
        node = Trial(state, ground).node(bundle, 1)
    if node is None:
        return Unplaced(0, 1)
    devices = node.room.pick(bundle, 1) if bundle.gpu_milli else ()
    milli = min(bundle.gpu_milli, MILLI) if devices else 0
    return Placed((PlacedBundle(node.node, 0, 1, devices, milli),))


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
        left, with_room = bundle.count, 0
        if left > 1 and not bundle.gpu_milli:
            with_room = sum(1 for node in self._all() if self._seen(node).fits(bundle))
        while left:
            node = self.node(bundle, left)
            if node is None:
                break
            room = self._room(node)
            take = 1 if bundle.is_fraction else min(left, room.fits(bundle))
            if take > 1 and with_room:
                take = min(take, -(-left // with_room))
            devices = room.pick(bundle, take) if bundle.gpu_milli else ()
            milli = min(bundle.gpu_milli, 1000)
            placed = PlacedBundle(node.node, index, take, devices, milli if devices else 0)
            room.take(TRIAL, placed, bundle)
            self.placed.append(placed)
            left -= take
            with_room -= not bundle.gpu_milli and not room.fits(bundle)
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

    def node(self, bundle: Bundle, left: int) -> Node | None:
        """Where the next of `left` bundles goes."""
        if bundle.is_fraction:
            return self._for_fraction(bundle)
        if bundle.gpu_milli:
            return self._for_whole(bundle, left)
        return self._for_cpu(bundle)

    def _for_whole(self, bundle: Bundle, left: int) -> Node | None:
        """The smallest room that takes all that is left; else the room that takes most of it."""
        size = bundle.whole_gpus
        for _, node in self.by_whole(size * left):
            if self._seen(node).fits(bundle) >= left:
                return node
        best: tuple[int, NodeId] | None = None
        for whole, node in self.by_whole(size, falling=True):
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
        for node in [*self._touched_nodes(), *self._extras()]:
            room = self._seen(node)
            if self._allowed(node) and room.fits(bundle):
                left = room.devices[room.pick(bundle, 1)[0]]
                key = (left, room.whole, node.node)
                best = key if left < MILLI and (best is None or key < best) else best
        index = self.room.by_part.get(self.ground.model)
        for key_of in index.rising() if index is not None else ():
            if key_of[0] < bundle.gpu_milli:
                continue
            if best is not None and best[:2] < key_of:
                break
            first = self._first(index.nodes(key_of), bundle) if index is not None else None
            if first is not None and (best is None or (*key_of, first.node) < best):
                best = (*key_of, first.node)
                break
        if best is not None:
            return self.state.nodes[best[2]]
        return next((node for _, node in self.by_whole(1) if self._seen(node).fits(bundle)), None)

    def _for_cpu(self, bundle: Bundle) -> Node | None:
        """The node with the most free cores, nodes without GPUs first: spread, and keep GPU nodes for GPU jobs."""
        best: tuple[bool, int, int, NodeId] | None = None
        within, looked = self.ground.within, [*self._touched_nodes(), *self._extras()]
        if within is not None:
            # A domain is small against its pool: looking at its nodes is less than passing over all others.
            looked = self._all()
        for node in looked:
            room = self._seen(node)
            if room.fits(bundle) and (within is None or node.node in within):
                key = (node.spec.gpu > 0, -room.cpu_milli, len(node.jobs), node.node)
                best = key if best is None or key < best else best
        if within is not None:
            return None if best is None else self.state.nodes[best[3]]
        index = self.room.cores()
        for key_of in index.rising():
            if best is not None and best[:3] < key_of:
                break
            first = self._first(index.nodes(key_of), bundle)
            if first is not None and (best is None or (*key_of, first.node) < best):
                best = (*key_of, first.node)
                break
        return None if best is None else self.state.nodes[best[3]]

    def _first(self, names: Iterator[NodeId], bundle: Bundle) -> Node | None:
        """The first node of an index that this trial has not touched and that has room."""
        within = self.ground.within
        for name in names:
            if name not in self.touched and (within is None or name in within):
                node = self.state.nodes[name]
                if node.room.fits(bundle):
                    return node
        return None

    # ── candidates ────────────────────────────────────────────────────────────────────────────────────────────────

    def by_whole(self, least: int, falling: bool = False) -> Iterator[tuple[int, Node]]:
        """Nodes with at least `least` wholly free GPUs, fewest first (or most), then by id; touched ones by what
        is left of them."""
        if self.ground.within is not None:
            yield from self._by_whole_within(least, -1 if falling else 1)
            return
        index = self.room.by_whole.get(self.ground.model)
        if index is not None and not (self.touched or self.ground.extra or falling):
            # Nothing was tried yet: the index is as it stands.
            for whole, name in index.from_key(least):
                yield whole, self.state.nodes[name]
            return
        moved: dict[int, list[NodeId]] = {}
        for node in [*self._touched_nodes(), *self._extras()]:
            moved.setdefault(self._seen(node).whole, []).append(node.node)
        keys = [] if index is None else index.falling() if falling else list(index.rising())
        for whole in sorted({*keys, *moved}, reverse=falling) if moved else keys:
            if whole < least:
                continue
            names = index.nodes(whole) if index is not None else iter(())
            for name in merge(names, sorted(set(moved[whole]))) if whole in moved else names:
                node = self.state.nodes[name]
                if self._seen(node).whole == whole and self._allowed(node):
                    yield whole, node

    def _by_whole_within(self, least: int, sign: int) -> Iterator[tuple[int, Node]]:
        """The same in a domain, which is small against its pool: all its nodes are looked at."""
        found = [(self._seen(node).whole, node) for node in self._all() if self._allowed(node)]
        yield from sorted((each for each in found if each[0] >= least), key=lambda each: (sign * each[0], each[1].node))

    def _touched_nodes(self) -> list[Node]:
        return [self.state.nodes[node_id] for node_id in self.touched]

    def _extras(self) -> list[Node]:
        return [self.state.nodes[node_id] for node_id in self.ground.extra]

    def _all(self) -> list[Node]:
        """Every node to look at, in no order."""
        within, nodes = self.ground.within, self.room.nodes
        if within is None:
            found = [node for node in nodes.values() if node.indexed]
        else:
            found = [nodes[name] for name in within if name in nodes and nodes[name].indexed]
        return [*found, *[node for node in self._extras() if not node.indexed and (not within or node.node in within)]]

    def _allowed(self, node: Node) -> bool:
        within = self.ground.within
        return node.spec.gpu_model == self.ground.model and (within is None or node.node in within)


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
