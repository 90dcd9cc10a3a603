"""One suite per port, run on every implementation."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.backends import NAMES, Backend, backend_fixture


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    """A place for a journal and a ledger: memory, SQLite, PostgreSQL."""
    yield from backend_fixture(request, tmp_path)
