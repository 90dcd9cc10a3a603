"""`raysched sim …`: what is printed, what is written, and how it ends when it cannot."""

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, answer, said
from tests.sim.test_workloads import philly_folder
from tests.sim.traces_at import TRACES, needs_traces

SMALL = ("sim", "synthetic", "--days", "0.1", "--nodes", "4", "--samples", "10")


def test_a_made_up_cluster_as_json(cli: Cli) -> None:
    found = answer(cli(*SMALL, "--failures", "0", "--json"))
    assert found["ended"] == {"succeeded": found["jobs"]}
    assert found["makespan_ms"] >= found["makespan_bound_ms"]
    assert found["failures"] == 0
    assert found["files"] == []


def test_another_seed_is_another_workload_and_the_same_seed_the_same(cli: Cli) -> None:
    first, again, other = (answer(cli(*SMALL, "--seed", seed, "--json")) for seed in ("1", "1", "2"))
    for each in (first, again, other):
        del each["seconds"], each["name"]
    assert first == again != other


def test_tables_name_the_bound_and_the_waits(cli: Cli) -> None:
    ran = cli(*SMALL)
    assert ran.exit_code == 0, ran.output
    assert "BOUND" in ran.stdout
    assert "MEAN WAIT" in ran.stdout
    assert ran.stderr == ""


def test_files_and_pictures_are_written(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ran = cli(*SMALL, "--out", str(tmp_path / "out"), "--pictures", "--format", "png")
    assert ran.exit_code == 0, ran.output
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert {"jobs.csv", "samples.csv", "summary.json", "overview.png", "wait-by-size.png"} <= names
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["jobs"] > 0
    assert f"wrote {tmp_path / 'out' / 'overview.png'}" in ran.stdout


def test_pictures_need_a_place_and_matplotlib(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "--pictures needs --out DIR" in said(cli(*SMALL, "--pictures"), 1)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "raysched.sim.pictures", raising=False)
    line = said(cli(*SMALL, "--out", str(tmp_path), "--pictures"), 1)
    assert line == "raysched: matplotlib is missing; it comes with the extra `sim`: pip install 'raysched[sim]'"


def test_a_cluster_too_small_for_the_mix_is_refused(cli: Cli) -> None:
    assert "2 nodes: the largest jobs of the mix need 4" in said(cli("sim", "synthetic", "--nodes", "2"), 1)


def test_a_trace_lies_in_the_folder_or_in_the_folder_of_all_traces(cli: Cli, tmp_path: Path) -> None:
    inner = tmp_path / "philly"
    inner.mkdir()
    philly_folder(inner)
    direct, of_all = (answer(cli("sim", "trace", "philly", str(folder), "--json")) for folder in (inner, tmp_path))
    assert direct["ended"] == of_all["ended"] == {"dropped": 2, "succeeded": 2}
    assert direct["not_played"] == {
        "asks more GPUs than its virtual cluster has": 1,
        "its virtual cluster has no size in philly_vc.csv": 1,
    }


def test_traces_that_are_missing_and_options_that_do_not_go_together(cli: Cli, tmp_path: Path) -> None:
    assert "cannot be read" in said(cli("sim", "trace", "philly", str(tmp_path)), 2)
    assert "philly has one trace" in said(cli("sim", "trace", "philly", str(tmp_path), "--trace", "x"), 1)
    assert "whole number" in said(cli("sim", "trace", "openb", str(tmp_path), "--shrink", "1.5"), 1)
    assert "is missing; traces here: none" in said(cli("sim", "trace", "muri", str(tmp_path)), 2)


def test_philly_by_virtual_cluster_both_ways(cli: Cli, tmp_path: Path) -> None:
    folder = str(philly_folder(tmp_path))
    found = answer(cli("sim", "philly", folder, "--full", "--json"))
    assert [each["quota"] for each in found] == ["nodes of philly_vc.csv over 1", "nodes of philly_vc.csv over 4"]
    assert [pair["share"] for pair in found[0]["pairs"]] == ["vc1", "vc2"]
    ran = cli("sim", "philly", folder, "--full", "--shrink", "1")
    assert ran.exit_code == 0, ran.output
    assert "sharing made nobody's mean or 99th percentile of waits longer" in ran.stdout
    assert "not played" in ran.stdout


@needs_traces
def test_a_few_days_of_ten_tenants(cli: Cli) -> None:
    found = answer(cli("sim", "tenants", str(TRACES), "--days", "1.5", "--percentile", "50", "--json"))
    (each,) = found
    assert each["total"]["without"]["jobs"] == each["total"]["sharing"]["jobs"] > 100
    assert len(each["pairs"]) > 5
    assert set(each["hurt"]) <= {pair["share"] for pair in each["pairs"]}
