"""The ports of the loop. Ray, the simulator and the fakes of the tests implement them; one contract suite each."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from raysched.core.decisions import CreateGang, Decision
from raysched.core.entries import AnyEntry
from raysched.core.events import AnyEvent
from raysched.core.model import JobId
from raysched.core.snapshot import Snapshot
from raysched.store.errors import StoreFailed as StoreFailed
from raysched.store.ports import About as About


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch, never falling, whatever the wall clock does."""
        ...


class Journal(Protocol):
    """Events in order, each durable before `append` returns."""

    def append(self, events: Sequence[AnyEvent]) -> int:
        """Make the events durable in one commit; returns the number of the last one, counted from 1.

        Raises StoreFailed; then none of them was kept."""
        ...

    def read(self, after: int = 0) -> Iterator[tuple[int, AnyEvent]]:
        """Events with a number above `after`, in order."""
        ...

    def put_blob(self, data: bytes) -> str:
        """Keep bytes (a pickled function, a working directory, a result); returns their SHA-256 in hex."""
        ...

    def get_blob(self, digest: str) -> bytes | None: ...


class Change(Struct, frozen=True, gc=False, array_like=True):
    """One posted entry and the ledger version it made."""

    version: int
    entry: AnyEntry


class Posted(Struct, frozen=True, tag=True):
    """All entries stand. `changes` are all entries since the caller's version, these included; none when these are all,
    since the caller has them."""

    version: int
    changes: tuple[Change, ...]


class Stale(Struct, frozen=True, tag=True):
    """Some entries do not hold on the present books: nothing was posted. `failing` are (index, why)."""

    version: int
    failing: tuple[tuple[int, str], ...]
    changes: tuple[Change, ...]


class Refused(Struct, frozen=True, tag=True):
    """The caller may not post: FENCED (a newer scheduler exists) or STORE (the ledger cannot be written)."""

    code: str
    reason: str
    version: int


Answer = Posted | Stale | Refused


class Quota(Protocol):
    """The only writer of the ledger."""

    def open_epoch(self) -> int:
        """A new epoch, higher than any before; older ones are fenced from now on. Durable."""
        ...

    def post(self, entries: Sequence[AnyEntry], version: int, epoch: int, plan_id: str) -> Answer:
        """Check every entry on the present books and make all of them durable, or none. A known `plan_id` gets its
        old answer again. Called once per tick, also without entries. `version`: the last one the caller has folded."""
        ...

    def opening(self) -> Snapshot | None:
        """The books that the first change follows; None: it is version 1. Changes before it were archived."""
        ...

    def read(self, after: int = 0, limit: int = 10_000) -> tuple[Change, ...]:
        """Changes with a version above `after`, in order, at most `limit`; fewer do not mean that these were all. Some
        of what was archived may still be among them: who folds begins with `opening`."""
        ...

    def rows(self, about: About, after: int = 0, limit: int = 10_000) -> tuple[Change, ...]:
        """As `read`, but only changes about this."""
        ...


class Gang(Struct, frozen=True):
    """What the cluster really has of an attempt: a group that is `ready` or not, ranks that run or not."""

    job: JobId
    attempt: int
    ready: bool
    running: bool


class Cluster(Protocol):
    """Ray, or a simulation of it. Nothing here blocks."""

    def perform(self, decisions: Iterable[Decision]) -> None:
        """Begin to carry out decisions; repeats are harmless. The answers come from `poll`."""
        ...

    def poll(self) -> list[AnyEvent]:
        """What has happened since the last call: answers to decisions, and nodes that joined or died."""
        ...

    def observe(self) -> list[Gang]:
        """Every group and runner of ours that exists now; used once, after a restart."""
        ...

    def adopt(self, gangs: Iterable[CreateGang]) -> None:
        """Watch these attempts again, found by `observe` after a restart; their end will come from `poll`, also when
        it came while nobody was watching."""
        ...
