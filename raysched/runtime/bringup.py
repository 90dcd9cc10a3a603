"""Starting and stopping a whole raysched: Ray's nodes on this machine if asked for, the two actors, the REST API.

`up` returns what a client needs to know, as plain data that is kept in `cluster.json`; `down` ends exactly what that
file names. The books live in the cluster's directory and outlive both."""

import contextlib
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx

from raysched.config import ClusterConfig, load_config
from raysched.core.units import MILLI
from raysched.runtime.cluster_file import HOME_VARIABLE, home, remembered_cluster, state_file
from raysched.runtime.local_cluster import (
    LocalCluster,
    LocalClusterFailed,
    find_local,
    is_running,
    node_environment,
    prepare_driver,
    start_local,
)

HOST: Final = "127.0.0.1"
READY_S: Final = 120.0  # the first actors import everything: 10 s on a loaded machine of two cores
API_READY_S: Final = 60.0
API_END_S: Final = 8.0  # it gives open requests 5 s
RAY_ENV: Final = {"RAY_AUTH_MODE": "disabled"}

log = logging.getLogger("raysched.up")


class BringupFailed(Exception):
    """Something could not be started; what had been started by this call is ended again. The message says what."""


def up(
    config: str | None,
    *,
    local_nodes: bool = False,
    api_port: int = 8266,
    dashboard: bool = True,
    store: str | None = None,
    ray_address: str | None = None,
    directory: str | None = None,
    temp_dir: str | None = None,
) -> dict[str, Any]:
    """Start everything, or return what runs already (an API that has died is started again).

    `config`: a file; None: one pool and one share that own this machine. `store`: a database URL for the books.
    `ray_address`: a Ray cluster that runs already, HOST:PORT; without it Ray is started on this machine's loopback, and
    with `local_nodes` also the nodes of the configuration. Raises ConfigError, BringupFailed, LocalClusterFailed."""
    running = None if directory is not None else _running()
    if running is not None:
        return running
    if ray_address is not None and (config is None or local_nodes):
        raise BringupFailed(f"the Ray cluster at {ray_address} needs a configuration, and gets no local nodes")
    settled, path = _settle(config, directory)
    _check_port(api_port)
    local_nodes = local_nodes or config is None
    state: dict[str, Any] = {"api_url": f"http://{HOST}:{api_port}", "directory": str(path.parent)}
    if ray_address is not None:
        state |= {"address": ray_address, "temp_dir": None, "ray_env": {}}
    else:
        temp = temp_dir or f"{tempfile.gettempdir()}/raysched-{os.getuid()}-{os.getpid()}"
        cluster = start_local(_nodes(settled) if local_nodes else [], temp, dashboard)
        state |= {"address": cluster.address, "temp_dir": temp, "ray_env": dict(RAY_ENV)}
        state |= {"dashboard_url": cluster.dashboard_url, "nodes": [name for name in cluster.nodes if name != "head"]}
    try:
        start_actors(state["address"], path, nvml=not local_nodes, journal=store or "", ledger=store or "")
        state["api_pid"] = start_api(state["address"], api_port, path.parent)
    except BaseException:
        with contextlib.suppress(Exception):
            down_local(state)
        raise
    return state


def down() -> dict[str, Any]:
    """End what `up` started: the API, the jobs, Ray; of a Ray cluster that ran before, only raysched's own actors. The
    books stay. Raises LocalClusterFailed if nothing runs."""
    state = remembered_cluster()
    if not state.get("address"):
        raise LocalClusterFailed(f"nothing is known to run here: {state_file()} is not there")
    down_local(state)
    return {"status": "stopped", "address": state.get("address")}


def down_local(state: dict[str, Any]) -> None:
    """End the processes that a state names, and remove Ray's temporary files."""
    if state.get("api_pid"):
        _end_api(int(state["api_pid"]))
    if not state.get("temp_dir"):
        _end_actors(state["address"])
        return
    with contextlib.suppress(LocalClusterFailed):
        find_local(state["temp_dir"]).shutdown()
    shutil.rmtree(state["temp_dir"], ignore_errors=True)


def _end_api(pid: int) -> None:
    """End the API server and wait until it is gone; a process that took its id since is left alone."""
    for asked in (signal.SIGTERM, signal.SIGKILL):
        if _is_api(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, asked)
        deadline = time.monotonic() + API_END_S
        while _is_api(pid) and time.monotonic() < deadline:
            time.sleep(0.1)


