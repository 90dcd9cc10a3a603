"""`raysched bench ledger`: the ledger on disk at a size, next to what SQLite does with rows of that size alone.

Rows are those of ledger_block.py, posted through the real store. It is asked, verified, archived, and verified again,
then together with the archive. Times are seconds where the name does not say milliseconds."""

import resource
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

from msgspec import Struct, field

from raysched.core.entries import AnyEntry, Claimed
from raysched.core.model import JobId, ShareId, UserId
from raysched.runtime.quota_book import QuotaBook
from raysched.sim.ledger_block import SHARES, START_MS, USERS, YEAR_MS, decided
from raysched.sim.plain_sqlite import PlainSqlite
from raysched.store.archiving import archive
from raysched.store.audit import audit
from raysched.store.codec import encode
from raysched.store.ledger_store import LedgerStore
from raysched.store.ports import About

BLOCK_ROWS: Final = 50_000
FILLING: Final = 1_000  # rows of a post while the store is filled
BATCHES: Final = {1: 300, 10: 200, 100: 100, 1_000: 30}  # rows of a post, and how many posts are timed
DAY_MS: Final = 86_400_000
MONTH_MS: Final = 30 * DAY_MS
SAMPLED: Final = 2  # rows of each post, for their size
ASKED: Final = 20  # questions of each kind
KEPT_MS: Final = 90 * DAY_MS  # what stays of the year when the rest is archived
ROOM_PER_ROW: Final = 1_600  # bytes: the file, its log, the archive
EPOCH: Final = 1

Tell = Callable[[str], None]


class NoRoom(Exception):
    """The disk is too small for the size asked; the message has both numbers."""


class Post(Struct, frozen=True):
    """Posts of one size: the median of a commit, and rows per second; the same of plain SQLite."""

    batch: int
    commit_ms: float
    rows_per_s: float
    plain_commit_ms: float
    plain_rows_per_s: float


class Question(Struct, frozen=True):
    """One kind of question: rows in the answer (median), and how long it takes."""

    about: str
    rows: int
    median_ms: float
    worst_ms: float


class Measured(Struct):
    """What was measured, in the order in which it was. `payload_bytes`: of one row's JSON; `restart_s`: a quota actor
    that starts on the ledger; `verify_s`: every row of archive and store decided again, chain included."""

    rows: int = 0
    fill_s: float = 0.0
    posts: list[Post] = field(default_factory=list)
    payload_bytes: int = 0
    store_bytes: int = 0
    questions: list[Question] = field(default_factory=list)
    chain_s: float = 0.0
    restart_s: float = 0.0
    archived_rows: int = 0
    archive_s: float = 0.0
    archive_bytes: int = 0
    store_after_bytes: int = 0
    restart_after_s: float = 0.0
    verify_s: float = 0.0
    memory_mib: int = 0


def check_room(folder: Path, rows: int) -> None:
    """Raises NoRoom if `folder` cannot hold that many rows, their log and their archive."""
    needed, free = rows * ROOM_PER_ROW + (256 << 20), shutil.disk_usage(folder).free
    if free < needed:
        raise NoRoom(f"{rows:,} rows need {needed >> 20:,} MiB in {folder}, {free >> 20:,} MiB are free")


def measure(rows: int, folder: Path, tell: Tell = lambda text: None, seed: int = 1) -> Measured:
    """All of it, in `folder`, where the store and its archive are left. Raises NoRoom."""
    check_room(folder, rows)
    found, url = Measured(), f"sqlite:///{folder}/ledger.db"
    with closing(LedgerStore(url)) as table:
        jobs = _fill(table, rows, found, folder, tell, seed)
    found.store_bytes = _size(folder)
    with closing(LedgerStore(url, writer=False)) as table:
        tell("asking")
        found.questions = _questions(table, jobs, Random(seed))
        tell("verifying the chain")
        found.chain_s, broken = _timed(table.verify_chain)
        assert broken == [], broken[:10]
        tell("starting again")
        found.restart_s, _ = _timed(lambda: QuotaBook(table))
    _archive(url, folder, found, tell)
    found.memory_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return found


