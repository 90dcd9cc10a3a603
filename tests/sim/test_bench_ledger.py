"""The rows of `bench ledger` are real, however many: every decision can be made again, and nobody stays charged."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raysched.cli.main import app
from raysched.core import entries as e
from raysched.core.verify import verify
from raysched.sim.bench_ledger import NoRoom, check_room, measure
from raysched.sim.ledger_block import START_MS, YEAR_MS, Block, decided


@pytest.fixture(scope="module")
def block() -> Block:
    return decided(1_000)


def test_every_row_of_many_repetitions_agrees(block: Block) -> None:
    count = len(block.books) + 3 * len(block.body)
    rows = list(block.rows(count))
    found = verify(enumerate(rows, 1))
    assert (len(rows), found.found, found.ledger.version) == (count, [], count)
    assert found.ledger.claims == {} and found.compared == found.decided > 1_000


def test_the_rows_are_of_every_common_kind_and_fill_the_year(block: Block) -> None:
    rows = list(block.rows(5_000))
    kinds = Counter(type(row) for row in rows)
    assert {e.Claimed, e.Committed, e.Released, e.Recorded, e.ShareSet} <= kinds.keys()
    assert all(one.at_ms <= next_one.at_ms for one, next_one in pairwise(rows))
    assert rows[0].at_ms == START_MS and 0.9 < (rows[-1].at_ms - START_MS) / YEAR_MS <= 1.1
    jobs = [row.job for row in rows if isinstance(row, e.Claimed)]
    assert len(jobs) == len(set(jobs))


def test_fewer_rows_are_the_beginning_of_more(block: Block) -> None:
    assert [type(row) for row in block.rows(700)] == [type(row) for row in block.rows(5_000)][:700]
    assert len(list(block.rows(10))) == 10


def test_a_disk_that_is_too_small_is_said_with_its_numbers(tmp_path: Path) -> None:
    with pytest.raises(NoRoom, match=r"10,000,000,000,000 rows need [\d,]+ MiB in .*, [\d,]+ MiB are free"):
        check_room(tmp_path, 10**13)
    ran = CliRunner().invoke(app, ["bench", "ledger", "--rows", str(10**13), "--folder", str(tmp_path)])
    assert ran.exit_code == 1 and "MiB are free" in ran.output and "Traceback" not in ran.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_everything_is_measured(tmp_path: Path) -> None:
    found = measure(60_000, tmp_path)
    assert found.rows == 60_000 and found.archived_rows > 30_000
    assert found.store_after_bytes < found.store_bytes / 2 and found.archive_bytes < found.store_bytes / 5
    assert all(question.rows for question in found.questions)
    assert [post.batch for post in found.posts] == [1, 10, 100, 1_000]
