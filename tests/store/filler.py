"""A process whose disk fills up while it appends, then gets room again. Prints what happened as JSON.

Usage: python -m tests.store.filler FOLDER tmpfs|file_size"""

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from raysched.core.entries import AnyEntry
from raysched.store.errors import StoreFailed
from raysched.store.journal import SqlJournal
from raysched.store.ledger_store import LedgerStore
from tests.store.samples import alert, claimed

BATCH = 40


def main(folder: Path, how: str) -> None:
    """Fill up, fail, get room, go on, look at what is there."""
    make_room = fill_tmpfs(folder) if how == "tmpfs" else limit_file_size()
    journal, ledger = SqlJournal(f"sqlite:///{folder}/journal.db"), LedgerStore(f"sqlite:///{folder}/ledger.db")
    post(ledger, [claimed("before")])  # on the small disk the journal leaves no room for more
    failures = [append_until_full(journal), post_until_full(ledger), blob_fails(journal)]
    kept = [len(list(journal.read())), len(ledger.read(limit=10**9))]
    make_room()
    told = [journal.append([alert("again")]), post(ledger, [claimed("again")])]
    journal.close()
    ledger.close()
    after = LedgerStore(f"sqlite:///{folder}/ledger.db")
    stored = [len(list(SqlJournal(f"sqlite:///{folder}/journal.db").read())), len(after.read(limit=10**9))]
    print(
        json.dumps({"failures": failures, "kept": kept, "told": told, "stored": stored, "chain": after.verify_chain()})
    )


def fill_tmpfs(folder: Path) -> Callable[[], None]:
    """Take a part of a small disk; the answer gives it back."""
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    return ballast.unlink


def limit_file_size() -> Callable[[], None]:
    """No file may grow beyond 400 KiB; the answer lifts that."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400 << 10, hard))
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def append_until_full(journal: SqlJournal) -> tuple[int, str]:
    """How many events were acknowledged, and why no more."""
    while True:
        try:
            journal.append([alert("x" * 100)] * BATCH)
        except StoreFailed as error:
            return journal.last_seq(), str(error)


def post_until_full(ledger: LedgerStore) -> tuple[int, str]:
    """How many entries were acknowledged, and why no more."""
    while True:
        try:
            post(ledger, [claimed("a")] * BATCH)
        except StoreFailed as error:
            return ledger.last_version(), str(error)


def post(ledger: LedgerStore, entries: list[AnyEntry]) -> int:
    """Append as a plan; the version it made."""
    first = ledger.last_version() + 1
    ledger.append(f"plan{first}", 1, entries, first)
    return ledger.last_version()


def blob_fails(journal: SqlJournal) -> tuple[int, str]:
    """Whether a blob larger than the room is kept (1) or not (0), and why."""
    try:
        return 1, journal.put_blob(bytes(range(256)) * 4096 * 16)
    except StoreFailed as error:
        return 0, str(error)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
