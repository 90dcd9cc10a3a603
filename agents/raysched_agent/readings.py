"""What was measured, as values: one GPU, one poll of NVML, one look at the host.

None means "this part does not tell", never zero. Nothing here says whether a value is good; `checks` does."""

import re
from dataclasses import dataclass, field
from typing import Literal

NvmlStatus = Literal["ok", "absent", "hung", "error"]

LIBRARY_NOT_FOUND = 12
_BRANDS = {"NVIDIA", "TESLA", "GEFORCE", "QUADRO", "GRAPHICS", "DEVICE"}


@dataclass(frozen=True)
class Gpu:
    """One device as the last poll saw it. `index` is NVML's at that time and moves when the driver re-enumerates;
    `uuid` and `bus_id` do not. `ecc_*`: uncorrectable errors since the driver was loaded. `recovery`: the driver's
    own verdict (field 230), 0 = nothing to do. `error`: NVML code of a call that failed for no known reason.
    `read`: the poll went through to the last figure."""

    index: int
    uuid: str | None = None
    name: str | None = None
    bus_id: str | None = None
    memory_total: int | None = None
    memory_used: int | None = None
    util: int | None = None
    temperature: int | None = None
    power_mw: int | None = None
    recovery: int | None = None
    ecc_dram: int | None = None
    ecc_sram: int | None = None
    remap_pending: int | None = None
    remap_failed: int | None = None
    lost: bool = False
    reset_required: bool = False
    error: int | None = None
    error_call: str | None = None
    read: bool = False

    @property
    def readable(self) -> bool:
        """Whether all its figures were read: only then can a condition be said to be gone."""
        return self.read and not self.lost and not self.reset_required and self.error is None


@dataclass(frozen=True)
class Xid:
    """An XID event of a GPU. NVML says the number and nothing more."""

    xid: int
    uuid: str | None
    index: int | None
    at_ms: int


@dataclass(frozen=True)
class Snapshot:
    """The outcome of one poll. `gpus` are of this poll and empty unless `status` is ok. `code`, `call`, `gpu`: what
    failed or hangs, and where; `dead_sleep`: the hung call sits in the kernel (D state); `hangs`: in a row."""

    status: NvmlStatus
    gpus: tuple[Gpu, ...] = ()
    xids: tuple[Xid, ...] = ()
    code: int | None = None
    call: str | None = None
    gpu: int | None = None
    text: str = ""
    dead_sleep: bool = False
    hangs: int = 0


@dataclass(frozen=True)
class Disk:
    """One filesystem that jobs or the agent write to. `probe_ms`: how long the running write probe takes by now."""

    path: str
    free: int
    total: int
    readonly: bool = False
    probe_ms: int = 0


@dataclass(frozen=True)
class HostReading:
    """CPU in per cent of all cores, memory in bytes, and the disks."""

    cpu_percent: float
    memory_total: int
    memory_available: int
    disks: tuple[Disk, ...] = field(default=())


def normal_bus_id(bus_id: str) -> str:
    """One spelling for NVML's `00000000:3B:00.0`, sysfs' `0000:3b:00.0` and the kernel log's `0000:3b:00`."""
    parts = bus_id.lower().split(":")
    if len(parts) != 3:
        return bus_id.lower()
    domain, bus, slot = parts
    return f"{domain[-4:].rjust(4, '0')}:{bus}:{slot if '.' in slot else slot + '.0'}"


def gpu_model(name: str) -> str:
    """The model in a product name: `NVIDIA H100 80GB HBM3` → H100, `NVIDIA GeForce RTX 4090` → RTX4090."""
    words = [word for word in re.split(r"[\s\-_]+", name) if word and word.upper() not in _BRANDS]
    if len(words) > 1 and words[0].upper() in ("RTX", "GTX", "TITAN") and words[1][0].isdigit():
        return words[0] + words[1]
    return next((word for word in words if any(char.isdigit() for char in word)), words[0] if words else name)
