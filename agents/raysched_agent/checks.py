"""Readings → evidence: which conditions hold in one poll of NVML or one look at the host.

Pure. `after_poll` and `after_host` fold a reading into the memory; `latches.evidence` then says what is open."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from raysched_agent.latches import HOST_UNIT, NVML_UNIT, Finding, Known, Memory, after_reset, stepped
from raysched_agent.readings import LIBRARY_NOT_FOUND, Disk, Gpu, HostReading, Snapshot
from raysched_agent.rules import Class, Table
from raysched_agent.xids import with_xids

RECOVERY: Final[dict[int, tuple[str, Class]]] = {
    1: ("GPU reset", "FATAL"),
    2: ("node reboot", "FATAL"),
    3: ("drain P2P", "DEGRADED"),
    4: ("drain and reset", "FATAL"),
    5: ("recover the IMEX domain", "DEGRADED"),
    6: ("bus reset", "FATAL"),
    7: ("system reboot", "FATAL"),
}
DRIVER_CODES: Final = {9: "driver not loaded", 12: "library not found", 18: "driver and library versions differ"}
UNKNOWN_CODE: Final = 999


def after_poll(
    memory: Memory, poll: Snapshot, spec_gpus: int, host_gpus: frozenset[str], table: Table, now_ms: int
) -> Memory:
    """The memory after one poll. `spec_gpus`: how many the node must have; `host_gpus`: PCI bus ids of the NVIDIA
    devices that the host itself sees, the second source where NVML says no more than "unknown error"."""
    gpus = tuple(_identified(gpu, memory.known) for gpu in poll.gpus)
    memory = with_xids(memory, gpus, poll.xids, table, now_ms)
    if poll.status != "ok":
        expected = _is_expected(memory, poll, spec_gpus, host_gpus)
        unanswered = [_unanswered(poll, spec_gpus, host_gpus)] if expected else []
        return stepped(memory, unanswered, () if expected else (NVML_UNIT,), table, now_ms)
    memory = replace(memory, known=_inventory(memory.known, gpus))
    for gpu in gpus:
        memory = _with_ecc(memory, gpu)
    found = [one for gpu in gpus for one in _gpu_findings(memory, gpu, host_gpus)]
    found += _count_findings(memory, gpus, spec_gpus)
    measured = [NVML_UNIT, *(_unit(gpu) for gpu in gpus if gpu.readable)]
    return stepped(memory, found, measured, table, now_ms)


def after_host(memory: Memory, host: HostReading, table: Table, now_ms: int) -> Memory:
    """The memory after one look at the host."""
    found = [one for disk in host.disks for one in _disk_findings(memory, disk, table)]
    free, total = host.memory_available, host.memory_total
    if total and free < total * table.thresholds.memory_low:
        found.append(Finding("memory_low", HOST_UNIT, f"{free} of {total} bytes of memory available"))
    return stepped(memory, found, [HOST_UNIT, *(disk.path for disk in host.disks)], table, now_ms)


def named(gpu: Gpu) -> str:
    """`GPU 3 (GPU-…, 0000:3b:00.0)`, with what is known of it."""
    known = ", ".join(part for part in (gpu.uuid, gpu.bus_id) if part)
    return f"GPU {gpu.index}" + (f" ({known})" if known else "")


def _unit(gpu: Gpu) -> str:
    return gpu.uuid or f"gpu{gpu.index}"


def _identified(gpu: Gpu, known: Iterable[Known]) -> Gpu:
    """A GPU that does not even give its name is the one last seen at that index."""
    if gpu.uuid is not None:
        return gpu
    was = next((one for one in known if one.index == gpu.index), None)
    if was is None:
        return gpu
    return replace(gpu, uuid=was.uuid, bus_id=was.bus_id, name=was.name, memory_total=was.memory_total)


def _inventory(known: tuple[Known, ...], gpus: Iterable[Gpu]) -> tuple[Known, ...]:
    """Every GPU this node has had: those of this poll at their index of now, the missing ones at their last."""
    now = {g.uuid: Known(g.index, g.uuid, g.bus_id, g.name, g.memory_total) for g in gpus if g.uuid is not None}
    if len(now) < len(known):
        now |= {one.uuid: one for one in known if one.uuid not in now}
    return tuple(sorted(now.values(), key=lambda one: (one.index, one.uuid)))


def _gpu_findings(memory: Memory, gpu: Gpu, host_gpus: frozenset[str]) -> Iterator[Finding]:
    unit, name = _unit(gpu), named(gpu)
    if gpu.lost:
        yield Finding("gpu_lost", unit, f"{name}: NVML says the GPU is lost (in {gpu.error_call})", gpu.index)
        return
    if gpu.reset_required:
        yield Finding("reset_required", unit, f"{name}: NVML says a reset is required", gpu.index)
    if gpu.error is not None:
        # the host's list still has the card: then it is more likely our own view (a lost cgroup device) than the GPU
        agreed = bool(host_gpus) and gpu.bus_id is not None and gpu.bus_id not in host_gpus
        yield Finding("gpu_error", unit, f"{name}: NVML code {gpu.error} in {gpu.error_call}", gpu.index, agreed=agreed)
    if gpu.recovery:
        words, cls = RECOVERY.get(gpu.recovery, ("an action not in the table", "DEGRADED"))
        detail = f"{name}: the driver asks for recovery action {gpu.recovery} ({words})"
        yield Finding("recovery_action", unit, detail, gpu.index, cls)
    yield from _memory_findings(memory, gpu, unit, name)


def _memory_findings(memory: Memory, gpu: Gpu, unit: str, name: str) -> Iterator[Finding]:
    for kind, signal in (("dram", "ecc_dram"), ("sram", "ecc_sram")):
        baseline, last = memory.ecc.get(f"{unit}/{kind}", (0, 0))
        if last > baseline:
            detail = f"{name}: {last - baseline} uncorrectable {kind.upper()} errors since this boot"
            # the driver calms a DRAM error by saying "nothing to do"; without that word it counts in full
            cls: Class | None = "FATAL" if kind == "dram" and gpu.recovery != 0 else None
            yield Finding(signal, unit, detail, gpu.index, cls)
    if gpu.remap_pending:
        yield Finding("row_remap_pending", unit, f"{name}: a row remap waits for a reset", gpu.index)
    if gpu.remap_failed:
        yield Finding("row_remap_failed", unit, f"{name}: a row remap failed; the card is to be replaced", gpu.index)


def _with_ecc(memory: Memory, gpu: Gpu) -> Memory:
    unit, ecc, reset = _unit(gpu), dict(memory.ecc), False
    for kind, value in (("dram", gpu.ecc_dram), ("sram", gpu.ecc_sram)):
        if value is None:
            continue
        first = 0 if memory.earlier_boot else value
        baseline, last = ecc.get(f"{unit}/{kind}", (first, value))
        if value < last:
            reset, baseline = True, 0  # volatile counters fall only when the GPU was reset or the driver reloaded
        ecc[f"{unit}/{kind}"] = (baseline, value)
    memory = replace(memory, ecc=ecc)
    return after_reset(memory, unit) if reset else memory


def _count_findings(memory: Memory, gpus: tuple[Gpu, ...], spec_gpus: int) -> list[Finding]:
    if len(gpus) >= spec_gpus:
        return []
    seen = {gpu.uuid for gpu in gpus}
    gone = [named(Gpu(one.index, one.uuid, bus_id=one.bus_id)) for one in memory.known if one.uuid not in seen]
    detail = f"{len(gpus)} GPUs visible, the node has {spec_gpus}" + (f"; missing: {', '.join(gone)}" if gone else "")
    return [Finding("gpu_count", NVML_UNIT, detail)]


def _is_expected(memory: Memory, poll: Snapshot, spec_gpus: int, host_gpus: frozenset[str]) -> bool:
    """Whether NVML should have answered with figures. Without a library there is nothing to expect, unless the cards
    are there: 0 GPUs on a GPU node is no CPU node."""
    return spec_gpus > 0 and (bool(memory.known) or bool(host_gpus) or poll.code != LIBRARY_NOT_FOUND)


def _unanswered(poll: Snapshot, spec_gpus: int, host_gpus: frozenset[str]) -> Finding:
    """That we cannot measure, and why."""
    if poll.status == "hung":
        where = f"{poll.call} of GPU {poll.gpu}" if poll.gpu is not None else poll.call
        state = "in the kernel (D state)" if poll.dead_sleep else "not in the kernel"
        cls: Class = "FATAL" if poll.dead_sleep or poll.hangs >= 2 else "UNKNOWN"
        return Finding("nvml_hung", NVML_UNIT, f"{where} does not return, {state}, hang {poll.hangs}", poll.gpu, cls)
    agreed = poll.code in DRIVER_CODES or (poll.code == UNKNOWN_CODE and len(host_gpus) < spec_gpus)
    words = DRIVER_CODES.get(poll.code or 0) or poll.text or "no more is known"
    detail = f"{poll.call}: NVML code {poll.code}" if poll.code is not None else f"{poll.call}"
    return Finding("nvml_error", NVML_UNIT, f"{detail} ({words})", poll.gpu, agreed=agreed)


def _disk_findings(memory: Memory, disk: Disk, table: Table) -> Iterator[Finding]:
    limits = table.thresholds
    if disk.probe_ms >= limits.disk_stuck_ms:
        yield Finding("disk_stuck", disk.path, f"{disk.path}: a write takes {disk.probe_ms} ms by now")
    if disk.readonly:
        yield Finding("disk_readonly", disk.path, f"{disk.path} is read-only")
    for signal, part, size in (
        ("disk_full", limits.disk_full, limits.disk_full_bytes),
        ("disk_low", limits.disk_low, limits.disk_low_bytes),
    ):
        more = limits.disk_again if (signal, disk.path) in memory.latches else 0.0
        margin = disk.total * more
        if disk.free < disk.total * part + margin and disk.free < size + margin:
            yield Finding(signal, disk.path, f"{disk.path}: {disk.free} of {disk.total} bytes free")
            return
