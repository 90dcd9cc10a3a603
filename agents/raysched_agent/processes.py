"""Finding and ending the processes of an attempt, wherever they have gone: in sessions of their own, as daemons.

Every process of an attempt carries `RAYSCHED_ATTEMPT=<cluster>:<job>/<attempt>` in its environment and hands it to its
children; /proc/PID/environ shows the environment a program was started with. `RAYSCHED_NODE`, where set, tells the
nodes of one machine apart, as in a local cluster."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MARKER: Final = "RAYSCHED_ATTEMPT"
NODE_MARKER: Final = "RAYSCHED_NODE"
PROC: Final = Path("/proc")
CLEAN_SCANS: Final = 2  # in a row: a process that forks while we look shows in the second
ROUNDS: Final = 5  # of one scan: on a busy machine there is always a new process
PAUSE_S: Final = 0.02


@dataclass(frozen=True)
class Marked:
    """A live process of an attempt. `started`: start time in ticks, which tells it from a later one of the same id."""

    pid: int
    started: str
    attempt: str
    node: str | None


@dataclass(frozen=True)
class Swept:
    """What a sweep did. `clean`: two scans in a row found nothing."""

    pids: tuple[int, ...]
    clean: bool


def attempts_here(cluster: str, node: str | None = None) -> list[str]:
    """The `<job>/<attempt>` that have live processes here, sorted; with `node`, not those marked for another node."""
    return sorted({found.attempt for found in marked(cluster) if node is None or found.node in (None, node)})


def sweep(cluster: str, job: str, attempt: int | str, deadline_s: float = 10.0) -> Swept:
    """SIGKILL every process of one attempt on this machine until two scans find none. A process in an endless kernel
    call outlives this: then the answer after `deadline_s` is not clean."""
    return _swept(cluster, f"{job}/{attempt}", None, deadline_s)


def sweep_all(cluster: str, node: str | None = None, deadline_s: float = 10.0) -> Swept:
    """The same for every attempt of the cluster on this node."""
    return _swept(cluster, None, node, deadline_s)


def marked(cluster: str) -> Iterator[Marked]:
    """Every live process of the cluster's attempts, this one excepted. What cannot be read is not ours to touch.

    Newest first, and again for those that came meanwhile: a program that forks away is caught by its haste."""
    seen = {os.getpid()}
    for _ in range(ROUNDS):
        fresh = sorted({int(name) for name in os.listdir(PROC) if name.isdigit()} - seen, reverse=True)
        for pid in fresh:
            found = _marked(pid, cluster)
            if found is not None:
                yield found
        if not fresh:
            return
        seen.update(fresh)


def _swept(cluster: str, attempt: str | None, node: str | None, deadline_s: float) -> Swept:
    until, killed, clean = time.monotonic() + deadline_s, dict[int, None](), 0
    while clean < CLEAN_SCANS:
        targets = [one for one in marked(cluster) if _is_target(one, attempt, node)]
        clean = 0 if targets else clean + 1
        killed.update((one.pid, None) for one in targets if _kill(one))
        if clean < CLEAN_SCANS:
            if time.monotonic() >= until:
                return Swept(tuple(killed), clean=False)
            time.sleep(PAUSE_S)
    return Swept(tuple(killed), clean=True)


def _is_target(one: Marked, attempt: str | None, node: str | None) -> bool:
    return (attempt is None or one.attempt == attempt) and (node is None or one.node in (None, node))


def _marked(pid: int, cluster: str) -> Marked | None:
    started = _start_time(pid)
    if started is None:
        return None
    try:
        pairs = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    values = {name: value for name, _, value in (pair.partition(b"=") for pair in pairs)}
    marker = values.get(MARKER.encode(), b"").decode(errors="replace")
    attempt = marker.removeprefix(f"{cluster}:")
    if not attempt or attempt == marker or _start_time(pid) != started:
        return None
    node = values.get(NODE_MARKER.encode())
    return Marked(pid, started, attempt, None if node is None else node.decode(errors="replace"))


def _start_time(pid: int) -> str | None:
    """Field 22 of stat; None for a process that is gone or dead (a zombie waits for its parent, it holds nothing)."""
    try:
        fields = (PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if len(fields) < 20 or fields[0] in "ZX" else fields[19]


def _kill(target: Marked) -> bool:
    """Whether the signal was sent to that very process: a descriptor cannot come to mean another one of the same id."""
    try:
        handle = os.pidfd_open(target.pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel or sandbox without pidfd
        return _kill_by_id(target)
    try:
        if _start_time(target.pid) != target.started:
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return True
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)


def _kill_by_id(target: Marked) -> bool:
    if _start_time(target.pid) != target.started:
        return False
    try:
        os.kill(target.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return False
    return True
