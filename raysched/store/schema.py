"""The tables. They are read by people with SQL, so names are whole words and payloads are JSON text.

`heads` holds, per stream, who may write it, its last number and (ledger) its last digest. It is changed in the same
transaction as the rows, so a row that disappeared from the end is noticed. `openings` holds the books with which the
ledger begins when its oldest rows were archived (openings.py)."""

from typing import Final

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text

SCHEMA_VERSION: Final = 2
WITH_OPENINGS: Final = 2  # the first schema with the table `openings`

# SQLite takes only INTEGER as the row's own key; a BIGINT key would be a second tree to write.
_Number = BigInteger().with_variant(Integer(), "sqlite")

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("key", String, primary_key=True),
    Column("value", String, nullable=False),
)

heads = Table(
    "heads",
    metadata,
    Column("stream", String, primary_key=True),
    Column("writer", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("digest", String, nullable=False),
)

journal = Table(
    "journal",
    metadata,
    Column("seq", _Number, primary_key=True, autoincrement=False),
    Column("payload", Text, nullable=False),
)

blobs = Table(
    "blobs",
    metadata,
    Column("digest", String, primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

# `user` is a function in PostgreSQL and would be answered silently, `by` is a keyword: hence user_id and acted_by.
ledger = Table(
    "ledger",
    metadata,
    Column("version", _Number, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("entry", String, nullable=False),
    Column("job", String),
    Column("attempt", BigInteger),
    Column("share", String),
    Column("user_id", String),
    Column("pool", String),
    Column("admission_state", String),
    Column("reason", String),
    Column("kind", String),
    Column("request_quantity", BigInteger),
    Column("acted_by", String),
    Column("epoch", BigInteger, nullable=False),
    Column("payload", Text, nullable=False),
    Column("digest", String, nullable=False),
)

# Partial: most rows lack most of these, and every index entry is paid for in each append. What has only a few values
# (pool, state, reason, kind) has no index of its own: people ask for those together with a time.
_FOUND_BY: Final = {"job": "version", "user_id": "at_ms", "share": "at_ms", "acted_by": "at_ms"}
for _name, _then in _FOUND_BY.items():
    _given = ledger.c[_name].is_not(None)
    Index(f"ledger_of_{_name}", _name, _then, sqlite_where=_given, postgresql_where=_given, _table=ledger)
Index("ledger_by_at_ms", ledger.c.at_ms)

openings = Table(
    "openings",
    metadata,
    Column("version", _Number, primary_key=True, autoincrement=False),
    Column("chain", String, nullable=False),
    Column("books", Text),
    Column("digest", String, nullable=False),
    Column("sealed_after", BigInteger, nullable=False),
)

plans = Table(
    "plans",
    metadata,
    Column("first_version", _Number, primary_key=True, autoincrement=False),
    Column("last_version", BigInteger, nullable=False),
    Column("plan_id", String, nullable=False, unique=True),
    Column("epoch", BigInteger, nullable=False),
)
