"""Local clusters: what is refused, and what outlives the process that started them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raysched.runtime.local_cluster import (
    LONGEST_DIR,
    LocalCluster,
    LocalClusterFailed,
    find_local,
    is_running,
    start_local,
)
from tests.ray.shell import is_alive

pytestmark = pytest.mark.ray

START = """
import sys
from raysched.runtime.local_cluster import start_local
start_local([{"name": "n0", "num_cpus": 1, "num_gpus": 2}], sys.argv[1], durable_dir=sys.argv[1] + "/gcs")
"""


def test_a_directory_with_too_long_a_name_is_refused() -> None:
    with pytest.raises(LocalClusterFailed, match=f"at most {LONGEST_DIR}"):
        start_local([], "/tmp/" + "x" * 60)


def test_where_nothing_runs_nothing_is_found(tmp_path: Path) -> None:
    with pytest.raises(LocalClusterFailed, match="no local cluster"):
        find_local(str(tmp_path))


def test_a_second_cluster_in_the_same_place_and_a_second_node_of_a_name_are_refused(local: LocalCluster) -> None:
    with pytest.raises(LocalClusterFailed, match="already runs"):
        start_local([], local.temp_dir)
    with pytest.raises(LocalClusterFailed, match="'n0' is there already"):
        local.add({"name": "n0", "num_cpus": 1, "num_gpus": 0})


def test_a_cluster_outlives_its_starter_and_ends_with_every_process(short_dir: str) -> None:
    subprocess.run([sys.executable, "-c", START, short_dir], check=True, timeout=120)
    found = find_local(short_dir)
    assert is_running(found) and sorted(found.nodes) == ["head", "n0"]
    pids = [pid for node in found.nodes.values() for group in node.processes.values() for pid in group]
    assert all(is_alive(pid) for pid in pids)
    assert os.listdir(short_dir + "/gcs") != []  # the head's tables are on disk
    found.shutdown()
    assert [pid for pid in pids if is_alive(pid)] == []
    assert not is_running(found)
