"""Stories of quota: limits of users, loans between shares, cuts, moves (semantics 2 to 4)."""

from raysched.core.model import BorrowLimit
from tests.core.language import cluster, gpus, job


def test_a_gang_takes_what_its_share_owns_and_the_rest_waits() -> None:
    c = cluster(nodes=2).share("a", nominal=8)
    c.submit(job("first", gpus=8), job("second", gpus=1))
    assert c.states("first", "second") == ["claimed", "queued"]
    assert c.reason("second") == "SHARE_QUOTA"


def test_what_is_borrowed_is_what_is_charged_beyond_the_own_quota() -> None:
    c = cluster().share("a", nominal=8, strategy="lend_and_borrow").share("b", nominal=8, strategy="lend")
    c.started(job("big", gpus=6, bundles=2))
    assert c.borrowed("a") == gpus(4)
    [loan] = c.ask("loans")
    assert (loan["borrower"], loan["lender"], loan["amount"]) == ("a", "b", gpus(4))

    c.finish("big")
    assert c.ask("loans") == []


def test_the_lender_with_the_lowest_weight_lends_first() -> None:
    c = cluster(nodes=3).share("a", nominal=8, strategy="borrow")
    c.share("light", nominal=8, strategy="lend", weight=1).share("heavy", nominal=8, strategy="lend", weight=9)
    c.started(job("big", gpus=6, bundles=3))
    lent = {loan["lender"]: loan["amount"] for loan in c.ask("loans")}
    assert lent == {"light": gpus(8), "heavy": gpus(2)}


def test_the_borrow_limit_holds() -> None:
    c = cluster().share("a", nominal=8, strategy="borrow", borrow_limit=BorrowLimit(percent=25))
    c.share("b", nominal=8, strategy="lend")
    c.submit(job("own", gpus=8), job("two", gpus=2), job("one", gpus=1))
    assert c.states("own", "two", "one") == ["claimed", "claimed", "queued"]
    assert c.reason("one") == "BORROW_LIMIT"


def test_the_local_part_of_a_lender_is_never_lent() -> None:
    c = cluster().share("a", nominal=8, strategy="borrow")
    c.share("b", nominal=8, strategy="lend", lend_limit={"main": {"gpu": gpus(3)}})
    c.submit(job("own", gpus=8), job("three", gpus=3), job("one", gpus=1))
    assert c.states("own", "three", "one") == ["claimed", "claimed", "queued"]


def test_a_lender_is_served_before_borrowers_that_came_earlier() -> None:
    c = cluster(nodes=1).share("a", nominal=0, strategy="borrow", queue="any_fit").share("b", 8, "lend")
    c.submit(job("guest", share="a", gpus=8), job("host", share="b", gpus=8))
    assert c.states("guest", "host") == ["queued", "claimed"]


def test_a_lender_that_closes_its_door_stops_nobody_and_blocks_nobody_elses_own() -> None:
    c = cluster(nodes=2).share("guest", nominal=0, strategy="borrow")
    c.share("lender", 8, "lend", lend_workloads=("training",)).share("owner", 8, "lend", lend_workloads=("service",))
    c.started(job("visit", share="guest", gpus=8))

    c.admin("set_share", name="lender", sharing={"strategy": "lend", "lend_workloads": ["service"]})
    c.submit(job("mine", share="owner", gpus=8))

    assert c.states("visit", "mine") == ["running", "claimed"]


def test_a_user_at_the_limit_waits_while_the_share_has_room_and_holds_nobody_back() -> None:
    c = cluster().share("a", nominal=16, queue="strict_fifo").limit("a", each=4)
    c.submit(job("one", gpus=4), job("two", gpus=4), job("other", gpus=4, user="bob"))
    assert c.states("one", "two", "other") == ["claimed", "queued", "claimed"]
    assert c.reason("two") == "USER_LIMIT"


def test_a_lowered_limit_kills_nothing() -> None:
    c = cluster().share("a", nominal=16).limit("a", each=8).started(job("one", gpus=8))
    c.admin("set_limits", name="a", enabled=True, default={"gpu": 1})
    assert c.state("one") == "running"


def test_a_request_over_the_limit_alone_is_refused_and_leaves_its_name_free() -> None:
    c = cluster().share("a", nominal=16).limit("a", each=4)
    assert c.submit(job("one", gpus=8)) == ["OVER_USER_LIMIT"]
    assert c.submit(job("one", gpus=4)) == []


def test_an_override_with_authority_admits_and_one_without_blocks() -> None:
    c = cluster().share("a", nominal=4).share("b", nominal=4)
    c.admin("override", share="a", amounts={"gpu": 2}, until="1h", reason="a deadline", authority="cto")
    c.admin("override", share="b", amounts={"gpu": 2}, until="1h", reason="a deadline")
    c.submit(job("fine", share="a", gpus=6, confirm=True), job("urgent", share="b", gpus=6, confirm=True))
    assert c.record("fine").admission_state == "ADMITTED_OVERRIDE"
    assert c.record("fine").override_authority == "cto"
    assert c.record("urgent").admission_state == "BLOCKED"


def test_an_override_ends_with_its_window() -> None:
    c = cluster().share("a", nominal=4)
    c.admin("override", share="a", amounts={"gpu": 2}, until="60s", reason="a deadline", authority="cto")
    c.run(61)
    c.submit(job("late", gpus=6, confirm=True))
    assert c.state("late") == "queued"


def test_a_moved_job_is_charged_to_its_new_share_and_goes_on() -> None:
    c = cluster().share("a").share("b").started(job("one", gpus=8))
    assert "error" not in c.ask("move", "one", "b", "ann")
    assert (c.used("a"), c.used("b"), c.state("one"), c.job("one").attempt) == (0, gpus(8), "running", 1)


def test_a_move_to_a_share_without_quota_is_refused() -> None:
    c = cluster().share("a").share("b", nominal=4).started(job("one", gpus=8))
    assert c.ask("move", "one", "b", "ann")["error"]["code"] == "REFUSED"
    assert c.used("a") == gpus(8)


def test_a_cross_pool_job_goes_where_somebody_lends_only_when_its_own_pool_is_full() -> None:
    c = cluster(nodes=1).pool("side", 1).share("a", nominal=8, strategy="borrow")
    c.share("b", nominal={"side": 8}, strategy="lend")
    c.submit(job("home", gpus=8), job("away", gpus=8, cross_pool=True))
    assert (c.job("home").pool, c.job("away").pool) == ("main", "side")
