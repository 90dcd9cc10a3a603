"""A cluster whose oldest rows were archived: it restarts from the books, goes on, and says what it no longer has."""

import pytest

from raysched.core.check import check
from raysched.core.snapshot import forget, snapshot
from raysched.runtime.loop import Loop
from raysched.runtime.ports import Change
from raysched.runtime.quota_book import QuotaBook
from raysched.store.memory import MemoryJournal, MemoryLedgerStore
from tests.model.digest import digest, ledger_digest
from tests.service.house import House

SHARES = (
    "  s: {nominal: {p: {gpu: 4}}, weight: 10, admins: [ana], sharing: {strategy: lend_and_borrow}}\n"
    "  t: {nominal: {p: {gpu: 4}}, weight: 20, sharing: {strategy: lend}}\n"
)


@pytest.fixture
def house() -> House:
    """A loan, a reservation that is drawn on, a job that waits, one that is over."""
    house = House(SHARES)
    house.admin("reserve", name="r", owner={"share": "t"}, pool="p", amounts={"gpu": 1}, expiry="9h")
    house.submit("over", 1, runtime_ms=1_000)
    house.wait(10_000)
    house.submit("drawn", 1, share="t", user="cem")
    house.submit("loan", 2, count=2)
    house.submit("waits", 4, user="bo")
    house.wait(2_000)
    return house


def archive(house: House) -> int:
    """Everything so far; returns the version."""
    house.sim.disk.cut(snapshot(house.sim.quota.ledger))
    return house.version


def restarted(house: House) -> None:
    """Both actors, from what is on disk."""
    house.sim.restart_quota()
    house.sim.restart_scheduler()
    house.sim.settle()


def test_both_actors_restart_from_the_books(house: House) -> None:
    forget(house.service.ledger)
    before, books = digest(house.service.state), ledger_digest(house.service.ledger)
    version = archive(house)

    restarted(house)

    assert house.service.ledger.version == house.sim.quota.ledger.version == version
    assert ledger_digest(house.service.ledger) == ledger_digest(house.sim.quota.ledger) == books
    assert check(house.service.state, house.service.ledger) == []
    assert before != digest(house.service.state), "the restart itself is an event"


def test_what_comes_after_is_decided_as_if_nothing_had_been_archived(house: House) -> None:
    twin = House(SHARES)
    twin.admin("reserve", name="r", owner={"share": "t"}, pool="p", amounts={"gpu": 1}, expiry="9h")
    twin.submit("over", 1, runtime_ms=1_000)
    twin.wait(10_000)
    twin.submit("drawn", 1, share="t", user="cem")
    twin.submit("loan", 2, count=2)
    twin.submit("waits", 4, user="bo")
    twin.wait(2_000)
    version = archive(house)
    restarted(house)
    restarted(twin)
    for each in (house, twin):
        each.service.cancel("loan", "root")
        each.submit("next", 1, user="bo")
        each.wait(5_000)
    assert house.sim.disk.entries == twin.sim.disk.entries[version:]
    assert house.sim.disk.entries


def test_verifying_begins_with_the_books(house: House) -> None:
    before = house.service.verify()
    version = archive(house)
    restarted(house)
    house.service.cancel("loan", "root")
    house.wait(5_000)
    found = house.service.verify()
    assert (found["archived"], found["disagreements"]) == (version, [])
    assert found["rows"] == house.version - version and found["decided"] == 1
    assert (before["archived"], before["rows"]) == (0, version)


def test_verifying_a_cluster_that_was_not_restarted_begins_with_the_books_too(house: House) -> None:
    version = archive(house)
    assert house.service.verify()["rows"] == 0
    house.service.cancel("loan", "root")
    house.wait(5_000)
    found = house.service.verify()
    assert (found["archived"], found["rows"], found["disagreements"]) == (version, house.version - version, [])


def test_rows_are_those_that_are_left(house: House) -> None:
    version = archive(house)
    restarted(house)
    house.service.cancel("loan", "root")
    house.wait(5_000)
    rows = house.service.ledger_rows(limit=1_000)
    assert rows[0]["version"] == version + 1
    assert house.service.ledger_rows(job="over") == []
    assert [row["entry"]["type"] for row in house.service.ledger_rows(job="loan")] == ["Released"]


def test_the_version_of_a_share_with_which_the_rows_begin_is_still_there(house: House) -> None:
    first = house.service.share_history("s")[0]
    changed = house.admin("set_share", by="ana", name="s", weight=11)["version"]
    archive(house)
    restarted(house)
    house.admin("set_share", name="s", weight=12)
    history = house.service.share_history("s")
    assert [(each["by"], each["share"]["weight"]) for each in history] == [("archived", 11), ("root", 12)]
    assert history[0]["version"] == changed
    house.admin("rollback", name="s", version=changed)
    assert house.service.shares("s")[0]["weight"] == 11
    assert house.asked("rollback", name="s", version=first["version"])["error"]["code"] == "UNKNOWN_VERSION"


def test_an_edit_that_saw_an_archived_version_is_still_refused(house: House) -> None:
    seen = house.version
    house.admin("set_share", name="s", weight=11)
    archive(house)
    restarted(house)
    assert "error" in house.asked("set_share", name="s", weight=12, base=seen)


class InSmallPages(QuotaBook):
    """A quota port that answers as the actor does, with a part at a time."""

    def read(self, after: int = 0, limit: int = 1_000_000) -> tuple[Change, ...]:
        return super().read(after, min(limit, 3))


def test_a_scheduler_takes_up_books_that_come_in_many_pages(house: House) -> None:
    house.wait(60_000)
    journal, table = MemoryJournal(house.sim.disk), MemoryLedgerStore(house.sim.disk)
    loop = Loop(house.sim.clock, journal, InSmallPages(table), house.sim.cluster)
    loop.recover()
    assert loop.ledger.version == table.last_version() > 3
    assert ledger_digest(loop.ledger) == ledger_digest(house.sim.quota.ledger)


def test_rows_of_one_user_or_share_in_a_window(house: House) -> None:
    rows = house.service.ledger_rows(limit=1_000)
    claims = [row for row in rows if row["entry"]["type"] == "Claimed"]
    (drawn,) = house.service.ledger_rows(user="cem")
    assert drawn["entry"]["job"] == "drawn"
    at_ms = drawn["at_ms"]
    assert house.service.ledger_rows(user="cem", since_ms=at_ms, until_ms=at_ms + 1) == [drawn]
    assert house.service.ledger_rows(user="cem", since_ms=at_ms + 1) == []
    assert house.service.ledger_rows(user="cem", until_ms=at_ms) == []
    assert [r["version"] for r in house.service.ledger_rows(share="t", since_ms=at_ms)] == [drawn["version"]]
    assert len(claims) == 3 and house.service.ledger_rows(until_ms=claims[0]["at_ms"] + 1, limit=1) == rows[:1]
