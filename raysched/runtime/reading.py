"""The reading half of the service: jobs, books, nodes, explanations. Nothing here changes anything.

Every method takes and returns plain values; an expected failure returns `{"error": {...}}` (problem.py)."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from raysched.config import ClusterConfig, share_to_keys
from raysched.core import entries as e
from raysched.core.check import check
from raysched.core.diagnosis import diagnose
from raysched.core.ledger import Ledger
from raysched.core.model import FINAL, LOWEST_PRIORITY, JobId, JobSpec, Limits, ShareId, UserId
from raysched.core.snapshot import restore
from raysched.core.state import Job, State
from raysched.core.verify import Verifier
from raysched.runtime import views
from raysched.runtime.admin import Desk, ShareVersion
from raysched.runtime.loop import Loop
from raysched.runtime.ports import About
from raysched.runtime.problem import Refusal, answers

View = dict[str, Any]
Id = TypeVar("Id")
PAGE: Final = 10_000  # rows of the ledger in one answer of the quota port
ARCHIVED: Final = UserId("archived")  # who made the version of a share with which the rows begin


class Reading:
    """What can be asked of one loop. `context` is the part of the configuration file that the books do not hold."""

    def __init__(self, loop: Loop, context: ClusterConfig | None = None, origin_ms: int = 0) -> None:
        self.loop = loop
        self.context = context if context is not None else ClusterConfig()
        self.origin_ms = origin_ms
        self.lock = threading.RLock()
        self.wake: Callable[[], None] = lambda: None
        self.started = time.monotonic()
        self.tick_ms = 0.0

    @property
    def state(self) -> State:
        return self.loop.state

    @property
    def ledger(self) -> Ledger:
        return self.loop.ledger

    def _now(self) -> int:
        return self.loop.clock.now_ms()

    def _desk(self) -> Desk:
        return Desk(self.state, self.ledger, self.context, self.origin_ms, self._share_versions)

    def _entries(self, after: int) -> Iterator[tuple[int, e.AnyEntry]]:
        """The ledger after a version, in pages."""
        while changes := self.loop.quota.read(after, PAGE):
            for change in changes:
                yield change.version, change.entry
            after = changes[-1].version

    def _share_versions(self, share: ShareId) -> list[ShareVersion]:
        """Archived versions are left out, but for the one with which the rows begin."""
        opening = self.loop.quota.opening()
        found: list[ShareVersion] = []
        for kept in () if opening is None else opening.shares:
            if opening is not None and kept.share == share:
                begun = e.ShareSet(at_ms=opening.now_ms, by=ARCHIVED, share=kept)
                found.append((opening.changed[f"share {share}"], begun))
        for version, entry in self._entries(0 if opening is None else opening.version):
            if isinstance(entry, e.ShareSet | e.ShareDeleted):
                named = entry.share if isinstance(entry, e.ShareDeleted) else entry.share.share
                found += [(version, entry)] if named == share else []
        return found

    def _job(self, name: str) -> Job:
        found = self.state.jobs.get(JobId(name))
        if found is None:
            raise Refusal("UNKNOWN_JOB", 404, f"job {name} does not exist")
        return found

    @answers
    def jobs(
        self, share: str | None = None, user: str | None = None, state: str | None = None, limit: int = 1_000
    ) -> list[View]:
        """Jobs, newest first."""
        with self.lock:
            found: list[View] = []
            for job in reversed(self.state.jobs.values()):
                if len(found) >= limit:
                    break
                if share in (None, job.share) and user in (None, job.user) and state in (None, job.state):
                    found.append(views.job_view(self.state, self.ledger, job))
            return found

    @answers
    def job(self, job: str) -> View:
        with self.lock:
            return views.job_view(self.state, self.ledger, self._job(job))

    def is_final(self, job: str) -> bool:
        """Whether a job has ended, or never was."""
        found = self.state.jobs.get(JobId(job))
        return found is None or found.state in FINAL

    @answers
    def wait(self, job: str, timeout_s: float = 30.0) -> View:
        """The job, once it has ended or the time is over."""
        until = time.monotonic() + timeout_s
        self._job(job)
        while not self.is_final(job) and time.monotonic() < until:
            time.sleep(0.02)
        view: View = self.job(job)
        return view

    @answers
    def explain(self, job: str) -> View:
        """Why a job waits."""
        with self.lock:
            return views.explain_view(self.state, self.ledger, self._job(job), self._now())

    @answers
    def diagnose(self, spec: View, by: str = "") -> View:
        """Findings on a request before it is submitted."""
        raw = {"job": "diagnosed", **spec}
        if by:
            raw.setdefault("user", by)
        job = msgspec.convert(raw, JobSpec)
        check_spec(job)
        with self.lock:
            return {"findings": [views.plain(f) for f in diagnose(self.state, self.ledger, job, self._now())]}

    @answers
    def shares(self, name: str | None = None, pool: str | None = None, workspace: str | None = None) -> list[View]:
        with self.lock:
            return views.shares_view(self.state, self.ledger, name, pool, workspace)

    @answers
    def limits(self, share: str | None = None, pool: str | None = None) -> View:
        """The limits of a share, or of a pool, as they are written in the configuration."""
        with self.lock:
            if share is None:
                name = self._desk().pool({"pool": pool})
                kept = self.ledger.pools[name].limits or Limits()
                return {"pool": name, "version": self.ledger.changed.get(f"pool {name}", 0), **views.limits(kept)}
            found = self._desk().share({"name": share})
            return {
                "share": share,
                "version": self.ledger.changed.get(f"share {share}", 0),
                **views.limits(found.limits),
            }

    @answers
    def usage(self) -> View:
        with self.lock:
            return views.usage_view(self.ledger)

    @answers
    def loans(self) -> list[View]:
        with self.lock:
            return views.loans_view(self.ledger)

    @answers
    def nodes(self) -> list[View]:
        with self.lock:
            nodes = sorted(self.state.nodes.items())
            return [views.node_view(self.state, self.ledger, self.loop.inbox, node) for _, node in nodes]

    @answers
    def pools(self) -> list[View]:
        with self.lock:
            return [views.pool_view(self.state, self.ledger, pool) for pool in self.ledger.pool_order()]

    @answers
    def groups(self) -> list[View]:
        with self.lock:
            changed = self.ledger.changed
            return [
                {"group": group, "members": list(members), "version": changed.get(f"group {group}", 0)}
                for group, members in sorted(self.ledger.groups.items())
            ]

    @answers
    def node_specs(self) -> View:
        """Node specs by name: those of the configuration, and those that nodes turned out to have."""
        with self.lock:
            return {name: views.plain(spec) for name, spec in sorted(self._desk().config().node_specs.items())}

    @answers
    def reservations(self) -> list[View]:
        with self.lock:
            books = sorted(self.ledger.reservations.items())
            return [views.reservation_view(self.ledger, book, self._now()) for _, book in books]

    @answers
    def overrides(self) -> list[View]:
        with self.lock:
            now_ms = self._now()
            active = {override.override for override in self.ledger.active_overrides(now_ms)}
            overrides = sorted(self.ledger.overrides.items())
            return [{**views.plain(override), "active": name in active} for name, override in overrides]

    @answers
    def alerts(self) -> list[View]:
        with self.lock:
            return [views.plain(alert) for _, alert in sorted(self.state.alerts.items())]

    @answers
    def quota(self, user: str, share: str | None = None) -> list[View]:
        """A user's overview: used, limit and idle per kind, in one share or in all that have something to say."""
        with self.lock:
            if share is not None:
                return [views.quota_view(self.ledger, user, self._desk().share({"name": share}))]
            found = [views.quota_view(self.ledger, user, s) for _, s in sorted(self.ledger.shares.items())]
            return [view for view in found if any(kind["used"] or kind["limit"] for kind in view["kinds"].values())]

    @answers
    def ledger_rows(
        self,
        job: str | None = None,
        after: int = 0,
        limit: int = 100,
        user: str | None = None,
        share: str | None = None,
        since_ms: int | None = None,
        until_ms: int | None = None,
    ) -> list[View]:
        """Ledger entries in order: those that name all of job, user and share, decided in the window."""
        about = About(_id(JobId, job), _id(UserId, user), _id(ShareId, share), since_ms, until_ms)
        found: list[View] = []
        while len(found) < limit:
            quota, most = self.loop.quota, min(limit - len(found), PAGE)
            changes = quota.read(after, most) if about == About() else quota.rows(about, after, most)
            if not changes:
                break
            found += [{"version": c.version, "at_ms": c.entry.at_ms, "entry": views.plain(c.entry)} for c in changes]
            after = changes[-1].version
        return found

    @answers
    def records(self, job: str) -> list[View]:
        """Every admission record of one job, oldest first."""
        rows = self.ledger_rows(job=job, limit=10_000)
        return [row["entry"]["record"] for row in rows if row["entry"].get("record") is not None]

    @answers
    def health(self) -> View:
        """Whether the scheduler works, with the figures a person looks at first."""
        with self.lock:
            nodes: dict[str, int] = {}
            for node in self.state.nodes.values():
                nodes[node.health] = nodes.get(node.health, 0) + 1
            jobs: dict[str, int] = {}
            for job in self.state.jobs.values():
                jobs[job.state] = jobs.get(job.state, 0) + 1
            return {
                "status": "ok" if self.loop.store_error is None else "store_failed",
                "store_error": self.loop.store_error,
                "epoch": self.loop.epoch,
                "ledger_version": self.ledger.version,
                "journal_seq": self.state.seq,
                "nodes": nodes,
                "jobs": jobs,
                "ticks": self.loop.ticks,
                "last_tick_ms": round(self.tick_ms, 3),
                "uptime_s": round(time.monotonic() - self.started, 1),
            }

    @answers
    def metrics(self) -> list[View]:
        with self.lock:
            return views.samples(self.state, self.ledger, self.loop.ticks, self.tick_ms)

    @answers
    def check(self) -> View:
        """Every invariant of state and books, checked in full: the list of what is broken."""
        with self.lock:
            return {"broken": check(self.state, self.ledger)}

    @answers
    def share_history(self, share: str) -> list[View]:
        """Every version of a share, oldest first: when, by whom, and its keys; None where it was deleted."""
        found = [
            {
                "version": version,
                "at_ms": entry.at_ms,
                "by": entry.by,
                "share": share_to_keys(entry.share) if isinstance(entry, e.ShareSet) else None,
            }
            for version, entry in self._share_versions(ShareId(share))
        ]
        if not found:
            raise Refusal("UNKNOWN_SHARE", 404, f"UNKNOWN_SHARE: there never was a share {share}")
        return found

    @answers
    def verify(self) -> View:
        """Decide every stored record again and compare: with the row, and with the books before it."""
        archived, found = self._verified()
        return {
            "rows": found.ledger.version - archived,
            "archived": archived,
            "decided": found.decided,
            "compared": found.compared,
            "disagreements": [views.plain(one) for one in found.found],
        }

    def _verified(self) -> tuple[int, Verifier]:
        """The last archived version, and every row after it walked."""
        while True:
            found, opening = Verifier(), self.loop.quota.opening()
            if opening is not None:
                found.ledger = restore(opening)
            archived = found.ledger.version
            for version, entry in self._entries(archived):
                if version != found.ledger.version + 1:
                    break  # rows were archived while we walked: once more, from their books
                found.entry(version, entry)
            else:
                return archived, found


