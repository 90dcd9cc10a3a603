"""The file of an archive: rows of the ledger as lines of JSON, compressed, with their chain of digests.

Lines: first what the archive follows; then rows, seals of openings where they were, and every thousand rows a mark with
the digest so far; last the end. `zcat FILE | jq` reads it, also without this program. Digests of single rows are left
out, because nothing compresses them; the marks tell edited rows to the thousand."""

import gzip
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from sqlalchemy import select

from raysched.core.entries import AnyEntry
from raysched.core.snapshot import Snapshot
from raysched.store import openings
from raysched.store.chain import Links, link
from raysched.store.codec import decode_books, decode_entry
from raysched.store.database import Database
from raysched.store.errors import CorruptStore
from raysched.store.openings import Opening
from raysched.store.schema import ledger

FORMAT: Final = "raysched ledger archive 1"
MARK_EVERY: Final = 1_000
CHUNK: Final = 5_000
LEVEL: Final = 4  # level 6 takes 1.6 times as long for 5 % less


class _Line(Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Any line: which one it is, its fields say."""

    format: str | UnsetType = UNSET
    after: int | UnsetType = UNSET
    books: Raw | UnsetType = UNSET
    version: int | UnsetType = UNSET
    epoch: int | UnsetType = UNSET
    entry: Raw | UnsetType = UNSET
    seal: str | UnsetType = UNSET
    mark: int | UnsetType = UNSET
    end: int | UnsetType = UNSET
    digest: str | UnsetType = UNSET


_decode = msgspec.json.Decoder(_Line).decode
_encode = msgspec.json.Encoder().encode


# ── writing ───────────────────────────────────────────────────────────────────────────────────────────────────────


def write(database: Database, file: Path, last: int) -> None:
    """Write the rows up to `last` that the ledger has, durably and whole: `file` appears when it is complete.

    Raises CorruptStore for rows that are not what was appended, OSError."""
    part = file.with_name(file.name + ".part")
    with part.open("wb") as raw:
        with gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as packed:
            for line in _lines(database, last):
                packed.write(line)
        raw.flush()
        os.fsync(raw.fileno())
    part.rename(file)
    folder = os.open(file.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _lines(database: Database, last: int) -> Iterator[bytes]:
    with database.read() as connection:
        opening = openings.find(connection)
        seals = openings.seals(connection, opening.version, last)
    yield _first(opening)
    links, waiting = Links(opening.version, opening.chain, seals), list(seals)
    for version, epoch, payload, digest in _rows(database, opening.version, last):
        while waiting and waiting[0].after < version:
            yield _line(_Line(seal=waiting.pop(0).digest))
        if version != links.last + 1 or not _follows(links, payload, digest):
            raise CorruptStore("ledger", links.last + 1, "is not what was appended: nothing is archived over it")
        links.follow(version, digest)
        yield _line(_Line(version=version, epoch=epoch, entry=Raw(payload.encode())))
        if version % MARK_EVERY == 0:
            yield _line(_Line(mark=version, digest=digest))
    if links.last != last:
        raise CorruptStore("ledger", links.last + 1, f"is missing, asked up to {last}")
    yield _line(_Line(end=last, digest=links.previous()))


def _follows(links: Links, payload: str, digest: str) -> bool:
    try:
        return link(links.previous(), payload) == digest
    except UnicodeError:
        return False


def _first(opening: Opening) -> bytes:
    books = Raw(opening.books.encode()) if opening.books else UNSET
    return _line(_Line(format=FORMAT, after=opening.version, books=books, digest=opening.chain))


def _line(line: _Line) -> bytes:
    return _encode(line) + b"\n"


def _rows(database: Database, after: int, last: int) -> Iterator[tuple[int, int, str, str]]:
    columns = (ledger.c.version, ledger.c.epoch, ledger.c.payload, ledger.c.digest)
    while after < last:
        page = select(*columns).where(ledger.c.version > after, ledger.c.version <= last)
        with database.read() as connection:
            rows = connection.execute(page.order_by(ledger.c.version).limit(CHUNK)).all()
        if not rows:
            return
        for row in rows:
            yield row.version, row.epoch, row.payload, row.digest
        after = rows[-1].version


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Archive:
    """An archive, read once and in order. It follows version `after`, whose digest is `chain` and whose books are
    `books`, None at the start of the ledger; `opened` is the digest by which those books were sealed. `last`, `digest`
    and `sealed` (seals that were passed) grow with the rows."""

    def __init__(self, file: Path) -> None:
        """Open and read the first line. Raises CorruptStore."""
        self.name = f"archive {file}"
        self._lines = self._read(file)
        first = next(self._lines, None)
        if first is None or first.format != FORMAT or first.after is UNSET or first.digest is UNSET:
            raise self._wrong(None, f"does not begin as {FORMAT!r}")
        self.after = self.last = first.after
        self.chain = self.digest = first.digest
        try:
            text = None if first.books is UNSET else _text(first.books)
            self.books: Snapshot | None = None if text is None else decode_books(self.after, text)
        except (CorruptStore, UnicodeError) as error:
            raise self._wrong(None, str(error)) from error
        self.opened = None if text is None else link(self.chain, text)
        self.sealed: set[str] = set()

    def rows(self) -> Iterator[tuple[int, AnyEntry]]:
        """(version, entry) in order, to the end. Raises CorruptStore where they are not what was appended."""
        checked = self.last
        for line in self._lines:
            if line.entry is not UNSET:
                yield self._row(line)
            elif line.seal is not UNSET:
                self.sealed.add(line.seal)
                self.digest = link(self.digest, line.seal)
            else:
                number = line.end if line.mark is UNSET else line.mark
                if (number, line.digest) != (self.last, self.digest):
                    raise self._wrong(None, f"rows {checked + 1} to {number} are not what was appended")
                checked = self.last
                if line.end is not UNSET:
                    return self._check_over()
        raise self._wrong(None, f"breaks off after row {self.last}")

    def _row(self, line: _Line) -> tuple[int, AnyEntry]:
        if line.version != self.last + 1 or line.entry is UNSET:
            raise self._wrong(self.last + 1, f"is missing, the next one is {line.version}")
        try:
            payload = _text(line.entry)
            self.last, self.digest = self.last + 1, link(self.digest, payload)
            return self.last, decode_entry(self.last, payload)
        except (CorruptStore, UnicodeError) as error:
            raise self._wrong(self.last, str(error)) from error

    def _check_over(self) -> None:
        if next(self._lines, None) is not None:
            raise self._wrong(None, f"goes on after its end at row {self.last}")

    def _read(self, file: Path) -> Iterator[_Line]:
        try:
            with gzip.open(file) as lines:
                yield from map(_decode, lines)
        except (OSError, EOFError, zlib.error, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._wrong(None, str(error) or type(error).__name__) from error

    def _wrong(self, row: int | None, why: str) -> CorruptStore:
        return CorruptStore(self.name, row, why)


def _text(raw: Raw) -> str:
    return bytes(raw).decode()
