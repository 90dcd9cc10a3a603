"""Drafts that are kept or rolled back: what was tried is what is folded, and whoever reads in between sees no half."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from raysched.core import plan as plans
from raysched.core.check import check
from raysched.core.events import Admitted, AnyEvent
from raysched.core.making import Making
from raysched.core.model import Bundle
from raysched.runtime.ports import Journal, StoreFailed
from tests.core.language import Story, cluster, job
from tests.model.digest import ledger_digest


class FullDisk:
    """A journal whose disk is full from the first admission on."""

    def __init__(self, journal: Journal) -> None:
        self._journal, self.failed = journal, False

    def append(self, events: Sequence[AnyEvent]) -> int:
        self.failed = self.failed or any(isinstance(event, Admitted) for event in events)
        if self.failed:
            raise StoreFailed("the disk is full")
        return self._journal.append(events)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


def balanced(c: Story) -> bool:
    state, mine, theirs = c.sim.service.state, c.sim.service.ledger, c.sim.quota.ledger
    return check(state, mine) == [] and ledger_digest(mine) == ledger_digest(theirs)


def test_the_next_attempt_draws_on_its_reservation_as_the_last_one_did() -> None:
    c = cluster(nodes=2).share("a", nominal=16).share("b", nominal=16)
    c.settle()
    c.admin("reserve", name="r", pool="main", amounts={"gpu": 4}, owner={"share": "a"}, start="0s", expiry="99999s")
    c.started(job("x", gpus=4))
    c.ask("resize", "x", [{"gpu": 2}], "ann")
    c.run(60)
    assert balanced(c)
    c.finish("x")
    assert balanced(c)
    [book] = c.sim.service.ledger.reservations.values()
    assert book.drawn == {}


def test_reading_while_events_are_owed_changes_nothing() -> None:
    """A node is swapped, the books have it, and then the journal's disk is full: somebody asks why a job waits."""
    c = cluster(nodes=1).pool("spare", 1, 8, prefix="s", role="standby").share("a", nominal=16)
    c.started(job("x", gpus=4)).submit(job("big", gpus=8))
    service, real = c.sim.service, c.sim.service.loop.journal
    full = FullDisk(real)
    service.loop.journal = full  # type: ignore[assignment]
    c.sim.cluster.fail(c.node("n0").node, "gpu_lost")
    while service.loop.store_error is None:
        c.sim.run_until(c.sim.clock.at_ms + 100)
    assert full.failed
    told = service.explain("big")
    assert service.explain("big") == told
    service.loop.journal = real
    c.run(120)
    assert balanced(c)
    assert (c.state("x"), c.where("x")) == ("running", ["s0"])


def test_a_plan_that_breaks_off_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    c = cluster(nodes=1).share("a", nominal=8).started(job("x", gpus=4))
    c.sim.cluster.finish(c.job("x").job, True)

    def broken(making: Making) -> None:
        if making.draft.moved:
            raise RuntimeError("a bug, after the job was released")

    with monkeypatch.context() as patch:
        patch.setattr(plans, "admit", broken)
        with pytest.raises(RuntimeError):
            c.run(1)
    assert balanced(c)
    c.run(1)
    assert c.state("x") == "succeeded"


def test_nobody_is_to_be_cancelled_twice() -> None:
    c = cluster(nodes=2).share("a", nominal=32).share("b", nominal=8)
    c.started(job("x", share="b", gpus=8)).started(job("y", gpus=4))
    big = job("big", gpus=8, confirm=True)
    c.submit(structs.replace(big, bundles=(Bundle(8_000), Bundle(8_000, 1_000))))
    c.sim.service.explain("big")
    assert balanced(c)
