"""The host's figures from procfs and sysfs: CPU, memory, boot id, disks, and the GPUs that the PCI bus shows.

Only /proc, /sys and statvfs; nothing here needs a third-party package. Roots can be moved for tests."""

import errno
import os
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from raysched_agent.readings import Disk, HostReading, normal_bus_id

NVIDIA: Final = "0x10de"
DISPLAY_CLASSES: Final = ("0x0300", "0x0302")  # VGA and 3D controllers: the cards, not their audio or switches


def boot_id(proc: Path = Path("/proc")) -> str:
    """The kernel's id of this boot; a random one where procfs does not tell, so that nothing old is believed."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(uuid.uuid4())


def pci_gpus(sys_root: Path = Path("/sys")) -> frozenset[str]:
    """Bus ids of the NVIDIA cards on the PCI bus; empty where the host does not show them."""
    found = set()
    for device in (sys_root / "bus/pci/devices").glob("*"):
        try:
            is_card = (device / "class").read_text().strip().startswith(DISPLAY_CLASSES)
            if is_card and (device / "vendor").read_text().strip() == NVIDIA:
                found.add(normal_bus_id(device.name))
        except OSError:
            continue
    return frozenset(found)


def memory(proc: Path = Path("/proc"), sys_root: Path = Path("/sys")) -> tuple[int, int]:
    """(total, available) bytes: of the machine, or of this control group where that is smaller."""
    lines = (line.split() for line in (proc / "meminfo").read_text().splitlines())
    kib = {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) >= 2}
    total, available = kib.get("MemTotal", 0) * 1024, kib.get("MemAvailable", 0) * 1024
    group = sys_root / "fs/cgroup"
    try:
        limit = int((group / "memory.max").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        # the page cache counts as used in the group but goes when memory is wanted
        used = int((group / "memory.current").read_text()) - int(stat.get("inactive_file", 0))
    except (OSError, ValueError):
        return total, available
    return (limit, max(0, min(limit - used, available))) if limit < total else (total, available)


class CpuMeter:
    """CPU use in per cent of all cores, between one call and the next."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._busy, self._total = self._ticks()
        self._percent = 0.0

    def percent(self) -> float:
        """0.0 … 100.0; the last value again when no time has passed."""
        busy, total = self._ticks()
        passed, used = total - self._total, busy - self._busy
        self._busy, self._total = busy, total
        if passed > 0:
            self._percent = round(min(100.0, max(0.0, 100.0 * used / passed)), 1)
        return self._percent

    def _ticks(self) -> tuple[int, int]:
        words = (self._proc / "stat").read_text().splitlines()[0].split()[1:9]
        ticks = [int(word) for word in words]
        total = sum(ticks)
        return total - ticks[3] - ticks[4], total  # idle and iowait are not use


class DiskProbe:
    """Watches one filesystem with a small write now and then, in a thread: a write that hangs costs nothing else."""

    def __init__(self, path: Path, every_s: float = 30.0) -> None:
        self._path, self._every_s = path, every_s
        self._began: float | None = None
        self._readonly = False
        self._next = 0.0

    def look(self) -> Disk | None:
        """The disk now, and a new write when one is due. None where the path does not exist."""
        now = time.monotonic()
        if self._began is None and now >= self._next:
            self._began, self._next = now, now + self._every_s
            threading.Thread(target=self._write, name="disk-probe", daemon=True).start()
        began = self._began
        probe_ms = 0 if began is None else int((now - began) * 1000)
        try:
            stat = os.statvfs(self._path)
        except OSError:
            return None
        readonly = self._readonly or bool(stat.f_flag & os.ST_RDONLY)
        return Disk(str(self._path), stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize, readonly, probe_ms)

    def _write(self) -> None:
        probe = self._path / f".raysched-probe-{os.getpid()}-{id(self)}"
        try:
            with probe.open("wb") as file:
                file.write(b"probe")
                file.flush()
                os.fsync(file.fileno())
            probe.unlink()
            self._readonly = False
        except OSError as error:
            self._readonly = error.errno == errno.EROFS  # a full or forbidden disk is another matter
        finally:
            self._began = None


class Host:
    """One look at the host at a time."""

    def __init__(self, disk_paths: Sequence[Path], probe_every_s: float = 30.0) -> None:
        self._cpu = CpuMeter()
        self._probes = [DiskProbe(path, probe_every_s) for path in dict.fromkeys(disk_paths)]

    def read(self) -> HostReading:
        total, available = memory()
        disks = tuple(disk for disk in (probe.look() for probe in self._probes) if disk is not None)
        return HostReading(self._cpu.percent(), total, available, disks)
