"""Nodes by how much of them is free, in an order that does not depend on how they came there.

A key is what a search looks for (so many wholly free GPUs; so much left on a device); under each key stand the nodes
that have it, by id. Every key keeps a heap, and what a node has now is kept beside it: an entry that no longer holds is
passed over and cleared away once half of a heap is such. A change costs the logarithm of the nodes under its key."""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

from raysched.core.model import NodeId

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

FEW = 16  # keys that are sorted faster than read off a heap
SLACK = 64  # entries a heap may have beside twice its nodes before it is cleared


K = TypeVar("K", bound="SupportsRichComparison")
E = TypeVar("E", bound="SupportsRichComparison")


class FreeIndex(Generic[K]):
    """The nodes of one pool and GPU model, each under the keys it has now."""

    def __init__(self) -> None:
        self._held: dict[NodeId, tuple[K, ...]] = {}
        self._heaps: dict[K, list[NodeId]] = {}
        self._counts: dict[K, int] = {}
        self._keys: list[K] = []

    def put(self, node: NodeId, keys: tuple[K, ...]) -> None:
        """From now on `node` stands under these keys alone; under none, it is gone."""
        before = self._held.get(node, ())
        if keys == before:
            return
        if keys:
            self._held[node] = keys
        else:
            del self._held[node]
        for key in keys:
            if key not in before:
                self._join(key, node)
        for key in before:
            if key not in keys:
                self._leave(key)

    def _join(self, key: K, node: NodeId) -> None:
        count = self._counts.get(key, 0)
        self._counts[key] = count + 1
        if count:
            heappush(self._heaps[key], node)
            return
        self._heaps[key] = [node]
        heappush(self._keys, key)
        if len(self._keys) > 2 * len(self._counts) + SLACK:
            self._keys = sorted(self._counts)

    def _leave(self, key: K) -> None:
        left = self._counts[key] - 1
        if not left:
            del self._counts[key], self._heaps[key]
            return
        self._counts[key] = left
        heap = self._heaps[key]
        if len(heap) > 2 * left + SLACK:
            self._heaps[key] = sorted({node for node in heap if key in self._held.get(node, ())})

    def least(self, key: K) -> NodeId | None:
        """The first node under a key."""
        if key not in self._counts:
            return None
        heap, held = self._heaps[key], self._held
        while key not in held.get(heap[0], ()):
            heappop(heap)
        return heap[0]

    def rising(self) -> Iterator[K]:
        """The keys under which nodes stand, in order, as far as the caller reads. Nothing may change meanwhile."""
        keys, counts = self._keys, self._counts
        while keys and keys[0] not in counts:
            heappop(keys)
        return (key for key in in_order(keys) if key in counts)

    def falling(self) -> list[K]:
        """The keys, the last first."""
        return sorted(self._counts, reverse=True)

    def nodes(self, key: K) -> Iterator[NodeId]:
        """The nodes under a key by id, as far as the caller reads. Nothing may change meanwhile."""
        heap, held = self._heaps.get(key, []), self._held
        while heap and key not in held.get(heap[0], ()):
            heappop(heap)
        return (node for node in in_order(heap) if key in held.get(node, ()))

    def first(self, least: K, suits: Callable[[NodeId], int]) -> NodeId | None:
        """The first node under `least` or a key after it, by key and id, that suits."""
        held = self._held
        for key in sorted(self._counts) if len(self._counts) <= FEW else self.rising():
            if key >= least:  # type: ignore[operator]
                heap = self._heaps[key]
                while key not in held.get(heap[0], ()):
                    heappop(heap)
                # Nearly always the very first one does.
                found = heap[0] if suits(heap[0]) else next((node for node in self.nodes(key) if suits(node)), None)
                if found is not None:
                    return found
        return None

    def from_key(self, least: K) -> Iterator[tuple[K, NodeId]]:
        """Nodes under `least` and every key after it, by key and id, as far as the caller reads."""
        for key in sorted(self._counts) if len(self._counts) <= FEW else self.rising():
            if key >= least:  # type: ignore[operator]
                for node in self.nodes(key):
                    yield key, node

    def standing(self) -> dict[K, list[NodeId]]:
        """All of it, for comparison with a fresh count."""
        return {key: list(self.nodes(key)) for key in self.rising()}


def in_order(heap: list[E]) -> Iterator[E]:
    """The entries of a heap in order, each once. Reading the first k costs k × log k, whatever the size of the heap."""
    if not heap:
        return
    last = heap[0]
    yield last
    ahead = sorted((heap[at], at) for at in (1, 2) if at < len(heap))
    while ahead:
        entry, at = heappop(ahead)
        for below in (2 * at + 1, 2 * at + 2):
            if below < len(heap):
                heappush(ahead, (heap[below], below))
        if entry != last:
            last = entry
            yield entry
