"""What a running job can know about itself, from its environment: in a function, and in an entrypoint script.

Imports nothing of Ray, so that a script pays nothing for asking."""

import os
from typing import Final

from msgspec import Struct

ATTEMPT: Final = (
    "RAYSCHED_ATTEMPT"  # "<cluster>:<job>/<attempt>": also the mark by which leftovers are found and killed
)
NODE: Final = "RAYSCHED_NODE"  # tells the nodes of one machine apart
JOB: Final = "RAYSCHED_JOB"
SHARE: Final = "RAYSCHED_SHARE"
USER: Final = "RAYSCHED_USER"
NODES: Final = "RAYSCHED_NODES"
GROUP: Final = "RAYSCHED_PLACEMENT_GROUP"
STOP_FILE: Final = "RAYSCHED_STOP_FILE"
DEVICES: Final = "CUDA_VISIBLE_DEVICES"


class JobContext(Struct, frozen=True):
    """The job that this process belongs to. `devices` are the GPU indices allotted to this rank; `nodes` those of
    the whole gang, in rank order; `placement_group` is Ray's id in hex."""

    job: str
    attempt: int
    share: str
    user: str
    rank: int
    world_size: int
    local_rank: int
    devices: tuple[str, ...]
    nodes: tuple[str, ...]
    placement_group: str


class StopRequested(KeyboardInterrupt):
    """Raised in a job's function when the job is told to stop: time to checkpoint, then return."""


def current_job() -> JobContext | None:
    """The job this process runs for; None outside of one."""
    env = os.environ
    if ATTEMPT not in env or JOB not in env:
        return None
    return JobContext(
        job=env[JOB],
        attempt=int(env[ATTEMPT].rpartition("/")[2]),
        share=env.get(SHARE, ""),
        user=env.get(USER, ""),
        rank=int(env.get("RANK", "0")),
        world_size=int(env.get("WORLD_SIZE", "1")),
        local_rank=int(env.get("LOCAL_RANK", "0")),
        devices=_listed(env.get(DEVICES)),
        nodes=_listed(env.get(NODES)),
        placement_group=env.get(GROUP, ""),
    )


def should_stop() -> bool:
    """Whether the job was told to stop, for programs that prefer to look rather than to be interrupted."""
    path = os.environ.get(STOP_FILE)
    return path is not None and os.path.exists(path)


def _listed(text: str | None) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()
