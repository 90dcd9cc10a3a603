"""What the tests of the agent share: a node with GPUs that are not there, and a way to wait for what is said of it."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raysched_agent.nvml import Deadlines, NvmlReader
from raysched_agent.readings import Snapshot

QUICK = Deadlines(interval=0.1, first=20.0, poll=1.0, absent=0.2)


def until(holds: Callable[[], Any], what: str = "the condition", within_s: float = 20.0) -> Any:
    """Wait for a condition; its value. The bound is there to fail, not to measure."""
    end = time.monotonic() + within_s
    while not (found := holds()):
        assert time.monotonic() < end, f"{what} did not come within {within_s} s"
        time.sleep(0.01)
    return found


class FakeNode:
    """The state file of one fake NVML, and its call trace."""

    def __init__(self, directory: Path, library: Path, gpus: int) -> None:
        self._file, self._trace, self._library = directory / "nvml.json", directory / "calls.txt", library
        self.state: dict[str, Any] = {"defaults": {}, "devices": [{"uuid": f"GPU-{i}"} for i in range(gpus)]}
        self.write()

    @property
    def env(self) -> dict[str, str]:
        return {
            "LD_LIBRARY_PATH": str(self._library.parent),
            "FAKE_NVML_STATE": str(self._file),
            "FAKE_NVML_TRACE": str(self._trace),
        }

    def write(self) -> None:
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(self.state))
        fresh.replace(self._file)

    def set(self, **top: Any) -> None:
        self.state.update(top)
        self.write()

    def gpu(self, index: int, **keys: Any) -> None:
        self.state["devices"][index].update(keys)
        self.write()

    def xid(self, index: int, number: int) -> None:
        events = self.state.setdefault("events", [])
        events.append({"seq": len(events) + 1, "gpu": index, "type": 8, "data": number})
        self.write()

    def calls(self) -> list[tuple[str, int]]:
        """(call, GPU) of every call so far; -1 = not of one GPU."""
        if not self._trace.exists():
            return []
        words = [line.split() for line in self._trace.read_text().splitlines()]
        return [(call, int(gpu)) for _, call, gpu in (w for w in words if len(w) == 3)]


class Watched:
    """A running NvmlReader and everything it has said."""

    def __init__(self, env: dict[str, str], deadlines: Deadlines) -> None:
        self.said: list[Snapshot] = []
        self.reader = NvmlReader(deadlines, env)
        self.reader.start()

    def until(self, holds: Callable[[Snapshot], Any], what: str = "the snapshot") -> Snapshot:
        """The first snapshot from now on that fits."""

        def fitting() -> Snapshot | None:
            fresh = self.reader.take()
            self.said += fresh
            return next((one for one in fresh if holds(one)), None)

        found: Snapshot = until(fitting, what)
        return found
