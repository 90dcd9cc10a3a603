"""The agent of one node: reports what the node is, how it is used and what is wrong with it. Decides nothing.

A plain class with threads: the observing loop, the NVML reader, the sender. None waits for another, so the heartbeat
goes on while NVML or the scheduler hangs. `as_actor()` gives the Ray actor class; nothing else here knows Ray."""

import functools
import importlib
import logging
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from raysched_agent import host as host_figures
from raysched_agent.checks import after_host, after_poll
from raysched_agent.files import StateFiles, read_log
from raysched_agent.latches import Memory, cleared, evidence
from raysched_agent.nvml import Deadlines, NvmlReader
from raysched_agent.processes import attempts_here, sweep, sweep_all
from raysched_agent.readings import Gpu, Snapshot, gpu_model
from raysched_agent.rules import table_with
from raysched_agent.sink import Line, NamedSink, Sink

log = logging.getLogger("raysched.agent")
GROUPS: Final = {
    "loop": ("run",),
    "control": ("ping", "ray_id", "sweep", "lapsed", "clear", "stop"),
    "logs": ("read_log",),
}
FENCE_SWEEP_S: Final = 2.0  # one try; the next turn of the loop tries again


@dataclass(frozen=True)
class AgentOptions:
    """What may be tuned, all with a default that suits production.

    `fence_after_ms`: without an answer for that long the node's lease is over. `first_poll_wait_s`: how long the first
    report waits for NVML. `overrides`: see rules.table_with. `nvml` False: the declared inventory stands whatever cards
    the machine has, as in a local cluster of several nodes. `boot_id` and `nvml_env` are for tests."""

    cluster: str = "raysched"
    state_dir: str | None = None
    log_root: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    beat_s: float = 5.0
    fence_after_ms: int = 45_000
    answer_within_s: float = 10.0
    first_poll_wait_s: float = 15.0
    deadlines: Deadlines = Deadlines()
    disk_paths: tuple[str, ...] = ()
    overrides: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    nvml_env: Mapping[str, str] = field(default_factory=dict)
    boot_id: str | None = None
    nvml: bool = True


