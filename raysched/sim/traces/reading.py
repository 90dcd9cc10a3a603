"""Rows of a CSV file, plain, gzipped or inside a tar archive, with errors that name the file and the line."""

import csv
import gzip
import io
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path


class TraceError(Exception):
    """A trace that cannot be read: which file, which line (None: the whole file), and why."""

    def __init__(self, file: str, line: int | None, reason: str) -> None:
        self.file, self.line, self.reason = file, line, reason
        super().__init__(f"{file}: {reason}" if line is None else f"{file}:{line}: {reason}")


class Row:
    """One line of a trace; reading a column of it can fail with the file and the line."""

    def __init__(self, file: str, line: int, values: Mapping[str, str]) -> None:
        self.file, self.line, self._values = file, line, values

    def text(self, column: str) -> str:
        return self._values[column].strip()

    def optional(self, column: str) -> str | None:
        """None when the column is missing or empty."""
        return self._values.get(column, "").strip() or None

    def whole(self, column: str, least: int = 0) -> int:
        """An integer of at least `least`."""
        text = self.text(column)
        try:
            value = int(text)
        except ValueError:
            raise self.error(f"{column}: {text!r} is not a whole number") from None
        if value < least:
            raise self.error(f"{column}: {value} is below {least}")
        return value

    def number(self, column: str) -> float:
        """A finite number of at least 0."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            raise self.error(f"{column}: {text!r} is not a number") from None
        if not 0 <= value < float("inf"):
            raise self.error(f"{column}: {text!r} is not a finite number of at least 0")
        return value

    def error(self, reason: str) -> TraceError:
        return TraceError(self.file, self.line, reason)


def rows(file: Path, columns: Iterable[str]) -> Iterator[Row]:
    """All rows of a CSV file (`.gz`: gzipped) that has at least these columns; blank lines are passed over."""
    try:
        text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(str(file), None, f"cannot be read: {error}") from None
    return _rows(str(file), text, columns)


def rows_in_archive(archive: Path, columns: Iterable[str]) -> Iterator[tuple[str, Iterator[Row]]]:
    """Each CSV file of a tar archive, by name: its stem and its rows."""
    wanted = tuple(columns)
    try:
        with tarfile.open(archive) as opened:
            names = sorted(name for name in opened.getnames() if name.endswith(".csv"))
            found = {name: _member(opened, name) for name in names}
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise TraceError(str(archive), None, f"cannot be read: {error}") from None
    for name, text in found.items():
        yield Path(name).stem, _rows(f"{archive}:{name}", text, wanted)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    opened = archive.extractfile(name)
    return opened.read() if opened is not None else b""


def _rows(file: str, content: bytes, columns: Iterable[str]) -> Iterator[Row]:
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8"), newline=""))
        header = next(reader, [])
        missing = [column for column in columns if column not in header]
        if missing:
            raise TraceError(file, 1, f"lacks the columns {', '.join(missing)}")
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                raise TraceError(file, reader.line_num, f"has {len(cells)} values, the header {len(header)} columns")
            yield Row(file, reader.line_num, dict(zip(header, cells, strict=True)))
    except (csv.Error, UnicodeDecodeError) as error:
        raise TraceError(file, None, f"is not CSV: {error}") from None
