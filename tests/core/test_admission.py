"""The admission record: decided from its own fields alone, before and after it was stored (semantics 7)."""

from typing import Any

import msgspec
import pytest

from raysched.core.admission import decide
from raysched.core.entries import Claimed, Recorded
from raysched.core.model import LimitRule, Limits, NodeSpec, UserId
from raysched.core.record import AdmissionRecord
from raysched.store.codec import decode_entry, encode
from tests.core.language import Story, cluster, job
from tests.model.histories import played


def records(entries: list[object]) -> list[AdmissionRecord]:
    return [entry.record for entry in entries if isinstance(entry, Claimed | Recorded)]


def stored(entries: list[object]) -> list[object]:
    """The entries as they come back from a store."""
    return [decode_entry(0, encode(entry)) for entry in entries]  # type: ignore[arg-type]


def test_every_stored_record_of_many_histories_is_decided_again_with_the_same_result() -> None:
    seen: set[str] = set()
    for seed in range(120):
        entries = stored(list(played(seed).sim.disk.entries))
        for record in records(entries):
            verdict = decide(record)
            assert (verdict.state, verdict.reason) == (record.admission_state, record.reason), (seed, record)
            seen.add(record.admission_state)
    assert {"ADMITTED", "ADMITTED_OVERRIDE", "QUEUED", "REJECTED", "STALE", "DISPUTED", "BLOCKED"} <= seen


def two_shares() -> Story:
    """Ten GPUs; A and B own 8 each."""
    return cluster(nodes=1, gpus=10).share("A", nominal=8).share("B", nominal=8)


def test_a_reservation_of_another_owner_is_taken_off_what_is_free() -> None:
    c = two_shares()
    c.admin("reserve", name="r", pool="main", amounts={"gpu": 4}, owner={"share": "A"}, expiry="1h")
    c.submit(job("held", share="B", gpus=2), job("ask", share="B", gpus=6))
    record = c.record("ask")
    assert (record.admission_state, record.contention_state) == ("QUEUED", "ENTITLEMENT_OVERBOOKED")
    assert (record.quota_remaining, record.reserved_by_others, record.reason) == (6_000, 4_000, "RESERVED")


def test_what_is_left_beside_the_reservation_is_admitted() -> None:
    c = two_shares()
    c.admin("reserve", name="r", pool="main", amounts={"gpu": 4}, owner={"share": "A"}, expiry="1h")
    c.submit(job("ask", share="B", gpus=6))
    assert c.record("ask").admission_state == "ADMITTED"


def test_a_reservation_on_hold_holds_what_would_need_it_and_nothing_else() -> None:
    c = cluster(nodes=1, gpus=10).share("A", nominal=8).share("B", nominal=10)
    c.admin("reserve", name="r", pool="main", amounts={"gpu": 4}, owner={"share": "A"})
    c.submit(job("big", share="B", gpus=8), job("small", share="B", gpus=2))
    assert [c.record(name).admission_state for name in ("big", "small")] == ["HOLD", "ADMITTED"]


def test_books_that_still_count_an_expired_reservation_are_disputed_until_reconciled() -> None:
    c = two_shares()
    c.admin("reserve", name="r", pool="main", amounts={"gpu": 4}, owner={"share": "A"}, expiry="60s")
    c.run(61)
    c.admin("report_reserved", pool="main", amounts={"gpu": 4})
    c.submit(job("ask", share="B", gpus=1))
    assert c.record("ask").admission_state == "DISPUTED"
    c.admin("reconcile", pool="main")
    assert c.record("ask").admission_state == "ADMITTED"
    assert [view["reservation"] for view in c.ask("reservations")] == ["r"]


def test_capacity_that_was_never_reported_is_unknown_and_never_available() -> None:
    c = cluster(nodes=0).share("a")
    c.sim.add_node("deaf", "main", NodeSpec(8, "H100", 96_000, 1 << 40), reporting=False)
    c.submit(job("one", gpus=1))
    assert c.record("one").admission_state == "UNKNOWN"


def test_evidence_that_is_too_old_is_stale() -> None:
    c = cluster(nodes=2).share("a", nominal=16)
    c.settle()
    c.silence("n0")
    c.run(31)
    c.submit(job("fits", gpus=8), job("only_there", gpus=8))
    assert [c.record(name).admission_state for name in ("fits", "only_there")] == ["ADMITTED", "STALE"]


def test_raising_a_quota_makes_no_capacity() -> None:
    c = cluster(nodes=1).share("a", nominal=4)
    c.submit(job("one", gpus=4), job("two", gpus=6, confirm=True))
    c.admin("set_share", name="a", nominal={"main": {"gpu": 100}})
    assert (c.state("two"), c.reason("two")) == ("queued", "NO_CAPACITY")


@pytest.mark.parametrize("field", ["bundles_fit", "evidence", "quota_rows", "capacity_rows", "refused"])
def test_the_verdict_follows_the_fields_of_the_row(field: str) -> None:
    """A record that says something else is decided differently: nothing else is looked at."""
    c = cluster().share("a").started(job("one"))
    record = c.record("one")
    changed: dict[str, dict[str, Any]] = {
        "bundles_fit": {"bundles_fit": 0, "bundles_fit_unreserved": 0},
        "evidence": {"evidence": "STALE"},
        "quota_rows": {"quota_rows": tuple(msgspec.structs.replace(row, limit=0) for row in record.quota_rows)},
        "capacity_rows": {
            "capacity_rows": tuple(msgspec.structs.replace(row, allocatable=None) for row in record.capacity_rows)
        },
        "refused": {"refused": ("OVER_SHARE_MAX",)},
    }
    assert decide(msgspec.structs.replace(record, **changed[field])).state != decide(record).state == "ADMITTED"


def test_a_pools_limit_refuses_nobody_who_may_run_in_another_pool() -> None:
    """Law 9: ann may have nothing in main; what the limit of one pool forbids another may allow."""
    c = cluster(nodes=1).pool("side", 1).share("a", nominal={"main": 8, "side": 8})
    forbidden = Limits(True, rules=(LimitRule(gpu=0, user=UserId("ann")),))
    c._pools[0] = msgspec.structs.replace(c._pools[0], limits=forbidden)
    spec = job("one", gpus=2)
    assert c.ask("diagnose", msgspec.to_builtins(spec))["findings"] == []
    c.submit(spec)
    assert (c.state("one"), c.where("one")) == ("claimed", ["side0"])
    [finding] = c.ask("diagnose", msgspec.to_builtins(job("two", gpus=2, pool="main")))["findings"][:1]
    assert finding["kind"] == "OVER_USER_LIMIT"
