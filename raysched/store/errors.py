"""What can go wrong with a store. Each message says which row, which file, which number."""


class StoreFailed(Exception):
    """The store could not make something durable (disk full, database away). Nothing of the batch was kept."""


class CorruptStore(Exception):
    """What is stored cannot be what was appended: broken bytes, an unknown type, rows that are missing.

    `row` is the number of the row in `table`; None where the whole table or file is meant."""

    def __init__(self, table: str, row: int | None, why: str) -> None:
        place = table if row is None else f"{table} row {row}"
        super().__init__(f"{place}: {why}")
        self.table = table
        self.row = row


class SchemaTooNew(Exception):
    """The store was written by a newer raysched; this one would misread it."""
