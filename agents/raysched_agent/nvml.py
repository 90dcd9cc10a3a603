"""Reads the GPUs through one child process at a time, and stays able to say that a call hangs.

The parent never calls NVML. A thread asks the child for a poll and waits with a deadline; the child says before each
call which one it begins, so a silent child names the call and the GPU, and procfs tells whether it sits in the kernel.
A child that cannot be killed is left alone, and never more than two of them."""

import contextlib
import os
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from raysched_agent.nvml_process import Ended, Hung, NvmlProcess
from raysched_agent.readings import LIBRARY_NOT_FOUND, Gpu, NvmlStatus, Snapshot, Xid, normal_bus_id

MOST_CHILDREN: Final = 2  # an unkillable child must not be multiplied
EVENT_GAP_S: Final = 0.2  # in a storm of events, polls keep this distance
RENEW_AFTER: Final = 6  # failed polls in a row: only a new process can load a new driver's library
NEEDED: Final = frozenset({"nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetUUID"})
_GPU_KEYS: Final = frozenset(f.name for f in fields(Gpu))


@dataclass(frozen=True)
class Deadlines:
    """Seconds. `first`: the first poll ever, as a driver without persistence mode takes long to start; `absent`:
    between looks for a library that is not there."""

    interval: float = 5.0
    first: float = 60.0
    poll: float = 10.0
    absent: float = 60.0


