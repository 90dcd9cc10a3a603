"""`apply`: how each event changes the state. The only mutator; total over all events; late news changes nothing."""

from typing import assert_never

from raysched.core import events as ev
from raysched.core.model import ACTIVE, FINAL, JobId, NodeId, PlacedBundle
from raysched.core.room import Room
from raysched.core.state import Fact, Job, Node, State

REPORT_INTERVAL_MS = 5_000  # agents report at least this often: all silent within one interval is our own fault


def apply(state: State, event: ev.AnyEvent) -> None:
    """Fold one event into the state, in place. Never raises for an event out of its time: such news is dropped."""
    state.seq += 1
    match event:
        case ev.JobSubmitted():
            _submitted(state, event)
        case ev.CancelRequested() | ev.PriorityChanged() | ev.CrossPoolChanged() | ev.BundlesChanged() | ev.JobMoved():
            _job_changed(state, event)
        case (
            ev.GangReady()
            | ev.GangFailed()
            | ev.AttemptStarted()
            | ev.AttemptEnded()
            | ev.GangRemoved()
            | ev.StartOrdered()
            | ev.StopOrdered()
            | ev.RemoveOrdered()
            | ev.GangHeld()
        ):
            _attempt_moved(state, event)
        case ev.Admitted():
            _admitted(state, event)
        case ev.Requeued():
            _requeued(state, event)
        case ev.JobEnded():
            _ended(state, event)
        case ev.NodeJoined():
            _node_joined(state, event)
        case ev.NodeRemoved():
            _node_removed(state, event)
        case ev.NodeSwapped():
            _node_swapped(state, event)
        case ev.Restarted():
            _restarted(state, event)
        case ev.AgentsSilenced():
            _silenced(state, event)
        case ev.AlertRaised():
            state.alerts[event.alert, event.subject] = event
        case ev.AlertCleared():
            state.alerts.pop((event.alert, event.subject), None)
        case ev.JobRefused() | ev.AdminActed() | ev.TickStarted():
            pass
        case (
            ev.NodeGone()
            | ev.NodeFresh()
            | ev.NodeSilent()
            | ev.NodeStale()
            | ev.FatalSeen()
            | ev.FatalCleared()
            | ev.DegradedSeen()
            | ev.DegradedCleared()
            | ev.NodeReset()
            | ev.UseDisagrees()
            | ev.NodeCordoned()
            | ev.NodeUncordoned()
            | ev.NodeRepooled()
            | ev.HealthChanged()
        ):
            _node_changed(state, event)
        case _:
            assert_never(event)


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _submitted(state: State, event: ev.JobSubmitted) -> None:
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
    state.enqueue(job)


