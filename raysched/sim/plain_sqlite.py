"""The yardstick of `bench ledger`: the sqlite3 module alone, rows of the same size, commits just as durable."""

import sqlite3
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

from raysched.store.database import CHECKPOINT_PAGES


class PlainSqlite:
    """One table of numbered texts, without any other index."""

    def __init__(self, file: Path, texts: Sequence[str]) -> None:
        self._texts, self._last = cycle(texts), 0
        self._connection = sqlite3.connect(file, isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", f"wal_autocheckpoint={CHECKPOINT_PAGES}"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute("CREATE TABLE rows (version INTEGER PRIMARY KEY, payload TEXT NOT NULL)")

    def post(self, batch: int) -> float:
        """Insert so many rows in one commit; returns the seconds."""
        rows = list(enumerate(islice(self._texts, batch), self._last + 1))
        begun = time.perf_counter()
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO rows VALUES (?, ?)", rows)
        self._connection.execute("COMMIT")
        self._last += batch
        return time.perf_counter() - begun

    def close(self) -> None:
        self._connection.close()
