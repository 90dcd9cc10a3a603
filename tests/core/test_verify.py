"""Every stored decision decided again: sound histories agree, and each kind of edit is found."""

import sqlite3
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from raysched.core import entries as e
from raysched.core.record import AdmissionRecord, QuotaRow
from raysched.core.verify import Disagreement, Verifier, verify
from raysched.store.ledger_store import LedgerStore
from tests.model.histories import history
from tests.service.house import House

SEEDS = range(60)
Rows = list[tuple[int, e.AnyEntry]]
Edit = Callable[[Any], Any]


def rows_of(house: House) -> Rows:
    return list(enumerate(house.sim.disk.entries, 1))


@cache
def story() -> Rows:
    """Limits, a loan, an override with and one without authority, a reservation that is drawn on, a job that waits, one
    that is refused, one that is moved, one that is resized."""
    house = House(
        "  s: {nominal: {p: {gpu: 4}}, sharing: {strategy: lend_and_borrow, borrow_limit: {gpu: 2}},\n"
        "      limits: {enabled: true, rules: [{user: ana, gpu: 6, cpu: 30}, {group: ml, gpu: 8, mode: total}]}}\n"
        "  t: {nominal: {p: {gpu: 4}}, sharing: {strategy: lend}}",
    )
    house.admin("reserve", name="r", owner={"share": "t"}, pool="p", amounts={"gpu": 1}, expiry="9h")
    house.submit("own", 1, cpu=4)
    house.submit("drawn", 1, share="t", user="cem")
    house.submit("waits", 3, count=2, cpu=4)
    house.submit("loan", 2, count=2, user="bo", cpu=1)
    house.admin("override", share="s", amounts={"gpu": 2}, until="9h", reason="a deadline", authority="cto")
    house.admin("override", user="ana", amounts={"gpu": 1}, until="9h", reason="urgent")
    house.submit("allowed", 2, user="bo")
    house.submit("refused", 5, count=3, user="cem")
    house.wait(2_000)
    assert "error" not in house.service.move("own", "t", "root")
    assert "error" not in house.service.resize("drawn", [{"gpu": 1, "cpu": 2}], "root")
    house.wait(2_000)
    house.service.cancel("loan", "root")
    house.wait(2_000)
    return rows_of(house)


def test_every_row_of_random_histories_agrees() -> None:
    """Losses, swaps, crashes, administrators at work: whatever happens, the rows follow from the books before them."""
    decided = compared = 0
    for seed in SEEDS:
        found = verify(enumerate(history(seed).sim.disk.entries, 1))
        assert found.found == [], seed
        decided, compared = decided + found.decided, compared + found.compared
    assert decided > compared > 200


def test_every_row_of_the_story_agrees() -> None:
    found = verify(story())
    states = {entry.record.admission_state for _, entry in story() if isinstance(entry, e.Claimed | e.Recorded)}
    assert states >= {"ADMITTED", "ADMITTED_OVERRIDE", "QUEUED", "REJECTED"}
    assert any(isinstance(entry, e.Claimed) and entry.continues for _, entry in story())
    assert (found.found, found.ledger.version) == ([], len(story()))


def in_record(**changes: Any) -> Edit:
    return lambda entry: structs.replace(entry, record=structs.replace(entry.record, **changes))


def more(field: str, by: int = 1_000) -> Edit:
    return lambda entry: in_record(**{field: (getattr(entry.record, field) or 0) + by})(entry)


def in_ceilings(change: Callable[[QuotaRow], QuotaRow]) -> Edit:
    return lambda entry: in_record(quota_rows=tuple(map(change, entry.record.quota_rows)))(entry)


def consistently(limit: int = 0, used: int = 0) -> Edit:
    """A limit or a use changed in the row and in the headline, so that the record agrees with itself."""

    def edit(entry: Any) -> Any:
        record: AdmissionRecord = entry.record
        rows = [
            structs.replace(row, limit=row.limit + limit, used=row.used + used)
            if (row.scope, row.kind) == (record.scope, record.kind)
            else row
            for row in record.quota_rows
        ]
        headline = (record.quota_limit + limit, record.quota_used + used)
        changed = {"quota_limit": headline[0], "quota_used": headline[1], "quota_remaining": headline[0] - headline[1]}
        return in_record(quota_rows=tuple(rows), **changed)(entry)

    return edit


