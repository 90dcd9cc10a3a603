"""The quota actor: the only writer of the ledger, as a detached Ray actor around `QuotaBook` and its store.

Calls carry bytes, not objects: one codec for the wire and the table, and nothing of the core is pickled. A call that is
re-run after a crash is harmless, because answers are remembered by plan id."""

import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import ray

from raysched.core.entries import AnyEntry
from raysched.core.snapshot import Snapshot
from raysched.runtime.memory import settle_in
from raysched.runtime.ports import About, Answer, Change, StoreFailed
from raysched.runtime.quota_book import QuotaBook
from raysched.store.ledger_store import LedgerStore

NAME: Final = "raysched:quota"
NAMESPACE: Final = "raysched"
# A head that is replaced comes back with the same resource, so the actor does too (ray.md 5).
HEAD: Final = {"node:__internal_head__": 0.001}
PATIENCE_S: Final = 60.0  # a restarted actor reads its whole ledger before it answers
LATEST: Final = 100_000  # changes in one answer; the rest is read in pages

log = logging.getLogger("raysched.quota")
_entries = msgspec.msgpack.Decoder(tuple[AnyEntry, ...])
_answer = msgspec.msgpack.Decoder(Answer)
_changes = msgspec.msgpack.Decoder(tuple[Change, ...])
_opening = msgspec.msgpack.Decoder(Snapshot | None)
_about = msgspec.msgpack.Decoder(About)
_encode = msgspec.msgpack.Encoder().encode


class QuotaActor:
    """`url`: where the ledger is kept, for SQLAlchemy."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._book = QuotaBook(LedgerStore(url))
        settle_in()

    def __repr__(self) -> str:
        return f"QuotaActor(version {self._book.ledger.version})"

    def ping(self) -> int:
        """The ledger's version."""
        return self._book.ledger.version

    def open_epoch(self) -> int:
        """See ports.Quota."""
        return self._book.open_epoch()

    def post(self, entries: bytes, version: int, epoch: int, plan_id: str) -> bytes:
        """See ports.Quota."""
        return _encode(self._book.post(_entries.decode(entries), version, epoch, plan_id))

    def read(self, after: int, limit: int) -> bytes:
        """See ports.Quota."""
        return _encode(self._book.read(after, min(limit, LATEST)))

    def opening(self) -> bytes:
        """See ports.Quota."""
        return _encode(self._book.opening())

    def rows(self, about: bytes, after: int, limit: int) -> bytes:
        """See ports.Quota."""
        return _encode(self._book.rows(_about.decode(about), after, min(limit, LATEST)))


class RayQuota:
    """Implements ports.Quota by calling the actor. Raises StoreFailed while it cannot be reached."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def open_epoch(self) -> int:
        epoch: int = self._call(self._actor.open_epoch.remote())
        return epoch

    def post(self, entries: Sequence[AnyEntry], version: int, epoch: int, plan_id: str) -> Answer:
        data = self._call(self._actor.post.remote(_encode(tuple(entries)), version, epoch, plan_id))
        return _answer.decode(data)

    def read(self, after: int = 0, limit: int = LATEST) -> tuple[Change, ...]:
        return _changes.decode(self._call(self._actor.read.remote(after, limit)))

    def opening(self) -> Snapshot | None:
        return _opening.decode(self._call(self._actor.opening.remote()))

    def rows(self, about: About, after: int = 0, limit: int = LATEST) -> tuple[Change, ...]:
        return _changes.decode(self._call(self._actor.rows.remote(_encode(about), after, limit)))

    def _call(self, ref: Any) -> Any:
        try:
            return ray.get(ref, timeout=PATIENCE_S)
        except (ray.exceptions.RayError, TimeoutError) as error:
            cause = getattr(error, "cause", None) or error
            raise StoreFailed(f"the quota actor did not answer: {cause}") from error


def start(url: str) -> Any:
    """The quota actor, started if there is none. It restarts by itself, and re-runs calls that were cut off."""
    options = {
        "name": NAME,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "max_restarts": -1,
        "max_task_retries": -1,
        "num_cpus": 0,
        "resources": HEAD,
    }
    return ray.remote(QuotaActor).options(**options).remote(url)
