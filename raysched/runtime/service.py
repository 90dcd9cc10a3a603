"""Everything one can ask of a running scheduler, as methods over one loop. No Ray here: the scheduler actor exposes
these names, the simulator and the tests call them directly.

Every method takes and returns plain values; an expected failure returns `{"error": {...}}` (problem.py). A command is
durable before it is answered. Safe to call from any thread: one lock serialises commands and ticks."""

import re
import time
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import structs

from raysched.config import ClusterConfig, bundles_from_keys, entries, parse_config
from raysched.core import entries as e
from raysched.core import events as ev
from raysched.core.admission import assess
from raysched.core.diagnosis import Finding, as_job, blocking, linked, refusal
from raysched.core.draft import Draft
from raysched.core.model import ACTIVE, FINAL, LOWEST_PRIORITY, JobId, JobSpec, ShareId, UserId
from raysched.core.queue import options
from raysched.core.record import AdmissionRecord
from raysched.core.resize import Resize, resize
from raysched.core.state import Job
from raysched.core.units import GPU
from raysched.runtime import views
from raysched.runtime.apply import differences
from raysched.runtime.effects import effects
from raysched.runtime.inbox import Report
from raysched.runtime.ports import Stale
from raysched.runtime.problem import Refusal, answers
from raysched.runtime.reading import Reading, View, check_spec

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")
SYSTEM = UserId("raysched")


