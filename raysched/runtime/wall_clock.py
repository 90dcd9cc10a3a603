"""The clock of a live scheduler: wall time that never falls, whatever the host's clock does."""

import time


class WallClock:
    """Milliseconds since the epoch, carried on by the monotonic clock from where it started. A jump of the host's clock
    while running changes nothing; after a restart time goes on from `not_before_ms` at least."""

    def __init__(self, not_before_ms: int = 0) -> None:
        self._start_ms = max(time.time_ns() // 1_000_000, not_before_ms)
        self._start = time.monotonic_ns()

    def now_ms(self) -> int:
        """See ports.Clock."""
        return self._start_ms + (time.monotonic_ns() - self._start) // 1_000_000
