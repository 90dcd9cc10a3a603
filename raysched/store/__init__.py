"""Append and read: the journal of events and the ledger of entries, durable before they are answered. No rules."""
