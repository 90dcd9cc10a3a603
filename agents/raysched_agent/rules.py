"""The table of signals: how bad each one is, how it is confirmed, and how it clears.

Data, so that an operator can override it per signal; the tables of the big operators disagree too much to be law.
Classes: FATAL starts the node's clock, DEGRADED stops new gangs, INFO is told, UNKNOWN = could not be measured."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

Class = Literal["FATAL", "DEGRADED", "UNKNOWN", "INFO", "IGNORE"]
Sticky = Literal["no", "boot", "operator"]
CLASSES: Final[tuple[Class, ...]] = ("FATAL", "DEGRADED", "UNKNOWN", "INFO", "IGNORE")
STICKY: Final[tuple[Sticky, ...]] = ("no", "boot", "operator")

HELD_MS: Final = 30_000
QUIET_MS: Final = 600_000  # an XID below FATAL is forgotten after ten minutes without a repeat
BURST_MS: Final = 180_000  # one storm counts once: 800,000 lines were seen for 29 distinct events
HISTORY_MS: Final = 86_400_000


class BadOverride(ValueError):
    """An override names no known signal or key, or has a value out of range; the message says which."""


@dataclass(frozen=True)
class Rule:
    """`polls` readings in a row close the latch; it opens when the condition is gone for `hold_ms` (`sticky` no), at a
    new boot or a reset of that GPU (boot), or by the operator alone. UNKNOWN turns FATAL after `escalate_ms` when a
    second source agrees. `forced`: the operator set the class, the finding's own does not count."""

    cls: Class
    polls: int = 1
    hold_ms: int = HELD_MS
    sticky: Sticky = "no"
    escalate_ms: int | None = None
    forced: bool = False


@dataclass(frozen=True)
class XidRule:
    """`repeat`: that many bursts in a day make it `repeat_cls`; `lone`: not when a neighbour has the same one.
    `if_action` / `if_none`: the class when the driver's recovery action asks for something / for nothing."""

    cls: Class
    repeat: int = 0
    repeat_cls: Class = "DEGRADED"
    lone: bool = False
    if_action: Class | None = None
    if_none: Class | None = None


RULES: Final[Mapping[str, Rule]] = {
    "gpu_lost": Rule("FATAL", sticky="boot"),
    "reset_required": Rule("FATAL"),
    "recovery_action": Rule("FATAL"),
    "gpu_count": Rule("FATAL", polls=2),
    "gpu_error": Rule("UNKNOWN", escalate_ms=60_000),
    "nvml_error": Rule("UNKNOWN", escalate_ms=60_000),
    "nvml_hung": Rule("FATAL", hold_ms=0),
    "ecc_dram": Rule("DEGRADED", sticky="boot"),
    "ecc_sram": Rule("FATAL", sticky="boot"),
    "row_remap_pending": Rule("DEGRADED", hold_ms=0),
    "row_remap_failed": Rule("FATAL", sticky="operator"),
    "disk_readonly": Rule("FATAL"),
    "disk_stuck": Rule("FATAL"),
    "disk_full": Rule("FATAL", hold_ms=0),
    "disk_low": Rule("DEGRADED", hold_ms=0),
    "memory_low": Rule("DEGRADED", hold_ms=60_000),
}

UNKNOWN_XID: Final = XidRule("DEGRADED")


def _xids(rule: XidRule, *numbers: int | range) -> dict[int, XidRule]:
    return {n: rule for group in numbers for n in (group if isinstance(group, range) else (group,))}


XIDS: Final[Mapping[int, XidRule]] = {
    **_xids(XidRule("INFO", repeat=2, lone=True), 13, 31),
    **_xids(XidRule("INFO", repeat=2), 32, 60, 68, 69, 80, 92),
    **_xids(XidRule("INFO"), 8, 11, 25, range(39, 42), range(70, 73), range(75, 78), range(82, 87), 88, 89),
    **_xids(XidRule("INFO"), range(96, 106), range(126, 136), 139, 37, 38, 43, 44, 66, 67, 121, 137, 141),
    # 45 is the clean-up after another error and 154 only says that field 230 changed: neither is a fault of its own
    **_xids(XidRule("IGNORE"), 45, 154),
    **_xids(XidRule("FATAL"), 46, 54, 61, 62, 64, 79, 95, 110, 119, 120, 136, 140, 143, 151, 155, 158),
    **_xids(XidRule("FATAL", if_none="DEGRADED"), 48, 171, 172),
    **_xids(XidRule("DEGRADED"), 63, range(122, 126), 156, 157, 160, 161),
    # the number alone does not say whether the link is down: NVML does not deliver the kernel's Fatal/Nonfatal word
    **_xids(XidRule("DEGRADED", repeat=2, repeat_cls="FATAL"), 74),
    **_xids(XidRule("DEGRADED", if_action="FATAL"), 109, range(144, 151)),
    **_xids(XidRule("INFO", repeat=3), 94),
}


