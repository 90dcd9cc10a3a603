"""The parent's end of one NVML child: ask for a poll, wait with a deadline, know what it was doing.

Never blocks on the child: reads are raw and follow `select`, and a child that does not die is not waited for."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DIES_WITHIN_S: Final = 1.0  # a process that outlives SIGKILL by this sits in the kernel
OnEvent = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Hung:
    """No answer by the deadline; `call` on `gpu` was the last one begun (None: between calls)."""

    call: str | None
    gpu: int | None


@dataclass(frozen=True)
class Ended:
    """The process ended by itself."""

    call: str | None
    gpu: int | None
    status: int | None


class NvmlProcess:
    """One child. Spawned, never forked: a fork would share the driver's state and descriptors."""

    def __init__(self, skip: Sequence[str], env: Mapping[str, str]) -> None:
        package_root = str(Path(__file__).resolve().parent.parent)
        path = os.pathsep.join(part for part in (package_root, os.environ.get("PYTHONPATH")) if part)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "raysched_agent.nvml_child", *skip],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": path, **env},
            start_new_session=True,
        )
        assert self._process.stdout is not None and self._process.stdin is not None
        self.pid, self.output = self._process.pid, self._process.stdout.fileno()
        self._input = self._process.stdin.fileno()
        self._rest, self._over = b"", False
        self._call: str | None = None
        self._gpu: int | None = None

    def poll(self, deadline_s: float, on_event: OnEvent) -> Mapping[str, Any] | Hung | Ended:
        """Ask for one poll. Events that arrive meanwhile go to `on_event`."""
        until = time.monotonic() + deadline_s
        try:
            os.write(self._input, b"poll\n")
        except BrokenPipeError:
            self._over = True
        while not self._over:
            if not select.select([self.output], [], [], max(0.0, until - time.monotonic()))[0]:
                return Hung(self._call, self._gpu)
            lines = list(self._lines())
            for line in lines:
                _event_of(line, on_event)
            for line in lines:
                if "reading" in line:
                    reading: Mapping[str, Any] = line["reading"]
                    return reading
        return Ended(self._call, self._gpu, self._reaped())

    def drain(self, on_event: OnEvent) -> bool:
        """Take what the child has written between polls; whether it was an event, or the child's end."""
        seen = [_event_of(line, on_event) for line in self._lines()]
        return any(seen) or self._over

    def is_in_kernel(self) -> bool:
        """Whether a thread of the child is in uninterruptible sleep (D), as in a driver that does not return."""
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            try:
                # the name in parentheses may hold anything: the state follows the last one
                if stat.read_text().rpartition(")")[2].split()[0] == "D":
                    return True
            except (OSError, IndexError):
                continue
        return False

    def signal_end(self) -> None:
        """SIGKILL without waiting: from another thread, while this one may be in `poll`."""
        self._process.kill()

    def kill(self) -> None:
        """SIGKILL, and wait a moment for it to work."""
        self._process.kill()
        self._over = True
        try:
            self._process.wait(DIES_WITHIN_S)
        except subprocess.TimeoutExpired:
            return
        self._close()

    def is_alive(self) -> bool:
        if self._process.poll() is None:
            return True
        self._close()
        return False

    def _lines(self) -> Iterator[dict[str, Any]]:
        """Whole lines of one raw read; keeps track of the call in progress."""
        data = os.read(self.output, 65536)
        if not data:
            self._over = True
        *whole, self._rest = (self._rest + data).split(b"\n")
        for raw in whole:
            try:
                line = json.loads(raw)
            except ValueError:
                continue
            if "begin" in line:
                self._gpu, self._call = line["begin"]
            elif "end" in line:
                self._gpu = self._call = None
            yield line

    def _reaped(self) -> int | None:
        try:
            status = self._process.wait(DIES_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return None
        self._close()
        return status

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _event_of(line: Mapping[str, Any], on_event: OnEvent) -> bool:
    if "event" not in line:
        return False
    on_event(line["event"])
    return True
