"""Fixtures: the fake libnvidia-ml built once, a node of eight GPUs over it, readers and agents that watch it."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_node import QUICK, FakeNode, Watched
from raysched_agent.node_agent import AgentOptions, NodeAgent
from raysched_agent.nvml import Deadlines

SOURCE = Path(__file__).parent / "fake_nvml" / "nvml.c"


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler for the fake libnvidia-ml.so.1")
    library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    flags = ["-O1", "-fvisibility=hidden", "-shared", "-fPIC", "-pthread", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([compiler, *flags, "-o", str(library), str(SOURCE)], check=True)
    return library


@pytest.fixture
def node(tmp_path: Path, nvml_library: Path) -> FakeNode:
    """Eight H100."""
    return FakeNode(tmp_path, nvml_library, gpus=8)


@pytest.fixture
def read(node: FakeNode) -> Iterator[Callable[..., Watched]]:
    """Start a reader over the node; keywords change its deadlines."""
    readers: list[Watched] = []

    def start(deadlines: Deadlines = QUICK, env: dict[str, str] | None = None) -> Watched:
        readers.append(Watched(node.env if env is None else env, deadlines))
        return readers[-1]

    yield start
    for reader in readers:
        reader.reader.stop()


@pytest.fixture
def agent(node: FakeNode, tmp_path: Path) -> Iterator[Callable[..., NodeAgent]]:
    """Start an agent of the node; `spec` declares its inventory, keywords are AgentOptions."""
    agents: list[NodeAgent] = []

    def start(spec: dict[str, Any] | None = None, sink: Any = None, **options: Any) -> NodeAgent:
        given: dict[str, Any] = {
            "cluster": f"test-{os.getpid()}-{tmp_path.name}",
            "state_dir": str(tmp_path / "state"),
            "log_root": str(tmp_path / "logs"),
            "beat_s": 0.1,
            "deadlines": QUICK,
            "nvml_env": node.env,
        }
        agents.append(NodeAgent("n0", "ab12", spec, AgentOptions(**(given | options)), sink))
        return agents[-1]

    yield start
    for one in agents:
        one.stop()
