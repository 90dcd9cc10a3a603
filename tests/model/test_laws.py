"""The laws of semantics 11 that hold for every cluster: checked on random share trees, limits, loans and histories by
witnesses that recompute everything from the ledger, the journal and what the hosts did."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysched.core import demand
from raysched.core import events as ev
from raysched.core.model import NodeId
from raysched.core.state import State
from raysched.core.stock import Stock
from tests.model.histories import history, played

SEEDS = range(120)
LAWS = (1, 2, 3, 5, 9, 10)


@pytest.mark.parametrize("law", LAWS)
def test_no_history_breaks_the_law(law: int) -> None:
    broken = [(seed, why) for seed in SEEDS for which, why in played(seed).broken if which == law]
    assert broken == []


@given(seed=st.integers(min_value=len(SEEDS), max_value=1 << 40))
def test_no_other_history_breaks_any_law(seed: int) -> None:
    assert history(seed).broken == []


def test_no_history_breaks_any_law_while_jobs_are_packed_by_what_is_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Histories are too short for anything to be typical: here six asks are enough."""
    opened, best, packed = State.__init__, Stock.best, [0]

    def early(self: State) -> None:
        opened(self)
        self.demand.review_at = 6

    def counted(self: Stock, *asked: Any) -> NodeId | None:
        packed[0] += 1
        return best(self, *asked)

    monkeypatch.setattr(demand, "LEAST", 6)
    monkeypatch.setattr(State, "__init__", early)
    monkeypatch.setattr(Stock, "best", counted)
    assert [seed for seed in range(300, 340) if history(seed).broken] == []
    assert packed[0] > 100


def test_the_histories_go_where_the_laws_could_break() -> None:
    """A law that nothing strains proves nothing: the histories hold loans, swaps, holds, overrides, crashes."""
    seen: dict[str, int] = {}
    for seed in SEEDS:
        for event in played(seed).sim.disk.events:
            seen[type(event).__name__] = seen.get(type(event).__name__, 0) + 1
    wanted = (ev.NodeSwapped, ev.GangHeld, ev.Requeued, ev.BundlesChanged, ev.JobMoved, ev.Restarted, ev.AgentsSilenced)
    assert {kind.__name__: seen.get(kind.__name__, 0) for kind in wanted if seen.get(kind.__name__, 0) < 2} == {}
    assert sum(played(seed).quota.borrowings for seed in SEEDS) > 20
    books = [played(seed).sim.service.ledger for seed in SEEDS]
    assert sum(len(book.reservations) for book in books) > 20 and sum(len(book.overrides) for book in books) > 20
    assert sum(played(seed).quota.overridden for seed in SEEDS) > 3


def test_a_history_is_the_same_each_time_it_is_played() -> None:
    assert history(5).sim.disk.events == history(5).sim.disk.events
