"""The chain of digests: whether the ledger still is what was appended.

Each row's digest covers the one before it, so a changed row shows unless every later digest is changed as well."""

import hashlib
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from sqlalchemy import Row, select

from raysched.store import heads, openings
from raysched.store.codec import decode_entry
from raysched.store.database import Database
from raysched.store.errors import CorruptStore
from raysched.store.heads import LEDGER, Head
from raysched.store.ledger_rows import columns
from raysched.store.openings import START, Opening, Seal
from raysched.store.schema import WITH_OPENINGS, ledger

CHUNK: Final = 5_000


def link(previous: str, payload: str) -> str:
    """The digest of a row: SHA-256 over the digest of the row before it (hex) and its own payload (UTF-8)."""
    return hashlib.sha256(f"{previous}{payload}".encode()).hexdigest()


def broken_versions(database: Database) -> list[int]:
    """Versions that are missing, or of which payload, plain columns or digest are not what was appended.

    The version of the opening stands for its books. Rows that were archived are not looked at."""
    while True:
        begun = _bounds(database)
        found = _broken(database, *begun)
        # Rows that were archived while we read would look like missing ones.
        if _bounds(database)[0] == begun[0]:
            return found


def _bounds(database: Database) -> tuple[Opening, Sequence[Seal], Head]:
    with database.read() as connection:
        if database.schema < WITH_OPENINGS:
            return START, (), heads.find(connection, LEDGER)
        opening = openings.find(connection)
        return opening, openings.seals(connection, opening.version), heads.find(connection, LEDGER)


def _broken(database: Database, opening: Opening, seals: Sequence[Seal], head: Head) -> list[int]:
    """`head` was read before the rows: what is appended while we read is beyond it."""
    broken: set[int] = set()
    if opening is not START and link(opening.chain, opening.books) != opening.digest:
        broken.add(opening.version)
    links = Links(opening.version, opening.chain, seals)
    at_head = links.previous()
    for row in _all_rows(database, opening.version):
        broken.update(range(links.last + 1, row.version))
        if row.version <= links.last or not _is_intact(row, links.previous()):
            broken.add(row.version)
        links.follow(row.version, row.digest)
        at_head = links.previous() if row.version <= head.last else at_head
    broken.update(range(links.last + 1, head.last + 1))
    if at_head != head.digest:
        broken.add(head.last)
    return sorted(broken)


class Links:
    """The chain as it is walked: `last` is the row we are at."""

    def __init__(self, last: int, digest: str, seals: Sequence[Seal]) -> None:
        self.last = last
        self._digest = digest
        self._seals = deque(seals)

    def previous(self) -> str:
        """What the next row covers: the digest of the row before it, and what was sealed after that."""
        while self._seals and self._seals[0].after <= self.last:
            self._digest = link(self._digest, self._seals.popleft().digest)
        return self._digest

    def follow(self, version: int, digest: str) -> None:
        """Go on to row `version`."""
        self.last, self._digest = version, digest


def _all_rows(database: Database, after: int) -> Iterator[Row[Any]]:
    query = select(ledger).order_by(ledger.c.version).limit(CHUNK)
    while True:
        with database.read() as connection:
            chunk = connection.execute(query.where(ledger.c.version > after)).all()
        if not chunk:
            return
        yield from chunk
        after = chunk[-1].version


def _is_intact(row: Row[Any], previous: str) -> bool:
    try:
        if link(previous, row.payload) != row.digest:
            return False
        said = columns(decode_entry(row.version, row.payload))
    except (CorruptStore, UnicodeError):
        return False
    return all(row._mapping[name] == value for name, value in said.items())
