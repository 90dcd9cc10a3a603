"""`raysched ledger`: rows, decisions with everything they were made from, and whether all of it still agrees."""

import gzip
import sqlite3
from pathlib import Path

import pytest
from msgspec import structs

from raysched.core.entries import Recorded
from raysched.store.ledger_store import LedgerStore
from tests.cli.conftest import answer, said
from tests.cli.real import Desk

FIELDS = (
    "decided_at",
    "scope",
    "resource_kind",
    "quota_limit",
    "quota_used",
    "quota_remaining",
    "capacity_allocatable",
)
MORE = ("reserved_by_others", "request_quantity", "reservation_lifecycle", "contention_state", "admission_state")
REST = ("override_authority", "evidence", "evidence_ref", "bundles", "ceiling", "nodes")


@pytest.fixture
def desk() -> Desk:
    """`one` runs, `two` waits for its owner's limit, `big` is refused."""
    desk = Desk()
    desk.done("admin", "limits", "set", "--share", "nlp", "enabled=true", "rules=[{user: root, gpu: 8, cpu: 16}]")
    desk.done("submit", "--share", "nlp", "--gpu", "4", "--cpu", "2", "--count", "2", "--name", "one", "--", "true")
    desk.done("submit", "--share", "nlp", "--gpu", "2", "--cpu", "1", "--name", "two", "--", "true")
    assert desk("submit", "--share", "nlp", "--gpu", "9", "--name", "big", "--", "true").exit_code == 1
    return desk


def test_a_decision_is_shown_with_every_field(desk: Desk) -> None:
    shown = desk.done("ledger", "show", "two")
    for field in (*FIELDS, *MORE, *REST):
        assert f"\n  {field}" in shown, field
    assert "attempt 1: QUEUED, USER_LIMIT" in shown
    assert "ceiling user root in share nlp: 8 of 8 gpu used, asked 2: USER_LIMIT" in shown
    assert "4 of 16 cpu used, asked 1: fits" in shown
    assert "nodes 8 gpu free, 0 reserved by others, asked 2" in shown


def test_every_decision_on_a_job_is_shown(desk: Desk) -> None:
    desk.done("cancel", "one")
    desk.service.simulation.run_until(desk.service.simulation.clock.at_ms + 1_000)
    shown = desk.done("ledger", "show", "two")
    assert shown.index("QUEUED, USER_LIMIT") < shown.index("ADMITTED")
    assert [row["admission_state"] for row in answer(desk("ledger", "show", "two", "--json"))] == ["QUEUED", "ADMITTED"]
    assert "REJECTED: OVER_NODE_MAX, OVER_USER_LIMIT" in desk.done("ledger", "show", "big")
    assert desk.done("ledger", "show", "nobody") == "no decisions on nobody\n"


def test_a_sound_ledger_agrees(desk: Desk) -> None:
    assert "all rows agree" in desk.done("ledger", "verify")
    found = answer(desk("ledger", "verify", "--json"))
    assert (found["rows"], found["decided"], found["disagreements"]) == (desk.service.version, 3, [])


def test_a_row_that_disagrees_is_named_and_is_exit_status_1(desk: Desk) -> None:
    entries = desk.service.simulation.disk.entries
    number = next(n for n, entry in enumerate(entries) if isinstance(entry, Recorded) and entry.record.job == "two")
    entry = entries[number]
    assert isinstance(entry, Recorded)
    entries[number] = structs.replace(entry, record=structs.replace(entry.record, reason="NO_CAPACITY"))
    desk.service.simulation.restart_quota()
    ran = desk("ledger", "verify")
    assert ran.exit_code == 1 and f"version {number + 1}, job two: says QUEUED NO_CAPACITY" in ran.stdout


@pytest.fixture
def store(desk: Desk, tmp_path: Path) -> Path:
    """The same ledger in a SQLite file, without its cluster."""
    file = tmp_path / "ledger.db"
    table = LedgerStore(f"sqlite:///{file}")
    table.append("plan", 1, desk.service.simulation.disk.entries, 1)
    table.close()
    return file


def edit(file: Path, change: str) -> None:
    with sqlite3.connect(file) as database:
        database.execute(change)


@pytest.mark.parametrize("as_url", [True, False])
def test_a_store_is_verified_without_its_cluster(desk: Desk, store: Path, as_url: bool) -> None:
    shown = desk.done("ledger", "verify", "--store", f"sqlite:///{store}" if as_url else str(store))
    assert "the chain of digests is whole" in shown and "all rows agree" in shown


def test_a_decision_that_was_edited_is_found(desk: Desk, store: Path) -> None:
    edit(store, "UPDATE ledger SET payload = replace(payload, '\"quota_used\":8000', '\"quota_used\":1000')")
    ran = desk("ledger", "verify", "--store", str(store))
    assert ran.exit_code == 1
    assert "job two: headline" in ran.stdout and "not what was appended: version" in ran.stdout
    found = answer(desk("ledger", "verify", "--store", str(store), "--json"), 1)
    assert {each["version"] for each in found["disagreements"]} == set(found["chain"])


