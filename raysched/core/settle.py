"""What follows from what has happened to attempts: start what is ready, stop what was cancelled or is out of time,
remove what has ended, release what is gone."""

from raysched.core.making import Making
from raysched.core.state import Job, State


def settle(making: Making) -> None:
    """Look at every job something happened to, and at every run time that is over."""
    state = making.state
    for job_id in sorted(state.unsettled | state.fencing):
        job = state.jobs[job_id]
        if job_id in state.active and not job.held:
            _settle(making, job)
    for due, job_id in state.deadlines:
        job = state.jobs[job_id]
        if due > making.now_ms:
            making.wake(due)
            break
        if job.state == "running" and job.ended is None and job.stop is None:
            making.stop(job, "max_runtime", job.spec.grace_ms)


def _settle(making: Making, job: Job) -> None:
    if job.gang == "removed":
        finish(making, job)
    elif job.ended is not None:
        if job.gang != "removing":
            making.remove(job)
    elif job.stop is not None:
        return
    elif job.cancel is not None:
        making.stop(job, "cancelled", job.spec.grace_ms if job.state == "running" else 0)
    elif job.resized and job.state in ("claimed", "starting", "running"):
        making.stop(job, "resized", job.spec.grace_ms)
    elif job.gang == "ready" and not job.started:
        making.start(job)


def finish(making: Making, job: Job) -> None:
    """The attempt's group is gone: what becomes of the job."""
    assert job.ended is not None
    outcome, why = job.ended.outcome, job.stop.why if job.stop is not None else None
    if outcome == "succeeded":
        making.end(job, "succeeded")
    elif job.cancel is not None:
        making.end(job, "cancelled", f"cancelled by {job.cancel}")
    elif why == "max_runtime":
        making.end(job, "failed", f"stopped: max_runtime of {job.spec.max_runtime_ms} ms was over")
    elif outcome == "never_started":
        making.requeue(job, f"group not made: {job.ended.detail}", front=True)
    elif outcome == "node_lost" or why == "node_failed" or on_bad_node(making.state, job):
        making.hold(job)
    elif why in ("resized", "preempted", "reclaimed") or job.failures < job.spec.retries:
        if making.fenced(job):
            _again(making, job, why)
    else:
        making.end(job, "failed", job.ended.detail)


def _again(making: Making, job: Job, why: str | None) -> None:
    """The next attempt of a job whose last one is gone everywhere."""
    assert job.ended is not None
    if why == "resized":
        making.go_on(job, job.placement, "resized")
    elif why in ("preempted", "reclaimed"):
        making.requeue(job, why, front=False)
    else:
        making.requeue(job, f"attempt {job.attempt} failed: {job.ended.detail}", front=False)


def on_bad_node(state: State, job: Job) -> bool:
    """Whether a node of the attempt is abnormal or lost: then its end is no failure of the job (semantics 9.3a)."""
    for placed in job.placement:
        node = state.nodes.get(placed.node)
        if node is None or node.bad or not node.present or node.health in ("suspect", "failed"):
            return True
    return False