def asking_more(entry: Any) -> Any:
    """A request doubled everywhere in the record."""
    record: AdmissionRecord = entry.record
    rows = tuple(structs.replace(row, request=2 * row.request) for row in record.quota_rows)
    nodes = tuple(structs.replace(row, request=2 * row.request) for row in record.capacity_rows)
    return in_record(quota_rows=rows, capacity_rows=nodes, request_quantity=2 * record.request_quantity)(entry)


CLAIM, DRAWN, OVERRIDE, WAITS, REFUSED = "own", "drawn", "allowed", "waits", "refused"
EDITS: list[tuple[str, str, Edit]] = [
    ("quota_limit", CLAIM, more("quota_limit")),
    ("quota_used", CLAIM, more("quota_used")),
    ("quota_remaining", CLAIM, more("quota_remaining")),
    ("request_quantity", CLAIM, more("request_quantity")),
    ("capacity_allocatable", CLAIM, more("capacity_allocatable")),
    ("reserved_by_others", CLAIM, more("reserved_by_others")),
    ("admission_state of a claim", CLAIM, in_record(admission_state="QUEUED")),
    ("admission_state of one that waits", WAITS, in_record(admission_state="ADMITTED", reason=None)),
    ("admission_state of a refusal", REFUSED, in_record(admission_state="QUEUED")),
    ("the findings of a refusal", REFUSED, in_record(refused=())),
    ("reason", WAITS, in_record(reason="NO_CAPACITY")),
    ("evidence", CLAIM, in_record(evidence="STALE")),
    ("bundles_fit", CLAIM, in_record(bundles_fit=0)),
    ("override_authority", OVERRIDE, in_record(override_authority="ana")),
    ("override_authority where none was used", CLAIM, in_record(override_authority="cto")),
    ("override hidden", OVERRIDE, in_record(admission_state="ADMITTED", override_authority=None)),
    ("reservation_lifecycle", DRAWN, in_record(reservation_lifecycle="expired")),
    ("reservation", DRAWN, in_record(reservation=None, reservation_lifecycle="none")),
    ("decided_at", CLAIM, more("decided_at_ms", -60_000)),
    ("books_version", CLAIM, in_record(books_version=1)),
    ("user", CLAIM, in_record(user="bo")),
    ("share", CLAIM, in_record(share="t")),
    ("pool", CLAIM, in_record(pool="q")),
    ("attempt", CLAIM, in_record(attempt=2)),
    ("job", CLAIM, in_record(job="other")),
    ("workload", CLAIM, in_record(workload="service")),
    ("a limit, in row and headline", CLAIM, consistently(limit=1_000)),
    ("a use, in row and headline", CLAIM, consistently(used=1_000)),
    ("a request everywhere in the record", CLAIM, asking_more),
    ("the override of a ceiling", OVERRIDE, in_ceilings(lambda row: structs.replace(row, override=9_000))),
    ("what lacks authority", CLAIM, in_ceilings(lambda row: structs.replace(row, unauthorised=9_000))),
    ("a ceiling left out", CLAIM, lambda entry: in_record(quota_rows=entry.record.quota_rows[1:])(entry)),
    ("amounts of a claim", CLAIM, lambda entry: structs.replace(entry, amounts={**entry.amounts, "gpu": 2_000})),
    ("share of a claim", CLAIM, lambda entry: structs.replace(entry, share="t")),
    ("user of a claim", CLAIM, lambda entry: structs.replace(entry, user="cem")),
    ("job of a claim", CLAIM, lambda entry: structs.replace(entry, job="other")),
    ("attempt of a claim", CLAIM, lambda entry: structs.replace(entry, attempt=7)),
    ("draws of a claim", DRAWN, lambda entry: structs.replace(entry, reservation=None, draws={})),
]


def edited(job: str, edit: Edit) -> tuple[int, Rows]:
    """The story with its first decision on `job` edited, and the version of that row."""
    rows = story()
    version = next(v for v, entry in rows if getattr(getattr(entry, "record", None), "job", None) == job)
    return version, [(v, edit(entry) if v == version else entry) for v, entry in rows]


