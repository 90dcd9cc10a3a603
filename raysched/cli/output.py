"""How answers are printed: JSON as it came, or tables and trees in which amounts and times are written for people."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

from raysched.core import units

KindOf = Callable[[str], str | None]
PIPE_WIDTH = 400  # output that is read by a program is not wrapped


def print_json(value: Any) -> None:
    """Plain JSON on stdout."""
    text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    sys.stdout.write(text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n")


def emit(value: Any, as_json: bool, shown: Callable[[], RenderableType]) -> None:
    """Print `value` as JSON, or what `shown` makes of it."""
    if as_json:
        print_json(value)
    else:
        console().print(shown())


def console(stderr: bool = False) -> Console:
    """A console on stdout or stderr as they are now. Text from users is never read as markup."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=width is not None)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str) -> RenderableType:
    """A plain table; `empty` is said instead of a table without rows."""
    filled = [[text(cell) for cell in row] for row in rows]
    if not filled:
        return empty
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in filled:
        shown.add_row(*row)
    return shown


def text(value: Any) -> str:
    """A cell: `-` for what is not set."""
    if value is None or value == "" or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(text(each) for each in value)
    return str(value)


def amounts(value: Mapping[str, Any] | None) -> str:
    """Amounts per kind, or per pool and kind, in one line."""
    if not value:
        return "-"
    if all(isinstance(each, Mapping) for each in value.values()):
        return "; ".join(f"{pool}: {amounts(each)}" for pool, each in value.items())
    return units.format_amounts({kind: amount for kind, amount in value.items() if amount is not None})


def ago(at_ms: int | None) -> str:
    """How long ago, by the clock of this machine."""
    if at_ms is None:
        return "-"
    return units.format_duration(max(0, int(time.time() * 1000) - at_ms))


def moment(at_ms: int | None) -> str:
    """A time of day with its date, in this machine's zone."""
    if at_ms is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))


def tree(value: Any, raw_amounts: bool = True) -> str:
    """Nested values as indented lines; whole numbers under a resource kind are written as amounts of it, and a pair
    of idle and limit in the short form `idle / limit`. `raw_amounts` False: amounts are written for people already."""
    kind_of = _kind if raw_amounts else _no_kind
    return "\n".join(_lines(value, "", None, kind_of)) or "-"


def _lines(value: Any, indent: str, kind: str | None, kind_of: KindOf) -> Iterable[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _entry(str(key), inner, indent, kind_of(str(key)) or kind, kind_of)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _entry("-", inner, indent, kind, kind_of)
    else:
        yield indent + _leaf(value, "", kind)


def _entry(key: str, inner: Any, indent: str, kind: str | None, kind_of: KindOf) -> Iterable[str]:
    label = key if key == "-" else f"{key}:"
    if isinstance(inner, Mapping) and {"idle", "limit"} <= inner.keys() and kind is not None:
        rest = {name: each for name, each in inner.items() if name not in {"idle", "limit"}}
        more = "".join(f", {name} {_leaf(each, name, kind)}" for name, each in rest.items())
        yield f"{indent}{label} {_leaf(inner['idle'], '', kind)} / {_leaf(inner['limit'], '', kind)}{more}"
    elif isinstance(inner, Mapping) and inner or isinstance(inner, list | tuple) and any(map(_nested, inner)):
        yield f"{indent}{label}"
        yield from _lines(inner, indent + "  ", kind, kind_of)
    else:
        yield f"{indent}{label} {_leaf(inner, key, kind)}"


def _nested(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple)


def _leaf(value: Any, key: str, kind: str | None) -> str:
    if key.endswith("_ms") and isinstance(value, int):
        return moment(value) if value > 10**11 else units.format_duration(value)
    if kind is not None and isinstance(value, int) and not isinstance(value, bool):
        return units.format_amount(kind, value)
    return text(value)


def _kind(key: str) -> str | None:
    known = key in (units.GPU, units.CPU, units.MEMORY) or key.startswith(units.MODEL_PREFIX)
    return key if known else None


def _no_kind(key: str) -> str | None:
    return None