@dataclass(frozen=True)
class Thresholds:
    """Shares of the whole below which the host is short. A disk is short only when the bytes are few too: five per
    cent of a large scratch disk is plenty. `again` is added before a disk counts as well again."""

    disk_low: float = 0.05
    disk_low_bytes: int = 20 * 2**30
    disk_full: float = 0.01
    disk_full_bytes: int = 2 * 2**30
    disk_again: float = 0.02
    disk_stuck_ms: int = 10_000
    memory_low: float = 0.03


@dataclass(frozen=True)
class Table:
    """Everything `checks` and `latches` look up."""

    rules: Mapping[str, Rule] = field(default_factory=lambda: RULES)
    xid_class: Mapping[int, Class] = field(default_factory=dict)
    thresholds: Thresholds = Thresholds()

    def rule(self, signal: str) -> Rule:
        """The rule of a signal. An XID is latched by its class, which the events decide."""
        return self.rules.get(signal, Rule("INFO", hold_ms=QUIET_MS))


def table_with(overrides: Mapping[str, Mapping[str, object]]) -> Table:
    """The default table with an operator's changes, by signal:
    `{"disk_low": {"class": "INFO"}, "xid_63": {"class": "FATAL"}, "thresholds": {"disk_low": 0.02}}`.

    Keys of a signal: class, polls, hold_ms, sticky, escalate_ms; of an XID: class. Raises BadOverride."""
    rules, xids, thresholds = dict(RULES), dict[int, Class](), Thresholds()
    for signal, change in overrides.items():
        if signal == "thresholds":
            thresholds = _thresholds(change)
        elif signal.startswith("xid_") and signal[4:].isdigit():
            _known(signal, change, ("class",))
            xids[int(signal[4:])] = _class(signal, change["class"])
        elif signal in rules:
            rules[signal] = _changed(signal, rules[signal], change)
        else:
            raise BadOverride(f"{signal}: no such signal{_nearest(signal, [*rules, 'thresholds', 'xid_79'])}")
    return Table(rules, xids, thresholds)


def _changed(signal: str, rule: Rule, change: Mapping[str, object]) -> Rule:
    _known(signal, change, ("class", "polls", "hold_ms", "sticky", "escalate_ms"))
    for key, value in change.items():
        if key == "class":
            rule = replace(rule, cls=_class(signal, value), forced=True)
        elif key == "sticky":
            rule = replace(rule, sticky=_sticky(signal, value))
        elif key == "escalate_ms" and value is None:
            rule = replace(rule, escalate_ms=None)
        else:
            changes: dict[str, Any] = {key: _whole(f"{signal}.{key}", value)}
            rule = replace(rule, **changes)
    return rule


def _thresholds(change: Mapping[str, object]) -> Thresholds:
    _known("thresholds", change, tuple(f.name for f in fields(Thresholds)))
    for key, value in change.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise BadOverride(f"thresholds.{key}: {value!r} is not a number of 0 or more")
    changes: dict[str, Any] = dict(change)
    return replace(Thresholds(), **changes)


def _class(signal: str, value: object) -> Class:
    for known in CLASSES:
        if value == known:
            return known
    raise BadOverride(f"{signal}.class: {value!r} is none of {', '.join(CLASSES)}")


def _sticky(signal: str, value: object) -> Sticky:
    for known in STICKY:
        if value == known:
            return known
    raise BadOverride(f"{signal}.sticky: {value!r} is none of {', '.join(STICKY)}")


def _whole(path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadOverride(f"{path}: {value!r} is not a whole number of 0 or more")
    return value


def _known(signal: str, change: Mapping[str, object], keys: tuple[str, ...]) -> None:
    for key in change:
        if key not in keys:
            raise BadOverride(f"{signal}.{key}: no such key{_nearest(key, keys)}")


def _nearest(word: str, words: tuple[str, ...] | list[str]) -> str:
    close = difflib.get_close_matches(word, words, 1)
    return f" (did you mean {close[0]}?)" if close else ""
