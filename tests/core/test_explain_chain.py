"""`explain`: the whole chain of blockers in order, each with its numbers, what frees it and when."""

import pytest

from tests.service.house import START_MS, House

HOUR_MS = 3_600_000
ORDER = ["EVIDENCE_DISPUTED", "USER_LIMIT", "GROUP_LIMIT", "SHARE_QUOTA", "RESERVED", "BEHIND_HEAD"]


def everything_at_once() -> House:
    """A job that is over its user's limit, its group's total and its share, finds no room, and stands behind a head."""
    house = House(
        "  s: {nominal: {p: {gpu: 4}}, queue: {policy: strict_fifo}, limits: {enabled: true, on_exceed: confirm,\n"
        "      rules: [{user: ana, gpu: 2}, {group: ml, gpu: 3, mode: total}]}}\n"
        "  t: {nominal: {p: {gpu: 8}}}"
    )
    house.submit("first", 2, max_runtime="2h")
    house.submit("other", 1, user="bo", max_runtime="1h")
    house.submit("guest", 1, share="t", user="cem")
    house.admin("reserve", name="r", owner={"share": "t"}, pool="p", amounts={"gpu": 3}, expiry="5h")
    house.submit("head", 4, user="cem")
    house.admin("report_reserved", pool="p", amounts={"gpu": 1})
    house.submit("job", 2)
    house.wait(1_000)
    return house


def test_the_whole_chain_is_told_in_order() -> None:
    explained = everything_at_once().explain("job")
    assert [blocker["reason"] for blocker in explained["blockers"]] == ORDER
    assert explained["reason"] == "EVIDENCE_DISPUTED" and explained["text"] == explained["blockers"][0]["text"]


def test_each_link_says_its_numbers_and_what_frees_it() -> None:
    blockers = {blocker["reason"]: blocker for blocker in everything_at_once().explain("job")["blockers"]}
    started = START_MS + 300
    user = blockers["USER_LIMIT"]
    assert user["numbers"] == {"limit": 2_000, "used": 2_000, "requested": 2_000, "excess": 2_000}
    assert (user["scope"], user["freed_by"]) == ("user ana in share s", "the end of first")
    assert user["freed_at_ms"] == started + 2 * HOUR_MS
    group = blockers["GROUP_LIMIT"]
    assert group["numbers"]["excess"] == 2_000 and group["freed_at_ms"] == started + 2 * HOUR_MS
    share = blockers["SHARE_QUOTA"]
    assert share["numbers"] == {"limit": 4_000, "used": 3_000, "requested": 2_000, "excess": 1_000}
    assert share["freed_at_ms"] == started + HOUR_MS
    room = blockers["RESERVED"]
    assert room["numbers"]["gpu_free"] == 4_000 and room["numbers"]["gpu_reserved"] == 3_000
    # After `other` there would be 2 GPUs, but on two nodes.
    assert (room["freed_by"], room["freed_at_ms"]) == ("the end of other, first", started + 2 * HOUR_MS)
    assert blockers["BEHIND_HEAD"]["freed_by"] == "the start of head"
    assert "reconcile" in blockers["EVIDENCE_DISPUTED"]["freed_by"]


@pytest.mark.parametrize(
    ("first", "second", "at_h"), [("1h", "3h", 1), ("3h", "1h", 1), ("2h", None, 2), (None, None, None)]
)
def test_room_is_foretold_from_run_times(first: str | None, second: str | None, at_h: int | None) -> None:
    """The first end that leaves room for the whole gang counts, an endless job never."""
    house = House("  s: {nominal: {p: {gpu: 8}}}\n  t: {nominal: {p: {gpu: 8}}}")
    for job, lasts in (("first", first), ("second", second)):
        house.submit(job, 4, share="t", **({"max_runtime": lasts} if lasts else {}))
    house.wait(1_000)
    house.submit("job", 4)
    (blocker,) = house.explain("job")["blockers"]
    assert blocker["reason"] == "NO_CAPACITY"
    assert blocker["freed_at_ms"] == (None if at_h is None else START_MS + 300 + at_h * HOUR_MS)
    if at_h is None:
        assert blocker["freed_by"] == "the end of first, second"


def test_both_ends_are_awaited_where_both_are_needed() -> None:
    house = House("  s: {nominal: {p: {gpu: 8}}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.submit("first", 4, share="t", max_runtime="1h")
    house.submit("second", 4, share="t", max_runtime="2h")
    house.wait(1_000)
    house.submit("job", 4, count=2)
    (blocker,) = house.explain("job")["blockers"]
    assert (blocker["freed_by"], blocker["freed_at_ms"]) == ("the end of first, second", START_MS + 300 + 2 * HOUR_MS)
    house.wait(2 * HOUR_MS + 60_000)
    assert house.state("job") == "running"


def test_a_reservation_frees_its_room_when_it_ends() -> None:
    house = House("  s: {nominal: {p: {gpu: 8}}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.admin("reserve", name="night", owner={"share": "t"}, pool="p", amounts={"gpu": 6}, expiry="3h")
    house.submit("job", 4)
    (blocker,) = house.explain("job")["blockers"]
    seen = (blocker["reason"], blocker["freed_by"], blocker["freed_at_ms"])
    assert seen == ("RESERVED", "the end of reservation night", START_MS + 3 * HOUR_MS)
    house.wait(3 * HOUR_MS + 1_000)
    assert house.state("job") == "running"


def test_one_on_hold_has_no_time() -> None:
    house = House("  s: {nominal: {p: {gpu: 8}}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.admin("reserve", name="hold", owner={"share": "t"}, pool="p", amounts={"gpu": 6})
    house.submit("job", 4)
    (blocker,) = house.explain("job")["blockers"]
    seen = (blocker["reason"], blocker["freed_by"], blocker["freed_at_ms"])
    assert seen == ("RESERVATION_HOLD", "the end of reservation hold", None)


def test_a_gang_in_pieces_says_how_many_fit() -> None:
    house = House("  s: {nominal: {p: {gpu: 8}}}\n  t: {nominal: {p: {gpu: 8}}}")
    house.submit("first", 2, share="t", max_runtime="1h")
    house.submit("hog", 3, share="t")
    house.wait(1_000)
    house.submit("job", 3)
    (blocker,) = house.explain("job")["blockers"]
    assert blocker["reason"] == "FRAGMENTED"
    assert (blocker["numbers"]["bundles_fit"], blocker["numbers"]["bundles_asked"]) == (0, 1)
    assert blocker["freed_at_ms"] == START_MS + 300 + HOUR_MS


def test_what_is_foretold_of_one_blocker_comes_true() -> None:
    """A limit that falls when a job has run its time: the job starts just then."""
    house = House("  s: {nominal: {p: {gpu: 8}}, limits: {enabled: true, rules: [{user: ana, gpu: 4}]}}")
    house.submit("first", 3, max_runtime="1h", grace="0s")
    house.wait(1_000)
    house.submit("job", 2)
    (blocker,) = house.explain("job")["blockers"]
    house.wait(int(blocker["freed_at_ms"]) - house.sim.clock.at_ms - 1_000)
    assert house.state("job") == "queued"
    house.wait(3_000)
    assert house.state("job") == "running"
