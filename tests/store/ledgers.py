"""Ledgers of which every row was really decided, on a database, with the files their rows are archived in."""

import gzip
import sqlite3
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import msgspec

from raysched.core.entries import AnyEntry
from raysched.core.snapshot import continues
from raysched.store.audit import Audited, audit
from raysched.store.ledger_store import LedgerStore
from tests.model.histories import history

SEED, STEPS = 8, 250  # a long history with swaps, reservations and overrides


@cache
def _long() -> tuple[AnyEntry, ...]:
    return tuple(history(SEED, STEPS).sim.disk.entries)


def entries() -> list[AnyEntry]:
    """Some two hundred rows."""
    return list(_long())


def parted() -> int:
    """A version after whose row the books must not be parted."""
    return next(version for version, entry in enumerate(entries()) if continues(entry))


def post(table: LedgerStore, posted: Sequence[AnyEntry]) -> None:
    """As one plan after what is there."""
    first = table.last_version() + 1
    table.append(f"plan{first}", 1, posted, first)


def stored(url: str, posted: Sequence[AnyEntry]) -> None:
    """A new ledger of these entries, closed."""
    table = LedgerStore(url)
    for at in range(0, len(posted), 40):
        post(table, posted[at : at + 40])
    table.close()


def audited(url: str, *archives: Path) -> Audited:
    """What an auditor finds, without taking over."""
    table = LedgerStore(url, writer=False)
    try:
        return audit(table, archives)
    finally:
        table.close()


def is_sound(found: Audited) -> bool:
    """Whether nothing was found."""
    return not found.disagreements and not found.chain


def edit_file(file: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """Change an archive's lines as a person with an editor would."""
    lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    changed = change(list(lines))
    assert changed != lines
    file.write_bytes(gzip.compress(b"".join(changed)))


def edit_store(file: Path, *statements: str) -> None:
    """Change a SQLite store as a person with a SQL prompt would."""
    connection = sqlite3.connect(file)
    with connection:
        for statement in statements:
            assert connection.execute(statement).rowcount, statement
    connection.close()


def tables(file: Path) -> bytes:
    """Everything that a SQLite store says."""
    connection = sqlite3.connect(file)
    connection.text_factory = bytes  # also what is no text
    names = ("ledger", "openings", "heads", "plans")
    rows = {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for name in names}
    connection.close()
    return msgspec.json.encode(rows)
