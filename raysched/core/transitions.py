"""`apply`: how each event changes the state. The only mutator; total over all events; late news changes nothing."""

from typing import assert_never

from raysched.core import events as ev
from raysched.core import job_changes as jobs
from raysched.core import node_changes as nodes
from raysched.core.model import ACTIVE, JobId
from raysched.core.state import State


def apply(state: State, event: ev.AnyEvent) -> None:
    """Fold one event into the state, in place. Never raises for an event out of its time: such news is dropped."""
    state.seq += 1
    match event:
        case ev.Admitted():
            jobs.admitted(state, event)
        case ev.JobSubmitted():
            jobs.submitted(state, event)
        case ev.CancelRequested() | ev.PriorityChanged() | ev.CrossPoolChanged() | ev.BundlesChanged() | ev.JobMoved():
            jobs.job_changed(state, event)
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
            jobs.attempt_moved(state, event)
        case ev.Requeued():
            jobs.requeued(state, event)
        case ev.JobEnded():
            jobs.ended(state, event)
        case ev.NodeJoined():
            nodes.node_joined(state, event)
        case ev.NodeRemoved():
            nodes.node_removed(state, event)
        case ev.NodeSwapped():
            nodes.node_swapped(state, event)
        case ev.Restarted():
            nodes.restarted(state, event)
        case ev.AgentsSilenced():
            nodes.silenced(state, event)
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
            nodes.node_changed(state, event)
        case _:
            assert_never(event)


def late(state: State, job: JobId, attempt: int) -> bool:
    """Whether news of this attempt comes too late to mean anything."""
    found = state.jobs.get(job)
    return found is None or found.attempt != attempt or found.state not in ACTIVE
