"""Whoever edits an archive, the books with which a ledger begins, or its rows is found."""

import gzip
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from raysched.store.archiving import archive
from raysched.store.audit import audit
from raysched.store.chain import link
from raysched.store.ledger_store import LedgerStore
from tests.store.ledgers import audited, edit_file, edit_store, entries, is_sound, post, stored

Lines = list[bytes]
Files = tuple[Path, Path, Path]
Change = Callable[[Lines], Lines]


@pytest.fixture
def files(url: str, tmp_path: Path) -> tuple[Path, Path, Path]:
    """Archives of rows 1 to 60, 61 to 100 and 101 to 180; the rest is in the ledger. The books of the first two
    were sealed after rows 120, in the third, and 190."""
    posted = entries()
    old, newer, last = (tmp_path / f"{name}.gz" for name in ("old", "newer", "last"))
    stored(url, posted[:120])
    archive(url, old, version=60)
    for posts, file, version in ((posted[120:190], newer, 100), (posted[190:], last, 180)):
        table = LedgerStore(url)
        post(table, posts)
        table.close()
        archive(url, file, version=version)
    assert is_sound(audited(url, old, newer, last))
    return old, newer, last


def row_of(lines: Lines, what: bytes) -> int:
    return next(at for at, line in enumerate(lines) if b'"version"' in line[:12] and what in line)


def amended(what: bytes, by: bytes) -> Change:
    """One row says something else."""

    def change(lines: Lines) -> Lines:
        at = row_of(lines, what)
        return [*lines[:at], lines[at].replace(what, by, 1), *lines[at + 1 :]]

    return change


def forged(lines: Lines) -> Lines:
    """A row says something else, and the end has the digest that fits."""
    changed = amended(b'"user":"bob"', b'"user":"eve"')(lines)
    digest = "0" * 64
    for line in changed[1:-1]:
        digest = link(digest, line[line.index(b'"entry":') + 8 : -2].decode())
    end = changed[-1]
    at = end.index(b'"digest":"') + 10
    return [*changed[:-1], end[:at] + digest.encode() + end[at + 64 :]]


OF_ROWS: dict[str, Change] = {
    "a name": amended(b'"user":"bob"', b'"user":"eve"'),
    "a space": amended(b'"at_ms":', b'"at_ms": '),
    "a number": amended(b'"request_quantity":', b'"request_quantity":1'),
    "a row that cannot be read": amended(b'{"type":"Claimed"', b'{"type":"Gained"'),
    "a row less": lambda lines: [*lines[:20], *lines[21:]],
    "two rows the other way round": lambda lines: [*lines[:20], lines[21], lines[20], *lines[22:]],
    "a row twice": lambda lines: [*lines[:20], lines[20], *lines[20:]],
    "the last row less": lambda lines: [*lines[:-2], lines[-1]],
    "the end missing": lambda lines: lines[:-1],
    "something after the end": lambda lines: [*lines, lines[-1]],
    "no first line": lambda lines: lines[1:],
    "nothing": lambda lines: [],
    "another digest": lambda lines: [*lines[:-1], lines[-1].replace(b'"digest":"', b'"digest":"0')],
    "another end": lambda lines: [*lines[:-1], lines[-1].replace(b'"end":60', b'"end":59')],
    "no JSON": lambda lines: [*lines[:20], b"{\n", *lines[20:]],
    "a field more": lambda lines: [*lines[:20], lines[20].replace(b'"epoch"', b'"by":1,"epoch"'), *lines[21:]],
}


@pytest.mark.parametrize("what", OF_ROWS)
def test_an_edited_archive_is_found_with_and_without_its_ledger(url: str, files: Files, what: str) -> None:
    edit_file(files[0], OF_ROWS[what])
    assert audit(None, files[:1]).disagreements, what
    assert audited(url, *files).disagreements, what


def test_an_archive_that_was_forged_to_the_end_does_not_lead_to_its_ledger(url: str, files: Files) -> None:
    edit_file(files[0], forged)
    assert not any("not what was appended" in each.what for each in audit(None, files[:1]).disagreements)
    assert audited(url, *files).disagreements


@pytest.mark.parametrize("left", [0, 10, 200, -20, -1])
def test_an_archive_that_was_cut_off_is_found(url: str, files: Files, left: int) -> None:
    files[0].write_bytes(files[0].read_bytes()[:left])
    (found, *_) = audited(url, *files).disagreements
    assert str(files[0]) in found.what


