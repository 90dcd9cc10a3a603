"""Statements that are compiled once and then handed to the driver as text.

A commit of a tick holds a few rows: SQLAlchemy's own work on a statement (cache key, parameters of every row, result)
costs several times what the database does with it. The text still comes from the tables in schema.py."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, CursorResult
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.sql.elements import ClauseElement

# Both drivers then take a mapping for each row.
_DIALECTS: Final[dict[str, Dialect]] = {
    "sqlite": sqlite.dialect(paramstyle="named"),
    "postgresql": make_url("postgresql+psycopg://").get_dialect()(),
}


def run(
    connection: Connection, statement: ClauseElement, rows: Mapping[str, Any] | Sequence[Mapping[str, Any]]
) -> CursorResult[Any]:
    """Execute `statement`, a constant of its module, with its named parameters; once for each row of a list."""
    return connection.exec_driver_sql(_text(connection.dialect.name, statement), rows)


@cache
def _text(dialect: str, statement: ClauseElement) -> str:
    return str(statement.compile(dialect=_DIALECTS[dialect]))
