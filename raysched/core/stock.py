"""The nodes of one pool and GPU model by what is left on them, and for every ask the order in which they suit.

Nodes with the same left are alike, and only the first of them by id counts. A ranking looks again only at what has
changed since it was last asked; its answer depends on what is left and on what is typical, not on how it came so."""

from heapq import heapify, heappop, heappush

from raysched.core.demand import wanted_of
from raysched.core.fill import Fill, Left
from raysched.core.free_index import FreeIndex
from raysched.core.model import Bundle, NodeId
from raysched.core.room import Room
from raysched.core.units import MILLI

Ask = tuple[int, int, int, tuple[tuple[str, int], ...]]
RANKINGS = 64  # asks that are remembered at a time
SLACK = 1_024


class Ranking:
    """How well what is left suits one ask: a heap of (−score, first node that has it, what is left)."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, NodeId, Left]] = []
        self.seen = -1
        self.edition = -1


class Stock:
    """Kept up by `put`; `best` answers."""

    def __init__(self) -> None:
        self._index: FreeIndex[Left] = FreeIndex()
        self._now: dict[NodeId, Left] = {}
        self._changed: list[Left] = []
        self._begins = 0  # the number of the first of _changed
        self._rankings: dict[Ask, Ranking] = {}

    def put(self, node: NodeId, room: Room | None) -> None:
        """What is left on a node now; None: it does not count."""
        before = self._now.get(node)
        # Where predictions still have to make way for a report, what is left is not yet known.
        left = None if room is None or min(room.devices, default=0) < 0 else left_of(room)
        if left == before:
            return
        if left is None:
            del self._now[node]
        else:
            self._now[node] = left
        self._index.put(node, () if left is None else (left,))
        self._changed += [each for each in (before, left) if each is not None]
        if len(self._changed) > 4 * len(self._now) + SLACK:
            half = len(self._changed) // 2
            del self._changed[:half]
            self._begins += half

    def standing(self) -> dict[Left, list[NodeId]]:
        """All of it, for comparison with a fresh count."""
        return self._index.standing()

    def best(self, bundle: Bundle, fill: Fill, edition: int) -> NodeId | None:
        """The node whose expected fill a bundle lowers least, the first by id of equals; None when it fits nowhere."""
        ask = wanted_of(bundle)
        ranking = self._rankings.pop(ask, None) or Ranking()
        self._rankings[ask] = ranking  # the latest asked for stands last
        if len(self._rankings) > RANKINGS:
            del self._rankings[next(iter(self._rankings))]
        self._refresh(ranking, ask, fill, edition)
        heap, first = ranking.heap, self._index.least
        while heap:
            _, node, left = heap[0]
            if first(left) == node:
                return node
            heappop(heap)
        return None

    def _refresh(self, ranking: Ranking, ask: Ask, fill: Fill, edition: int) -> None:
        ends = self._begins + len(self._changed)
        anew = ranking.edition != edition or ranking.seen < self._begins
        if anew or len(ranking.heap) > 2 * len(self._now) + SLACK:
            found = [self._entry(left, ask, fill) for left in self._index.rising()]
            ranking.heap = [entry for entry in found if entry is not None]
            heapify(ranking.heap)
        elif ranking.seen < ends:
            for left in dict.fromkeys(self._changed[ranking.seen - self._begins :]):
                entry = self._entry(left, ask, fill)
                if entry is not None:
                    heappush(ranking.heap, entry)
        ranking.seen, ranking.edition = ends, edition

    def _entry(self, left: Left, ask: Ask, fill: Fill) -> tuple[int, NodeId, Left] | None:
        node = self._index.least(left)
        return None if node is None or not fits(left, ask) else (-fill.score(left, ask[0], ask[1]), node, left)


def left_of(room: Room) -> Left:
    """What is left in a room."""
    parts = () if room.gpu_milli == room.whole * MILLI else tuple(sorted(n for n in room.devices if 0 < n < MILLI))
    attach = tuple(sorted(room.attach.items())) if room.attach else ()
    return Left(room.whole, parts, room.cpu_milli, room.memory_bytes, attach)


def fits(left: Left, ask: Ask) -> bool:
    """Whether one bundle that asks this fits."""
    gpu_milli, cpu_milli, memory_bytes, attach = ask
    if left.cpu_milli < cpu_milli or left.memory_bytes < memory_bytes:
        return False
    if gpu_milli >= MILLI:
        if left.whole * MILLI < gpu_milli:
            return False
    elif not left.whole and not (left.parts and left.parts[-1] >= gpu_milli):
        return False
    if attach:
        there = dict(left.attach)
        return all(there.get(kind, 0) >= amount for kind, amount in attach)
    return True
