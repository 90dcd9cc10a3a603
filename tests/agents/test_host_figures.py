"""The host's figures, from made-up procfs and sysfs trees and from the machine itself."""

import os
from pathlib import Path

from fake_node import until
from raysched_agent.host import CpuMeter, DiskProbe, Host, boot_id, memory, pci_gpus


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_cpu_is_the_share_of_time_that_was_not_idle(tmp_path: Path) -> None:
    write(tmp_path, {"stat": "cpu  100 0 100 800 0 0 0 0 0 0\n"})
    meter = CpuMeter(tmp_path)
    write(tmp_path, {"stat": "cpu  150 0 125 875 50 0 0 0 0 0\n"})
    assert meter.percent() == 37.5  # 75 of 200 ticks; waiting for a disk is idle
    assert meter.percent() == 37.5  # no time has passed since


def test_memory_is_the_machines_or_the_control_groups_if_smaller(tmp_path: Path) -> None:
    proc = write(tmp_path / "proc", {"meminfo": "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n"})
    assert memory(proc, tmp_path / "none") == (1_024_000, 409_600)

    group = {"memory.max": "500000\n", "memory.current": "300000\n", "memory.stat": "anon 5\ninactive_file 100000\n"}
    limited = write(tmp_path / "sys", {f"fs/cgroup/{name}": text for name, text in group.items()})
    assert memory(proc, limited) == (500_000, 300_000)
    assert memory(proc, write(tmp_path / "sys", {"fs/cgroup/memory.max": "max\n"})) == (1_024_000, 409_600)


def test_the_bus_shows_nvidia_cards_and_not_their_audio(tmp_path: Path) -> None:
    devices = {
        "0000:3b:00.0": ("0x10de", "0x030200"),
        "0000:3b:00.1": ("0x10de", "0x040300"),
        "0000:5e:00.0": ("0x10de", "0x030000"),
        "0000:00:02.0": ("0x8086", "0x030000"),
    }
    for name, (vendor, kind) in devices.items():
        write(tmp_path, {f"bus/pci/devices/{name}/vendor": vendor + "\n", f"bus/pci/devices/{name}/class": kind + "\n"})
    assert pci_gpus(tmp_path) == {"0000:3b:00.0", "0000:5e:00.0"}
    assert pci_gpus(tmp_path / "none") == frozenset()


def test_a_probe_writes_and_leaves_nothing(tmp_path: Path) -> None:
    probe = DiskProbe(tmp_path, every_s=0.0)
    for _ in range(3):
        disk = until(probe.look)
        assert not disk.readonly and 0 < disk.free <= disk.total
    until(lambda: not list(tmp_path.iterdir()), "an empty directory")
    assert DiskProbe(tmp_path / "none").look() is None


def test_this_machine_can_be_read(tmp_path: Path) -> None:
    reading = Host([tmp_path, tmp_path]).read()
    assert 0 <= reading.cpu_percent <= 100 and 0 < reading.memory_available <= reading.memory_total
    assert [disk.path for disk in reading.disks] == [str(tmp_path)]
    assert boot_id() == boot_id() and boot_id(Path(os.devnull)) != boot_id(Path(os.devnull))
