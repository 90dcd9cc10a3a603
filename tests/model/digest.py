"""A state and a ledger as bytes, so that two of them can be compared whole."""

import msgspec

from raysched.core.ledger import Ledger
from raysched.core.state import State

DERIVED = {"pools", "unsettled", "asked"}  # indexes, checked by core.check; what the planner still has to look at


def digest(state: State) -> bytes:
    """Everything the journal tells, and nothing of the order in which sets happen to be kept."""
    fields = {name: value for name, value in vars(state).items() if name not in DERIVED}
    pending = fields.pop("pending")
    fields["pending"] = {share: sorted(key for keys in c.values() for key in keys) for share, c in pending.items()}
    fields["alerts"] = sorted(fields["alerts"].items())
    return msgspec.json.encode(fields, order="deterministic")


def ledger_digest(ledger: Ledger) -> bytes:
    """Every book of the ledger."""
    names = ("version", "settings", "pools", "groups", "shares", "changed", "reservations", "overrides", "reported")
    fields = {name: getattr(ledger, name) for name in (*names, "claims", "records")}
    return msgspec.json.encode(fields, order="deterministic")
