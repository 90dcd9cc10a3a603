"""What events of jobs and attempts do to the state (see transitions.py)."""

from raysched.core import events as ev
from raysched.core.model import ACTIVE, FINAL, PlacedBundle
from raysched.core.state import Job, State


def submitted(state: State, event: ev.JobSubmitted) -> None:
    spec = event.spec
    assert spec.job not in state.jobs, f"job {spec.job} was submitted twice"
    state.submitted += 1
    state.user_numbers[spec.user] = state.user_numbers.get(spec.user, 0) + 1
    job = Job(
        spec=spec,
        bundles=spec.bundles,
        share=spec.share,
        priority=event.priority,
        cross_pool=spec.cross_pool,
        submitted_ms=event.at_ms,
        number=state.submitted,
    )
    state.jobs[spec.job] = job
    state.demand.add(spec)
    state.enqueue(job)


def job_changed(
    state: State,
    event: ev.CancelRequested | ev.PriorityChanged | ev.CrossPoolChanged | ev.BundlesChanged | ev.JobMoved,
) -> None:
    job = state.jobs.get(event.job)
    if job is None or job.state in FINAL:
        return
    queued = job.state == "queued"
    if queued:
        state.dequeue(job)
    match event:
        case ev.CancelRequested():
            job.cancel = event.by
            if queued:
                job.state, job.ended_ms, job.detail = "cancelled", event.at_ms, f"cancelled by {event.by}"
                return
            state.unsettled.add(job.job)
        case ev.PriorityChanged():
            job.priority = event.priority
        case ev.CrossPoolChanged():
            job.cross_pool = event.value
        case ev.JobMoved():
            job.share = event.share
        case ev.BundlesChanged():
            _resized(state, job, event)
    if queued:
        state.enqueue(job)


def _resized(state: State, job: Job, event: ev.BundlesChanged) -> None:
    if job.state in ACTIVE and event.placement is not None:
        state.unhold(job.job, job.placement, job.bundles)
        state.hold(job.job, event.placement, event.bundles)
        job.placement, job.resized = event.placement, True
        state.unsettled.add(job.job)
    job.bundles = event.bundles


def admitted(state: State, event: ev.Admitted) -> None:
    job_id = event.job
    job = state.jobs[job_id]
    ahead = job_id in state.ahead
    if job.state == "queued":
        state.dequeue(job)
        job.claimed_ms = event.at_ms
    elif not ahead:
        state.unhold(job_id, job.placement, job.bundles)
    assert event.attempt == job.attempt + 1, f"job {job_id}: attempt {event.attempt} after {job.attempt}"
    if ahead:
        state.ahead.discard(job_id)
    else:
        state.hold(job_id, event.placement, job.bundles)
    state.active.add(job_id)
    state.held.discard(job_id)
    state.fencing.discard(job_id)
    state.creating[job_id] = len(event.placement)
    job.state, job.attempt, job.pool, job.model = "claimed", event.attempt, event.pool, event.model
    job.placement, job.gang, job.started, job.held, job.resized = event.placement, "creating", False, False, False
    job.ended = job.stop = job.started_ms = None
    job.unfenced, job.front, job.detail = (), False, ""
    if job.cancel is not None:
        state.unsettled.add(job.job)


def attempt_moved(
    state: State,
    event: ev.GangReady
    | ev.GangFailed
    | ev.AttemptStarted
    | ev.AttemptEnded
    | ev.GangRemoved
    | ev.StartOrdered
    | ev.StopOrdered
    | ev.RemoveOrdered
    | ev.GangHeld,
) -> None:
    job = state.jobs.get(event.job)
    if job is None or job.state not in ACTIVE or event.attempt != job.attempt:
        return
    match event:
        case ev.GangReady():
            if job.gang == "creating":
                job.gang = "ready"
            state.creating.pop(job.job, None)
        case ev.GangFailed():
            if job.ended is None:
                job.ended = ev.AttemptEnded(
                    at_ms=event.at_ms,
                    job=event.job,
                    attempt=event.attempt,
                    outcome="never_started",
                    detail=event.detail,
                )
        case ev.StartOrdered():
            job.started, job.state = True, "starting"
        case ev.AttemptStarted():
            _started(state, job, event)
        case ev.AttemptEnded():
            if job.ended is None:
                job.ended = event
                job.gone_ms = event.at_ms
        case ev.StopOrdered():
            job.stop, job.state = event, "stopping"
        case ev.RemoveOrdered():
            job.gang = "removing"
            state.creating.pop(job.job, None)
        case ev.GangRemoved():
            if job.gang == "removing":
                job.gang = "removed"
                job.unfenced = event.unfenced
                state.unreport(job.job, job.placement)
                if event.unfenced:
                    state.fencing.add(job.job)
        case ev.GangHeld():
            job.held, job.state = True, "starting"
            state.held.add(job.job)
            state.fencing.discard(job.job)
    state.unsettled.add(job.job)


def _started(state: State, job: Job, event: ev.AttemptStarted) -> None:
    if job.state != "starting" or job.ended is not None:
        return
    job.state, job.started_ms = "running", event.at_ms
    if job.spec.max_runtime_ms is not None:
        state.deadlines.put(job.job, event.at_ms + job.spec.max_runtime_ms - job.spec.grace_ms)
    if len(event.devices) != len(job.placement):
        return
    placement: list[PlacedBundle] = []
    for placed, true in zip(job.placement, event.devices, strict=True):
        if placed.devices and true:
            state.correct(job.job, placed, true)
            placed = PlacedBundle(placed.node, placed.bundle, placed.count, true, placed.milli)
        placement.append(placed)
    job.placement = tuple(placement)


def _leave(state: State, job: Job) -> None:
    if job.job in state.ahead:
        state.ahead.discard(job.job)
    else:
        state.unhold(job.job, job.placement, job.bundles)
    state.active.discard(job.job)
    state.held.discard(job.job)
    state.fencing.discard(job.job)
    state.unsettled.discard(job.job)
    state.deadlines.drop(job.job)
    state.creating.pop(job.job, None)
    if job.ended is not None:
        job.exit_code, job.result = job.ended.exit_code, job.ended.result
    job.gang, job.held = "none", False


def requeued(state: State, event: ev.Requeued) -> None:
    job = state.jobs[event.job]
    ended = job.ended
    _leave(state, job)
    job.never_made = job.never_made + 1 if ended is not None and ended.outcome == "never_started" else 0
    job.failures += ended is not None and ended.outcome == "failed" and not event.front
    job.retry_ms = event.at_ms + min(60_000, 500 << job.never_made) if job.never_made else 0
    job.state, job.front, job.detail, job.placement = "queued", event.front, event.why, ()
    job.pool = job.model = job.stop = job.ended = job.started_ms = None
    state.enqueue(job)


def ended(state: State, event: ev.JobEnded) -> None:
    job = state.jobs[event.job]
    if job.state == "queued":
        state.dequeue(job)
    else:
        _leave(state, job)
    job.state, job.ended_ms = event.state, event.at_ms
    job.detail = event.detail or (job.ended.detail if job.ended is not None else "")
