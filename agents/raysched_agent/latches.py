"""Latches: evidence that stays until its own clear condition, and the memory that carries it over a restart.

A fault is often an instant (an XID); "unhealthy for 60 s" means something only when each fault says when it is over.
Pure: time comes in as `now_ms`, a `Memory` goes in and a new one comes out."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from raysched_agent.rules import Class, Rule, Sticky, Table

Key = tuple[str, str]  # signal and unit: a GPU's UUID, a disk's path, "nvml" or "host"
NVML_UNIT: Final = "nvml"
HOST_UNIT: Final = "host"
FORMAT: Final = 1


@dataclass(frozen=True)
class Finding:
    """A condition that holds in this reading. `cls` None = the rule's. `agreed`: a second source says so too."""

    signal: str
    unit: str
    detail: str
    gpu: int | None = None
    cls: Class | None = None
    agreed: bool = False


@dataclass(frozen=True)
class Latch:
    """One piece of evidence: open, or not yet confirmed below `polls`. `gone_ms`: since when it is not seen."""

    signal: str
    unit: str
    cls: Class
    detail: str
    gpu: int | None
    since_ms: int
    last_ms: int
    polls: int = 1
    confirmed: bool = True
    sticky: Sticky = "no"
    gone_ms: int | None = None

    @property
    def key(self) -> Key:
        return self.signal, self.unit


@dataclass(frozen=True)
class Known:
    """A GPU this node has had, to name the one that is missing."""

    index: int
    uuid: str
    bus_id: str | None = None
    name: str | None = None
    memory_total: int | None = None


@dataclass(frozen=True)
class Memory:
    """What must survive a restart of the agent, so that a restart never makes a bad GPU healthy.

    `bursts`: per `uuid/xid` the (start, last) of each burst of the last day. `ecc`: per `uuid/kind` the (baseline,
    last) count of this boot. `none_since`: since when the driver asks for nothing, per UUID. `earlier_boot`: the file
    knew a boot before this one, so a counter that is above zero has risen since."""

    boot_id: str
    latches: Mapping[Key, Latch] = field(default_factory=dict)
    known: tuple[Known, ...] = ()
    bursts: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    ecc: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    none_since: Mapping[str, int] = field(default_factory=dict)
    earlier_boot: bool = False


def stepped(memory: Memory, found: Iterable[Finding], measured: Iterable[str], table: Table, now_ms: int) -> Memory:
    """The memory after one reading. A latch of a unit that is not in `measured` neither ages nor clears: not seen is
    not the same as gone. The first finding of a (signal, unit) counts."""
    seen: dict[Key, Finding] = {}
    for one in found:
        if table.rule(one.signal).cls != "IGNORE":
            seen.setdefault((one.signal, one.unit), one)
    units, latches = set(measured), dict[Key, Latch]()
    for key in sorted(set(memory.latches) | set(seen)):
        old, rule = memory.latches.get(key), table.rule(key[0])
        if key in seen:
            latches[key] = _closed(old, seen[key], rule, now_ms)
        elif old is not None and rule.cls != "IGNORE":
            kept = _fading(old, rule, now_ms) if old.unit in units and not _is_event(old) else old
            if kept is not None:
                latches[key] = kept
    return replace(memory, latches=latches)


def _closed(old: Latch | None, found: Finding, rule: Rule, now_ms: int) -> Latch:
    cls = rule.cls if rule.forced or found.cls is None else found.cls
    since, polls = (old.since_ms, old.polls + 1) if old is not None else (now_ms, 1)
    if cls == "UNKNOWN" and rule.escalate_ms is not None and found.agreed and now_ms - since >= rule.escalate_ms:
        cls = "FATAL"
    confirmed = polls >= rule.polls or (old is not None and old.confirmed)
    what = (found.signal, found.unit, cls, found.detail, found.gpu)
    return Latch(*what, since, now_ms, polls, confirmed, rule.sticky)


def _fading(old: Latch, rule: Rule, now_ms: int) -> Latch | None:
    """The latch one clean reading later; None = open again. An unconfirmed one needs its readings in a row."""
    if not old.confirmed:
        return None
    if old.sticky != "no":
        return old
    gone_ms = now_ms if old.gone_ms is None else old.gone_ms
    return None if now_ms - gone_ms >= rule.hold_ms else replace(old, gone_ms=gone_ms)


def _is_event(latch: Latch) -> bool:
    return latch.signal.startswith("xid_")


def cleared(memory: Memory, signal: str | None = None, unit: str | None = None) -> Memory:
    """Without the latches of `signal` and of `unit` (None = any): the operator's word, which opens every latch."""
    gone = {key for key in memory.latches if signal in (None, key[0]) and unit in (None, key[1])}
    return _without(memory, gone)


def after_reset(memory: Memory, unit: str) -> Memory:
    """A reset of one GPU was seen: latches that wait for a boot or reset open, and its XIDs with them."""
    gone = {key for key, latch in memory.latches.items() if key[1] == unit and latch.sticky == "boot"}
    return _without(memory, gone | {key for key, one in memory.latches.items() if key[1] == unit and _is_event(one)})


def after_boot(memory: Memory, boot_id: str) -> Memory:
    """The memory for `boot_id`. A new boot starts by measuring: only what the operator alone may clear is kept."""
    if memory.boot_id == boot_id:
        return memory
    kept = {key: latch for key, latch in memory.latches.items() if latch.sticky == "operator"}
    return Memory(boot_id, kept, memory.known, memory.bursts, earlier_boot=True)


def _without(memory: Memory, gone: set[Key]) -> Memory:
    return replace(memory, latches={key: latch for key, latch in memory.latches.items() if key not in gone})


def evidence(memory: Memory) -> list[dict[str, Any]]:
    """The confirmed latches as the report carries them, in a fixed order."""
    order = {key: (one.signal, -1 if one.gpu is None else one.gpu, one.unit) for key, one in memory.latches.items()}
    latches = [memory.latches[key] for key in sorted(order, key=order.__getitem__)]
    return [
        {"signal": one.signal, "class": one.cls, "detail": one.detail, "gpu": one.gpu, "since_ms": one.since_ms}
        for one in latches
        if one.confirmed and one.cls != "IGNORE"
    ]


def to_plain(memory: Memory) -> dict[str, Any]:
    """As JSON-able values."""
    return {
        "format": FORMAT,
        "boot_id": memory.boot_id,
        "latches": [asdict(latch) for _, latch in sorted(memory.latches.items())],
        "known": [asdict(one) for one in memory.known],
        "bursts": {key: [list(pair) for pair in pairs] for key, pairs in sorted(memory.bursts.items())},
        "ecc": {key: list(pair) for key, pair in sorted(memory.ecc.items())},
        "earlier_boot": memory.earlier_boot,
    }


def from_plain(plain: Mapping[str, Any]) -> Memory:
    """Read `to_plain`'s values again. Raises KeyError, TypeError or ValueError on anything else."""
    if plain["format"] != FORMAT:
        raise ValueError(f"format {plain['format']!r}, want {FORMAT}")
    latches = [Latch(**one) for one in plain["latches"]]
    return Memory(
        boot_id=str(plain["boot_id"]),
        latches={latch.key: latch for latch in latches},
        known=tuple(Known(**one) for one in plain["known"]),
        bursts={key: tuple((int(a), int(b)) for a, b in pairs) for key, pairs in plain["bursts"].items()},
        ecc={key: (int(a), int(b)) for key, (a, b) in plain["ecc"].items()},
        earlier_boot=bool(plain["earlier_boot"]),
    )
