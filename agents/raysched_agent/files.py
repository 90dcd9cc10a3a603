"""The agent's own files: its memory over a restart, the time of the last answer, and the log files of ranks.

A file that cannot be written (disk full, read-only) costs the memory of a restart, never the agent."""

import json
import logging
import os
from pathlib import Path
from typing import Any, Final

from raysched_agent.latches import Memory, after_boot, from_plain, to_plain

log = logging.getLogger("raysched.agent")
MOST_BYTES: Final = 4 * 2**20  # of a log per call: an actor's answer is held in memory whole


class OutsideRoot(ValueError):
    """A log was asked for whose path leaves the log root."""


class StateFiles:
    """`memory.json` and `lease.json` of one node in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._memory, self._lease = directory / "memory.json", directory / "lease.json"
        self._saved: object = None
        self._complained: set[Path] = set()

    def load(self, boot_id: str) -> Memory:
        """The memory as this boot may use it; an empty one where there is none or it cannot be read."""
        plain = self._read(self._memory)
        if plain is None:
            return Memory(boot_id)
        try:
            memory = from_plain(plain)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("%s is not readable (%r): starting without latches", self._memory, error)
            return Memory(boot_id)
        return after_boot(memory, boot_id)

    def save(self, memory: Memory) -> None:
        """Write it when something in it would matter after a restart."""
        weight = _weight(memory)
        if weight != self._saved and self._write(self._memory, to_plain(memory), durable=True):
            self._saved = weight

    def last_answer(self, boot_id: str) -> float | None:
        """When, on this boot's monotonic clock, the last answer came; None = never in this boot."""
        plain = self._read(self._lease)
        if not isinstance(plain, dict) or plain.get("boot_id") != boot_id:
            return None
        at = plain.get("answered")
        return float(at) if isinstance(at, int | float) else None

    def save_answer(self, boot_id: str, answered: float) -> None:
        self._write(self._lease, {"boot_id": boot_id, "answered": answered}, durable=False)

    def _read(self, path: Path) -> Any:
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning("%s is not readable (%r)", path, error)
            return None

    def _write(self, path: Path, plain: object, durable: bool) -> bool:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fresh = path.with_suffix(".new")
            with fresh.open("w") as file:
                json.dump(plain, file)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            fresh.replace(path)
        except OSError as error:
            if path not in self._complained:
                log.warning("%s cannot be written (%r): a restart of the agent will not know it", path, error)
                self._complained.add(path)
            return False
        self._complained.discard(path)
        return True


def _weight(memory: Memory) -> object:
    """What of the memory is worth a write: not the times that every poll moves on."""
    latches = [(key, one.cls, one.since_ms, one.confirmed, one.sticky) for key, one in sorted(memory.latches.items())]
    return memory.boot_id, latches, memory.known, sorted(memory.bursts.items()), sorted(memory.ecc.items())


def read_log(root: Path, job: str, attempt: int, rank: int, offset: int = 0, limit: int = 65536) -> dict[str, Any]:
    """A part of `<root>/<job>/<attempt>/rank<r>.log`: {"data": text, "next": offset to go on, "eof": at the end now}.

    A file that does not exist (yet) is empty. Raises OutsideRoot for a path that leaves the root, also by a link."""
    base, inside = root.resolve(), Path(job, str(attempt), f"rank{rank}.log")
    path = (base / inside).resolve()
    # equal to its plain self: no "..", no absolute part and no link led anywhere else
    if not Path(job).parts or inside.is_absolute() or path != base / inside:
        raise OutsideRoot(f"log of {job!r} attempt {attempt!r} rank {rank!r} is not under the log root")
    size = max(1, min(limit, MOST_BYTES))
    try:
        with path.open("rb") as file:
            file.seek(max(0, offset))
            data = file.read(size)
            more = bool(file.read(1))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return {"data": "", "next": max(0, offset), "eof": True}
    data = _whole_characters(data) if more else data
    return {"data": data.decode(errors="replace"), "next": max(0, offset) + len(data), "eof": not more}


def _whole_characters(data: bytes) -> bytes:
    """Without the bytes of a character that is cut at the end; the next part begins with them."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            need = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data[:-back] if need > back and back < len(data) else data
    return data
