"""Points in time as people write them: ISO 8601 with a zone, or an offset such as `2h`."""

from datetime import UTC, datetime, timedelta
from typing import Final

from raysched.config.problems import shown
from raysched.core.units import BadQuantity, parse_duration_ms

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def time_ms(given: object, origin_ms: int) -> int:
    """Milliseconds since the epoch of `2026-01-01T18:00:00Z`, or of an offset counted from `origin_ms`.

    A zone is required: a time that means something else on another machine is no time. Raises ValueError."""
    if isinstance(given, datetime):
        return _since_epoch(given, given)
    if not isinstance(given, str):
        raise ValueError(f"must be a time with a zone or an offset such as 2h, got {shown(given)}")
    try:
        return origin_ms + parse_duration_ms(given)
    except BadQuantity:
        pass
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        reason = f"must be a time such as 2026-01-01T18:00:00Z or an offset such as 2h, got {shown(given)}"
        raise ValueError(reason) from None
    return _since_epoch(moment, given)


def _since_epoch(moment: datetime, given: object) -> int:
    if moment.tzinfo is None:
        raise ValueError(f"must name a zone (Z, +08:00), got {shown(str(given))}")
    ms = (moment - _EPOCH) // timedelta(milliseconds=1)
    if ms < 0:
        raise ValueError(f"must not be before 1970, got {shown(str(given))}")
    return ms
