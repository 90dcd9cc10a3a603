"""A Ray cluster of several nodes on this host, for `raysched up`, the demo and the tests.

The nodes are daemons: they outlive the process that starts them. A state file in the cluster's directory holds the
process ids, each with its start time, so that `shutdown` ends exactly what `start_local` started, also from another
process. The directory's path must be short: Ray puts socket names of up to 107 bytes into it."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec import json as codec

LOOPBACK: Final = "127.0.0.1"
HEAD: Final = "head"
NODE_LABEL: Final = "raysched/node"
POOL_LABEL: Final = "raysched/pool"
ROLE_LABEL: Final = "raysched/role"
MODEL_LABEL: Final = "raysched/gpu_model"
STATE_FILE: Final = "raysched-cluster.json"
LONGEST_DIR: Final = 44  # Ray's own sockets add up to 63 bytes below it, and a Unix socket's path has at most 107
MEMORY_BYTES: Final = 16 * 2**30  # what Ray would measure differs from node to node, and a spare must be equal
START_SECONDS: Final = 180.0  # twelve nodes took 27 s on a loaded machine with two cores
TERM_SECONDS: Final = 5.0  # a raylet ends its workers within 2 s

# Every node needs all of it (ray.md 0, 3, 6): the first four find a hung node after 15 s instead of 65 s, the next
# two unfreeze placement groups behind one, then: no GPU means no visible GPU, and nodes wait ten minutes for a head.
# Not RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper: Ray then ignores SIGCHLD in all workers, and
# subprocess.run(["false"]).returncode is 0 there. Guards and agents kill what is left instead.
NODE_ENV: Final[Mapping[str, str]] = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "5",
    "RAY_grpc_client_keepalive_time_ms": "3000",
    "RAY_grpc_client_keepalive_timeout_ms": "3000",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",
    "RAY_metrics_report_interval_ms": "2000",
    # A cluster without authentication must not be reachable from other hosts. Ray replaces 127.0.0.1 by the host's
    # address unless told that it runs on one host; the variable is the only way to tell it, on Linux too.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
}


class LocalClusterFailed(Exception):
    """A local cluster could not be started, found or changed; the message says what and where the log is."""


class NodeHandle(Struct):
    """One local node: its Ray id, its raylet, and the keeper that all its processes descend from."""

    name: str
    ray_id: str
    raylet: int
    raylet_started: int
    keeper: int
    keeper_started: int
    processes: dict[str, list[int]]


class LocalCluster(Struct):
    """A running local cluster. `durable_dir` and `dashboard` are as given at its start."""

    address: str
    temp_dir: str
    session_dir: str
    nodes: dict[str, NodeHandle]
    dashboard_url: str | None = None

    def add(self, node: Mapping[str, Any]) -> NodeHandle:
        """Start one more node; a name that was killed may be used again. Raises LocalClusterFailed."""
        _start(self, [node], {})
        self._save()
        return self.nodes[str(node["name"])]

    def kill(self, name: str) -> None:
        """kill -9 of the node's raylet and its agents, as if the host's Ray had crashed. Its workers are left to
        notice by themselves. The node's name stays in `nodes`."""
        handle = self.nodes[name]
        agents = [pid for pid in _children(handle.raylet) if _is_ray_service(pid)]
        _signal(handle.raylet, handle.raylet_started, signal.SIGKILL)
        for pid in agents:
            _signal(pid, None, signal.SIGKILL)
        _await_gone([(handle.raylet, handle.raylet_started)], TERM_SECONDS)

    def stop_hang(self, name: str) -> None:
        """SIGSTOP of the node's raylet: it is there, and answers nobody."""
        _signal(self.nodes[name].raylet, self.nodes[name].raylet_started, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """SIGCONT of a raylet stopped by `stop_hang`. One that was declared dead exits."""
        _signal(self.nodes[name].raylet, self.nodes[name].raylet_started, signal.SIGCONT)

    def remove(self, name: str) -> None:
        """End every process of the node, kindly first, and forget it."""
        _end([self.nodes.pop(name)])
        self._save()

    def shutdown(self) -> None:
        """End every process of every node and remove the state file. Repeats are harmless."""
        _end(list(self.nodes.values()))
        self.nodes.clear()
        (Path(self.temp_dir) / STATE_FILE).unlink(missing_ok=True)

    def _save(self) -> None:
        path = Path(self.temp_dir) / STATE_FILE
        draft = path.with_suffix(".new")
        draft.write_bytes(codec.format(codec.encode(self), indent=1))
        draft.replace(path)


def start_local(
    config: Sequence[Mapping[str, Any]],
    temp_dir: str,
    dashboard: bool = False,
    *,
    head_cpus: float = 4,
    port: int | None = None,
    dashboard_port: int = 8265,
    durable_dir: str | None = None,
) -> LocalCluster:
    """Start a head without GPUs and the nodes of `config`: dicts of name, num_cpus, num_gpus, and, if wanted, memory
    (bytes), model, pool, resources, labels. With `durable_dir` the head keeps its tables there and a head started
    again on it, with the same `port`, continues the cluster. Raises LocalClusterFailed; then nothing runs."""
    if len(temp_dir.encode()) > LONGEST_DIR:
        raise LocalClusterFailed(
            f"{temp_dir}: {len(temp_dir.encode())} bytes, at most {LONGEST_DIR} leave room for Ray"
        )
    earlier = find_local(temp_dir) if (Path(temp_dir) / STATE_FILE).exists() else None
    if earlier is not None and is_running(earlier):
        raise LocalClusterFailed(f"{temp_dir}: a local cluster already runs there")
    Path(temp_dir).mkdir(parents=True, exist_ok=True)
    port = port or _free_port()
    cluster = LocalCluster(f"{LOOPBACK}:{port}", temp_dir, "", _survivors(earlier))
    head = {
        "name": HEAD,
        "num_cpus": head_cpus,
        "num_gpus": 0,
        "dashboard": dashboard,
        "dashboard_port": dashboard_port,
    }
    durable = {"RAY_gcs_storage": "rocksdb", "RAY_gcs_storage_path": durable_dir} if durable_dir else {}
    try:
        _start(cluster, [head, *config], durable)
    except BaseException:
        cluster.shutdown()
        raise
    cluster._save()
    return cluster


def prepare_driver(address: str) -> None:
    """Let this process join the cluster at `address` by `ray.init`: a loopback address needs one of NODE_ENV's
    settings on the driver's side as well. Does nothing for other addresses."""
    if not address.startswith(LOOPBACK):
        return
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_AUTH_MODE"] = "disabled"
    constants = sys.modules.get("ray._private.ray_constants")
    if constants is not None:
        constants.ENABLE_RAY_CLUSTER = False  # type: ignore[attr-defined]  # was read from the environment at import


def _survivors(earlier: LocalCluster | None) -> dict[str, NodeHandle]:
    """Nodes of a cluster that has lost its head: they wait ten minutes for one, and are ours to end."""
    nodes = {} if earlier is None else earlier.nodes
    return {name: node for name, node in nodes.items() if _alive(node.keeper, node.keeper_started)}


def find_local(temp_dir: str) -> LocalCluster:
    """The cluster whose state file is in `temp_dir`. Raises LocalClusterFailed."""
    path = Path(temp_dir) / STATE_FILE
    try:
        return codec.decode(path.read_bytes(), type=LocalCluster)
    except FileNotFoundError:
        raise LocalClusterFailed(f"no local cluster: {path} does not exist") from None


def is_running(cluster: LocalCluster) -> bool:
    """Whether the head's processes are still there."""
    head = cluster.nodes.get(HEAD)
    return head is not None and _alive(head.keeper, head.keeper_started)


# ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _start(cluster: LocalCluster, config: Sequence[Mapping[str, Any]], extra_env: Mapping[str, str]) -> None:
    log = f"{cluster.temp_dir}/start.log"
    asked = [_ask(cluster, dict(node), log) for node in config]
    _check_names(cluster, [str(ask["name"]) for ask in asked])
    with open(log, "ab") as errors:
        starter = subprocess.Popen(
            [sys.executable, "-m", "raysched.runtime.local_node"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**node_environment(), **extra_env},
            start_new_session=True,
        )
    try:
        out, _ = starter.communicate(json.dumps(asked).encode(), timeout=START_SECONDS)
    except subprocess.TimeoutExpired:
        starter.kill()
        out, _ = starter.communicate()
    problems = _take_reports(cluster, out)
    missing = [name for ask in asked if (name := str(ask["name"])) not in cluster.nodes]
    if problems or missing:
        raise LocalClusterFailed(f"nodes {', '.join(missing)} did not start ({'; '.join(problems)}); see {log}")


def _ask(cluster: LocalCluster, node: dict[str, Any], log: str) -> dict[str, Any]:
    name, is_head = str(node["name"]), node["name"] == HEAD
    labels = {ROLE_LABEL: HEAD} if is_head else {NODE_LABEL: name}
    for label, key in ((POOL_LABEL, "pool"), (MODEL_LABEL, "model")):
        if node.get(key) is not None:
            labels[label] = str(node[key])
    return {
        "name": name,
        "head": is_head,
        "num_cpus": node.get("num_cpus", 8),
        "num_gpus": node.get("num_gpus", 0),
        "memory": node.get("memory", MEMORY_BYTES),
        "resources": dict(node.get("resources", {})),
        "labels": labels | dict(node.get("labels", {})),
        "temp_dir": cluster.temp_dir,
        "address": cluster.address,
        "port": int(cluster.address.rsplit(":", 1)[1]),
        "dashboard": bool(node.get("dashboard", False)),
        "dashboard_port": node.get("dashboard_port"),
        "log": log,
    }


def _check_names(cluster: LocalCluster, names: list[str]) -> None:
    for name in names:
        old = cluster.nodes.get(name)
        if names.count(name) > 1 or (old is not None and _alive(old.raylet, old.raylet_started)):
            raise LocalClusterFailed(f"a node {name!r} is there already")


def node_environment() -> dict[str, str]:
    """The environment of a node's processes: the caller's, without its Ray settings, with NODE_ENV."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    # Without a byte-code cache every Ray process compiles its imports anew: 5 s of CPU per node instead of 2.
    if own.pop("PYTHONDONTWRITEBYTECODE", None) is not None and "PYTHONPYCACHEPREFIX" not in own:
        own["PYTHONPYCACHEPREFIX"] = str(Path.home() / ".cache" / "raysched" / "pycache")
    return {**own, **NODE_ENV}


def _take_reports(cluster: LocalCluster, out: bytes) -> list[str]:
    problems = []
    for line in out.splitlines():
        if not line.startswith(b"{"):
            continue
        report = json.loads(line)
        if "error" in report:
            problems.append(f"{report['name']}: {report['error']}")
            continue
        cluster.nodes[report["name"]] = NodeHandle(
            report["name"],
            report["ray_id"],
            report["raylet"],
            _started(report["raylet"]) or 0,
            report["keeper"],
            _started(report["keeper"]) or 0,
            report["processes"],
        )
        if report["name"] == HEAD:
            cluster.session_dir = report["session_dir"]
            cluster.dashboard_url = f"http://{report['dashboard']}" if report["dashboard"] else None
    return problems


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


# ── ending ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _end(handles: list[NodeHandle]) -> None:
    """SIGTERM the raylets (the head's last), then kill whatever still descends from the keepers."""
    handles.sort(key=lambda handle: handle.name == HEAD)
    for handle in handles:
        _signal(handle.raylet, handle.raylet_started, signal.SIGCONT)
        _signal(handle.raylet, handle.raylet_started, signal.SIGTERM)
    _await_gone([(handle.raylet, handle.raylet_started) for handle in handles], TERM_SECONDS)
    deadline = time.monotonic() + TERM_SECONDS
    while time.monotonic() < deadline:
        # A keeper ends by itself when it has no child left; new orphans may still arrive below it.
        keepers = [handle.keeper for handle in handles if _alive(handle.keeper, handle.keeper_started)]
        if not keepers:
            return
        for pid in _descendants(keepers):
            _signal(pid, None, signal.SIGKILL)
        time.sleep(0.02)


def _await_gone(processes: Iterable[tuple[int, int]], seconds: float) -> None:
    deadline, left = time.monotonic() + seconds, list(processes)
    while left and time.monotonic() < deadline:
        left = [(pid, started) for pid, started in left if _alive(pid, started)]
        time.sleep(0.01)


def _signal(pid: int, started: int | None, number: signal.Signals) -> None:
    if started is None or _alive(pid, started):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _alive(pid: int, started: int) -> bool:
    return _started(pid) == started


def _started(pid: int) -> int | None:
    """The start time of a process in clock ticks since boot; None if it is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/<pid>/stat after the command's name; None if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _children(pid: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := _stat(int(entry))) is not None and int(fields[1]) == pid:
            found.append(int(entry))
    return found


def _descendants(roots: list[int]) -> list[int]:
    found: list[int] = []
    layer = roots
    while layer:
        layer = [child for pid in layer for child in _children(pid)]
        found += layer
    return found


def _is_ray_service(pid: int) -> bool:
    """Whether a child of a raylet is one of its agents rather than a worker."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"agent" in file.read()
    except (FileNotFoundError, ProcessLookupError):
        return False
