"""A small process beside every rank: when the rank's process is gone, for whatever reason, it kills what the attempt
left on the host. So nothing survives a raylet that was killed, also with no agent there to sweep.

Run as `python -I -S guard.py <mark> <node> <pid> <directory>`: only the standard library, no environment (and so no
mark of its own), in a session of its own. Processes marked for another node of the same machine (a local cluster) are
left alone. It ends after two clean scans, or when the time for the scans is over, and removes the rank's scratch
directory."""

import contextlib
import os
import select
import signal
import sys
import time

MARK = b"RAYSCHED_ATTEMPT="
NODE_MARK = b"RAYSCHED_NODE="
SCAN_PAUSE_S = 0.1  # a child that is being forked during one scan is there at the next
SCANS_S = 120.0  # a process that a driver holds in the kernel is not killable; the node agent reports it
POLL_S = 0.5  # without pidfds (Linux before 5.3) the rank is looked at twice a second


def main() -> None:
    """Leave the parent (whose wait for this process then ends), wait for the rank's process to end, then sweep."""
    mark, node, rank, scratch = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    started = start_time(rank)
    if os.fork():
        os._exit(0)
    os.setsid()
    os.chdir("/")
    if started is not None:
        _wait_for_end(rank, started)
    sweep(mark, node, SCANS_S)
    import shutil  # a third of the guard's start, were it above

    shutil.rmtree(scratch, ignore_errors=True)


def sweep(mark: str, node: str, seconds: float) -> bool:
    """Kill every process marked `mark` on `node` until two scans in a row find none; False if `seconds` did not
    suffice."""
    clean, deadline = 0, time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = marked(mark, node)
        for pid in found:
            _kill(pid, mark, node)
        clean = 0 if found else clean + 1
        if clean == 2:
            return True
        time.sleep(SCAN_PAUSE_S)
    return False


def marked(mark: str, node: str | None = None) -> list[int]:
    """The processes of this host that carry `mark`, those marked for other nodes than `node` excepted. Zombies have
    no environment and do not count."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _is_marked(int(entry), mark, node)]


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot: with the id it names the process. None if gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _is_marked(pid: int, mark: str, node: str | None) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            settings = file.read().split(b"\0")
    except OSError:
        return False
    if MARK + mark.encode() not in settings:
        return False
    places = [setting for setting in settings if setting.startswith(NODE_MARK)]
    return node is None or not places or NODE_MARK + node.encode() in places


def _kill(pid: int, mark: str, node: str) -> None:
    """SIGKILL to the process that carries the mark, and to no other that took its id in between."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:
        _kill_by_start(pid, mark, node)
        return
    try:
        with contextlib.suppress(OSError):  # it ended by itself, or is not ours to kill
            if _is_marked(pid, mark, node):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)


def _kill_by_start(pid: int, mark: str, node: str) -> None:
    started = start_time(pid)
    if started is not None and _is_marked(pid, mark, node) and start_time(pid) == started:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _wait_for_end(pid: int, started: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        while start_time(pid) == started:
            time.sleep(POLL_S)
        return
    if start_time(pid) == started:
        select.select([handle], [], [])
    os.close(handle)


if __name__ == "__main__":
    main()
