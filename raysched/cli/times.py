"""Times in the past as people give them to a command."""

import time

from raysched.client.errors import RayschedError
from raysched.core.units import BadQuantity, parse_duration_ms


def past_ms(given: str) -> int:
    """Milliseconds since the epoch of `2026-01-01T00:00:00Z`, or of an age such as `90d`. Raises RayschedError."""
    from raysched.config.times import time_ms

    try:
        return int(time.time() * 1_000) - parse_duration_ms(given)
    except BadQuantity:
        pass
    try:
        return time_ms(given, 0)
    except ValueError as wrong:
        what = str(wrong).replace("an offset such as 2h", "an age such as 90d")
        raise RayschedError(f"a time {what}", code="BAD_REQUEST", status=422) from wrong
