"""The process that calls NVML: `python -m raysched_agent.nvml_child`. Nothing else of raysched ever does.

A driver call can hang in the kernel for ever, and a look-alike library may call exit(); both must cost a child, not the
agent. The parent writes `poll` lines; this process answers in lines of JSON: `begin` and `end` around every call, a
`reading` for every poll, an `event` for every XID. It ends when the parent's end of the pipe closes."""

import ctypes
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

try:
    import pynvml  # type: ignore[import-untyped, unused-ignore]
except ImportError:
    pynvml = None

NOT_SUPPORTED, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, LOST, RESET_REQUIRED, UNKNOWN = 3, 12, 13, 15, 16, 999
GIVE_UP: Final = frozenset({2, NOT_SUPPORTED, 4, FUNCTION_NOT_FOUND, 25, 26})  # this part or driver will never tell
SERIOUS: Final = frozenset({1, 8, 9, 11, 17, 18, UNKNOWN})  # of an optional call: says something about the GPU
UNCORRECTED, VOLATILE, DRAM, SRAM = 1, 0, 2, 7
RECOVERY_FIELD: Final = 230
XID_EVENT, UNAVAILABLE_EVENT, RECOVERY_EVENT = 0x8, 0x4000, 0x8000
WAIT_MS: Final = 1_000
NO_EVENTS_S: Final = 600.0  # before asking a driver without events again
WAITS_WITHOUT_ALL: Final = 60  # then a GPU that was left out may be back
FIELD_MEMBERS: Final = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


