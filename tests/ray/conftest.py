"""One local Ray cluster for all tests here: a head and four nodes of 8 declared GPUs, n0 to n3.

A test cleans up what it made; one that needs a node to die adds a node of its own."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from raysched.runtime.local_cluster import LocalCluster, prepare_driver, start_local
from tests.ray.shell import Shell, agents

NODES = [{"name": f"n{i}", "num_cpus": 16, "num_gpus": 8, "model": "H100", "pool": "main"} for i in range(4)]


# Not the whole session: other packages of tests join clusters of their own from this process.
@pytest.fixture(scope="package")
def local() -> Iterator[LocalCluster]:
    """The cluster; this process is connected to it."""
    directory = tempfile.mkdtemp(prefix="rs-")
    cluster = start_local(NODES, directory)
    try:
        prepare_driver(cluster.address)
        import ray

        ray.init(address=cluster.address, namespace="raysched", log_to_driver=False, logging_level="ERROR")
        yield cluster
        ray.shutdown()
    finally:
        cluster.shutdown()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def shell(local: LocalCluster, tmp_path: Path) -> Iterator[Shell]:
    """The cluster port under test, with an agent on each node; whatever the test leaves is removed."""
    with agents(["n0", "n1"]):
        made = Shell(local, tmp_path / "logs")
        try:
            yield made
        finally:
            made.clean_up()


@pytest.fixture
def short_dir() -> Iterator[str]:
    """A directory with a short path: Ray puts sockets into it."""
    directory = tempfile.mkdtemp(prefix="rs-")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
