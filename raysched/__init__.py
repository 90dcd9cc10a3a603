"""Quota, gang placement, preemption, reservations and hot standby for teams that share GPUs on Ray.

The public names, loaded when they are first used: importing raysched loads neither Ray nor the command line."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raysched.client import (
        BadSpec,
        Bundle,
        Client,
        JobCancelled,
        JobFailed,
        JobHandle,
        NotRunning,
        QuotaContext,
        RayschedError,
        SubmitRefused,
        Timeout,
        UnknownJob,
        job,
        submit,
    )
    from raysched.runtime.context import current_job

__all__ = [
    "BadSpec",
    "Bundle",
    "Client",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "NotRunning",
    "QuotaContext",
    "RayschedError",
    "SubmitRefused",
    "Timeout",
    "UnknownJob",
    "current_job",
    "job",
    "submit",
]
_HOMES = {"current_job": "raysched.runtime.context"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'raysched' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES.get(name, "raysched.client")), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
