"""What a change changes, key by key, and what would come of it, in lines for people."""

from collections.abc import Iterator, Mapping
from typing import Any

from raysched.cli.output import text
from raysched.client.client import Row
from raysched.core import units

RAW = ("reservation ", "override ")  # subjects whose amounts come in whole numbers, not as in the file


def difference_lines(subject: str, before: Any, after: Any) -> list[str]:
    """`share nlp: limits.enabled: no → yes`, a line for each key; one line for what is new or goes."""
    raw = subject.startswith(RAW) or (subject.startswith("pool ") and _is_flat(before) and _is_flat(after))
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return [f"{subject}: {_shown(before, '', raw)} → {_shown(after, '', raw)}"]
    return [f"{subject}: {line}" for line in _changed(before, after, "", raw)] or [f"{subject}: as it was"]


def effect_lines(effects: Row | None) -> list[str]:
    """Who would start, who would wait, what would be over."""
    if effects is None:
        return []
    named = [f"{name}: {text(effects.get(name))}" for name in ("starts", "queues")]
    over = [f"over: {_over(each)}" for each in effects.get("over") or []]
    return [*named, *(over or ["over: -"])]


def _over(each: Row) -> str:
    where = f" in pool {each['pool']}" if each.get("pool") else ""
    amount = units.format_amount(each["kind"], each["over"])
    return f"{each['scope']}{where}: {amount} {each['kind']} too many, with {text(each.get('jobs'))}"


def _changed(before: Mapping[str, Any], after: Mapping[str, Any], path: str, raw: bool) -> Iterator[str]:
    for key in dict.fromkeys([*before, *after]):
        was, now = before.get(key), after.get(key)
        if was == now:
            continue
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            yield from _changed(was, now, f"{path}{key}.", raw)
        else:
            yield f"{path}{key}: {_shown(was, key, raw)} → {_shown(now, key, raw)}"


def _shown(value: Any, kind: str, raw: bool) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_shown(each, str(key), raw)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_shown(each, kind, raw) for each in value) + "]"
    if raw and kind and isinstance(value, int) and not isinstance(value, bool):
        return units.format_amount(kind, value)
    return text(value)


def _is_flat(value: Any) -> bool:
    return value is None or (isinstance(value, Mapping) and all(type(each) is int for each in value.values()))
