"""The chain of digests: whether the ledger still is what was appended.

Each row's digest covers the one before it, so a changed row shows unless every later digest is changed as well."""

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from sqlalchemy import Row, select

from raysched.store import heads
from raysched.store.codec import decode_entry
from raysched.store.database import Database
from raysched.store.errors import CorruptStore
from raysched.store.heads import CHAIN_START, LEDGER
from raysched.store.ledger_rows import columns
from raysched.store.schema import ledger

CHUNK: Final = 5_000


def link(previous: str, payload: str) -> str:
    """The digest of a row: SHA-256 over the digest of the row before it (hex) and its own payload (UTF-8)."""
    return hashlib.sha256(f"{previous}{payload}".encode()).hexdigest()


def broken_versions(database: Database) -> list[int]:
    """Versions that are missing, or of which payload, plain columns or digest are not what was appended."""
    with database.read() as connection:
        # Before the rows: what is appended while we read is beyond this head.
        head = heads.find(connection, LEDGER)
    broken: set[int] = set()
    last, digest, digest_at_head = 0, CHAIN_START, CHAIN_START
    for row in _all_rows(database):
        broken.update(range(last + 1, row.version))
        if row.version <= last or not _is_intact(row, digest):
            broken.add(row.version)
        last, digest = row.version, row.digest
        digest_at_head = digest if last == head.last else digest_at_head
    broken.update(range(last + 1, head.last + 1))
    if digest_at_head != head.digest:
        broken.add(head.last)
    return sorted(broken)


def _all_rows(database: Database) -> Iterator[Row[Any]]:
    after = None
    query = select(ledger).order_by(ledger.c.version).limit(CHUNK)
    while True:
        page = query if after is None else query.where(ledger.c.version > after)
        with database.read() as connection:
            chunk = connection.execute(page).all()
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
