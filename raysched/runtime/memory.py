"""Python's cyclic collector and long-lived books.

Jobs, nodes and charges live for days and hold no cycles; every full collection walks all of them for nothing. So while
a store is read the collector stands still, and a process that serves nothing else leaves what it has read out of the
collector's walks for good."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 200_000  # new objects between two looks at the young ones (Python's own: 700)


@contextmanager
def loading() -> Iterator[None]:
    """Build many objects that will stay: the collector stands still meanwhile."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def settle_in() -> None:
    """Once, in a process of its own, when everything is read: what is there now stays, look at the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 50, 50)
