"""What `raysched up` leaves behind for others to find: `~/.raysched/cluster.json` (or under RAYSCHED_HOME).

It holds `address` of Ray's head, `api_url`, and `ray_env`: environment variables a process needs before it connects
(Ray reads its authentication mode from there)."""

import json
import os
from pathlib import Path
from typing import Any, Final

HOME_VARIABLE: Final = "RAYSCHED_HOME"


class ClusterFileBroken(Exception):
    """The file is there and cannot be read; the message says what to do."""


def home() -> Path:
    """Where raysched keeps its files."""
    given = os.environ.get(HOME_VARIABLE)
    return Path(given) if given else Path.home() / ".raysched"


def state_file() -> Path:
    """The file that remembers the running cluster."""
    return home() / "cluster.json"


def remember_cluster(state: dict[str, Any]) -> Path:
    """Write what `raysched up` started, whole or not at all; returns the file. Only its owner can read it."""
    path = state_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(state, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    draft.replace(path)
    return path


def forget_cluster() -> None:
    """Remove the file; nothing happens where there is none."""
    state_file().unlink(missing_ok=True)


def remembered_cluster() -> dict[str, Any]:
    """What `raysched up` wrote; empty where it never ran. Raises ClusterFileBroken."""
    path = state_file()
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ClusterFileBroken(f"{path} cannot be read ({error}); remove it and run `raysched up`") from error
    if not isinstance(state, dict):
        raise ClusterFileBroken(f"{path} does not hold a JSON object; remove it and run `raysched up`")
    return state