def _is_api(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()  # empty for a zombie
    except OSError:
        return False
    return b"raysched.api" in command


def _end_actors(address: str) -> None:
    """End the scheduler with its agents, then the quota actor. Jobs that run go on until somebody starts us again."""
    from raysched.runtime import quota_actor, scheduler_actor

    with connected(address):
        import ray

        for name in (scheduler_actor.NAME, quota_actor.NAME):
            with contextlib.suppress(ValueError, ray.exceptions.RayError, TimeoutError):
                actor = ray.get_actor(name, namespace=scheduler_actor.NAMESPACE)
                if name == scheduler_actor.NAME:
                    ray.get(actor.stop.remote(), timeout=30.0)
                ray.kill(actor)


def _running() -> dict[str, Any] | None:
    """The cluster of the state file, if its head is there. Its API is started again if it does not answer."""
    state = remembered_cluster()
    if not state.get("temp_dir"):
        return None
    with contextlib.suppress(LocalClusterFailed):
        if is_running(find_local(state["temp_dir"])):
            if not _answers(state["api_url"]):
                port = int(state["api_url"].rsplit(":", 1)[1])
                state["api_pid"] = start_api(state["address"], port, Path(state["directory"]))
            return state
    return None


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/healthz", timeout=2.0).status_code == 200
    return False


# ── configuration ─────────────────────────────────────────────────────────────────────────────────────────────────


def _settle(config: str | None, directory: str | None) -> tuple[ClusterConfig, Path]:
    """Check the configuration and keep a copy where the scheduler finds it when it starts again."""
    given = Path(config) if config is not None else None
    text = given.read_text(encoding="utf-8") if given is not None else own_machine()
    settled = load_config(given) if given is not None else None
    name = settled.settings.cluster if settled is not None else "local"
    base = Path(directory) if directory is not None else home() / name
    base.mkdir(parents=True, exist_ok=True)
    path = base / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return settled if settled is not None else load_config(path), path


def own_machine() -> str:
    """A configuration for a single machine: one pool, and one share that owns all of it."""
    gpus = len(list(Path("/proc/driver/nvidia/gpus").glob("*"))) if Path("/proc/driver/nvidia/gpus").is_dir() else 0
    cpus = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    gpu = f"gpu: {gpus}, " if gpus else ""
    return f"""\
version: 1
cluster: local
node_specs: {{machine: {{{gpu}cpu: {cpus}, memory: {memory}}}}}
pools: {{machine: {{match: {{pool: machine}}}}}}
shares: {{default: {{nominal: {{machine: {{{gpu}cpu: {cpus}, memory: {memory}}}}}, queue: {{policy: any_fit}}}}}}
local_nodes: [{{pool: machine, spec: machine, count: 1, prefix: machine}}]
"""


def _nodes(config: ClusterConfig) -> list[dict[str, Any]]:
    if not config.local_nodes:
        raise BringupFailed("the configuration lists no local_nodes: add them, or start without --local-nodes")
    return [
        {
            "name": node.name,
            "num_cpus": node.spec.cpu_milli / MILLI,
            "num_gpus": node.spec.gpu,
            "memory": node.spec.memory_bytes,
            "model": node.spec.gpu_model,
            "pool": node.pool,
            "resources": dict(node.spec.attach),
        }
        for node in config.local_nodes
    ]


# ── the actors ────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """This process as a driver of the cluster at `address`; left as it was."""
    prepare_driver(address)
    import ray

    already = ray.is_initialized()
    if not already:
        ray.init(address=address, namespace="raysched", log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield
    finally:
        if not already:
            ray.shutdown()


def start_actors(address: str, config_path: Path, *, nvml: bool, journal: str = "", ledger: str = "") -> None:
    """Start the quota and the scheduler actor and wait until they have recovered. Store URLs default to two SQLite
    files beside the configuration. Raises BringupFailed with what the actor said."""
    from raysched.runtime import scheduler_actor

    base = config_path.parent
    setup = scheduler_actor.Setup(
        config_path=str(config_path),
        journal_url=journal or f"sqlite:///{base}/journal.db",
        ledger_url=ledger or f"sqlite:///{base}/ledger.db",
        log_root=str(base / "logs"),
        state_dir=str(base / "agents"),
        nvml=nvml,
    )
    with connected(address):
        import ray

        actor = scheduler_actor.start(setup)
        try:
            ray.get(actor.ready.remote(), timeout=READY_S)
        except (ray.exceptions.RayError, TimeoutError) as error:
            with contextlib.suppress(Exception):
                ray.kill(actor)
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise BringupFailed(f"the scheduler did not start: {lines[-1] if lines else error!r}") from error


# ── the API ───────────────────────────────────────────────────────────────────────────────────────────────────────


def free_port() -> int:
    """A port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise BringupFailed(
                f"port {port} of the REST API cannot be used: {error.strerror}; see --api-port"
            ) from error


def start_api(address: str, port: int, directory: Path) -> int:
    """Start the API server as a process of its own and wait until it answers; returns its pid."""
    with open(directory / "api.log", "ab") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "raysched.api", "--address", address, "--host", HOST, "--port", str(port)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**node_environment(), HOME_VARIABLE: str(directory / "api")},
            start_new_session=True,
        )
    deadline = time.monotonic() + API_READY_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        if _answers(f"http://{HOST}:{port}"):
            return server.pid
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        server.kill()
    raise BringupFailed(f"the REST API did not start on port {port}; see {directory}/api.log")


__all__ = ["BringupFailed", "LocalCluster", "down", "down_local", "own_machine", "start_actors", "start_api", "up"]
