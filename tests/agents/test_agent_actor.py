"""The agent as a real Ray actor, reporting to a real actor that it finds by name."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_node import QUICK, until
from raysched_agent.node_agent import AgentOptions, NamedSink, as_actor

ray: Any = pytest.importorskip("ray")
pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    os.environ["RAY_AUTH_MODE"] = "disabled"  # else Ray writes a token into the home directory
    temp = tmp_path_factory.mktemp("r")
    ray.init(address="local", num_cpus=2, num_gpus=0, include_dashboard=False, _temp_dir=str(temp), log_to_driver=False)
    yield
    ray.shutdown()


def scheduler() -> Any:
    class Scheduler:
        def __init__(self) -> None:
            self.reports: list[dict[str, Any]] = []

        def report(self, reports: list[dict[str, Any]]) -> int:
            self.reports += reports
            return len(self.reports)

        def seen(self) -> list[dict[str, Any]]:
            return self.reports

    return ray.remote(Scheduler).options(name="scheduler", namespace="agents", num_cpus=0).remote()


def test_the_agent_reports_to_a_named_actor_and_finds_its_successor(head: None, tmp_path: Path) -> None:
    first = scheduler()
    options = AgentOptions(
        cluster=f"ray-{os.getpid()}",
        state_dir=str(tmp_path / "state"),
        log_root=str(tmp_path / "logs"),
        beat_s=0.1,
        deadlines=QUICK,
        nvml_env={"LD_LIBRARY_PATH": str(tmp_path)},
    )
    spec = {"gpu": 8, "gpu_model": "H100"}
    agent = as_actor().options(num_cpus=0).remote("n0", "ab12", spec, options, NamedSink("scheduler", "agents"))
    until(lambda: len(ray.get(first.seen.remote(), timeout=20)) >= 3, "three reports")

    ray.kill(first)
    second = until(_new_scheduler, "the name is free again")
    report = until(lambda: ray.get(second.seen.remote(), timeout=20), "a report to the successor")[-1]

    assert (report["node"], report["spec"]["gpu"], report["measured"], report["nvml"]) == ("n0", 8, False, "absent")
    assert ray.get(agent.ping.remote(), timeout=20) == "n0"
    assert ray.get(agent.sweep.remote("ana-1", 1), timeout=20) == {"killed": 0, "clean": True}
    assert ray.get(agent.read_log.remote("ana-1", 1, 0), timeout=20) == {"data": "", "next": 0, "eof": True}


def _new_scheduler() -> Any:
    try:
        return scheduler()
    except ValueError:  # the name of the one just killed is still taken
        return None
