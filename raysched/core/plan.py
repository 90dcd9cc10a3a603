"""`plan(state, ledger, now_ms) -> Plan`: the passes in order, least disruptive first.

Pure: the state and the books are as they were when it returns. The same state, books and time give the same plan, byte
for byte, whatever happened in between (law 10)."""

from raysched.core.admit import admit
from raysched.core.draft import Draft
from raysched.core.ledger import Ledger
from raysched.core.making import Making, Plan
from raysched.core.settle import settle
from raysched.core.standby import heal
from raysched.core.state import State

__all__ = ["Plan", "drafted", "plan"]


def plan(state: State, ledger: Ledger, now_ms: int) -> Plan:
    """What should be done now. `now_ms` may not lie before the last call's.

    heal: health, resumed and swapped gangs. settle: attempts that began, ended, are out of time. admit: who starts."""
    made, draft = drafted(state, ledger, now_ms)
    draft.rollback()
    return made


def drafted(state: State, ledger: Ledger, now_ms: int) -> tuple[Plan, Draft]:
    """The plan and its open draft: state and books as they will be. The caller ends the draft before anything else
    happens, by `rollback`, or by `keep` when exactly the plan's entries have been posted; then it folds those with
    `Ledger.fold_kept` and applies the plan's events."""
    ledger.advance(now_ms)
    making = Making(state, ledger, now_ms)
    try:
        heal(making)
        settle(making)
        admit(making)
    except BaseException:
        making.draft.rollback()
        raise
    making.wake(ledger.next_edge_ms(now_ms))
    return making.plan(), making.draft
