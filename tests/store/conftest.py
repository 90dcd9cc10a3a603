"""Places that are real: a SQLite file and a PostgreSQL database."""

from pathlib import Path

import pytest

from tests.store.backends import postgres_url


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the SQLite store of the test is."""
    return tmp_path / "store.db"


@pytest.fixture
def url(file: Path) -> str:
    """The URL of `file`."""
    return f"sqlite:///{file}"


@pytest.fixture(params=["sqlite", "postgres"])
def any_url(request: pytest.FixtureRequest, url: str) -> str:
    """Each kind of database in turn."""
    return url if request.param == "sqlite" else postgres_url()