def _id(kind: Callable[[str], Id], given: str | None) -> Id | None:
    return None if given is None else kind(given)


def check_spec(spec: JobSpec) -> None:
    """What the types do not say about a job."""
    if not spec.bundles:
        raise Refusal("BAD_SPEC", 422, "bundles: at least one is needed")
    for number, bundle in enumerate(spec.bundles):
        amounts = (bundle.gpu_milli, bundle.cpu_milli, bundle.memory_bytes, *bundle.attach.values())
        if any(not 0 <= amount < 1 << 62 for amount in amounts) or not 1 <= bundle.count <= 100_000:
            raise Refusal("BAD_SPEC", 422, f"bundles[{number}]: amounts must be ≥ 0 and count from 1 to 100000")
        if bundle.gpu_milli % 1_000 and bundle.gpu_milli > 1_000:
            gpu = bundle.gpu_milli / 1_000
            raise Refusal("BAD_SPEC", 422, f"bundles[{number}].gpu: {gpu} is neither whole nor below 1")
    if spec.priority is not None and not 0 <= spec.priority <= LOWEST_PRIORITY:
        raise Refusal("BAD_SPEC", 422, f"priority {spec.priority}: want 0 (highest) to {LOWEST_PRIORITY}")
    if spec.max_runtime_ms is not None and spec.max_runtime_ms <= 0:
        raise Refusal("BAD_SPEC", 422, f"max_runtime {spec.max_runtime_ms} ms: must be above 0")
    if spec.retries < 0 or spec.grace_ms < 0:
        raise Refusal("BAD_SPEC", 422, "retries and grace must be ≥ 0")