def _job_changed(
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


def _admitted(state: State, event: ev.Admitted) -> None:
    job = state.jobs[event.job]
    if job.state == "queued":
        state.dequeue(job)
        job.claimed_ms = event.at_ms
    else:
        state.unhold(job.job, job.placement, job.bundles)
    state.asked.pop(job.job, None)
    assert event.attempt == job.attempt + 1, f"job {job.job}: attempt {event.attempt} after {job.attempt}"
    state.hold(job.job, event.placement, job.bundles)
    state.active.add(job.job)
    state.held.discard(job.job)
    state.fencing.discard(job.job)
    state.creating[job.job] = len(event.placement)
    job.state, job.attempt, job.pool, job.model = "claimed", event.attempt, event.pool, event.model
    job.placement, job.gang, job.started, job.held, job.resized = event.placement, "creating", False, False, False
    job.ended = job.stop = job.started_ms = None
    job.unfenced, job.front, job.detail = (), False, ""
    if job.cancel is not None:
        state.unsettled.add(job.job)


def _attempt_moved(
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
        state.deadlines[job.job] = event.at_ms + job.spec.max_runtime_ms - job.spec.grace_ms
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
    state.unhold(job.job, job.placement, job.bundles)
    state.active.discard(job.job)
    state.held.discard(job.job)
    state.fencing.discard(job.job)
    state.unsettled.discard(job.job)
    state.deadlines.pop(job.job, None)
    state.creating.pop(job.job, None)
    if job.ended is not None:
        job.exit_code, job.result = job.ended.exit_code, job.ended.result
    job.gang, job.held = "none", False


def _requeued(state: State, event: ev.Requeued) -> None:
    job = state.jobs[event.job]
    ended = job.ended
    _leave(state, job)
    job.never_made = job.never_made + 1 if ended is not None and ended.outcome == "never_started" else 0
    job.failures += ended is not None and ended.outcome == "failed" and not event.front
    job.retry_ms = event.at_ms + min(60_000, 500 << job.never_made) if job.never_made else 0
    job.state, job.front, job.detail, job.placement = "queued", event.front, event.why, ()
    job.pool = job.model = job.stop = job.ended = job.started_ms = None
    state.enqueue(job)


def _ended(state: State, event: ev.JobEnded) -> None:
    job = state.jobs[event.job]
    if job.state == "queued":
        state.dequeue(job)
    else:
        _leave(state, job)
    state.asked.pop(job.job, None)
    job.state, job.ended_ms = event.state, event.at_ms
    job.detail = event.detail or (job.ended.detail if job.ended is not None else "")


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _node_joined(state: State, event: ev.NodeJoined) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        node = Node(event.node, event.ray_id, event.spec, event.pool, dict(event.labels), Room.of(event.spec))
        node.measured, node.boot_id = event.measured, event.boot_id
        state.nodes[event.node] = node
        state.index(node)
        state.watched.add(node.node)
        return
    state.unindex(node)
    if node.spec != event.spec:
        if node.jobs:
            node.degraded["spec_changed"] = Fact(event.at_ms, f"joined as {event.spec}, jobs hold it as {node.spec}")
        else:
            node.spec, node.room = event.spec, Room.of(event.spec)
    rebooted = None not in (event.boot_id, node.boot_id) and event.boot_id != node.boot_id
    if node.ray_id != event.ray_id or rebooted:
        node.reset_seen = True
        _swept_by_reset(state, node)
    node.ray_id, node.boot_id, node.measured = event.ray_id, event.boot_id or node.boot_id, event.measured
    node.labels, node.present = dict(event.labels), True
    node.fatal.pop("ray_dead", None)
    _judge(state, node, event.at_ms)
    state.index(node)


def _swept_by_reset(state: State, node: Node) -> None:
    """Nothing of an attempt outlives the Ray node or the boot it ran in: the node is fenced for every job it held."""
    for job_id in node.jobs:
        job = state.jobs[job_id]
        job.unfenced = tuple(name for name in job.unfenced if name != node.node)


def _node_changed(
    state: State,
    event: ev.NodeGone
    | ev.NodeFresh
    | ev.NodeSilent
    | ev.NodeStale
    | ev.FatalSeen
    | ev.FatalCleared
    | ev.DegradedSeen
    | ev.DegradedCleared
    | ev.NodeReset
    | ev.UseDisagrees
    | ev.NodeCordoned
    | ev.NodeUncordoned
    | ev.NodeRepooled
    | ev.HealthChanged,
) -> None:
    node = state.nodes.get(event.node)
    if node is None:
        return
    state.unindex(node)
    match event:
        case ev.NodeGone():
            node.present = False
            node.fatal.setdefault("ray_dead", Fact(event.at_ms, event.detail or "Ray lists the node as dead"))
        case ev.NodeFresh():
            node.reported, node.silent_ms, node.stale = True, None, False
        case ev.NodeSilent():
            node.silent_ms = event.at_ms
        case ev.NodeStale():
            node.stale = True
        case ev.FatalSeen():
            node.fatal.setdefault(event.signal, Fact(event.at_ms, event.detail))
        case ev.FatalCleared():
            node.fatal.pop(event.signal, None)
        case ev.DegradedSeen():
            node.degraded.setdefault(event.signal, Fact(event.at_ms, event.detail))
        case ev.DegradedCleared():
            node.degraded.pop(event.signal, None)
        case ev.NodeReset():
            node.reset_seen, node.boot_id = True, event.boot_id or node.boot_id
        case ev.UseDisagrees():
            node.disputed = event.detail or "use disagrees" if event.disagrees else None
        case ev.NodeCordoned():
            node.cordoned = event.reason or f"cordoned by {event.by}"
        case ev.NodeUncordoned():
            node.cordoned = None
        case ev.NodeRepooled():
            node.pool = event.pool
        case ev.HealthChanged():
            _health_changed(node, event)
    _judge(state, node, event.at_ms)
    state.index(node)


def _judge(state: State, node: Node, now_ms: int) -> None:
    """Start or stop the node's clocks after a change of fact; `health.assess` reads them."""
    if node.bad:
        node.clean_ms = None
        if node.first_bad_ms is None:
            node.first_bad_ms = now_ms
    elif node.first_bad_ms is not None and node.clean_ms is None:
        node.clean_ms = now_ms
    if node.health == "healthy" and not node.bad and not node.degraded:
        state.watched.discard(node.node)
    else:
        state.watched.add(node.node)


def _health_changed(node: Node, event: ev.HealthChanged) -> None:
    before, node.health, node.why = node.health, event.health, event.why
    match event.health:
        case "healthy" | "degraded":
            node.first_bad_ms = node.clean_ms = node.failed_ms = node.suspect_ms = None
            node.swapped = node.reset_seen = False
        case "suspect":
            if before != "suspect":
                node.suspect_ms = event.at_ms
                node.suspect_signal = next(iter(sorted(node.fatal)), "agent_silent")
        case "failed":
            node.failed_ms = event.at_ms if node.failed_ms is None else node.failed_ms
            node.reset_seen = False
        case "validating":
            node.clean_ms = event.at_ms
        case _:
            pass


def _node_removed(state: State, event: ev.NodeRemoved) -> None:
    node = state.nodes.pop(event.node, None)
    if node is None:
        return
    state.unindex(node)
    state.watched.discard(event.node)
    state.unsettled.update(node.jobs)


def _node_swapped(state: State, event: ev.NodeSwapped) -> None:
    state.swaps.append(event.at_ms)
    for node_id, pool in ((event.failed, event.standby_pool), (event.spare, event.pool)):
        node = state.nodes.get(node_id)
        if node is not None:
            state.unindex(node)
            node.pool = pool
            node.swapped = node_id == event.failed
            state.index(node)


def _restarted(state: State, event: ev.Restarted) -> None:
    """Open timers start again, and missing evidence counts only from now (semantics 9.6)."""
    state.restarted_ms = event.at_ms
    for node in state.nodes.values():
        if node.health == "suspect":
            node.first_bad_ms = event.at_ms if node.bad else node.first_bad_ms
            node.clean_ms = None if node.bad else event.at_ms


def _silenced(state: State, event: ev.AgentsSilenced) -> None:
    """While every agent is silent, timers stand still: on the way out they are moved by the time they stood."""
    if event.silenced:
        state.silenced_ms = event.at_ms
        return
    if state.silenced_ms is None:
        return
    stood, state.silenced_ms = event.at_ms - state.silenced_ms, None
    for node in state.nodes.values():
        if node.first_bad_ms is not None:
            node.first_bad_ms += stood
        state.watched.add(node.node)


def late(state: State, job: JobId, attempt: int) -> bool:
    """Whether news of this attempt comes too late to mean anything."""
    found = state.jobs.get(job)
    return found is None or found.attempt != attempt or found.state not in ACTIVE


def all_silent(state: State, now_ms: int) -> NodeId | None:
    """The first node of a cluster in which every agent that ever reported fell silent within one interval."""
    if any(node.reported and node.silent_ms is None for node in state.nodes.values()):
        return None  # a failed node that speaks shows that the way to the agents is open
    spoke = [node for node in state.nodes.values() if node.reported and node.health not in ("failed", "validating")]
    times = [node.silent_ms for node in spoke]
    if len(spoke) < 2 or any(at is None for at in times):
        return None
    known = [at for at in times if at is not None]
    return spoke[0].node if max(known) - min(known) <= REPORT_INTERVAL_MS and now_ms >= max(known) else None
