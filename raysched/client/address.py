"""Where the cluster is: the argument, else RAYSCHED_ADDRESS, else the file that `raysched up` leaves behind."""

import os
from typing import Any

from raysched.client.errors import NotRunning
from raysched.runtime import cluster_file
from raysched.runtime.cluster_file import HOME_VARIABLE, forget_cluster, remember_cluster, state_file

ADDRESS_VARIABLE = "RAYSCHED_ADDRESS"

__all__ = [
    "ADDRESS_VARIABLE",
    "HOME_VARIABLE",
    "find_address",
    "forget_cluster",
    "remember_cluster",
    "remembered_cluster",
    "state_file",
]


def remembered_cluster() -> dict[str, Any]:
    """What `raysched up` wrote; empty where it never ran. Raises NotRunning when the file cannot be read."""
    try:
        return cluster_file.remembered_cluster()
    except cluster_file.ClusterFileBroken as error:
        raise NotRunning(str(error)) from error


def find_address(given: str | None = None) -> str:
    """The address of Ray's head to connect to, `host:port`. Raises NotRunning where none is known."""
    address = given or os.environ.get(ADDRESS_VARIABLE) or remembered_cluster().get("address")
    if not address:
        raise NotRunning(
            "no cluster is known here: run `raysched up`, or give --address HOST:PORT "
            f"(environment variable {ADDRESS_VARIABLE})"
        )
    return str(address)
