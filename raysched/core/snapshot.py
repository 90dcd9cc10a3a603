"""The books as one value: taken of a ledger, and made into a ledger again that folds on from there.

`restore` goes through the ledger's own door, so what is derived (sums, accounts, edges) is derived again."""

from msgspec import Struct, structs

from raysched.core import entries as e
from raysched.core.books import Claim, ReservationBook
from raysched.core.ledger import Ledger
from raysched.core.model import GroupId, JobId, Override, Pool, PoolId, Settings, Share, UserId
from raysched.core.record import AdmissionRecord
from raysched.core.units import Amounts

AGAIN = UserId("raysched")  # who acted is in the entry that was posted then


class Snapshot(Struct, frozen=True):
    """The books after `version` entries, each in the order in which the ledger keeps it.

    `records` are those that something can still depend on: of jobs that hold a claim or were told why they wait."""

    version: int
    now_ms: int
    settings: Settings
    pools: tuple[Pool, ...]
    groups: dict[GroupId, tuple[UserId, ...]]
    shares: tuple[Share, ...]
    changed: dict[str, int]
    reservations: tuple[ReservationBook, ...]
    overrides: tuple[Override, ...]
    reported: dict[PoolId, Amounts]
    claims: tuple[Claim, ...]
    records: tuple[AdmissionRecord, ...]


def snapshot(ledger: Ledger) -> Snapshot:
    """The books as they stand. Not between a release and the claim that continues it (see `continues`)."""
    return Snapshot(
        version=ledger.version,
        now_ms=ledger.now_ms,
        settings=ledger.settings,
        pools=tuple(ledger.pools.values()),
        groups=dict(ledger.groups),
        shares=tuple(ledger.shares.values()),
        changed=dict(ledger.changed),
        reservations=tuple(_copy(book) for book in ledger.reservations.values()),
        overrides=tuple(ledger.overrides.values()),
        reported={pool: dict(amounts) for pool, amounts in ledger.reported.items()},
        claims=tuple(structs.replace(claim) for claim in ledger.claims.values()),
        records=tuple(record for job, record in sorted(ledger.records.items()) if _matters(ledger, job, record)),
    )


def restore(books: Snapshot) -> Ledger:
    """A ledger that stands as `books` say and goes on with the entry after `books.version`."""
    ledger = Ledger()
    for entry in _edits(books):
        ledger.fold(entry)
    for book in books.reservations:
        _reserve(ledger, book)
    records = {record.job: record for record in books.records}
    for claim in books.claims:
        _charge(ledger, claim, records.pop(claim.job))
    for record in records.values():
        ledger.fold(e.Recorded(at_ms=books.now_ms, record=record))
    ledger.changed = dict(books.changed)
    ledger.version = books.version
    return ledger


def forget(ledger: Ledger) -> None:
    """Drop the records that a snapshot would leave out: whoever only walks many rows has no need of them."""
    over = [job for job, record in ledger.records.items() if not _matters(ledger, job, record)]
    for job in over:
        del ledger.records[job]


def continues(entry: e.AnyEntry) -> bool:
    """Whether `entry` belongs to the one before it, so that the books cannot be parted between the two."""
    return isinstance(entry, e.Claimed) and entry.continues


def _matters(ledger: Ledger, job: JobId, record: AdmissionRecord) -> bool:
    return job in ledger.claims or record.reason is not None


def _copy(book: ReservationBook) -> ReservationBook:
    return structs.replace(book, history=list(book.history), drawn=dict(book.drawn))


def _edits(books: Snapshot) -> list[e.AnyEntry]:
    """The first of them brings the clock to where it stood, so that each window is open or closed as it was."""
    at_ms = books.now_ms
    return [
        e.SettingsSet(at_ms=at_ms, settings=books.settings, by=AGAIN),
        *(e.PoolSet(at_ms=at_ms, pool=pool, by=AGAIN) for pool in books.pools),
        *(e.GroupSet(at_ms=at_ms, group=group, members=members, by=AGAIN) for group, members in books.groups.items()),
        *(e.ShareSet(at_ms=at_ms, share=share, by=AGAIN) for share in books.shares),
        *(e.OverrideSet(at_ms=at_ms, override=override, by=AGAIN) for override in books.overrides),
        *(
            e.ReservedReported(at_ms=at_ms, pool=pool, amounts=amounts, by=AGAIN)
            for pool, amounts in books.reported.items()
        ),
    ]


def _reserve(ledger: Ledger, book: ReservationBook) -> None:
    """The reservation with its own history; what is drawn of it comes with the claims."""
    name, kept = book.reservation.reservation, book.reservation
    ledger.fold(e.ReservationSet(at_ms=book.history[0][1], reservation=kept, by=AGAIN))
    if book.released_ms is not None:
        ledger.fold(e.ReservationReleased(at_ms=book.released_ms, reservation=name, by=AGAIN))
    ledger.reservations[name].history = list(book.history)


def _charge(ledger: Ledger, claim: Claim, record: AdmissionRecord) -> None:
    ledger.fold(claim.claimed(record, at_ms=claim.at_ms, attempt=claim.attempt, placement=claim.placement))
    if claim.committed:
        ledger.fold(e.Committed(at_ms=claim.at_ms, job=claim.job, attempt=claim.attempt))
    if claim.bundles:
        bundles, amounts = claim.bundles, claim.amounts
        ledger.fold(
            e.Resized(
                at_ms=claim.at_ms, job=claim.job, amounts=amounts, placement=claim.placement, by=AGAIN, bundles=bundles
            )
        )
    ledger.claims[claim.job].admitted_ms = claim.admitted_ms
