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
    directory: str | None = None,
    temp_dir: str | None = None,
) -> dict[str, Any]:
    """Start everything, or return what runs already. `config`: a file; None: one pool and one share that own this
    machine. Without `local_nodes` the head alone is started here, and other hosts join it with `ray start`.

    Raises ConfigError, BringupFailed, LocalClusterFailed."""
    running = _running(directory)
    if running is not None:
        return running
    settled, path = _settle(config, directory)
    if config is None:
        local_nodes = True
    _check_port(api_port)
    temp = temp_dir or f"{tempfile.gettempdir()}/raysched-{os.getuid()}-{os.getpid()}"
    cluster = start_local(_nodes(settled) if local_nodes else [], temp, dashboard)
    state: dict[str, Any] = {
        "address": cluster.address,
        "api_url": f"http://{HOST}:{api_port}",
        "dashboard_url": cluster.dashboard_url,
        "temp_dir": temp,
        "directory": str(path.parent),
        "nodes": [name for name in cluster.nodes if name != "head"],
        "ray_env": dict(RAY_ENV),
    }
    try:
        start_actors(cluster.address, path, nvml=not local_nodes)
        state["api_pid"] = start_api(cluster.address, api_port, path.parent)
    except BaseException:
        with contextlib.suppress(Exception):
            down_local(state)
        raise
    return state


def down() -> dict[str, Any]:
    """End what `up` started: the API, the jobs, Ray. The books stay. Raises LocalClusterFailed if nothing runs."""
    state = remembered_cluster()
    if not state.get("temp_dir"):
        raise LocalClusterFailed(f"nothing is known to run here: {state_file()} is not there")
    down_local(state)
    return {"status": "stopped", "address": state.get("address")}


def down_local(state: dict[str, Any]) -> None:
    """End the processes that a state names, and remove Ray's temporary files."""
    if state.get("api_pid"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(int(state["api_pid"]), signal.SIGTERM)
    with contextlib.suppress(LocalClusterFailed):
        find_local(state["temp_dir"]).shutdown()
    shutil.rmtree(state["temp_dir"], ignore_errors=True)


def _running(directory: str | None) -> dict[str, Any] | None:
    if directory is not None:
        return None
    state = remembered_cluster()
    if not state.get("temp_dir"):
        return None
    with contextlib.suppress(LocalClusterFailed):
        if is_running(find_local(state["temp_dir"])):
            return state
    return None


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
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"http://{HOST}:{port}/healthz", timeout=2.0).status_code == 200:
                return server.pid
        time.sleep(0.1)
    with contextlib.suppress(ProcessLookupError):
        server.kill()
    raise BringupFailed(f"the REST API did not start on port {port}; see {directory}/api.log")


__all__ = ["BringupFailed", "LocalCluster", "down", "down_local", "own_machine", "start_actors", "start_api", "up"]
