"""Jobs by the time at which something is due of them: their planned ends.

Kept in a heap beside what is true now, so that a plan reads the few that are due and the one that comes next, and
changes nothing by reading."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from raysched.core.free_index import in_order
from raysched.core.model import JobId

SLACK = 64  # entries the heap may have beside twice its jobs before it is cleared


class Agenda:
    """At most one time per job, in milliseconds since the epoch."""

    def __init__(self) -> None:
        self.times: dict[JobId, int] = {}
        self._heap: list[tuple[int, JobId]] = []

    def put(self, job: JobId, at_ms: int) -> None:
        """From now on this is when something is due of the job."""
        self.times[job] = at_ms
        heappush(self._heap, (at_ms, job))
        if len(self._heap) > 2 * len(self.times) + SLACK:
            self._heap = [(at, name) for name, at in self.times.items()]
            heapify(self._heap)

    def drop(self, job: JobId) -> None:
        """Nothing is due of the job any more."""
        self.times.pop(job, None)

    def __iter__(self) -> Iterator[tuple[int, JobId]]:
        """(time, job) in order, as far as the caller reads. Nothing may change meanwhile."""
        heap, times = self._heap, self.times
        while heap and times.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return (entry for entry in in_order(heap) if times.get(entry[1]) == entry[0])
