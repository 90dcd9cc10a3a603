"""`raysched ledger`: rows, decisions with everything they were made from, and whether all of it still agrees."""

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


def test_a_store_that_is_not_there_is_one_line(desk: Desk, tmp_path: Path) -> None:
    assert "there is no store to read" in said(desk("ledger", "verify", "--store", str(tmp_path / "none.db")), 1)


def test_unsound_books_are_exit_status_1(desk: Desk) -> None:
    assert desk.done("check") == "all sound\n"
    next(iter(desk.service.simulation.service.state.nodes.values())).room.cpu_milli -= 1
    ran = desk("check")
    assert ran.exit_code == 1 and "n0" in ran.stdout
