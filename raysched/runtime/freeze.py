"""Whether Ray makes placement groups at all: one that is aimed at a hung node holds up all others (ray.md 3.4)."""

from typing import Final

FROZEN_S: Final = 10.0  # longer than the keepalive (3 s + 3 s) that frees groups behind a hung node


class FreezeWatch:
    """Told when a group was seen queued, and when one was made; says when that becomes an alarm, and when it ends."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = 0.0
        self._frozen = False

    def queued(self, now_s: float) -> bool:
        """A group was seen that Ray has not even looked at. True when that has gone on for too long, once."""
        if self._first is None or now_s - self._last > FROZEN_S:
            self._first = now_s  # nobody waited in between
        self._last = now_s
        if self._frozen or now_s - self._first <= FROZEN_S:
            return False
        self._frozen = True
        return True

    def made(self) -> bool:
        """A group was made. True if that ends an alarm."""
        was, self._frozen, self._first = self._frozen, False, None
        return was
