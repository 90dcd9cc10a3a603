"""The ledger's one door: all or nothing, with a way back, and the same for whoever folds what was posted."""

import pytest

from raysched.core import entries as e
from raysched.core.ledger import Ledger
from raysched.core.model import UserId
from raysched.runtime.ports import Posted, Stale
from tests.core.language import cluster, job
from tests.core.test_quota_reference import sums
from tests.model.digest import ledger_digest
from tests.model.histories import played


@pytest.mark.parametrize("seed", range(12))
def test_what_is_undone_was_never_there(seed: int) -> None:
    """Post each entry of a history, take it back, and post it again."""
    ledger = Ledger()
    for entry in played(seed).sim.disk.entries:
        ledger.advance(entry.at_ms)
        before, kept = ledger_digest(ledger), sums(ledger.quota)
        failing, undo = ledger.try_post([entry])
        if not failing:
            undo()
        assert (ledger_digest(ledger), sums(ledger.quota)) == (before, kept)
        ledger.fold(entry)


def test_one_entry_that_does_not_hold_keeps_all_others_out() -> None:
    c = cluster().share("a").started(job("one", gpus=4))
    before = ledger_digest(c.sim.quota.ledger)
    good = e.GroupSet(at_ms=c.sim.clock.at_ms, group="ml", members=(), by=UserId("root"))  # type: ignore[arg-type]
    bad = e.Released(at_ms=c.sim.clock.at_ms, job="nobody", attempt=1, why="")  # type: ignore[arg-type]
    answer = c.sim.quota.post((good, bad), c.sim.quota.ledger.version, c.sim.service.loop.epoch, "p")
    assert isinstance(answer, Stale) and [index for index, _ in answer.failing] == [1]
    assert ledger_digest(c.sim.quota.ledger) == before


def test_a_plan_posted_twice_counts_once() -> None:
    c = cluster().share("a")
    c.settle()
    epoch, version = c.sim.service.loop.epoch, c.sim.quota.ledger.version
    entry = e.GroupSet(at_ms=c.sim.clock.at_ms, group="ml", members=(), by=UserId("root"))  # type: ignore[arg-type]
    first = c.sim.quota.post((entry,), version, epoch, "same")
    again = c.sim.quota.post((entry,), version, epoch, "same")
    assert isinstance(first, Posted) and first == again
    assert c.sim.quota.ledger.version == version + 1


def test_a_gap_in_the_version_alone_is_not_stale() -> None:
    c = cluster().share("a")
    c.settle()
    quota, epoch = c.sim.quota, c.sim.service.loop.epoch
    behind = quota.ledger.version
    for name in ("x", "y"):
        entry = e.GroupSet(at_ms=c.sim.clock.at_ms, group=name, members=(), by=UserId("root"))  # type: ignore[arg-type]
        answer = quota.post((entry,), behind, epoch, name)
    assert isinstance(answer, Posted)
    assert [change.version for change in answer.changes] == [behind + 1, behind + 2]


def test_a_claim_is_checked_again_on_the_present_books() -> None:
    """Somebody charged the share between the plan and its post."""
    c = cluster().share("a", nominal=8)
    c.submit(job("one", gpus=8))
    claim = next(entry for entry in c.sim.disk.entries if isinstance(entry, e.Claimed))
    stolen = e.Claimed(**{name: getattr(claim, name) for name in claim.__struct_fields__} | {"job": "two"})
    answer = c.sim.quota.post((stolen,), c.sim.quota.ledger.version, c.sim.service.loop.epoch, "p")
    assert isinstance(answer, Stale) and "SHARE_QUOTA" in answer.failing[0][1]