class Service(Reading):
    """One scheduler's doors: what can be read (reading.py), and commands. `wake` is called after each of them, so that
    a tick follows."""

    def fill(self, config: ClusterConfig) -> bool:
        """On first start the configuration fills the books; later the books win. Returns whether it filled them.

        Raises Refusal with what is wrong, StoreFailed."""
        self.context = config
        if self.ledger.shares or self.ledger.pools:
            return False
        answer = self.loop.ask(tuple(entries(config, self._now(), SYSTEM)))
        if isinstance(answer, Stale):
            raise Refusal("BAD_CONFIG", 422, "; ".join(why for _, why in answer.failing))
        return True

    def tick(self) -> int | None:
        """One tick of the loop; see Loop.tick."""
        with self.lock:
            begun = time.perf_counter()
            due = self.loop.tick()
            self.tick_ms = (time.perf_counter() - begun) * 1_000
            return due

    def report(self, reports: Iterable[Report]) -> None:
        """Reports of node agents."""
        self.loop.inbox.report(reports)
        self.wake()

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    @answers
    def submit(self, spec: View, by: str) -> View:
        """Queue one job, or refuse it with every blocking finding named."""
        found = self.submit_many([spec], by)
        # One answer for all when nothing at all could be kept.
        return dict(found if isinstance(found, dict) else found[0])

    @answers
    def submit_many(self, specs: list[View], by: str) -> list[View]:
        """Queue several jobs with one commit; each is answered for itself."""
        with self.lock:
            events: list[ev.AnyEvent] = []
            records: list[e.AnyEntry] = []
            results: list[View] = []
            taken: set[JobId] = set()
            for number, spec in enumerate(specs):
                try:
                    job = self._named(spec, by, taken, number)
                    results.append(self._judged(job, events, records))
                    taken.add(job.job)
                except Refusal as refusal:
                    results.append(refusal.to_dict())
                except msgspec.ValidationError as error:
                    results.append(Refusal("BAD_SPEC", 422, str(error)).to_dict())
            if records:
                self.loop.ask(tuple(records))
            if events:
                self.loop.record(events)
        self.wake()
        return results

    def _named(self, spec: View, by: str, taken: set[JobId], number: int) -> JobSpec:
        raw = dict(spec)
        raw.setdefault("user", by)
        if not raw.get("job"):
            count = self.state.user_numbers.get(UserId(str(raw["user"])), 0) + number + 1
            while JobId(f"{raw['user']}-{count}") in self.state.jobs or f"{raw['user']}-{count}" in taken:
                count += 1
            raw["job"] = f"{raw['user']}-{count}"
        job = msgspec.convert(raw, JobSpec)
        if not NAME.match(job.job):
            raise Refusal("BAD_SPEC", 422, f"job name {job.job!r}: want letters, digits, '.', '_', '-', at most 63")
        if job.job in self.state.jobs or job.job in taken:
            raise Refusal("JOB_EXISTS", 409, f"job {job.job} exists already")
        check_spec(job)
        return job if job.submitted_by is not None else structs.replace(job, submitted_by=UserId(by))

    def _judged(self, spec: JobSpec, events: list[ev.AnyEvent], records: list[e.AnyEntry]) -> View:
        now_ms = self._now()
        findings = blocking(self.state, self.ledger, spec, now_ms)
        why = refusal(findings, spec.confirm)
        if why is None:
            share = self.ledger.shares[spec.share]
            job = as_job(self.state, self.ledger, spec, now_ms)
            events.append(ev.JobSubmitted(at_ms=now_ms, spec=spec, priority=job.priority))
            return {"job": spec.job, "state": "queued", "share": share.share, "priority": job.priority}
        events.append(ev.JobRefused(at_ms=now_ms, spec=spec, errors=tuple(f.kind for f in findings)))
        if spec.share in self.ledger.shares:
            records.append(e.Recorded(at_ms=now_ms, record=self._rejected(spec, findings, now_ms)))
        status = 404 if findings[0].kind == "UNKNOWN_SHARE" else 409 if "NEEDS_CONFIRM" in why else 422
        return Refusal(findings[0].kind, status, why, [views.plain(f) for f in findings]).to_dict()

    def _rejected(self, spec: JobSpec, findings: list[Finding], now_ms: int) -> AdmissionRecord:
        job = as_job(self.state, self.ledger, spec, now_ms)
        choice = options(self.state, self.ledger, spec.share, job.class_key())
        refused = tuple(finding.kind for finding in findings)
        if choice:
            record = assess(Draft(self.state, self.ledger), job, choice[0], now_ms).record
            return structs.replace(record, admission_state="REJECTED", reason=None, refused=refused)
        asked = spec.amounts(None).get(GPU, 0)
        return AdmissionRecord(
            job=spec.job,
            attempt=1,
            user=spec.user,
            share=spec.share,
            pool=spec.pool,
            model=spec.model,
            scope=f"share {spec.share}",
            kind=GPU,
            quota_limit=0,
            quota_used=0,
            quota_remaining=0,
            capacity_allocatable=None,
            reserved_by_others=0,
            request_quantity=asked,
            reservation_lifecycle="none",
            contention_state="NORMAL",
            admission_state="REJECTED",
            decided_at_ms=now_ms,
            evidence="VALID",
            evidence_ref="",
            bundles_asked=sum(bundle.count for bundle in spec.bundles),
            bundles_fit=0,
            bundles_fit_unreserved=0,
            refused=refused,
        )

    def _unfinished(self, name: str) -> Job:
        self.loop.pay()  # what the plan posted for the job must be in its state before it is judged
        job = self._job(name)
        if job.state in FINAL:
            raise Refusal("JOB_ENDED", 409, f"job {name} has ended: {job.state}")
        return job

    def _may(self, job: Job, by: str) -> None:
        """Owners, who submitted it, admins of its share and cluster admins may change a job."""
        admins = self.ledger.settings.admins
        share = self.ledger.shares.get(job.share)
        friends = {job.user, job.spec.submitted_by, *admins, *(share.admins if share is not None else ())}
        if admins and by not in friends:
            raise Refusal("FORBIDDEN", 403, f"{by} may not change job {job.job} of {job.user}")

    @answers
    def cancel(self, job: str, by: str) -> View:
        """Cancel a job; one that has ended already stays as it is."""
        with self.lock:
            found = self._job(job)
            self._may(found, by)
            if found.state not in FINAL and found.cancel is None:
                self.loop.record([ev.CancelRequested(at_ms=self._now(), job=found.job, by=UserId(by))])
            view = views.job_view(self.state, self.ledger, found)
        self.wake()
        return view

    @answers
    def set_priority(self, job: str, priority: int, by: str) -> View:
        """Change the priority of a queued or running job; 0 is the highest, 9 the lowest."""
        if not 0 <= priority <= LOWEST_PRIORITY:
            raise Refusal("BAD_REQUEST", 422, f"priority {priority}: want 0 (highest) to {LOWEST_PRIORITY}")
        with self.lock:
            found = self._unfinished(job)
            self._may(found, by)
            event = ev.PriorityChanged(at_ms=self._now(), job=found.job, priority=priority, by=UserId(by))
            self.loop.record([event])
            view = views.job_view(self.state, self.ledger, found)
        self.wake()
        return view

    @answers
    def set_cross_pool(self, job: str, value: bool, by: str) -> View:
        """Allow or forbid a waiting job to run in pools that lend."""
        with self.lock:
            found = self._unfinished(job)
            self._may(found, by)
            event = ev.CrossPoolChanged(at_ms=self._now(), job=found.job, value=bool(value), by=UserId(by))
            self.loop.record([event])
            view = views.job_view(self.state, self.ledger, found)
        self.wake()
        return view

    @answers
    def move(self, job: str, share: str, by: str) -> View:
        """Charge a job to another share; an active job's charge moves in one entry, nothing is stopped."""
        with self.lock:
            found = self._unfinished(job)
            self._may(found, by)
            target = self.ledger.shares.get(ShareId(share))
            if target is None:
                raise Refusal("UNKNOWN_SHARE", 404, f"UNKNOWN_SHARE: share {share} does not exist")
            if target.stopped:
                raise Refusal("SHARE_STOPPED", 409, f"SHARE_STOPPED: share {share} is stopped")
            if found.spec.workload not in target.workloads:
                what = f"share {share} takes {', '.join(target.workloads)}, not {found.spec.workload}"
                raise Refusal("WORKLOAD_NOT_ALLOWED", 422, f"WORKLOAD_NOT_ALLOWED: {what}")
            if not linked(target, found.spec.workspace):
                what = f"share {share} is not linked to workspace {found.spec.workspace}"
                raise Refusal("WORKSPACE_NOT_LINKED", 422, f"WORKSPACE_NOT_LINKED: {what}")
            now_ms = self._now()
            posted: list[e.AnyEntry] = []
            if found.state in ACTIVE and found.job in self.ledger.claims:
                posted.append(e.Moved(at_ms=now_ms, job=found.job, share=target.share, by=UserId(by)))
            self._enact(posted, [ev.JobMoved(at_ms=now_ms, job=found.job, share=target.share, by=UserId(by))])
            view = views.job_view(self.state, self.ledger, found)
        self.wake()
        return view

    @answers
    def resize(self, job: str, bundles: Any, by: str) -> View:
        """Change a job's bundles; the owner's limits are checked, whoever asks (semantics 2.12)."""
        wanted = bundles_from_keys(bundles)
        with self.lock:
            found = self._unfinished(job)
            self._may(found, by)
            made = resize(self.state, self.ledger, found, wanted, self._now(), UserId(by))
            if not isinstance(made, Resize):
                raise Refusal(made[0], 409, made[1])
            self._enact(made.entries, made.events)
            view = views.job_view(self.state, self.ledger, found)
        self.wake()
        return view

    def _post(self, posted: list[e.AnyEntry]) -> None:
        self._enact(posted, [])

    def _enact(self, posted: list[e.AnyEntry], events: list[ev.AnyEvent]) -> None:
        answer = self.loop.enact(tuple(posted), events)
        if isinstance(answer, Stale):
            raise Refusal("REFUSED", 409, "; ".join(why for _, why in answer.failing))

    # ── administration ────────────────────────────────────────────────────────────────────────────────────────────

    @answers
    def admin(self, action: str, params: View, by: str, dry_run: bool = False) -> View:
        """Carry out one administrative action, or with `dry_run` say what it would do."""
        with self.lock:
            now_ms = self._now()
            change = self._desk().change(action, params, UserId(by), now_ms)
            changed = {"subject": change.subject, "before": change.before, "after": change.after}
            if dry_run:
                would = effects(self.state, self.ledger, change.entries, change.events, now_ms)
                return {"version": self.ledger.version, "changed": changed, "effects": would}
            if change.entries:
                self._post(change.entries)
            told = ev.AdminActed(
                at_ms=now_ms,
                by=UserId(by),
                action=action,
                subject=change.subject,
                before=_json(change.before),
                after=_json(change.after),
                version=self.ledger.version,
            )
            self.loop.record([*change.events, told])
            version = self.ledger.version
        self.wake()
        return {"version": version, "changed": changed}

    @answers
    def apply(self, config: View, by: str, dry_run: bool = False, prune: bool = False) -> View:
        """Make the books say what a configuration file says, all of it or nothing; `dry_run` lists the differences and
        what would come of them."""
        wanted = parse_config(config)
        with self.lock:
            self._desk().allow("apply", {}, UserId(by))
            now_ms = self._now()
            found = differences(self.state, self.ledger, wanted, UserId(by), now_ms, prune)
            listed = [
                {
                    "subject": difference.subject,
                    "before": views.plain(difference.before),
                    "after": views.plain(difference.after),
                    "refused": difference.refused,
                }
                for difference in found
            ]
            refused = [difference.refused for difference in found if difference.refused is not None]
            if dry_run:
                posted = [] if refused else [difference.entry for difference in found]
                would = effects(self.state, self.ledger, posted, [], now_ms)
                return {"version": self.ledger.version, "differences": listed, "effects": would}
            if refused:
                raise Refusal("REFUSED", 409, "nothing was changed: " + "; ".join(refused))
            if found:
                self._post([difference.entry for difference in found])
                self.context = wanted
                told = [
                    ev.AdminActed(
                        at_ms=now_ms,
                        by=UserId(by),
                        action="apply",
                        subject=difference.subject,
                        before=_json(difference.before),
                        after=_json(difference.after),
                        version=self.ledger.version,
                    )
                    for difference in found
                ]
                self.loop.record(told)
            version = self.ledger.version
        self.wake()
        return {"version": version, "differences": listed}

    @answers
    def put_blob(self, data: bytes) -> str:
        return self.loop.journal.put_blob(data)

    @answers
    def get_blob(self, digest: str) -> bytes | None:
        return self.loop.journal.get_blob(digest)


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
