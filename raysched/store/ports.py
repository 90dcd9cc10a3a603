"""What the quota actor needs from whatever keeps the ledger. (`Journal` is a port of the runtime.)"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from raysched.core.entries import AnyEntry
from raysched.core.model import JobId, ShareId, UserId
from raysched.core.snapshot import Snapshot


class About(Struct, frozen=True):
    """Which rows are asked for: those that name all of these (commits and releases name the job alone), decided at or
    after `since_ms` and before `until_ms`. What is None does not matter."""

    job: JobId | None = None
    user: UserId | None = None
    share: ShareId | None = None
    since_ms: int | None = None
    until_ms: int | None = None


class LedgerTable(Protocol):
    """Entries in versions from 1, each batch durable before `append` returns; one writer. No rules."""

    def append(self, plan_id: str | None, epoch: int, entries: Sequence[AnyEntry], first_version: int) -> None:
        """Make `entries` durable as versions from `first_version` on, in one commit, and remember `plan_id` for them.

        Without entries nothing is written or remembered. Raises StoreFailed: nothing was kept."""
        ...

    def opening(self) -> Snapshot | None:
        """The books with which the rows begin; None: they begin with version 1. Raises CorruptStore."""
        ...

    def read(self, after: int = 0, limit: int = 10_000) -> list[tuple[int, AnyEntry]]:
        """(version, entry) with a version above `after`, in order, at most `limit`; archived rows are not among them.

        Raises CorruptStore."""
        ...

    def rows(self, about: About, after: int = 0, limit: int = 10_000) -> list[tuple[int, AnyEntry]]:
        """As `read`, but only entries about this."""
        ...

    def remembered(self, plan_id: str) -> tuple[int, int] | None:
        """The first and last version `plan_id` made; None if it made none or is older than the plans kept."""
        ...

    def open_epoch(self) -> int:
        """A number higher than every epoch before, durable. Raises StoreFailed."""
        ...

    def epoch(self) -> int:
        """The last epoch opened; 0 before the first."""
        ...

    def last_version(self) -> int:
        """The version of the last entry; 0 for an empty ledger."""
        ...

    def verify_chain(self) -> list[int]:
        """Versions that are missing or are not what was appended."""
        ...

    def close(self) -> None: ...
