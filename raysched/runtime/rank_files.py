"""Files of one rank, under `<log_root>/<job>/<attempt>/`: its log, its outcome, the notice to stop."""

import os
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct
from msgspec import json as codec


class Outcome(Struct, frozen=True):
    """How a rank, or a whole gang, ended. `result`: of a function, pickled: `{"ok": True, "value": …}`, or
    `{"ok": False, "exception": pickled, or None where it cannot be, "traceback": text}`."""

    outcome: Literal["succeeded", "failed", "stopped", "node_lost"]
    exit_code: int | None = None
    detail: str = ""
    result: bytes | None = None


def attempt_dir(log_root: str, job: str, attempt: int) -> Path:
    """Where the ranks of an attempt write."""
    return Path(log_root) / job / str(attempt)


def log_path(log_root: str, job: str, attempt: int, rank: int) -> Path:
    """What the rank printed, its standard output and error together."""
    return attempt_dir(log_root, job, attempt) / f"rank{rank}.log"


def stop_path(log_root: str, job: str, attempt: int, rank: int) -> Path:
    """A file that exists once the rank was told to stop."""
    return attempt_dir(log_root, job, attempt) / f"rank{rank}.stop"


def keep_outcome(log_root: str, job: str, attempt: int, rank: int, outcome: Outcome) -> None:
    """Make the outcome durable before anyone is told of it."""
    path = _outcome_path(log_root, job, attempt, rank)
    draft = path.with_suffix(".new")
    with open(draft, "wb") as file:
        file.write(codec.encode(outcome))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def kept_outcome(log_root: str, job: str, attempt: int, rank: int) -> Outcome | None:
    """The outcome a rank has left; None if it has not ended, or not on a disk this host sees."""
    try:
        return codec.decode(_outcome_path(log_root, job, attempt, rank).read_bytes(), type=Outcome)
    except FileNotFoundError:
        return None


def _outcome_path(log_root: str, job: str, attempt: int, rank: int) -> Path:
    return attempt_dir(log_root, job, attempt) / f"rank{rank}.outcome"


def gang_outcome(outcomes: list[Outcome]) -> Outcome:
    """The outcome of a gang from those of its ranks, in the order in which they ended: the first that did not succeed
    decides, and a node that was lost before everything else."""
    for outcome in outcomes:
        if outcome.outcome == "node_lost":
            return outcome
    for outcome in outcomes:
        if outcome.outcome != "succeeded":
            return outcome
    return outcomes[-1]


def lapsed(node: str) -> Outcome:
    """The outcome of a rank that its node's agent ended because no scheduler answered it: no failure of the job."""
    return Outcome("node_lost", detail=f"node {node} heard nothing from the scheduler for too long and ended it")


GONE: Final = Outcome("failed", detail="its ranks were gone when the scheduler came back")
