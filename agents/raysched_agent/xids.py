"""XID events: bursts, repeats, and what the driver's own verdict says about them.

An event has no end, so its latch carries one: a FATAL one waits for a boot or reset, a milder one for ten quiet
minutes. Where the driver tells its recovery action, "nothing to do" held for 30 s clears every XID of that GPU."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from raysched_agent.latches import Key, Latch, Memory
from raysched_agent.readings import Gpu, Xid
from raysched_agent.rules import BURST_MS, HELD_MS, HISTORY_MS, QUIET_MS, UNKNOWN_XID, XIDS, Class, Table, XidRule

Bursts = Mapping[str, tuple[tuple[int, int], ...]]


def with_xids(memory: Memory, gpus: Iterable[Gpu], xids: Iterable[Xid], table: Table, now_ms: int) -> Memory:
    """The memory after these events and with the recovery actions of `gpus`; latches that are over are gone."""
    by_uuid = {gpu.uuid: gpu for gpu in gpus if gpu.uuid is not None}
    memory = replace(memory, none_since=_none_since(memory, by_uuid, now_ms))
    bursts, latches = _recent(memory.bursts, now_ms), dict(memory.latches)
    for event in xids:
        unit = event.uuid or f"gpu{event.index}"
        bursts[f"{unit}/{event.xid}"] = _with_burst(bursts.get(f"{unit}/{event.xid}", ()), event.at_ms)
        _latch(latches, event, unit, now_ms)
    for key, latch in list(latches.items()):
        if latch.signal.startswith("xid_"):
            _settle(latches, key, bursts, by_uuid.get(latch.unit), memory.none_since.get(latch.unit), table, now_ms)
    return replace(memory, latches=latches, bursts=bursts)


def xid_class(xid: int, bursts: int, neighbours: bool, action: int | None, table: Table) -> Class:
    """How bad an XID is with `bursts` of it in a day, `neighbours` having it too, and the driver's `action` (None:
    the driver does not tell)."""
    if xid in table.xid_class:
        return table.xid_class[xid]
    rule: XidRule = XIDS.get(xid, UNKNOWN_XID)
    cls = rule.cls
    if rule.repeat and bursts >= rule.repeat and not (rule.lone and neighbours):
        cls = rule.repeat_cls
    if action == 0 and rule.if_none is not None:
        cls = rule.if_none
    elif action and rule.if_action is not None:
        cls = rule.if_action
    return cls


def _latch(latches: dict[Key, Latch], event: Xid, unit: str, now_ms: int) -> None:
    key = (f"xid_{event.xid}", unit)
    old = latches.get(key)
    where = f"GPU {event.index}" if event.index is not None else "a GPU"
    detail = f"{where} ({unit}): XID {event.xid}" + ("" if event.xid in XIDS else ", a number not in the table")
    cls, since = (old.cls, old.since_ms) if old is not None else ("INFO", now_ms)
    latches[key] = Latch(key[0], unit, cls, detail, event.index, since, event.at_ms)


def _settle(
    latches: dict[Key, Latch],
    key: Key,
    bursts: Bursts,
    gpu: Gpu | None,
    none_since: int | None,
    table: Table,
    now_ms: int,
) -> None:
    latch, xid = latches[key], int(key[0][4:])
    cls = xid_class(xid, *_counts(bursts, latch.unit, xid), gpu.recovery if gpu is not None else None, table)
    # once FATAL, a driver that has gone silent does not make it milder
    if latch.cls == "FATAL" and (gpu is None or gpu.recovery is None) and xid not in table.xid_class:
        cls = "FATAL"
    quiet = cls != "FATAL" and now_ms - latch.last_ms >= QUIET_MS
    forgiven = none_since is not None and now_ms - max(none_since, latch.last_ms) >= HELD_MS
    if cls == "IGNORE" or quiet or forgiven:
        del latches[key]
    else:
        latches[key] = replace(latch, cls=cls, sticky="boot" if cls == "FATAL" else "no")


def _counts(bursts: Bursts, unit: str, xid: int) -> tuple[int, bool]:
    own = len(bursts.get(f"{unit}/{xid}", ()))
    others = any(key.endswith(f"/{xid}") and key != f"{unit}/{xid}" and pairs for key, pairs in bursts.items())
    return own, others


def _with_burst(pairs: tuple[tuple[int, int], ...], at_ms: int) -> tuple[tuple[int, int], ...]:
    if pairs and at_ms - pairs[-1][1] <= BURST_MS:
        return (*pairs[:-1], (pairs[-1][0], at_ms))
    return (*pairs, (at_ms, at_ms))


def _recent(bursts: Bursts, now_ms: int) -> dict[str, tuple[tuple[int, int], ...]]:
    kept = {key: tuple(p for p in pairs if now_ms - p[1] < HISTORY_MS) for key, pairs in bursts.items()}
    return {key: pairs for key, pairs in kept.items() if pairs}


def _none_since(memory: Memory, by_uuid: Mapping[str, Gpu], now_ms: int) -> dict[str, int]:
    """Since when each GPU's driver asks for nothing. A GPU that was not read keeps no claim to it."""
    return {
        uuid: memory.none_since.get(uuid, now_ms) for uuid, gpu in by_uuid.items() if gpu.recovery == 0 and gpu.readable
    }
