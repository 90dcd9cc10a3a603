"""A state and a ledger as bytes, so that two of them can be compared whole."""

import msgspec

from raysched.core.ledger import Ledger
from raysched.core.state import State

# Indexes, checked by core.check; what the planner still has to look at; when choices of models have changed.
DERIVED = {"pools", "unsettled", "models_edition", "_fills"}


def digest(state: State) -> bytes:
    """Everything the journal tells, and nothing of the order in which sets happen to be kept."""
    fields = {name: value for name, value in vars(state).items() if name not in DERIVED}
    fields["pending"] = {share: sorted(state.pending.orders(share)) for share in state.pending.shares}
    fields["deadlines"] = sorted(state.deadlines.times.items())
    fields["demand"] = [*sorted(state.demand.counts.items()), state.demand.total, state.demand.edition]
    fields["alerts"] = sorted(fields["alerts"].items())
    return msgspec.json.encode(fields, order="deterministic")


def ledger_digest(ledger: Ledger) -> bytes:
    """Every book of the ledger."""
    names = ("version", "settings", "pools", "groups", "shares", "changed", "reservations", "overrides", "reported")
    fields = {name: getattr(ledger, name) for name in (*names, "claims", "records")}
    return msgspec.json.encode(fields, order="deterministic")