class NvmlReader:
    """Polls in a thread of its own. `take()` hands over what is new, `latest` is the last outcome.

    `on_news` is called from that thread after each poll."""

    def __init__(
        self,
        deadlines: Deadlines = Deadlines(),
        env: Mapping[str, str] | None = None,
        on_news: Callable[[], None] = lambda: None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._deadlines, self._env, self._on_news, self._now_ms = deadlines, dict(env or {}), on_news, now_ms
        self.latest: Snapshot | None = None
        self._fresh: list[Snapshot] = []
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self._wake_in, self._wake_out = os.pipe()
        os.set_blocking(self._wake_out, False)
        self._child: NvmlProcess | None = None
        self._stuck: list[NvmlProcess] = []
        self._polled = 0.0
        self._xids: dict[tuple[str | None, int], Xid] = {}
        self._skip: set[str] = set()
        self._deaths: Counter[str] = Counter()
        self._hangs, self._failures, self._slowest_start, self._ever_ok = 0, 0, 0.0, False
        self._thread = threading.Thread(target=self._run, name="nvml-reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and the child. An unkillable child stays behind."""
        self._stopping.set()
        self.poll_soon()
        if self._child is not None:
            self._child.signal_end()  # a poll that waits for it comes back
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        for child in [*self._stuck, *([self._child] if self._child is not None else [])]:
            child.kill()

    def poll_soon(self) -> None:
        """Poll now instead of at the next interval."""
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes it as well
            os.write(self._wake_out, b"!")

    def take(self) -> list[Snapshot]:
        """Every outcome since the last call, oldest first: an XID in one of them must not be missed."""
        with self._lock:
            fresh, self._fresh = self._fresh, []
            return fresh

    def children(self) -> list[int]:
        """The process ids that exist now, stuck ones included."""
        return [child.pid for child in [*self._stuck, self._child] if child is not None and child.is_alive()]

    def _run(self) -> None:
        while not self._stopping.is_set():
            snapshot = self._poll()
            if snapshot is not None and not self._stopping.is_set():
                self._publish(snapshot)
            absent = snapshot is not None and snapshot.status == "absent"
            self._listen(self._deadlines.absent if absent else self._deadlines.interval)

    def _publish(self, snapshot: Snapshot) -> None:
        with self._lock:
            self.latest = replace(snapshot, xids=tuple(self._xids.values()))
            self._fresh.append(self.latest)
            self._xids = {}
        self._on_news()

    def _poll(self) -> Snapshot | None:
        """One poll; None = nothing new, because the children that hang are all we may have."""
        fresh = self._child is None
        child = self._ready_child()
        if child is None:
            return None
        began = self._polled = time.monotonic()
        answer = child.poll(self._deadline(fresh), self._on_event)
        if isinstance(answer, Hung):
            return self._hung(child, answer)
        if isinstance(answer, Ended):
            return self._ended(answer)
        if fresh:
            self._slowest_start = max(self._slowest_start, time.monotonic() - began)
        return self._answered(child, answer)

    def _ready_child(self) -> NvmlProcess | None:
        self._stuck = [child for child in self._stuck if child.is_alive()]
        if self._child is None and len(self._stuck) < MOST_CHILDREN:
            self._child = NvmlProcess(sorted(self._skip), self._env)
        return self._child

    def _deadline(self, fresh: bool) -> float:
        if not fresh:
            return self._deadlines.poll
        if not self._ever_ok:
            return self._deadlines.first
        return min(self._deadlines.first, max(self._deadlines.poll, 3 * self._slowest_start))

    def _hung(self, child: NvmlProcess, hung: Hung) -> Snapshot:
        self._hangs += 1
        dead_sleep = child.is_in_kernel()
        child.kill()
        if child.is_alive():
            self._stuck.append(child)
        self._child = None
        return Snapshot("hung", call=hung.call, gpu=hung.gpu, dead_sleep=dead_sleep, hangs=self._hangs)

    def _ended(self, ended: Ended) -> Snapshot:
        """A look-alike library may call exit() in a call we can do without: after two deaths we do without it."""
        self._child = None
        if ended.call is not None and ended.call not in NEEDED:
            self._deaths[ended.call] += 1
            if self._deaths[ended.call] >= 2:
                self._skip.add(ended.call)
        text = f"the NVML process ended with status {ended.status}"
        return Snapshot("error", call=ended.call or "start", gpu=ended.gpu, text=text)

    def _answered(self, child: NvmlProcess, reading: Mapping[str, Any]) -> Snapshot:
        error = reading.get("error")
        gpus = tuple(_gpu(plain) for plain in reading.get("gpus", ()))
        self._renew_if_failing(child, error, gpus)
        if error is not None:
            status: NvmlStatus = "absent" if error["code"] == LIBRARY_NOT_FOUND else "error"
            return Snapshot(status, code=error["code"], call=error["call"])
        self._hangs, self._ever_ok = 0, True
        return Snapshot("ok", gpus)

    def _renew_if_failing(self, child: NvmlProcess, error: object, gpus: tuple[Gpu, ...]) -> None:
        """A loaded library is never unloaded: after a driver upgrade only a new process can succeed."""
        failing = error is not None or (bool(gpus) and all(gpu.error is not None and not gpu.lost for gpu in gpus))
        self._failures = self._failures + 1 if failing else 0
        if self._failures and self._failures % RENEW_AFTER == 0:
            child.kill()
            self._child = None

    def _listen(self, seconds: float) -> None:
        """Wait for the next poll; an event of the child ends the wait, as the figures are to be read again now."""
        until = time.monotonic() + seconds
        while not self._stopping.is_set() and (left := until - time.monotonic()) > 0:
            outputs = [self._child.output] if self._child is not None else []
            ready, _, _ = select.select([self._wake_in, *outputs], [], [], left)
            if self._wake_in in ready:
                os.read(self._wake_in, 4096)
                return
            if ready and self._child is not None and self._child.drain(self._on_event):
                until = min(until, self._polled + EVENT_GAP_S)

    def _on_event(self, event: Mapping[str, Any]) -> None:
        if event.get("xid") is not None:
            xid = Xid(int(event["xid"]), event.get("uuid"), event.get("index"), self._now_ms())
            with self._lock:
                self._xids[xid.uuid, xid.xid] = xid


def _gpu(plain: Mapping[str, Any]) -> Gpu:
    known = {key: value for key, value in plain.items() if key in _GPU_KEYS}
    if known.get("bus_id"):
        known["bus_id"] = normal_bus_id(known["bus_id"])
    return Gpu(**known)
