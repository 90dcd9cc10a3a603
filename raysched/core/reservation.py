"""What reservations keep from a job, and what a job draws on its owner's (semantics 7.6, 7.12)."""

from collections.abc import Iterator

from msgspec import Struct

from raysched.core.books import ReservationBook
from raysched.core.ledger import Ledger
from raysched.core.model import Bundle, JobSpec, PoolId, ReservationId, ShareId
from raysched.core.record import ReservationState
from raysched.core.units import GPU, MILLI, Amounts, add_into


class Kept(Struct):
    """What a job may not touch in one pool: `by_others` of running and coming reservations of other owners, on-hold
    ones included in full; `on_hold` is the part of it that has neither expiry nor release condition. `bundles` must
    still find room beside the job."""

    by_others: Amounts
    on_hold: Amounts
    bundles: tuple[Bundle, ...]


class Drawing(Struct, frozen=True):
    """The reservation a job draws on, its state, and how much."""

    reservation: ReservationId | None
    state: ReservationState
    amounts: Amounts


NOTHING_KEPT = Kept({}, {}, ())
NOTHING_DRAWN = Drawing(None, "none", {})


def owns(book: ReservationBook, spec: JobSpec, share: ShareId) -> bool:
    """Whether a job of this owner may draw on the reservation."""
    kept = book.reservation
    return (kept.share is not None and kept.share == share) or (kept.user is not None and kept.user == spec.user)


def kept(ledger: Ledger, spec: JobSpec, share: ShareId, pool: PoolId, now_ms: int) -> Kept:
    """What reservations keep from this job in `pool` at `now_ms`.

    A coming reservation counts when the job could still run at its start: a job without `max_runtime` is endless,
    within the horizon."""
    found = Kept({}, {}, ())
    bundles: list[Bundle] = []
    for book in _in_pool(ledger, pool):
        state = book.state(now_ms)
        if state == "on_hold":
            add_into(found.by_others, book.reservation.amounts)
            add_into(found.on_hold, book.reservation.amounts)
        elif state == "active" or (state == "coming" and _meets(ledger, spec, book, now_ms)):
            if owns(book, spec, share):
                continue
            unused = {kind: book.unused(kind) for kind in book.reservation.amounts}
            add_into(found.by_others, unused)
            bundles += _unused_bundles(book)
    found.bundles = tuple(bundles)
    return found


def drawing(ledger: Ledger, spec: JobSpec, share: ShareId, pool: PoolId, ask: Amounts, now_ms: int) -> Drawing:
    """What the job draws on: the reservation it names, else its owner's earliest-ending active one."""
    if spec.reservation is not None:
        book = ledger.reservations.get(spec.reservation)
        if book is None:
            return Drawing(spec.reservation, "none", {})
        state = book.state(now_ms)
        usable = state == "active" and book.reservation.pool == pool and owns(book, spec, share)
        return Drawing(spec.reservation, state, part(book, ask) if usable else {})
    mine = [b for b in _in_pool(ledger, pool) if b.state(now_ms) == "active" and owns(b, spec, share)]
    mine = [book for book in mine if any(book.unused(kind) for kind in ask)]
    if not mine:
        return NOTHING_DRAWN
    endless = 1 << 62
    book = min(mine, key=lambda b: (b.reservation.expiry_ms or endless, b.reservation.reservation))
    return Drawing(book.reservation.reservation, "active", part(book, ask))


def _in_pool(ledger: Ledger, pool: PoolId) -> Iterator[ReservationBook]:
    return (book for _, book in sorted(ledger.reservations.items()) if book.reservation.pool == pool)


def _meets(ledger: Ledger, spec: JobSpec, book: ReservationBook, now_ms: int) -> bool:
    start = book.reservation.start_ms
    if spec.max_runtime_ms is None:
        return start - now_ms <= ledger.settings.reservation_horizon_ms
    return now_ms + spec.max_runtime_ms > start


def part(book: ReservationBook, ask: Amounts) -> Amounts:
    """What of a request an owner's reservation can still give."""
    drawn = {kind: min(amount, book.unused(kind)) for kind, amount in ask.items()}
    return {kind: amount for kind, amount in drawn.items() if amount}


def _unused_bundles(book: ReservationBook) -> list[Bundle]:
    """The bundles that must still fit: those listed, while nothing is drawn; else one-GPU bundles of what is left."""
    if book.reservation.bundles and not book.drawn:
        return list(book.reservation.bundles)
    whole = book.unused(GPU) // MILLI
    return [Bundle(gpu_milli=MILLI, count=whole)] if whole else []
