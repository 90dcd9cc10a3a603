"""An archive that is broken off, at any step or by kill -9: no row is lost, none is there twice, and it can go on."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from raysched.store.archiving import archive
from raysched.store.cut import STEP_ROWS
from raysched.store.ledger_store import LedgerStore
from tests.store.ledgers import audited, entries, is_sound, post, stored

VERSION = 200
ROUNDS = 2


class Stopped(BaseException):
    """The process is gone."""


def stop_at(step: int) -> object:
    """Dies when it is told the step with this number."""
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if len(told) == step:
            raise Stopped(text)

    return tell


def all_there(url: str, file: Path) -> bool:
    """Whether every row is in the archive or in the ledger, whichever says that it has it, and all of it is sound."""
    live = audited(url)
    found = audited(url, file) if live.archived else live
    return is_sound(live) and is_sound(found) and found.rows == len(entries())


@pytest.mark.parametrize("step", range(1, 7))
def test_broken_off_at_a_step_it_has_lost_nothing_and_goes_on(any_url: str, tmp_path: Path, step: int) -> None:
    stored(any_url, entries())
    file = tmp_path / "old.gz"
    try:
        archive(any_url, file, version=VERSION, tell=stop_at(step))  # type: ignore[arg-type]
    except Stopped:
        assert all_there(any_url, file)
    else:
        assert step > 4, "every step is told"

    table = LedgerStore(any_url)
    post(table, entries()[:1])
    table.close()
    done = archive(any_url, file, version=VERSION)

    assert (done.first, done.last) == (1, VERSION)
    found = audited(any_url, file)
    assert is_sound(found) and found.rows == len(entries()) + 1
    assert audited(any_url).rows == len(entries()) + 1 - VERSION


def test_rows_are_deleted_in_more_steps_than_one() -> None:
    """Else the crash between two of them is never tried."""
    assert STEP_ROWS <= 1_000


def test_a_half_written_file_has_no_name_and_is_written_again(url: str, tmp_path: Path) -> None:
    stored(url, entries())
    file = tmp_path / "old.gz"
    file.with_name("old.gz.part").write_bytes(b"half of")
    archive(url, file, version=VERSION)
    assert all_there(url, file) and not file.with_name("old.gz.part").exists()


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_killed_at_any_moment_it_has_lost_nothing_and_goes_on(any_url: str, tmp_path: Path, seed: int) -> None:
    stored(any_url, entries())
    file, rng = tmp_path / "old.gz", random.Random(seed)
    for _ in range(2):
        command = [sys.executable, "-m", "tests.store.archiver", any_url, str(file), str(VERSION)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(rng.randint(1, 5)):
                process.stdout.readline()
            process.kill()
        assert all_there(any_url, file)
    archive(any_url, file, version=VERSION)
    assert all_there(any_url, file) and audited(any_url).archived == VERSION
