"""What is wrong with a configuration: file, line, path and reason, all of it at once.

`Problems` collects while a file is read; `ConfigError` is what the caller sees."""

import difflib
import json
import re
from collections.abc import Iterable

from msgspec import Struct

Path = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"^[\w:@*+-]+$")
_SHOWN = 60  # characters of a wrong value that are repeated in an error: enough to recognise it


class Problem(Struct, frozen=True):
    """One thing that is wrong. `line` counts from 1; None where the values did not come from a file with lines."""

    file: str
    line: int | None
    path: str
    reason: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{where}: {self.path}: {self.reason}" if self.path else f"{where}: {self.reason}"


class ConfigError(ValueError):
    """The configuration cannot be used; `problems` holds everything that was found, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)


class Lines(Struct, frozen=True):
    """On which line of which file each value stands. `prefix` is the path of the part that is looked at."""

    file: str
    table: dict[Path, int] = {}
    prefix: Path = ()

    def line(self, path: Path) -> int | None:
        """The line of `path`, or of the nearest value around it."""
        full = self.prefix + path
        return next((self.table[full[:n]] for n in range(len(full), -1, -1) if full[:n] in self.table), None)

    def under(self, *prefix: str | int) -> "Lines":
        """The lines of one part of the file, e.g. `config` inside a scenario."""
        return Lines(self.file, self.table, self.prefix + prefix)


class Problems:
    """The problems found so far in one source."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.found: list[Problem] = []

    def add(self, path: Path, reason: str) -> None:
        """Note that the value at `path` (of the part the lines speak of) is wrong."""
        text = path_text(self.lines.prefix + path)
        self.found.append(Problem(self.lines.file, self.lines.line(path), text, reason))

    def check(self) -> None:
        """Raise ConfigError if anything was found."""
        if self.found:
            raise ConfigError(sorted(self.found, key=lambda problem: problem.line or 0))


def path_text(path: Path) -> str:
    """A path as people write it: `shares.nlp.limits.rules[0].gpu`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            shown = step if _PLAIN_KEY.match(step) else json.dumps(step)
            text += f".{shown}" if text else shown
    return text


def nearest(name: object, known: Iterable[str]) -> str:
    """A hint to append to an error: ` (did you mean cpu?)`, or what there is, or nothing."""
    names = sorted(set(known))
    close = difflib.get_close_matches(str(name)[:200], names, n=1, cutoff=0.6)
    if close:
        return f" (did you mean {close[0]}?)"
    return f" (known: {', '.join(names)})" if 0 < len(names) <= 12 else ""


def shown(value: object) -> str:
    """A wrong value, short enough to be repeated."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None:
        return "nothing"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**_SHOWN:
        return "a huge number"
    text = ascii(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
