"""Events and entries as JSON text, so that the tables can be read with plain SQL.

JSON costs about as much as msgpack here (the time goes into the database), so readability wins."""

import msgspec

from raysched.core.entries import AnyEntry
from raysched.core.events import AnyEvent
from raysched.core.snapshot import Snapshot
from raysched.store.errors import CorruptStore, StoreFailed

_encoder = msgspec.json.Encoder()
_events: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)
_entries: msgspec.json.Decoder[AnyEntry] = msgspec.json.Decoder(AnyEntry)
_books = msgspec.json.Decoder(Snapshot)


def encode(value: AnyEvent | AnyEntry) -> str:
    """One event or entry as a JSON object; `type` names its class. Raises StoreFailed for what JSON cannot hold."""
    try:
        return _encoder.encode(value).decode()
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        # A lone surrogate comes from undecodable bytes in a program's output; the text must be cleaned by the caller.
        raise StoreFailed(f"{type(value).__name__} cannot be stored: {error}") from error


def decode_event(seq: int, payload: str) -> AnyEvent:
    """The event of journal row `seq`. Raises CorruptStore."""
    try:
        return _events.decode(payload)
    except (msgspec.DecodeError, UnicodeError, TypeError) as error:
        raise CorruptStore("journal", seq, f"{error}; it reads {_start(payload)}") from error


def decode_entry(version: int, payload: str) -> AnyEntry:
    """The entry of ledger row `version`. Raises CorruptStore."""
    try:
        return _entries.decode(payload)
    except (msgspec.DecodeError, UnicodeError, TypeError) as error:
        raise CorruptStore("ledger", version, f"{error}; it reads {_start(payload)}") from error


def encode_books(books: Snapshot) -> str:
    """Books as a JSON object, always the same text for the same books."""
    return _encoder.encode(books).decode()


def decode_books(version: int, payload: str) -> Snapshot:
    """The books after row `version`. Raises CorruptStore."""
    try:
        books = _books.decode(payload)
    except (msgspec.DecodeError, UnicodeError, TypeError) as error:
        raise CorruptStore("openings", version, f"{error}; it reads {_start(payload)}") from error
    if books.version != version:
        raise CorruptStore("openings", version, f"its books are of version {books.version}")
    return books


def _start(payload: object) -> str:
    text = ascii(payload)
    return text if len(text) <= 80 else text[:80] + "…"
