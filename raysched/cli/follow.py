"""Watching a job until it ends: why it waits, then its output as it comes."""

import sys
from typing import TextIO

from rich.status import Status

from raysched.cli.output import console
from raysched.client.client import Row
from raysched.client.handle import LOOK_S, JobHandle
from raysched.core.model import FINAL


def follow(handle: JobHandle, output: TextIO) -> Row:
    """Write the job's output (rank 0) to `output` until it has ended; returns its last status. On a terminal a
    spinner shows what it waits for, elsewhere each change of state is one line on stderr.

    An interrupt leaves the job running and says how to get back to it."""
    try:
        with _Progress() as progress:
            return _follow(handle, output, progress)
    except KeyboardInterrupt:
        job = handle.job
        message = f"{job} goes on: `raysched logs -f {job}` shows it, `raysched cancel {job}` stops it"
        print(f"\nraysched: {message}", file=sys.stderr)
        raise


def exit_status(view: Row) -> int:
    """The exit status that stands for a job: its command's own, where there is one."""
    if view["state"] == "succeeded":
        return 0
    code = view.get("exit_code")
    return code if isinstance(code, int) and 0 < code < 256 else 1


def _follow(handle: JobHandle, output: TextIO, progress: "_Progress") -> Row:
    offset, attempt = 0, None
    while True:
        # The state is read before the output: what is written until the end is then always seen.
        view = handle.look(LOOK_S)
        progress.show(view)
        if view.get("attempt") != attempt:
            offset, attempt = 0, view.get("attempt")
        while piece := handle.read(offset, attempt=attempt):
            offset = piece["next"]
            progress.pause()
            output.write(piece["data"])
            output.flush()
        if view["state"] in FINAL:
            return view


class _Progress:
    """What the job waits for: a spinner on a terminal until there is output, lines elsewhere."""

    def __init__(self) -> None:
        self._console = console(stderr=True)
        self._status: Status | None = None
        self._said = ""

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *error: object) -> None:
        self.pause()

    def show(self, view: Row) -> None:
        """Say how the job stands, if that has changed."""
        said = _standing(view)
        if said == self._said:
            return
        self._said = said
        if not self._console.is_terminal:
            self._console.print(said)
        elif view["state"] in FINAL or view["state"] == "running":
            self.pause()
            self._console.print(said)
        elif self._status is None:
            self._status = self._console.status(said)
            self._status.start()
        else:
            self._status.update(said)

    def pause(self) -> None:
        """Take the spinner away; output follows."""
        if self._status is not None:
            self._status.stop()
            self._status = None


def _standing(view: Row) -> str:
    line = f"{view['job']} {view['state']}"
    if view["state"] in FINAL:
        code, detail = view.get("exit_code"), view.get("detail")
        return line + (f", exit code {code}" if code is not None else "") + (f": {detail}" if detail else "")
    if view.get("nodes"):
        return f"{line} on {', '.join(view['nodes'])}"
    return f"{line}: {view['reason']}" if view.get("reason") else line