def test_what_no_rule_contradicts_is_found_by_the_chain(desk: Desk, store: Path) -> None:
    edit(store, 'UPDATE ledger SET payload = replace(payload, \'"by":"root"\', \'"by":"eve"\')')
    found = answer(desk("ledger", "verify", "--store", str(store), "--json"), 1)
    assert found["disagreements"] == [] and found["chain"]


@pytest.mark.parametrize(
    "change", ["DELETE FROM ledger WHERE version = 3", "UPDATE ledger SET payload = '{' WHERE version = 3"]
)
def test_a_row_that_is_gone_or_cannot_be_read_is_named(desk: Desk, store: Path, change: str) -> None:
    edit(store, change)
    ran = desk("ledger", "verify", "--store", str(store))
    assert ran.exit_code == 1
    assert "version 3: cannot be read" in ran.stdout and "not what was appended: version 3" in ran.stdout


def test_old_rows_are_archived_and_verified_with_the_rest(desk: Desk, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "old.jsonl.gz"
    rows = answer(desk("ledger", "verify", "--store", str(store), "--json"))["rows"]
    shown = desk.done("ledger", "archive", "--store", str(store), "--version", "3", "--to", str(file))
    assert f"rows 1 to 3 are in {file}" in shown and "the ledger's file had" in shown
    live = desk.done("ledger", "verify", "--store", str(store))
    assert "rows up to version 3 are archived and were not looked at" in live and "all rows agree" in live
    both = desk.done("ledger", "verify", "--store", str(store), "--archive", str(file))
    assert f"{rows} rows" in both and "archived" not in both and "all rows agree" in both
    assert "3 rows" in desk.done("ledger", "verify", "--archive", str(file))


def test_rows_from_before_a_time_or_an_age_are_archived(desk: Desk, store: Path, tmp_path: Path) -> None:
    words = ("ledger", "archive", "--store", str(store), "--to", str(tmp_path / "old.gz"))
    assert "nothing to archive" in said(desk(*words, "--before", "1970-01-01T00:00:00Z"), 1)
    assert "nothing to archive" in said(desk(*words, "--before", "36500d"), 1)
    done = answer(desk(*words, "--before", "2100-01-01T00:00:00Z", "--json"))
    assert done["first"] == 1 and done["last"] == desk.service.version


def test_an_archive_that_was_edited_is_exit_status_1(desk: Desk, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "old.jsonl.gz"
    desk.done("ledger", "archive", "--store", str(store), "--version", "3", "--to", str(file))
    file.write_bytes(gzip.compress(gzip.decompress(file.read_bytes()).replace(b'"at_ms":', b'"at_ms": ')))
    ran = desk("ledger", "verify", "--store", str(store), "--archive", str(file))
    assert ran.exit_code == 1 and "rows 1 to 3 are not what was appended" in ran.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--version", "99"), "cannot be archived up to 99"),
        (("--version", "3", "--before", "90d"), "say either --before or --version"),
        ((), "say either --before or --version"),
        (("--before", "tomorrow"), "must be a time such as 2026-01-01T18:00:00Z or an age such as 90d"),
    ],
)
def test_an_archive_that_cannot_be_made_is_one_line(
    desk: Desk, store: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "old.gz"
    ran = desk("ledger", "archive", "--store", str(store), "--to", str(file), *words)
    assert message in said(ran, 1) and not file.exists()
    nowhere = desk("ledger", "archive", "--store", str(store), "--to", "/nowhere/old.gz", "--version", "3")
    assert "No such file" in said(nowhere, 1)


def test_rows_are_listed_by_user_share_and_time(desk: Desk) -> None:
    everything = answer(desk("ledger", "rows", "--json"))
    mine = answer(desk("ledger", "rows", "--user", "root", "--share", "nlp", "--json"))
    assert 0 < len(mine) < len(everything)
    assert all(row["entry"]["record"]["user"] == "root" for row in mine)
    assert answer(desk("ledger", "rows", "--until", "1970-01-01T00:00:00Z", "--json")) == []
    assert answer(desk("ledger", "rows", "--since", "1970-01-01T00:00:00Z", "--json")) == everything
    assert "must name a zone" in said(desk("ledger", "rows", "--since", "2026-01-01"), 1)


def test_a_store_that_is_not_there_is_one_line(desk: Desk, tmp_path: Path) -> None:
    store = str(tmp_path / "none.db")
    assert "there is no store to read" in said(desk("ledger", "verify", "--store", store), 1)
    archiving = desk("ledger", "archive", "--store", store, "--to", str(tmp_path / "old.gz"), "--version", "3")
    assert "there is no store to read" in said(archiving, 1)
    assert list(tmp_path.iterdir()) == []


def test_unsound_books_are_exit_status_1(desk: Desk) -> None:
    assert desk.done("check") == "all sound\n"
    next(iter(desk.service.simulation.service.state.nodes.values())).room.cpu_milli -= 1
    ran = desk("check")
    assert ran.exit_code == 1 and "n0" in ran.stdout
