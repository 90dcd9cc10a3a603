"""Indexes of free room against plain lists, through random changes: order, no matter how it came about."""

from random import Random

import pytest

from raysched.core.free_index import SLACK, FreeIndex
from raysched.core.model import NodeId


def told(index: FreeIndex[int]) -> dict[int, list[NodeId]]:
    return {key: list(index.nodes(key)) for key in index.rising()}


@pytest.mark.parametrize("seed", range(30))
def test_it_says_what_a_plain_dictionary_would(seed: int) -> None:
    rng, index, plain = Random(seed), FreeIndex[int](), dict[NodeId, tuple[int, ...]]()
    names = [NodeId(f"n{number:02d}") for number in range(rng.choice((3, 40)))]
    for _ in range(rng.choice((50, 2_000))):
        name, keys = rng.choice(names), tuple(sorted(rng.sample(range(8), rng.choice((0, 1, 1, 2)))))
        index.put(name, keys)
        plain[name] = keys
        if rng.random() < 0.05:
            wanted = {key: sorted(n for n, keys in plain.items() if key in keys) for key in range(8)}
            assert told(index) == {key: found for key, found in wanted.items() if found}
            assert index.falling() == sorted((key for key, found in wanted.items() if found), reverse=True)
            least = rng.randrange(8)
            pairs = [(key, n) for key in range(least, 8) for n in wanted[key]]
            assert list(index.from_key(least)) == pairs
            odd = [n for _, n in pairs if int(n[1:]) % 2]
            assert index.first(least, lambda n: int(n[1:]) % 2) == (odd[0] if odd else None)
            assert index.least(least) == (wanted[least][0] if wanted[least] else None)


def test_what_has_left_does_not_pile_up() -> None:
    index = FreeIndex[int]()
    for number in range(100 * SLACK):
        index.put(NodeId(f"n{number % 5}"), (number % 3,))
    assert max(len(heap) for heap in index._heaps.values()) <= 2 * 5 + SLACK + 1
    index = FreeIndex[int]()
    for number in range(100 * SLACK):
        index.put(NodeId("n"), (number,))
    assert len(index._keys) <= 2 + SLACK + 1