class NodeAgent:
    """`node`: host identity; `ray_id`: hex of the Ray node; `spec`: the declared gpu, gpu_model, cpu_milli,
    memory_bytes, attach, each of which may be missing and is then measured.

    With a `sink` the loop starts at once, also after Ray has restarted the actor; else `run(sink)` is the loop."""

    def __init__(
        self,
        node: str,
        ray_id: str,
        spec: Mapping[str, Any] | None = None,
        options: AgentOptions = AgentOptions(),
        sink: Sink | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.node, self._ray_id, self._declared, self._options = node, ray_id, dict(spec or {}), options
        self._now_ms, self._table = now_ms, table_with(options.overrides)
        scratch = Path(tempfile.gettempdir()) / f"raysched-{options.cluster}" / node
        state_dir = Path(options.state_dir) if options.state_dir else scratch
        self._log_root = Path(options.log_root) if options.log_root else scratch / "logs"
        self._files = StateFiles(state_dir)
        self._boot_id = options.boot_id or host_figures.boot_id()
        self._memory: Memory = self._files.load(self._boot_id)
        paths = [Path(path) for path in options.disk_paths] or [_existing(state_dir), _existing(self._log_root)]
        self._host = host_figures.Host(paths)
        self._pci = host_figures.pci_gpus()
        self._lock, self._wake, self._stopping = threading.RLock(), threading.Event(), threading.Event()
        self._polled = threading.Event()
        self._seq, self._fenced = 0, False
        self._lapsed: set[str] = set()
        self._last_gpus: tuple[Gpu, ...] = ()
        self._measured = False
        self._nvml = NvmlReader(options.deadlines, options.nvml_env, self._on_poll, now_ms)
        if options.nvml:
            self._nvml.start()
        else:
            self._polled.set()
        if sink is not None:
            threading.Thread(target=self.run, args=(sink,), name="agent-loop", daemon=True).start()

    def __repr__(self) -> str:
        return f"NodeAgent({self.node})"

    def ray_id(self) -> str:
        """The Ray node this agent was made for."""
        return self._ray_id

    def ping(self) -> str:
        """The node's name."""
        return self.node

    def report(self) -> dict[str, Any]:
        """The whole current state, measured now. The first one waits a while for the first poll of NVML."""
        self._polled.wait(self._options.first_poll_wait_s)
        with self._lock:
            usage = self._observe()
            poll = self._nvml.latest
            self._seq += 1
            return {
                "node": self.node,
                "ray_id": self._ray_id,
                "seq": self._seq,
                "boot_id": self._boot_id,
                "at_ms": self._now_ms(),
                "spec": self._spec(usage["memory_total_bytes"]),
                "measured": self._measured,
                "labels": dict(self._options.labels),
                "use": usage,
                "evidence": evidence(self._memory),
                "nvml": self._nvml_status(poll),
                "attempts": attempts_here(self._options.cluster, self.node),
            }

    def run(self, sink: Sink) -> None:
        """Report on every change and every beat until `stop`; end what runs here when the lease is over. Blocks."""
        options = self._options
        answered = self._files.last_answer(self._boot_id)
        line = Line(
            sink,
            options.answer_within_s,
            time.monotonic() if answered is None else min(answered, time.monotonic()),
            lambda at: self._files.save_answer(self._boot_id, at),
        )
        sent, shape = 0.0, None
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                report = self.report()
                due = time.monotonic() - sent >= options.beat_s
                if due or _shape(report) != shape:
                    sent, shape = time.monotonic(), _shape(report)
                    line.send(report)
            except Exception:  # one bad reading must not silence the node
                log.exception("no report this time")
                sent = time.monotonic()
            try:
                self._keep_lease(line)
            except Exception:
                log.exception("the lease was not kept this time")
            self._wake.wait(max(0.01, min(sent + options.beat_s, self._lease_end(line)) - time.monotonic()))

    def stop(self) -> None:
        """End the loop and the NVML child."""
        self._stopping.set()
        self._wake.set()
        self._nvml.stop()

    def sweep(self, job: str, attempt: int) -> dict[str, Any]:
        """End every process of an attempt on this machine: {"killed": how many, "clean": nothing is left}."""
        swept = sweep(self._options.cluster, job, attempt)
        if swept.pids or not swept.clean:
            log.info("swept %s/%s: killed %s, clean %s", job, attempt, list(swept.pids), swept.clean)
        return {"killed": len(swept.pids), "clean": swept.clean}

    def lapsed(self, job: str, attempt: int) -> bool:
        """Whether this agent ended the attempt because the lease was over: no failure of the job."""
        return f"{job}/{attempt}" in self._lapsed

    def read_log(self, job: str, attempt: int, rank: int, offset: int = 0, limit: int = 65536) -> dict[str, Any]:
        """A part of a rank's log; see files.read_log. Raises OutsideRoot."""
        return read_log(self._log_root, job, attempt, rank, offset, limit)

    def clear(self, signal: str | None = None, unit: str | None = None) -> list[dict[str, Any]]:
        """The operator's word that a fault is mended: open its latches; what is still true closes again at the next
        reading. `unit` is a GPU's UUID or a disk's path. Returns the evidence that is left."""
        with self._lock:
            self._memory = cleared(self._memory, signal, unit)
            if signal in (None, "gpu_count"):
                self._memory = replace(self._memory, known=())  # a card taken out for good is not missed again
            self._files.save(self._memory)
        self._nvml.poll_soon()
        return evidence(self._memory)

    def _on_poll(self) -> None:
        self._polled.set()
        self._wake.set()

    def _observe(self) -> dict[str, Any]:
        """Fold what is new into the memory; returns the use of the host and its GPUs."""
        now_ms, reading = self._now_ms(), self._host.read()
        polls = self._nvml.take()
        if not polls and not self._polled.is_set() and (self._pci or self._memory.known):
            polls = [Snapshot("error", call="first poll", text="still running")]
        for poll in polls:
            self._fold(poll, now_ms)
        self._memory = after_host(self._memory, reading, self._table, now_ms)
        self._files.save(self._memory)
        return {
            "cpu_percent": reading.cpu_percent,
            "memory_used_bytes": max(0, reading.memory_total - reading.memory_available),
            "memory_total_bytes": reading.memory_total,
            "gpus": [self._gpu_use(gpu) for gpu in self._last_gpus],
        }

    def _fold(self, poll: Snapshot, now_ms: int) -> None:
        if poll.status == "ok":
            self._last_gpus, self._measured = poll.gpus, True
        else:
            self._pci = host_figures.pci_gpus()
        self._memory = after_poll(self._memory, poll, self._gpu_count(), self._pci, self._table, now_ms)

    def _nvml_status(self, poll: Snapshot | None) -> str:
        if poll is not None:
            return poll.status
        return "error" if self._options.nvml else "absent"

    def _gpu_use(self, gpu: Gpu) -> dict[str, Any]:
        was = next((one for one in self._memory.known if one.index == gpu.index), None) if gpu.uuid is None else None
        live = self._nvml.latest is not None and self._nvml.latest.status == "ok"
        return {
            "index": gpu.index,
            "uuid": gpu.uuid or (was.uuid if was is not None else "unknown"),
            "name": gpu.name or (was.name if was is not None else None) or "unknown",
            "util_percent": gpu.util if live else None,
            "memory_used_bytes": gpu.memory_used if live else None,
            "memory_total_bytes": gpu.memory_total or (was.memory_total if was is not None else None),
            "temperature_c": gpu.temperature if live else None,
            "power_mw": gpu.power_mw if live else None,
            "lost": gpu.lost,
        }

    def _gpu_count(self) -> int:
        """How many GPUs the node must have: as declared, else as many as it has had."""
        declared = self._declared.get("gpu")
        return len(self._memory.known) if declared is None else int(declared)

    def _spec(self, memory_total: int) -> dict[str, Any]:
        names = {one.name for one in self._memory.known if one.name is not None}
        model = gpu_model(min(names)) if names else None
        return {
            "gpu": self._gpu_count(),
            "gpu_model": self._declared.get("gpu_model") or (model if self._gpu_count() else None),
            "cpu_milli": self._declared.get("cpu_milli") or (os.cpu_count() or 1) * 1000,
            "memory_bytes": self._declared.get("memory_bytes") or memory_total,
            "attach": dict(self._declared.get("attach") or {}),
        }

    def _lease_end(self, line: Line) -> float:
        end = line.answered + self._options.fence_after_ms / 1000
        return end if time.monotonic() < end else float("inf")

    def _keep_lease(self, line: Line) -> None:
        """Without an answer for too long, the scheduler may give this node's work to another: end it here first."""
        silent_ms = int((time.monotonic() - line.answered) * 1000)
        if silent_ms < self._options.fence_after_ms:
            self._fenced = False
            return
        if not self._fenced:
            log.warning("lease over: no answer for %d ms, ending all attempts on %s", silent_ms, self.node)
            self._fenced = True
        self._lapsed.update(attempts_here(self._options.cluster, self.node))  # before anybody can ask why they died
        swept = sweep_all(self._options.cluster, self.node, FENCE_SWEEP_S)
        if swept.pids or not swept.clean:
            log.warning("lease over on %s: killed %s, clean %s", self.node, list(swept.pids), swept.clean)


def as_actor() -> Any:
    """The Ray actor class. Threads with concurrency groups: the loop, orders and log reads never wait for each other.

    An async actor would give each group an event loop of its own anyway, and these bodies block on files."""
    ray: Any = importlib.import_module("ray")

    class RayNodeAgent(NodeAgent):
        """NodeAgent with a concurrency group for each kind of call."""

    for group, names in GROUPS.items():
        for name in names:
            setattr(RayNodeAgent, name, ray.method(concurrency_group=group)(_forwarding(name)))
    RayNodeAgent.__name__ = RayNodeAgent.__qualname__ = NodeAgent.__name__
    return ray.remote(concurrency_groups={"loop": 1, "control": 8, "logs": 8})(RayNodeAgent)


def _forwarding(name: str) -> Callable[..., Any]:
    """A method of its own for the subclass, so that Ray's marks do not end up on NodeAgent."""
    inherited: Callable[..., Any] = getattr(NodeAgent, name)

    @functools.wraps(inherited)
    def method(self: NodeAgent, *args: Any, **named: Any) -> Any:
        return inherited(self, *args, **named)

    return method


def _existing(path: Path) -> Path:
    """The path, or the nearest directory above it that exists."""
    return next(candidate for candidate in (path, *path.parents) if candidate.is_dir())


def _shape(report: Mapping[str, Any]) -> object:
    """What makes a report worth sending before the next beat: not figures, nor the numbers in a detail."""
    signals = [(one["signal"], one["class"], one["gpu"]) for one in report["evidence"]]
    return report["spec"], report["measured"], report["nvml"], signals, report["attempts"]


__all__ = ["AgentOptions", "Deadlines", "NamedSink", "NodeAgent", "as_actor"]
