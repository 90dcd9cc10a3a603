"""The opening of the ledger: the books with which its rows begin, once the rows before them were archived.

An opening is sealed into the chain: what is appended next covers its digest as it covers the row before, so books
that are changed later show. Only the newest has books; older ones stay while the rows after their seal do."""

from collections.abc import Sequence

from msgspec import Struct
from sqlalchemy import Connection, select, update

from raysched.store.heads import CHAIN_START
from raysched.store.schema import openings


class Opening(Struct, frozen=True):
    """Rows up to `version` are archived; `chain` is the digest of that row, `books` what they had folded to (a
    core.snapshot.Snapshot as JSON), `digest` covers both."""

    version: int
    chain: str
    books: str
    digest: str


class Seal(Struct, frozen=True):
    """The row after `after` covers `digest`, too."""

    after: int
    digest: str


START = Opening(0, CHAIN_START, "", "")  # nothing was archived


def find(connection: Connection) -> Opening:
    """The opening in force; START if there is none."""
    newest = select(openings).order_by(openings.c.version.desc()).limit(1)
    row = connection.execute(newest).one_or_none()
    return START if row is None else Opening(row.version, row.chain, row.books or "", row.digest)


def archived(connection: Connection) -> int:
    """The last version that is not in the ledger any more; 0 if all are."""
    return connection.scalar(select(openings.c.version).order_by(openings.c.version.desc()).limit(1)) or 0


def seals(connection: Connection, since: int, until: int | None = None) -> Sequence[Seal]:
    """Seals after row `since` or a later one, before `until`, in order."""
    query = select(openings.c.sealed_after, openings.c.digest).where(openings.c.sealed_after >= since)
    if until is not None:
        query = query.where(openings.c.sealed_after < until)
    rows = connection.execute(query.order_by(openings.c.sealed_after, openings.c.version))
    return [Seal(after, digest) for after, digest in rows]


def pull_back(connection: Connection, last: int) -> None:
    """Seals after rows that never were acknowledged follow row `last` instead."""
    connection.execute(update(openings).where(openings.c.sealed_after > last).values(sealed_after=last))
