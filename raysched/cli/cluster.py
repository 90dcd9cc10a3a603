"""Starting and stopping: `up`, `down`, `demo`. What they start is loaded only when they run."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from raysched.cli.output import console, emit, tree
from raysched.cli.session import Json
from raysched.client.address import forget_cluster, remember_cluster
from raysched.client.errors import RayschedError

Returned = TypeVar("Returned")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (up, down, demo):
        app.command()(command)


def up(
    config: Annotated[Path | None, typer.Option("--config", "-c", help="cluster configuration (YAML)")] = None,
    local_nodes: Annotated[
        bool, typer.Option("--local-nodes", help="also start the configuration's nodes on this machine, GPUs declared")
    ] = False,
    api_port: Annotated[int, typer.Option(min=1, max=65_535, help="port of the REST API on loopback")] = 8266,
    dashboard: Annotated[bool, typer.Option(help="start Ray's dashboard")] = True,
    store: Annotated[
        str | None, typer.Option(envvar="RAYSCHED_STORE", help="database URL of the books (default: two SQLite files)")
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option("--ray", help="use a Ray cluster that runs already, HOST:PORT"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Start a cluster on this machine, or find the one that runs."""
    if config is not None and not config.is_file():
        raise RayschedError(f"{config}: there is no such file", code="BAD_CONFIG", status=422)

    def start() -> dict[str, Any]:
        from raysched.runtime import bringup

        path = None if config is None else str(config)
        return dict(
            bringup.up(
                path,
                local_nodes=local_nodes,
                api_port=api_port,
                dashboard=dashboard,
                store=store,
                ray_address=ray_address,
            )
        )

    state = _waited("starting Ray and the scheduler", start, "UP_FAILED")
    remember_cluster(state)
    emit(state, as_json, lambda: tree(state))


def down(as_json: Json = False) -> None:
    """Stop the cluster that `up` started, and the jobs in it."""

    def stop() -> Any:
        from raysched.runtime import bringup

        return bringup.down()

    stopped = _waited("stopping the scheduler and Ray", stop, "DOWN_FAILED")
    forget_cluster()
    emit(stopped or {"status": "stopped"}, as_json, lambda: "stopped")


def demo(
    failed_after: Annotated[str, typer.Option(help="how long a node is bad before it is replaced")] = "10s",
    as_json: Json = False,
) -> int:
    """Run the demonstration: a small cluster of its own, a loan, a limit, a lost node and its standby."""
    from raysched.runtime import demo as demonstration

    return int(demonstration.run(failed_after=failed_after, as_json=as_json) or 0)


def _waited(doing: str, step: Callable[[], Returned], code: str) -> Returned:
    """Do a step that takes a while, with a spinner on a terminal. Whatever goes wrong is one clear error."""
    try:
        if not sys.stderr.isatty():
            return step()
        with console(stderr=True).status(doing):
            return step()
    except RayschedError:
        raise
    # The runtime's errors are of many classes, all with a message for people.
    except Exception as error:
        raise RayschedError(str(error) or type(error).__name__, code=code, status=500) from error
