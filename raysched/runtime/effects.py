"""What a change would do at once: who would start, who would wait, what would be over. Nothing is kept.

Entries are tried on the real books and taken back; events, which know no way back, change a copy of the state."""

from collections.abc import Sequence
from copy import copy
from typing import Any

import msgspec
from msgspec import structs

from raysched.core import events as ev
from raysched.core.agenda import Agenda
from raysched.core.entries import AnyEntry
from raysched.core.ledger import Ledger
from raysched.core.model import JobId
from raysched.core.overuse import overuse
from raysched.core.plan import plan
from raysched.core.state import State
from raysched.core.transitions import apply
from raysched.runtime.problem import Refusal

SKIPPED = ("nodes", "jobs", "pools", "pending")


def effects(
    state: State, ledger: Ledger, entries: Sequence[AnyEntry], events: Sequence[ev.AnyEvent], now_ms: int
) -> dict[str, Any]:
    """Raises Refusal when the books would not take the entries."""
    before = _starting(state, ledger, now_ms)
    failing, undo = ledger.try_post(entries)
    if failing:
        raise Refusal("REFUSED", 409, "; ".join(why for _, why in failing))
    try:
        changed = _after(state, events) if events else state
        after = _starting(changed, ledger, now_ms)
        over = [msgspec.to_builtins(each) for each in overuse(ledger)]
    finally:
        undo()
    return {"starts": sorted(after - before), "queues": sorted(before - after), "over": over}


def _starting(state: State, ledger: Ledger, now_ms: int) -> set[JobId]:
    made = plan(state, ledger, now_ms)
    return {event.job for event in made.events if isinstance(event, ev.Admitted)}


def _after(state: State, events: Sequence[ev.AnyEvent]) -> State:
    """The state as it would be after `events`; it shares nothing with the real one that they could change."""
    found = State()
    for name, value in vars(state).items():
        if name not in SKIPPED:
            setattr(found, name, copy(value))
    found.jobs = {name: copy(job) for name, job in state.jobs.items()}
    found.deadlines = Agenda()
    for due_ms, job in state.deadlines:
        found.deadlines.put(job, due_ms)
    for pool, room in state.pools.items():
        # What counts is the least and the most there ever was.
        copied = found.pool_room(pool)
        copied.cores_per_gpu, copied.most_gpus = dict(room.cores_per_gpu), room.most_gpus
    found.demand = structs.replace(state.demand, counts=dict(state.demand.counts))
    for order in state.pending.orders():
        found.enqueue(found.jobs[order[-1]])
    for name, node in state.nodes.items():
        there = found.nodes[name] = copy(node)
        there.room, there.jobs = node.room.copied(), set(node.jobs)
        there.fatal, there.degraded = dict(node.fatal), dict(node.degraded)
        found.index(there)
    for event in events:
        apply(found, event)
    return found
