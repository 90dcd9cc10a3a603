"""Deciding every row again, over archives and a store: rows follow from the books before them, archives lead to one
another, and the last one to the books with which the store begins."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from raysched.core.ledger import Ledger
from raysched.core.model import JobId
from raysched.core.snapshot import Snapshot, forget, restore, snapshot
from raysched.core.verify import Disagreement, Verifier
from raysched.store.archive_file import Archive
from raysched.store.errors import CorruptStore
from raysched.store.ledger_store import LedgerStore

PAGE: Final = 10_000


class Unread(Struct, frozen=True):
    """What cannot be right whatever the rows say, at a version or (None) of a whole file."""

    version: int | None
    job: JobId | None
    what: str


class Audited(Struct):
    """What was found. `rows`, `decided` and `compared` count what was looked at; rows up to `archived` are not among
    them. `chain`: versions in the store that are not what was appended; None without a store."""

    rows: int = 0
    decided: int = 0
    compared: int = 0
    archived: int = 0
    disagreements: list[Disagreement | Unread] = field(default_factory=list)
    chain: list[int] | None = None


def audit(store: LedgerStore | None, archives: Sequence[Path] = ()) -> Audited:
    """Walk the archives, in whichever order they are given, then the store. What is wrong is in the answer; raises
    StoreFailed, and CorruptStore for a file that is no store at all."""
    walk = _Walk()
    walk.archives(archives)
    if store is not None:
        walk.store(store)
        walk.found.chain = store.verify_chain()
    return walk.end()


def read_back(file: Path) -> tuple[Archive, Snapshot]:
    """An archive, read to its end, and the books it leads to. Raises CorruptStore if anything is wrong with it."""
    walk, archive = _Walk(), Archive(file)
    walk.follow(archive)
    if walk.verifier.found:
        first = walk.verifier.found[0]
        raise CorruptStore(archive.name, first.version, first.what)
    return archive, snapshot(walk.verifier.ledger)


class _Walk:
    """Where we are: the books so far, the last archive, and which openings the chain was seen to cover."""

    def __init__(self) -> None:
        self.verifier, self.found = Verifier(), Audited()
        self.before: Archive | None = None
        self.opened: dict[str, str] = {}
        self.sealed: set[str] = set()

    def archives(self, files: Sequence[Path]) -> None:
        """All of them; what follows a broken one cannot be judged."""
        try:
            for archive in sorted((Archive(file) for file in files), key=lambda one: one.after):
                self.follow(archive)
        except CorruptStore as corrupt:
            self._wrong(corrupt.row, str(corrupt))
            self.before = None

    def follow(self, archive: Archive) -> None:
        """From the books that the archive follows to those at its end. Raises CorruptStore."""
        before = self.before
        if before is None:
            self._take_up(archive.books)
        elif (archive.after, archive.chain) != (before.last, before.digest):
            ends = f"{before.name} ends at {before.last}"
            raise CorruptStore(archive.name, None, f"does not follow from there: it follows {archive.after}, {ends}")
        elif archive.books != snapshot(self.verifier.ledger):
            self._wrong(archive.after, f"{archive.name} begins with other books than {before.name} leads to")
        for version, entry in archive.rows():
            self.verifier.entry(version, entry)
            self.found.rows += 1
            if version % PAGE == 0:
                forget(self.verifier.ledger)
        self.before = archive
        self.sealed |= archive.sealed
        if archive.opened is not None:
            self.opened[archive.opened] = archive.name

    def store(self, store: LedgerStore) -> None:
        """Its opening, then its rows up to the first that cannot be read: what follows it cannot be judged."""
        try:
            self._open(store)
            self._rows(store)
        except CorruptStore as corrupt:
            self._wrong(corrupt.row, f"cannot be read: {corrupt}")

    def _open(self, store: LedgerStore) -> None:
        opening, sealed = store.sealed()
        books, before = store.opening(), self.before
        if before is None:
            self.found.archived = opening.version
            self._take_up(books)
            return
        for digest, name in self.opened.items():
            if digest not in self.sealed | sealed:
                self._wrong(None, f"the books that {name} begins with were never sealed")
        if (before.last, before.digest) != (opening.version, opening.chain):
            self._wrong(None, f"{before.name} ends at version {before.last}, the store begins after {opening.version}")
            self._take_up(books)
        elif books != snapshot(self.verifier.ledger):
            self._wrong(opening.version, f"the store begins with other books than {before.name} leads to")
            self._take_up(books)

    def _rows(self, store: LedgerStore) -> None:
        after, most = self.verifier.ledger.version, PAGE
        while True:
            try:
                page = store.read(after, most)
            except CorruptStore as corrupt:
                if corrupt.row is None or corrupt.row <= after + 1:
                    raise
                most = corrupt.row - 1 - after
                continue
            if not page:
                return
            for after, entry in page:
                self.verifier.entry(after, entry)
            self.found.rows += len(page)
            forget(self.verifier.ledger)

    def _take_up(self, books: Snapshot | None) -> None:
        self.verifier.ledger = Ledger() if books is None else restore(books)

    def _wrong(self, version: int | None, what: str) -> None:
        self.found.disagreements.append(Unread(version, None, what))

    def end(self) -> Audited:
        """All that was found, the rows first."""
        self.found.decided, self.found.compared = self.verifier.decided, self.verifier.compared
        self.found.disagreements = [*self.verifier.found, *self.found.disagreements]
        return self.found
