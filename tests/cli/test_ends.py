"""How the command line ends: help, no cluster, unexpected errors, a reader that went away."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raysched.cli.main import app
from raysched.client import Client
from tests.cli.conftest import Cli, answer, said

RAYSCHED = [sys.executable, "-c", "from raysched.cli.main import app; app()"]


def test_without_words_there_is_help(cli: Cli) -> None:
    ran = cli()
    assert ran.exit_code == 0
    for command in ("up", "down", "demo", "submit", "ps", "explain", "quota", "nodes", "ledger", "admin"):
        assert command in ran.stdout


@pytest.mark.parametrize("words", [["ps"], ["health"], ["submit", "--share", "nlp", "--", "true"], ["cordon", "n0"]])
def test_without_a_cluster_the_way_to_one_is_said(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYSCHED_HOME", str(tmp_path))
    monkeypatch.delenv("RAYSCHED_ADDRESS", raising=False)
    assert "raysched up" in said(CliRunner().invoke(app, words), 1)
    found = answer(CliRunner().invoke(app, [words[0], "--json", *words[1:]]), 1)
    assert found["error"]["code"] == "NOT_RUNNING"


class Breaks:
    """A transport with a defect in it."""

    def call(self, method: str, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        raise KeyError("nlp")


def test_a_defect_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAYSCHED_DEBUG", raising=False)
    broken = Client(user="ana", transport=Breaks())
    assert "internal error: KeyError: 'nlp'" in said(CliRunner().invoke(app, ["ps"], obj=broken), 1)
    monkeypatch.setenv("RAYSCHED_DEBUG", "1")
    assert "Traceback" in CliRunner().invoke(app, ["ps"], obj=broken).stderr


def test_a_missing_configuration_is_said_before_anything_starts(cli: Cli, tmp_path: Path) -> None:
    assert "there is no such file" in said(cli("up", "--config", str(tmp_path / "none.yaml")), 1)


def test_the_program_itself_ends_with_the_status(tmp_path: Path) -> None:
    environment = {**os.environ, "RAYSCHED_HOME": str(tmp_path)}
    environment.pop("RAYSCHED_ADDRESS", None)
    ran = subprocess.run([*RAYSCHED, "ps", "--json"], env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["error"]["code"] == "NOT_RUNNING"
    assert ran.stderr == ""
    assert subprocess.run([*RAYSCHED, "ps", "--bogus"], env=environment, capture_output=True).returncode == 2


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run([*RAYSCHED, "--help"], stdout=write, stderr=subprocess.PIPE, text=True)
    os.close(write)
    assert "Traceback" not in ran.stderr
    assert ran.returncode == 1


def test_the_command_line_does_not_load_ray_to_show_help() -> None:
    program = "import sys; from raysched.cli.main import app; assert 'ray' not in sys.modules, 'ray was loaded'"
    subprocess.run([sys.executable, "-c", program], check=True)