class Failed(Exception):
    """An NVML call answered with `code`. A plain value: NVMLError can neither be hashed nor safely compared."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: NVML code {code}")
        self.call, self.code = call, code


class Lines:
    """JSON lines on the real standard output, one at a time from any thread."""

    def __init__(self) -> None:
        self._fd, self._lock = os.dup(1), threading.Lock()
        os.dup2(2, 1)  # what a library prints must not end up between our lines

    def put(self, line: dict[str, Any]) -> None:
        with self._lock:
            os.write(self._fd, json.dumps(line).encode() + b"\n")


class Nvml:
    """NVML calls by name, announced on `lines`, with optional ones given up per GPU once they are unsupported."""

    def __init__(self, lines: Lines, skip: frozenset[str]) -> None:
        self._lines, self._skip = lines, skip
        self._unsupported: set[tuple[str, str]] = set()
        self._names: dict[str, dict[str, Any]] = {}
        self.ready = False

    def reading(self) -> dict[str, Any]:
        """One poll over all GPUs, or `{"error": …}` when NVML as a whole does not answer."""
        try:
            self._start()
            count = self.call(None, "nvmlDeviceGetCount")
        except Failed as failed:
            return {"error": {"call": failed.call, "code": failed.code}}
        return {"gpus": [self._gpu(index) for index in range(count)]}

    def _start(self) -> None:
        if not self.ready:
            if pynvml is None:
                raise Failed("import pynvml", LIBRARY_NOT_FOUND)
            self.call(None, "nvmlInit")
            self.ready = True

    def call(self, gpu: int | None, name: str, *args: Any) -> Any:
        """Call one function of the bindings. Raises Failed."""
        self._lines.put({"begin": [gpu, name]})
        try:
            return getattr(pynvml, name)(*args)
        except pynvml.NVMLError as error:
            # for a code that the bindings do not know, `value` is not a number
            raise Failed(name, error.value if isinstance(error.value, int) else UNKNOWN) from None
        except AttributeError:
            raise Failed(name, FUNCTION_NOT_FOUND) from None
        finally:
            self._lines.put({"end": 1})

    def _gpu(self, index: int) -> dict[str, Any]:
        found: dict[str, Any] = {"index": index}
        try:
            handle = self.call(index, "nvmlDeviceGetHandleByIndex", index)
            found.update(self._identity(index, handle))
            self._figures(index, handle, found)
            found["read"] = True
        except Failed as failed:
            self._note(found, failed)
        return found

    def _note(self, found: dict[str, Any], failed: Failed) -> None:
        if failed.code == RESET_REQUIRED:
            found["reset_required"] = True
            return
        found.update(error=failed.code, error_call=failed.call, lost=failed.code == LOST)

    def _identity(self, index: int, handle: Any) -> dict[str, Any]:
        """UUID each time (an index moves when the driver re-enumerates), the rest once per UUID."""
        uuid = _text(self.call(index, "nvmlDeviceGetUUID", handle))
        if uuid not in self._names:
            self._names[uuid] = {
                "uuid": uuid,
                "name": _text(self.call(index, "nvmlDeviceGetName", handle)),
                "bus_id": _text(self.call(index, "nvmlDeviceGetPciInfo", handle).busId),
            }
        return self._names[uuid]

    def _figures(self, index: int, handle: Any, found: dict[str, Any]) -> None:
        def ask(name: str, *args: Any) -> Any:
            return self._optional(index, found, name, handle, *args)

        found["recovery"] = _field(ask("nvmlDeviceGetFieldValues", [RECOVERY_FIELD]))
        memory = ask("nvmlDeviceGetMemoryInfo")
        if memory is not None:
            found.update(memory_total=int(memory.total), memory_used=int(memory.used))
        util = ask("nvmlDeviceGetUtilizationRates")
        found["util"] = None if util is None else int(util.gpu)  # `.memory` is bus-busy time, not bytes
        found["temperature"] = ask("nvmlDeviceGetTemperatureV", 0)
        if found["temperature"] is None:
            found["temperature"] = ask("nvmlDeviceGetTemperature", 0)
        found["power_mw"] = ask("nvmlDeviceGetPowerUsage")
        found["ecc_dram"] = ask("nvmlDeviceGetMemoryErrorCounter", UNCORRECTED, VOLATILE, DRAM)
        if found["ecc_dram"] is None:
            found["ecc_dram"] = ask("nvmlDeviceGetTotalEccErrors", UNCORRECTED, VOLATILE)
        found["ecc_sram"] = ask("nvmlDeviceGetMemoryErrorCounter", UNCORRECTED, VOLATILE, SRAM)
        rows = ask("nvmlDeviceGetRemappedRows")
        if rows is not None:
            found.update(remap_pending=int(rows[2]), remap_failed=int(rows[3]))

    def _optional(self, index: int, found: dict[str, Any], name: str, *args: Any) -> Any:
        """The answer, or None. A part that does not have the figure is not asked again; a loss ends the poll of
        this GPU; any other code is noted, and the next figure is asked."""
        key = (f"{name}{args[1:]}", str(found.get("uuid")))
        if name in self._skip or key in self._unsupported:
            return None
        try:
            return self.call(index, name, *args)
        except Failed as failed:
            if failed.code == LOST:
                raise
            if failed.code in GIVE_UP:
                self._unsupported.add(key)
            elif failed.code in SERIOUS or failed.code == RESET_REQUIRED:
                self._note(found, failed)
            return None


class Events:
    """XID events from the driver, in a thread: nothing that happened before the registration is delivered."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._gpus: dict[int, tuple[int, str]] = {}
        self._left_out = 0

    def run(self) -> None:
        while True:
            try:
                events = self._registered()
                try:
                    self._deliver(events)
                finally:
                    pynvml.nvmlEventSetFree(events)
            except pynvml.NVMLError as error:
                # with a lost GPU in the set every wait returns at once: build the set anew, without it, not in a spin
                time.sleep(NO_EVENTS_S if error.value in GIVE_UP else 1.0)

    def _registered(self) -> Any:
        events, self._gpus, self._left_out = pynvml.nvmlEventSetCreate(), {}, 0
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                # one bit too many and the whole registration is refused
                wanted = XID_EVENT | UNAVAILABLE_EVENT | RECOVERY_EVENT
                mask = wanted & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                pynvml.nvmlDeviceRegisterEvents(handle, mask, events)
                self._gpus[_address(handle)] = (index, _text(pynvml.nvmlDeviceGetUUID(handle)))
            except pynvml.NVMLError:
                self._left_out += 1
        if not self._gpus:
            time.sleep(WAIT_MS / 1000)
        self._lines.put({"watching": len(self._gpus)})
        return events

    def _deliver(self, events: Any) -> None:
        waits = 0
        while not self._left_out or waits < WAITS_WITHOUT_ALL:
            waits += 1
            try:
                event = pynvml.nvmlEventSetWait_v2(events, WAIT_MS)
            except pynvml.NVMLError_Timeout:
                continue
            index, uuid = self._gpus.get(_address(event.device), (None, None))
            number = int(event.eventData) if event.eventType == XID_EVENT else None
            self._lines.put({"event": {"index": index, "uuid": uuid, "xid": number}})


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _field(values: Any) -> int | None:
    """The first field's value; its own return code and type come before the union may be read."""
    if values is None or values[0].nvmlReturn != 0:
        return None
    member = FIELD_MEMBERS.get(values[0].valueType)
    return None if member is None else int(getattr(values[0].value, member))


def _commands() -> "queue.SimpleQueue[str]":
    """Lines from the parent; at its end this process ends, whatever its other threads are stuck in."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            lines.put(line.strip())
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return lines


def _guarded(run: Callable[[], None]) -> None:
    """A dead thread must not go unseen: the whole child ends and the parent starts another."""
    try:
        run()
    except BaseException as error:
        print(f"nvml_child: {error!r}", file=sys.stderr, flush=True)
        os._exit(1)


def main() -> None:
    lines, commands = Lines(), _commands()
    nvml, watching = Nvml(lines, frozenset(sys.argv[1:])), False
    while True:
        commands.get()
        lines.put({"reading": nvml.reading()})
        if nvml.ready and not watching:
            threading.Thread(target=_guarded, args=(Events(lines).run,), daemon=True).start()
            watching = True


if __name__ == "__main__":
    _guarded(main)
