"""Amounts and resource vectors.

An amount is an integer: thousandths of a GPU, thousandths of a CPU core, bytes of memory, whole attachables.
A vector (`Amounts`) is a plain dict from resource kind to amount; a kind that is absent is zero."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

Kind = str
Amounts = dict[Kind, int]

GPU: Final = "gpu"
CPU: Final = "cpu"
MEMORY: Final = "memory"
MODEL_PREFIX: Final = "gpu:"
MILLI: Final = 1000

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_DECIMAL = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NUMBER = re.compile(r"^(\d+)(?:\.(\d+))?\s*([A-Za-z]*)$")


class BadQuantity(ValueError):
    """A quantity or duration that cannot be read; the message holds what was given."""


def model_kind(model: str) -> Kind:
    """The resource kind of one GPU model: `gpu:H100`."""
    return MODEL_PREFIX + model


def is_milli(kind: Kind) -> bool:
    """Whether amounts of `kind` are thousandths (GPUs and cores) rather than bytes or whole things."""
    return kind in (CPU, GPU) or kind.startswith(MODEL_PREFIX)


def add_into(total: Amounts, more: Mapping[Kind, int], times: int = 1) -> None:
    """Add `more` × `times` to `total` in place; a kind that reaches zero is dropped."""
    for kind, amount in more.items():
        new = total.get(kind, 0) + amount * times
        if new:
            total[kind] = new
        else:
            total.pop(kind, None)


def added(vectors: Iterable[Mapping[Kind, int]]) -> Amounts:
    """The sum of vectors."""
    total: Amounts = {}
    for vector in vectors:
        add_into(total, vector)
    return total


def scaled(vector: Mapping[Kind, int], times: int) -> Amounts:
    """`vector` × `times`."""
    return {kind: amount * times for kind, amount in vector.items() if amount * times}


def covers(free: Mapping[Kind, int], ask: Mapping[Kind, int]) -> bool:
    """Whether `free` holds at least `ask` in every kind."""
    return all(free.get(kind, 0) >= amount for kind, amount in ask.items())


def excess(ask: Mapping[Kind, int], limit: Mapping[Kind, int]) -> Amounts:
    """By how much `ask` passes `limit`, only in kinds that `limit` names."""
    return {kind: ask[kind] - top for kind, top in limit.items() if ask.get(kind, 0) > top}


def parse_amount(kind: Kind, given: object) -> int:
    """Read a quantity of `kind` as people write it: `8`, `500m`, `0.5`, `512Gi`.

    Returns thousandths for GPUs and cores, bytes for memory, a count otherwise. Raises BadQuantity."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise BadQuantity(f"{kind}: {given!r} is not a quantity")
    text = repr(given) if isinstance(given, float) else str(given).strip()
    match = _NUMBER.match(text)
    if match is None:
        raise BadQuantity(f"{kind}: {given!r} is not a quantity (want e.g. {_example(kind)})")
    whole, fraction, suffix = match.group(1), match.group(2) or "", match.group(3)
    unit = _unit_of(kind, suffix, given)
    value = int(whole) * unit
    if fraction:
        part = int(fraction) * unit
        if part % 10 ** len(fraction):
            raise BadQuantity(f"{kind}: {given!r} is finer than the smallest unit")
        value += part // 10 ** len(fraction)
    if value >= 2**62:
        raise BadQuantity(f"{kind}: {given!r} is too large")
    return value


def _unit_of(kind: Kind, suffix: str, given: object) -> int:
    if is_milli(kind):
        if suffix == "":
            return MILLI
        if suffix == "m":
            return 1
    elif kind == MEMORY and (suffix == "" or suffix in _BINARY or suffix in _DECIMAL):
        return 1 if suffix == "" else _BINARY.get(suffix) or _DECIMAL[suffix]
    elif suffix == "":
        return 1
    raise BadQuantity(f"{kind}: unit {suffix!r} of {given!r} is unknown (want e.g. {_example(kind)})")


def _example(kind: Kind) -> str:
    if kind == MEMORY:
        return "512Gi"
    return "8 or 500m" if is_milli(kind) else "4"


def parse_duration_ms(given: object) -> int:
    """Read `90s`, `15m`, `2h`, `1d`, `250ms` or a number of seconds; returns milliseconds. Raises BadQuantity."""
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise BadQuantity(f"{given!r} is not a duration (want e.g. 90s, 15m, 2h, 1d)")
    text = repr(given) if isinstance(given, float) else str(given).strip()
    total, rest = 0, text
    for part in re.finditer(r"(\d+)(?:\.(\d+))?(ms|s|m|h|d|$)", text):
        if not part.group(0):
            continue
        unit = _DURATION_MS[part.group(3) or "s"]
        total += int(part.group(1)) * unit
        if part.group(2):
            total += int(part.group(2)) * unit // 10 ** len(part.group(2))
        rest = rest.replace(part.group(0), "", 1)
    if rest or not text or total >= 2**53:
        raise BadQuantity(f"{given!r} is not a duration (want e.g. 90s, 15m, 2h, 1d)")
    return total


def format_amount(kind: Kind, amount: int) -> str:
    """The shortest exact way to write `amount` of `kind`: `8`, `1.5`, `512Gi`."""
    if is_milli(kind):
        sign, size = ("-" if amount < 0 else ""), abs(amount)
        whole, rest = divmod(size, MILLI)
        return f"{sign}{whole}" + (f".{rest:03d}".rstrip("0") if rest else "")
    if kind == MEMORY and amount:
        for suffix, unit in reversed(_BINARY.items()):
            if amount % unit == 0:
                return f"{amount // unit}{suffix}"
    return str(amount)


def format_amounts(vector: Mapping[Kind, int]) -> str:
    """A vector in one line: `8 gpu, 96 cpu, 1Ti memory`; `nothing` for an empty one."""
    return ", ".join(f"{format_amount(k, v)} {k}" for k, v in sorted(vector.items(), key=_order)) or "nothing"


def _order(item: tuple[Kind, int]) -> tuple[int, Kind]:
    kind = item[0]
    first = {GPU: 0, CPU: 2, MEMORY: 3}
    return first.get(kind, 1 if kind.startswith(MODEL_PREFIX) else 4), kind


def format_duration(ms: int) -> str:
    """Milliseconds as `1h 30m`, `45s`, `250ms`."""
    if ms < 1_000:
        return f"{ms}ms"
    seconds, parts = ms // 1_000, []
    for name, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{name}")
    return " ".join(parts[:2])
