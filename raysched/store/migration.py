"""A store of an older schema is brought up to date by the first writer that opens it, in one transaction."""

from sqlalchemy import Connection, text, update

from raysched.store.schema import SCHEMA_VERSION, ledger, meta

# Schema 1 had an index for each plain column, by version.
_OF_SCHEMA_1 = ("job", "share", "user_id", "pool", "admission_state", "reason", "kind", "acted_by")


def upgrade(connection: Connection) -> None:
    """From schema 1: other indexes on the ledger. New tables were created before. Some minutes for ten million rows."""
    for name in _OF_SCHEMA_1:
        connection.execute(text(f"DROP INDEX IF EXISTS ledger_by_{name}"))
    for index in sorted(ledger.indexes, key=lambda index: str(index.name)):
        index.create(connection, checkfirst=True)
    connection.execute(update(meta).where(meta.c.key == "schema_version").values(value=str(SCHEMA_VERSION)))
