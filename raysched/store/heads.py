"""Who may write a stream, and where it ends. A new writer takes over; the old one finds out at its next append.

The row is read under a lock and changed in the transaction of the rows it describes."""

from typing import Final

from msgspec import Struct
from sqlalchemy import Connection, bindparam, insert, select, update

from raysched.store import prepared
from raysched.store.errors import CorruptStore, StoreFailed
from raysched.store.schema import heads

JOURNAL: Final = "journal"
LEDGER: Final = "ledger"
EPOCH: Final = "epoch"
CHAIN_START: Final = "0" * 64  # the digest before the first row

_FIND: Final = select(heads.c.writer, heads.c.last, heads.c.digest).where(heads.c.stream == bindparam("stream"))
_LOCK: Final = _FIND.with_for_update()
_ADVANCE: Final = (
    update(heads).where(heads.c.stream == bindparam("of")).values(last=bindparam("to"), digest=bindparam("at"))
)


class Head(Struct, frozen=True):
    """The end of a stream: its last number, and the digest of that row where the stream is a chain."""

    writer: int
    last: int
    digest: str


def create(connection: Connection) -> None:
    """The heads of a store without rows."""
    empty = {JOURNAL: "", LEDGER: CHAIN_START, EPOCH: ""}
    rows = [{"stream": stream, "writer": 0, "last": 0, "digest": digest} for stream, digest in empty.items()]
    connection.execute(insert(heads), rows)


def find(connection: Connection, stream: str, lock: bool = False) -> Head:
    """The head of `stream`; with `lock` nobody else changes it before this transaction ends. Raises CorruptStore."""
    row = prepared.run(connection, _LOCK if lock else _FIND, {"stream": stream}).one_or_none()
    if row is None:
        raise CorruptStore("heads", None, f"the row of {stream} is missing")
    return Head(row.writer, row.last, row.digest)


def take_over(connection: Connection, stream: str) -> Head:
    """Become the writer of `stream`; whoever was it is fenced from now on."""
    head = find(connection, stream, lock=True)
    connection.execute(update(heads).where(heads.c.stream == stream).values(writer=head.writer + 1))
    return Head(head.writer + 1, head.last, head.digest)


def owned(connection: Connection, stream: str, writer: int) -> Head:
    """The locked head, if `writer` still is the writer. Raises StoreFailed("fenced …")."""
    head = find(connection, stream, lock=True)
    if head.writer != writer:
        raise StoreFailed(f"fenced: {stream} now belongs to writer {head.writer}, this is {writer}; nothing was kept")
    return head


def advance(connection: Connection, stream: str, last: int, digest: str = "") -> None:
    """Move the end of `stream`, which the caller owns."""
    prepared.run(connection, _ADVANCE, {"of": stream, "to": last, "at": digest})
