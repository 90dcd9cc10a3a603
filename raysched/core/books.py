"""The parts of the ledger: a charge that stands, a reservation with its history, and how a change is taken back."""

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct, field

from raysched.core import entries as e
from raysched.core.accounts import Ask
from raysched.core.model import (
    Bundle,
    JobId,
    Placement,
    PoolId,
    Reservation,
    ReservationId,
    ShareId,
    UserId,
)
from raysched.core.record import AdmissionRecord, QuotaRow, ReservationState
from raysched.core.units import Amounts, format_amount

Undo = Callable[[], None]
K = TypeVar("K")
V = TypeVar("V")


class Claim(Struct, gc=False):
    """A charge that stands. `admitted_ms`: of its first attempt, kept over swaps; it orders loans. `bundles`: what a
    resize made of the job."""

    job: JobId
    attempt: int
    user: UserId
    share: ShareId
    pool: PoolId
    model: str | None
    workload: str
    priority: int
    amounts: Amounts
    placement: Placement
    at_ms: int
    admitted_ms: int
    committed: bool = False
    reservation: ReservationId | None = None
    draws: Amounts = field(default_factory=dict)
    bundles: tuple[Bundle, ...] = ()

    def ask(self) -> Ask:
        """The request that charged it."""
        return Ask(self.share, self.user, self.pool, self.workload, self.amounts)

    def claimed(
        self, record: AdmissionRecord, *, at_ms: int, attempt: int, placement: Placement, continues: bool = False
    ) -> e.Claimed:
        """The entry that charges the same again, for this attempt on this placement."""
        return e.Claimed(
            at_ms=at_ms,
            job=self.job,
            attempt=attempt,
            user=self.user,
            share=self.share,
            pool=self.pool,
            model=self.model,
            workload=self.workload,
            priority=self.priority,
            amounts=self.amounts,
            placement=placement,
            record=record,
            reservation=self.reservation,
            draws=self.draws,
            continues=continues,
        )


class ReservationBook(Struct):
    """A reservation with all that ever happened to it; nothing here is deleted."""

    reservation: Reservation
    history: list[tuple[str, int]]
    drawn: Amounts = field(default_factory=dict)
    released_ms: int | None = None

    def state(self, now_ms: int) -> ReservationState:
        """Computed from its window at `now_ms` (semantics 7.6)."""
        kept = self.reservation
        if self.released_ms is not None:
            return "released"
        if kept.expiry_ms is not None and now_ms >= kept.expiry_ms:
            return "expired"
        if now_ms < kept.start_ms:
            return "coming"
        return "on_hold" if kept.expiry_ms is None and kept.release_condition is None else "active"

    def unused(self, kind: str) -> int:
        """What its owner has not drawn of it yet."""
        return max(0, self.reservation.amounts.get(kind, 0) - self.drawn.get(kind, 0))

    def words(self, now_ms: int) -> list[str]:
        """Its history, `expired` included once its window is over."""
        done = [word for word, _ in self.history]
        return [*done, "expired"] if self.state(now_ms) == "expired" else done


def describe(row: QuotaRow) -> str:
    """A blocking row in words, with its numbers."""
    limit = row.limit + row.override
    if row.reason == "WAITING_RECLAIM":
        left = format_amount(row.kind, max(0, row.remaining + row.override))
        asked = format_amount(row.kind, row.request)
        return f"WAITING_RECLAIM: {row.scope} owns enough {row.kind}, but has lent it: {left} left, asked {asked}"
    return (
        f"{row.reason}: {row.scope}: {format_amount(row.kind, row.used)} of {format_amount(row.kind, limit)} "
        f"{row.kind} in use, asked {format_amount(row.kind, row.request)}"
    )


def run_back(undone: list[Undo]) -> None:
    while undone:
        undone.pop()()


def put(book: dict[K, V], key: K, value: V) -> Undo:
    had, before = key in book, book.get(key)
    book[key] = value

    def undo() -> None:
        if had:
            book[key] = before  # type: ignore[assignment]
        else:
            del book[key]

    return undo


def drop(book: dict[K, V], key: K) -> Undo:
    if key not in book:
        return lambda: None
    before = book.pop(key)

    def undo() -> None:
        book[key] = before

    return undo


def remover(book: dict[K, V], key: K) -> Undo:
    def undo() -> None:
        del book[key]

    return undo


def subject_of(entry: e.Edit) -> str:
    """What an edit changes, as `changed` names it."""
    match entry:
        case e.ShareSet():
            return f"share {entry.share.share}"
        case e.ShareDeleted():
            return f"share {entry.share}"
        case e.PoolSet():
            return f"pool {entry.pool.pool}"
        case e.GroupSet():
            return f"group {entry.group}"
        case e.ReservationSet():
            return f"reservation {entry.reservation.reservation}"
        case e.ReservationReleased():
            return f"reservation {entry.reservation}"
        case _:
            raise AssertionError(f"no subject for {type(entry).__name__}")


def same_charge(last: Claim, entry: e.Claimed) -> bool:
    """Whether an attempt goes on with just the charge that the last one gave back."""
    return (last.job, last.share, last.user, last.pool, last.amounts) == (
        entry.job,
        entry.share,
        entry.user,
        entry.pool,
        entry.amounts,
    )
