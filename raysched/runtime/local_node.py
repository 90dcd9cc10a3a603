"""Starts Ray nodes on this host and then keeps them: one small keeper process per node, in a session of its own.

Run as `python -m raysched.runtime.local_node`, with a list of node starts as JSON on its standard input. Ray is
imported once and a child is forked per node, at most three at a time. Each child becomes a subreaper, starts the node's
Ray processes, and turns itself into a bare keeper that reaps them until none is left. So a killed raylet never stays a
zombie (its workers would take it for alive), and the descendants of a keeper are exactly the processes of its node."""

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from typing import Any

AT_ONCE = 3  # Ray gives a starting node 30 s; more than three at once on two cores miss that
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
OBJECT_STORE_BYTES = 100 * 2**20  # results and arguments are small; the default is 30 % of the host for every node

# What a keeper runs once its node is up: nothing of Ray, 6 MiB.
KEEP = """
import os
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
    except InterruptedError:
        pass
"""


def main() -> int:
    """Start every node asked for on standard input, the head first; prints one JSON line per node as it comes up."""
    asked: list[dict[str, Any]] = json.load(sys.stdin)
    import ray._private.node  # noqa: F401  imported before the forks, so that all children share it

    heads = [ask for ask in asked if ask["head"]]
    failed = _start_all(heads)
    if not failed:
        failed = _start_all([ask for ask in asked if not ask["head"]])
    return 1 if failed else 0


def _start_all(asked: list[dict[str, Any]]) -> int:
    waiting, failed = list(asked), 0
    running: dict[int, tuple[dict[str, Any], int]] = {}  # by the pipe it answers on
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            ask = waiting.pop(0)
            read_end, write_end = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(read_end)
                _become_node(ask, write_end)
            os.close(write_end)
            running[read_end] = (ask, pid)
        done = _next_ready(list(running))
        ask, pid = running.pop(done)
        failed += not _report(ask, pid, done)
    return failed


def _next_ready(ends: list[int]) -> int:
    ready, _, _ = select.select(ends, [], [])
    first: int = ready[0]
    return first


def _report(ask: dict[str, Any], pid: int, read_end: int) -> bool:
    with os.fdopen(read_end, "rb") as pipe:
        text = pipe.read()  # until the child closes its end: by the exec of the keeper, or by dying
    answer = json.loads(text) if text else {"error": "the starting process died"}
    print(json.dumps({"name": ask["name"], "keeper": pid} | answer), flush=True)
    return "error" not in answer


def _become_node(ask: dict[str, Any], write_end: int) -> None:
    """Start the node's processes in this forked child and turn into its keeper; never returns."""
    try:
        os.setsid()
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        os.dup2(os.open(ask["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), 2)
        os.dup2(2, 1)
        started = time.monotonic()
        node = _start(ask)
        pids = {kind: [one.process.pid for one in found] for kind, found in node.all_processes.items()}
        answer = {
            "ray_id": node.node_id,
            "raylet": pids["raylet"][0],
            "processes": pids,
            "session_dir": node.get_session_dir_path(),
            "dashboard": node.webui_url,
            "seconds": round(time.monotonic() - started, 2),
        }
    except BaseException as problem:
        answer = {"error": f"{type(problem).__name__}: {problem}"}
    os.write(write_end, json.dumps(answer).encode())
    if "error" in answer:
        _kill_children()
        os._exit(1)
    os.set_inheritable(write_end, False)
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", KEEP, f"raysched-keeper:{ask['name']}"])


def _kill_children() -> None:
    """Kill what a failed start left running; this process is their subreaper, so the loop ends."""
    while True:
        with open(f"/proc/{os.getpid()}/task/{os.getpid()}/children") as file:
            children = file.read().split()
        if not children:
            return
        for child in children:
            os.kill(int(child), signal.SIGKILL)
            os.waitpid(int(child), 0)


def _start(ask: dict[str, Any]) -> Any:
    from ray._private.node import Node
    from ray._private.parameter import RayParams

    where = ask["temp_dir"]
    for end in ("rl", "ps"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{where}/{ask['name']}.{end}")  # left by a killed raylet; a new one does not start on it
    common = {
        "num_cpus": ask["num_cpus"],
        "num_gpus": ask["num_gpus"],
        "memory": ask["memory"],
        "resources": ask["resources"],
        "labels": ask["labels"],
        "object_store_memory": OBJECT_STORE_BYTES,
        "node_ip_address": "127.0.0.1",
        # Explicit names: two nodes that start together would otherwise take the same ones and abort.
        "raylet_socket_name": f"{where}/{ask['name']}.rl",
        "plasma_store_socket_name": f"{where}/{ask['name']}.ps",
        "min_worker_port": 0,
        "max_worker_port": 0,
        "dashboard_agent_listen_port": None,
        "include_log_monitor": False,
    }
    if ask["head"]:
        own = {
            "gcs_server_port": ask["port"],
            "temp_dir": where,
            "include_dashboard": ask["dashboard"],
            "dashboard_port": ask["dashboard_port"],
            "no_monitor": True,
        }
    else:
        own = {"gcs_address": ask["address"]}
    params = RayParams(**common, **own)
    return Node(params, head=ask["head"], shutdown_at_exit=False, spawn_reaper=False)


if __name__ == "__main__":
    sys.exit(main())