# ── posting ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _fill(table: LedgerStore, rows: int, found: Measured, folder: Path, tell: Tell, seed: int) -> list[JobId]:
    """Post all rows, the last 42,300 in posts of each size; returns some of the jobs."""
    tell("deciding a block of rows")
    timed = sum(batch * count for batch, count in BATCHES.items())
    entries = decided(min(rows, BLOCK_ROWS), seed).rows(rows)
    jobs: list[JobId] = []
    sample: list[AnyEntry] = []
    begun = time.perf_counter()
    while (last := table.last_version()) < rows - timed:
        batch = list(islice(entries, min(FILLING, rows - timed - last)))
        _post(table, batch)
        jobs += [entry.job for entry in batch if isinstance(entry, Claimed)][:1]
        sample += Random(last).sample(batch, min(SAMPLED, len(batch)))
        tell(f"{last + len(batch):,} of {rows:,} rows posted")
    found.fill_s = time.perf_counter() - begun
    payloads = [encode(entry) for entry in sample]
    found.payload_bytes = sum(map(len, payloads)) // len(payloads)
    tell("posting in batches of each size")
    with closing(PlainSqlite(folder / "plain.db", payloads)) as plain:
        found.posts = [_posts(table, plain, entries, batch, count) for batch, count in BATCHES.items()]
    found.rows = table.last_version()
    return jobs


def _posts(table: LedgerStore, plain: PlainSqlite, entries: Iterator[AnyEntry], batch: int, count: int) -> Post:
    """Both in turn, so that other work on the machine meets both."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(count):
        some = list(islice(entries, batch))
        ours.append(_timed(lambda some=some: _post(table, some))[0])  # type: ignore[misc]
        theirs.append(plain.post(batch))
    rows = batch * count
    return Post(batch, median(ours) * 1_000, rows / sum(ours), median(theirs) * 1_000, rows / sum(theirs))


def _post(table: LedgerStore, entries: list[AnyEntry]) -> None:
    first = table.last_version() + 1
    table.append(f"plan{first}", EPOCH, entries, first)


# ── asking and archiving ──────────────────────────────────────────────────────────────────────────────────────────


def _questions(table: LedgerStore, jobs: list[JobId], random: Random) -> list[Question]:
    def in_month(job: JobId | None = None, user: UserId | None = None, share: ShareId | None = None) -> About:
        since_ms = START_MS + random.randrange(YEAR_MS - MONTH_MS)
        return About(job, user, share, since_ms, since_ms + MONTH_MS)

    kinds: dict[str, Callable[[], About]] = {
        "one job": lambda: About(job=random.choice(jobs)),
        "one user, one month": lambda: in_month(user=UserId(f"u{random.randrange(USERS)}")),
        "one share, one month": lambda: in_month(share=ShareId(f"s{random.randrange(SHARES)}")),
    }
    return [_question(table, name, [make() for _ in range(ASKED)]) for name, make in kinds.items()]


def _question(table: LedgerStore, name: str, asked: list[About]) -> Question:
    answers = [_timed(lambda about=about: table.rows(about, limit=1_000_000)) for about in asked]  # type: ignore[misc]
    times = [seconds * 1_000 for seconds, _ in answers]
    return Question(name, int(median(len(rows) for _, rows in answers)), median(times), max(times))


def _archive(url: str, folder: Path, found: Measured, tell: Tell) -> None:
    file = folder / "ledger-archive.jsonl.gz"
    before_ms = START_MS + YEAR_MS - KEPT_MS
    found.archive_s, done = _timed(lambda: archive(url, file, before_ms=before_ms, tell=tell))
    found.archived_rows, found.archive_bytes = done.last - done.first + 1, done.archive_bytes
    found.store_after_bytes = _size(folder)
    with closing(LedgerStore(url, writer=False)) as table:
        tell("starting again")
        found.restart_after_s, _ = _timed(lambda: QuotaBook(table))
        tell("verifying archive and ledger")
        found.verify_s, audited = _timed(lambda: audit(table, [file]))
    assert audited.rows == found.rows and not audited.disagreements and not audited.chain, audited


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def _size(folder: Path) -> int:
    """The store's file with its log."""
    return sum(file.stat().st_size for file in folder.glob("ledger.db*"))
