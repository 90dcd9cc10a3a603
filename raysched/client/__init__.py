"""The Python API: submit functions and commands, and ask the scheduler. Ray is loaded on the first call only."""

from raysched.client.bundle import Bundle
from raysched.client.client import Client
from raysched.client.errors import (
    BadSpec,
    JobCancelled,
    JobFailed,
    NotRunning,
    RayschedError,
    SubmitRefused,
    Timeout,
    UnknownJob,
)
from raysched.client.handle import JobHandle
from raysched.client.quota_context import QuotaContext, current_quota
from raysched.client.ray_transport import ActorTransport
from raysched.client.spec import JobOptions
from raysched.client.submitting import default_client, job, submit
from raysched.client.transport import LocalTransport

__all__ = [
    "ActorTransport",
    "BadSpec",
    "Bundle",
    "Client",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "JobOptions",
    "LocalTransport",
    "NotRunning",
    "QuotaContext",
    "RayschedError",
    "SubmitRefused",
    "Timeout",
    "UnknownJob",
    "current_quota",
    "default_client",
    "job",
    "submit",
]
