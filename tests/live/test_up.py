"""`raysched up`, what one can do then, and `raysched down`: each as a person runs it, in a home of their own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from raysched.runtime.bringup import free_port
from raysched.runtime.local_cluster import find_local
from tests.live.house import PATIENCE_S, is_alive

pytestmark = pytest.mark.ray

CONFIG = """\
version: 1
cluster: small
node_specs: {small: {gpu: 2, cpu: 2, memory: 4Gi}}
pools: {gpus: {}}
shares: {team: {nominal: {gpus: {gpu: 2}}}}
local_nodes: [{pool: gpus, spec: small, count: 1, prefix: n}]
"""
KILL_FOR_GOOD = """
import raysched
raysched.Client().health()
import ray
ray.kill(ray.get_actor("raysched:scheduler", namespace="raysched"))
"""

Run = Callable[..., Any]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home without a cluster; whatever a test leaves running there is stopped."""
    folder = Path(tempfile.mkdtemp(prefix="ru-"))
    (folder / "small.yaml").write_text(CONFIG, encoding="utf-8")
    yield folder
    if (folder / "cluster.json").exists():
        _run(folder, "down")
    shutil.rmtree(folder, ignore_errors=True)


def _run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command with its output in pipes, as in `raysched … | cat`: it ends only when nobody holds them any more."""
    own = {"RAYSCHED_HOME": str(home), "RAYSCHED_USER": "ana"}
    inherited = {key: value for key, value in os.environ.items() if key != "RAYSCHED_ADDRESS"}
    command = [sys.executable, "-c", "from raysched.cli.main import app; app()", *words]
    return subprocess.run(command, env=inherited | own, capture_output=True, text=True, timeout=PATIENCE_S)


def said(home: Path, *words: str, status: int = 0) -> str:
    ran = _run(home, *words)
    assert ran.returncode == status, ran.stdout + ran.stderr
    return ran.stdout if status == 0 else ran.stderr


def up(home: Path) -> dict[str, Any]:
    """Start the small cluster; the state that the command prints."""
    told = said(
        home,
        *("up", "-c", str(home / "small.yaml"), "--local-nodes", "--no-dashboard"),
        *("--api-port", str(free_port()), "--json"),
    )
    found: dict[str, Any] = json.loads(told)
    return found


def processes(state: dict[str, Any]) -> list[int]:
    """Everything that `up` started and that is alive."""
    nodes = find_local(state["temp_dir"]).nodes.values()
    ray = [pid for node in nodes for pids in node.processes.values() for pid in pids]
    return [pid for pid in [*ray, *(node.keeper for node in nodes), state["api_pid"]] if is_alive(pid)]


def test_up_submit_down(home: Path) -> None:
    state = up(home)
    assert state["nodes"] == ["n0"]
    assert json.loads((home / "cluster.json").read_text())["address"] == state["address"]
    assert httpx.get(f"{state['api_url']}/healthz", timeout=30).status_code == 200
    assert json.loads(said(home, "up", "--json"))["address"] == state["address"]  # found, not started again
    assert "hello" in said(home, "submit", "--share", "team", "--gpu", "1", "--wait", "--", "echo", "hello")

    connects = {**os.environ, "RAYSCHED_HOME": str(home)}
    connects.pop("RAYSCHED_ADDRESS", None)
    subprocess.run([sys.executable, "-c", KILL_FOR_GOOD], env=connects, check=True, timeout=PATIENCE_S)
    assert "no raysched scheduler runs in it" in said(home, "ps", status=1)

    started = processes(state)
    assert len(started) > 6
    assert said(home, "down").strip() == "stopped"
    assert [pid for pid in started if is_alive(pid)] == []
    assert not Path(state["temp_dir"]).exists()
    assert "no cluster is known here" in said(home, "ps", status=1)
    assert "nothing is known to run here" in said(home, "down", status=1)


@pytest.mark.slow
def test_the_books_outlive_the_cluster(home: Path) -> None:
    up(home)
    said(home, "submit", "--share", "team", "--gpu", "1", "--name", "first", "--wait", "--", "echo", "hello")
    said(home, "down")
    up(home)
    assert json.loads(said(home, "show", "first", "--json"))["state"] == "succeeded"
    assert "again" in said(home, "submit", "--share", "team", "--gpu", "2", "--wait", "--", "echo", "again")


@pytest.mark.slow
def test_the_demo_ends_well(home: Path) -> None:
    facts = json.loads(said(home, "demo", "--failed-after", "6s", "--json"))
    assert facts["swap_s"] > 0 and "in the last attempt" in facts["pretrain"]


@pytest.mark.slow
def test_the_bench_measures_both_sides(home: Path) -> None:
    found = json.loads(said(home, "bench", "ray", "--rounds", "1", "--jobs", "4", "--json"))
    for shape in ("one_bundle", "two_nodes"):
        assert found[shape]["ray_ms"] > 0 and found[shape]["raysched_ms"] > 0 and found[shape]["ratio"] > 0
    assert found["sustained"]["jobs"] == 4 and found["sustained"]["ratio"] > 0