def test_a_file_that_is_no_archive_is_said_to_be_none(url: str, files: Files) -> None:
    files[0].write_bytes(gzip.compress(b'{"some":"thing"}\n'))
    assert "archive" in audited(url, files[0]).disagreements[0].what
    files[0].unlink()
    assert "No such file" in audited(url, files[0]).disagreements[0].what


OF_BOOKS: dict[str, Change] = {
    "books": lambda lines: [lines[0].replace(b'"now_ms":', b'"now_ms":1', 1), *lines[1:]],
    "no books": lambda lines: [lines[0][: lines[0].index(b'"books"')] + lines[0][-75:], *lines[1:]],
    "where it begins": lambda lines: [lines[0].replace(b'"after":60', b'"after":59'), *lines[1:]],
}
OF_SEALS: dict[str, Change] = {
    "a seal": lambda lines: [line.replace(b'{"seal":"', b'{"seal":"1') for line in lines],
    "no seal": lambda lines: [line for line in lines if not line.startswith(b'{"seal"')],
}


@pytest.mark.parametrize("what", OF_BOOKS)
def test_an_edited_beginning_of_an_archive_is_found(url: str, files: Files, what: str) -> None:
    edit_file(files[1], OF_BOOKS[what])
    assert audited(url, *files).disagreements, what
    assert audited(url, *files[1:]).disagreements, what


@pytest.mark.parametrize("what", OF_SEALS)
def test_an_edited_seal_is_found(url: str, files: Files, what: str) -> None:
    edit_file(files[2], OF_SEALS[what])
    assert audited(url, *files[2:]).disagreements, what


# ── the ledger's side ─────────────────────────────────────────────────────────────────────────────────────────────

OF_STORE = {
    "books": "UPDATE openings SET books = replace(books, '\"now_ms\":', '\"now_ms\":1') WHERE version = 180",
    "a member": "UPDATE openings SET books = replace(books, 'bob', 'eve') WHERE version = 180",
    "books that cannot be read": "UPDATE openings SET books = '{' WHERE version = 180",
    "no books": "UPDATE openings SET books = NULL WHERE version = 180",
    "their digest": "UPDATE openings SET digest = substr(digest, 2) || 'x' WHERE version = 180",
    "the chain": "UPDATE openings SET chain = substr(chain, 2) || 'x' WHERE version = 180",
    "where rows begin": "UPDATE openings SET version = 181 WHERE version = 180",
    "what is sealed": "UPDATE openings SET sealed_after = sealed_after - 1",
    "an older digest": "UPDATE openings SET digest = substr(digest, 2) || 'x' WHERE version = 100",
    "an older one gone": "DELETE FROM openings WHERE version = 100",
    "the opening gone": "DELETE FROM openings WHERE version = 180",
    "all gone": "DELETE FROM openings",
    "a row": "UPDATE ledger SET payload = replace(payload, 'at_ms', 'at_ms ') WHERE version = 190",
    "the first row": "DELETE FROM ledger WHERE version = 181",
    "the last row": "DELETE FROM ledger WHERE version = (SELECT max(version) FROM ledger)",
}


@pytest.mark.parametrize("what", OF_STORE)
@pytest.mark.parametrize("archived", [True, False])
def test_an_edited_opening_or_row_is_found(url: str, file: Path, files: Files, what: str, archived: bool) -> None:
    edit_store(file, OF_STORE[what])
    assert not is_sound(audited(url, *(files if archived else ()))), what


def test_books_that_were_edited_with_their_digest_are_found_by_the_chain(url: str, file: Path, files: Files) -> None:
    """As rows are: whoever edits them must edit every digest after the seal, and then the archive still knows."""
    connection = sqlite3.connect(file)
    chain, books = connection.execute("SELECT chain, books FROM openings WHERE version = 180").fetchone()
    changed = books.replace('"now_ms":', '"now_ms":1', 1)
    assert changed != books
    with connection:
        connection.execute(
            "UPDATE openings SET books = ?, digest = ? WHERE version = 180", (changed, link(chain, changed))
        )
    connection.close()
    assert audited(url).chain == [len(entries())]
    assert audited(url, *files).disagreements