@pytest.mark.parametrize(("what", "job", "edit"), EDITS, ids=[what for what, _, _ in EDITS])
def test_an_edited_decision_is_found(what: str, job: str, edit: Edit) -> None:
    version, rows = edited(job, edit)
    assert rows != story(), "the edit changes nothing"
    assert version in {one.version for one in verify(rows).found}, what


BOOKS: list[tuple[str, type, Edit]] = [
    ("an override raised", e.OverrideSet, lambda x: structs.replace(x, override=_override(x, amounts={"gpu": 9_000}))),
    (
        "an override taken back",
        e.OverrideSet,
        lambda x: structs.replace(x, override=_override(x, until_ms=x.at_ms + 1)),
    ),
    ("a limit changed", e.ShareSet, lambda x: structs.replace(x, share=_without_limits(x))),
    ("a reservation shortened", e.ReservationSet, lambda x: structs.replace(x, reservation=_short(x))),
    ("a job moved elsewhere", e.Moved, lambda x: structs.replace(x, share="nowhere")),
    ("a resize made smaller", e.Resized, lambda x: structs.replace(x, amounts={"gpu": 500})),
    ("a release of another attempt", e.Released, lambda x: structs.replace(x, attempt=9)),
    ("a commit of another job", e.Committed, lambda x: structs.replace(x, job="nobody")),
]


def _override(entry: e.OverrideSet, **changes: Any) -> Any:
    return structs.replace(entry.override, **changes)


def _without_limits(entry: e.ShareSet) -> Any:
    return structs.replace(entry.share, limits=structs.replace(entry.share.limits, enabled=False))


def _short(entry: e.ReservationSet) -> Any:
    return structs.replace(entry.reservation, expiry_ms=entry.at_ms)


@pytest.mark.parametrize(("what", "kind", "edit"), BOOKS, ids=[what for what, _, _ in BOOKS])
def test_a_book_that_was_edited_contradicts_the_decisions_after_it(what: str, kind: type, edit: Edit) -> None:
    first = next(version for version, entry in story() if isinstance(entry, kind))
    rows = [(version, edit(entry) if version == first else entry) for version, entry in story()]
    assert verify(rows).found != [], what


@pytest.mark.parametrize("kind", [e.Released, e.Claimed, e.Moved, e.OverrideSet, e.ReservationSet])
def test_a_row_that_is_left_out_is_missed(kind: type) -> None:
    first = next(version for version, entry in story() if isinstance(entry, kind))
    assert verify([row for row in story() if row[0] != first]).found != []


def test_a_disagreement_says_where_and_what() -> None:
    _, rows = edited(CLAIM, more("quota_used"))
    (found,) = verify(rows).found
    assert isinstance(found, Disagreement) and found.job == "own"
    assert "headline" in found.what and "1000" in found.what


# ── what is edited consistently: the chain ────────────────────────────────────────────────────────────────────────


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """The story in a SQLite file."""
    url = f"sqlite:///{tmp_path}/ledger.db"
    table = LedgerStore(url)
    table.append("plan", 1, [entry for _, entry in story()], 1)
    table.close()
    yield url


def read(url: str) -> tuple[Verifier, list[int]]:
    table = LedgerStore(url, writer=False)
    try:
        return verify(table.read()), table.verify_chain()
    finally:
        table.close()


def test_a_ledger_as_it_was_written_is_sound(store: str) -> None:
    verifier, chain = read(store)
    assert (verifier.found, chain) == ([], [])


def test_any_row_that_is_edited_breaks_the_chain(store: str) -> None:
    """Also what no rule could contradict, like who asked for a change."""
    count = len(story())
    for version in range(1, count + 1):
        with sqlite3.connect(store.removeprefix("sqlite:///")) as database:
            (kept,) = database.execute("SELECT payload FROM ledger WHERE version = ?", (version,)).fetchone()
            changed = kept.replace('"at_ms":1', '"at_ms":2', 1)
            assert changed != kept
            database.execute("UPDATE ledger SET payload = ? WHERE version = ?", (changed, version))
        assert version in read(store)[1]
        with sqlite3.connect(store.removeprefix("sqlite:///")) as database:
            database.execute("UPDATE ledger SET payload = ? WHERE version = ?", (kept, version))
    assert read(store)[1] == []
