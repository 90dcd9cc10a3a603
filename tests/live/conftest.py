"""One real cluster for all tests here: a head, three nodes of 8 declared GPUs and an equal spare, the real actors.

After each test everything it left is cancelled. Then nothing may be left: no process, no group, no GPU held; and the
books must be sound."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from raysched.runtime import bringup
from raysched.runtime.local_cluster import prepare_driver, start_local
from tests.live.house import CONFIG, NODES, House


# Not the whole session: other packages of tests join clusters of their own from this process.
@pytest.fixture(scope="package")
def started() -> Iterator[House]:
    """The cluster; this process is connected to it."""
    base = Path(tempfile.mkdtemp(prefix="rl-"))
    local = start_local(NODES, str(base / "ray"))
    try:
        config = base / "data" / "config.yaml"
        config.parent.mkdir()
        config.write_text(CONFIG, encoding="utf-8")
        bringup.start_actors(local.address, config, nvml=False)
        prepare_driver(local.address)
        import ray

        ray.init(address=local.address, namespace="raysched", log_to_driver=False, logging_level="ERROR")
        house = House(base, local)
        house.await_nodes()
        yield house
        ray.shutdown()
    finally:
        local.shutdown()
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def house(started: House) -> Iterator[House]:
    """The cluster with all nodes at work and nothing on them; the test must leave it so that it comes to rest."""
    started.begin()
    yield started
    started.come_to_rest()
