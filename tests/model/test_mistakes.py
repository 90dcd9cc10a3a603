"""Every law check must be able to fail: for each a mistake is planted in one place of the code, and the histories of
test_laws.py must report just that law. A mistake nobody reports is a law nobody checks."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from raysched.core import diagnosis, job_changes, transitions
from raysched.core.accounts import Account
from raysched.core.admission import assess
from raysched.core.admit import Admission
from raysched.core.limits import LimitBook
from raysched.core.lines import Alike, Queues
from raysched.core.making import Making
from raysched.core.placement import Placed, Trial
from raysched.core.pools import Node
from raysched.core.quota import QuotaTree
from raysched.core.room import Room
from raysched.core.state import State
from raysched.runtime import service
from raysched.runtime.loop import Loop
from tests.model.histories import history

TRIES = 150

Patch = Callable[[pytest.MonkeyPatch], None]


def attachables_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    fits = Room.fits
    patch.setattr(Room, "fits", lambda self, bundle: fits(self, msgspec.structs.replace(bundle, attach={})))


def reported_gpus_are_counted_from_zero(patch: pytest.MonkeyPatch) -> None:
    correct = Room.correct
    patch.setattr(Room, "correct", lambda self, job, placed, true: correct(self, job, placed, tuple(range(len(true)))))


def reported_gpus_are_kept_by_who_is_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "unreport", lambda self, job, placement: None)


def the_borrow_limit_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuotaTree, "_borrow_room", lambda self, account, kind: None if account.borrows else 0)


def user_limits_are_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LimitBook, "rows", lambda self, share, user, pool, ask: [])
    patch.setattr(LimitBook, "first_block", lambda self, share, user, pool, ask: None)


def the_whole_nominal_is_lent(patch: pytest.MonkeyPatch) -> None:
    opened = QuotaTree._open

    def _open(self: QuotaTree, share: Any, pool: Any) -> Account:
        account = opened(self, share, pool)
        account.local = dict.fromkeys(account.local, 0)
        return account

    patch.setattr(QuotaTree, "_open", _open)


def lenders_accept_any_work(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(QuotaTree, "_covers", lambda self, common, kind, account, workload, more: True)


def what_others_have_taken_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def _available(self: QuotaTree, account: Account, kind: str) -> int:
        local, used = account.local.get(kind, 0), account.used.get(kind, 0)
        lent = account.common.lendable.get(kind, 0)
        return max(0, local - used) + (lent if account.borrows else account.owned(kind) - max(local, used))

    patch.setattr(QuotaTree, "_available", _available)


def suspect_nodes_are_used(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Node, "usable", property(lambda self: self.health in ("healthy", "suspect") and self.present))


def gangs_are_placed_by_halves(patch: pytest.MonkeyPatch) -> None:
    gang = Trial.gang

    def halves(self: Trial, bundles: Any) -> Any:
        found = gang(self, bundles)
        return Placed(tuple(self.placed)) if self.placed else found

    patch.setattr(Trial, "gang", halves)


def nothing_is_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Making, "fenced", lambda self, job: True)


def late_news_counts(patch: pytest.MonkeyPatch) -> None:
    moved = job_changes.attempt_moved

    def attempt_moved(state: Any, event: Any) -> None:
        job = state.jobs.get(event.job)
        moved(state, event if job is None else msgspec.structs.replace(event, attempt=job.attempt))

    patch.setattr(job_changes, "attempt_moved", attempt_moved)


def diagnosis_sees_nothing_to_wait_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(diagnosis, "_waits", lambda *_: [])


def submit_refuses_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(service, "refusal", lambda findings, confirm: None)


def diagnosis_charges_what_it_asks_about(patch: pytest.MonkeyPatch) -> None:

    def charging(draft: Any, *rest: Any) -> Any:
        found = assess(draft, *rest)
        draft.ledger.quota.charge(found.ask, check=False)
        return found

    patch.setattr(diagnosis, "assess", charging)


def turns_depend_on_what_was_planned_before(patch: pytest.MonkeyPatch) -> None:
    turn, calls = Admission._turn, [0]

    def counted(self: Admission, share: Any) -> tuple[int, int]:
        calls[0] += 1
        return (calls[0] * 7919) % 5, turn(self, share)[1]

    patch.setattr(Admission, "_turn", counted)


def a_plan_changes_the_state(patch: pytest.MonkeyPatch) -> None:
    made = Making.plan

    def counting(self: Making) -> Any:
        self.state.submitted += len(self.decisions)
        return made(self)

    patch.setattr(Making, "plan", counting)


def priorities_are_not_journaled(patch: pytest.MonkeyPatch) -> None:
    record = Loop.record

    def forgetful(self: Loop, events: Any) -> None:
        kept = [event for event in events if type(event).__name__ != "PriorityChanged"]
        record(self, kept)
        for event in events:
            if event not in kept:
                transitions.apply(self.state, event)

    patch.setattr(Loop, "record", forgetful)


def who_sleeps_is_never_woken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Queues, "rouse", lambda self, seen, eased: None)


def only_the_first_of_equal_asks_is_ever_looked_at(patch: pytest.MonkeyPatch) -> None:
    sleep = Alike.sleep

    def all_sleep(self: Alike, user: Any) -> None:
        for each in list(self.lines):
            if each not in self.asleep:
                sleep(self, each)

    patch.setattr(Alike, "sleep", all_sleep)


MISTAKES: list[tuple[int, Patch]] = [
    (1, attachables_are_not_counted),
    (1, reported_gpus_are_counted_from_zero),
    (1, reported_gpus_are_kept_by_who_is_gone),
    (2, the_borrow_limit_is_ignored),
    (2, user_limits_are_ignored),
    (2, the_whole_nominal_is_lent),
    (2, lenders_accept_any_work),
    (3, what_others_have_taken_is_forgotten),
    (3, suspect_nodes_are_used),
    (5, gangs_are_placed_by_halves),
    (5, nothing_is_fenced),
    (5, late_news_counts),
    (9, diagnosis_sees_nothing_to_wait_for),
    (9, submit_refuses_nothing),
    (9, diagnosis_charges_what_it_asks_about),
    (10, turns_depend_on_what_was_planned_before),
    (10, a_plan_changes_the_state),
    (10, priorities_are_not_journaled),
    (10, who_sleeps_is_never_woken),
    (10, only_the_first_of_equal_asks_is_ever_looked_at),
]


@pytest.mark.parametrize(("law", "mistake"), MISTAKES, ids=lambda each: getattr(each, "__name__", f"law {each}"))
def test_a_mistake_is_reported_by_the_law_it_breaks(law: int, mistake: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    mistake(monkeypatch)
    assert any(law in {which for which, _ in history(seed).broken} for seed in range(TRIES)), "nobody noticed"
