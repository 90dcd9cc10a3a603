"""A configuration is written as people write it, and read from a file."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from raysched.config import ClusterConfig, ConfigError, load_config

BASE = """\
version: 1
cluster: hz-7
node_specs:
  h100x8: {gpu: 8, gpu_model: H100, cpu: 96, memory: 1Ti, attach: {disks: 16}}
  cpu64: {cpu: 64, memory: 256Gi}
pools:
  train: {match: {pool: train}}
  infer: {match: {pool: infer}}
groups:
  algo: [ana, bo]
"""


@pytest.fixture
def read(tmp_path: Path) -> Callable[[str], ClusterConfig]:
    """Load a file with this text."""

    def load(text: str) -> ClusterConfig:
        file = tmp_path / "cluster.yaml"
        file.write_text(dedent(text))
        return load_config(file)

    return load


@pytest.fixture
def read_shares(read: Callable[[str], ClusterConfig]) -> Callable[[str], ClusterConfig]:
    """Load two pools, a group, and these shares."""
    return lambda shares: read(BASE + "shares:\n" + "\n".join("  " + line for line in dedent(shares).splitlines()))


@pytest.fixture
def faults(tmp_path: Path) -> Callable[[str], list[str]]:
    """What is wrong with a file of this text, one line each, without the directory."""

    def load(text: str) -> list[str]:
        file = tmp_path / "cluster.yaml"
        file.write_text(dedent(text))
        with pytest.raises(ConfigError) as error:
            load_config(file)
        assert all(problem.file == str(file) for problem in error.value.problems)
        return str(error.value).replace(f"{tmp_path}/", "").splitlines()

    return load
