"""What goes wrong is said in one clear line, and the running whole goes on."""

import json
import resource
import socket
from pathlib import Path

import pytest

import raysched
from raysched.client.client import Client
from raysched.runtime import bringup
from raysched.runtime.quota_actor import NAME as QUOTA
from raysched.runtime.scheduler_actor import NAME as SCHEDULER
from tests.live.house import House, once, until

pytestmark = pytest.mark.ray


def test_an_unknown_share_is_refused_by_name(house: House) -> None:
    with pytest.raises(raysched.SubmitRefused, match="UNKNOWN_SHARE: .*visoin") as refused:
        house.submit(["true"], share="visoin", gpu=1)
    assert (refused.value.code, refused.value.status) == ("UNKNOWN_SHARE", 404)


def test_a_bundle_that_no_node_can_hold_is_refused_with_the_numbers(house: House) -> None:
    with pytest.raises(raysched.SubmitRefused, match="OVER_NODE_MAX") as refused:
        house.submit(["true"], gpu=9)
    rows = [finding["rows"] for finding in refused.value.findings if finding["kind"] == "OVER_NODE_MAX"]
    assert rows[0]["gpu"] == {"limit": 8_000, "requested": 9_000, "excess": 1_000}
    assert "9" in house.cli("submit", "--share", "vision", "--gpu", "9", "--", "true", check=1)


def test_a_job_over_its_users_limit_is_refused(house: House) -> None:
    with pytest.raises(raysched.SubmitRefused, match="OVER_USER_LIMIT"):
        house.submit(["true"], user="bo", gpu=5)


def test_where_no_ray_is_it_is_said(house: House) -> None:
    address = f"127.0.0.1:{bringup.free_port()}"
    told = json.loads(house.cli("--address", address, "ps", "--json", check=1))["error"]
    assert told["code"] == "NOT_RUNNING"
    assert f"nothing answers at {address}" in told["message"] and "raysched up" in told["message"]


def test_a_bad_configuration_is_named_with_file_line_and_key(house: House, tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("version: 1\ncluster: bad\npools: {train: {}}\nshares:\n  a: {nominl: {train: {gpu: 8}}}\n")
    said = house.cli("up", "-c", str(path), "--local-nodes", check=1)
    assert "bad.yaml" in said and "nominl" in said and "nominal" in said and "5" in said


def test_a_port_in_use_is_said_before_anything_starts(house: House, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = house.cli("up", "-c", "configs/local-demo.yaml", "--local-nodes", "--api-port", port, check=1)
    assert port in said and "--api-port" in said
    assert not (house.base / "home" / "cluster.json").exists()


def test_a_full_disk_stops_new_work_only(house: House, tmp_path: Path) -> None:
    late, early = str(tmp_path / "late"), str(tmp_path / "early")
    runs = house.submit(once, str(tmp_path / "runs"), late, gpu=1)
    function = house.submit(once, str(tmp_path / "function"), early, gpu=1)
    command = house.submit(["sh", "-c", f"while ! test -e {early}; do sleep 0.1; done"], gpu=1)
    for job in (runs, function, command):
        house.await_state(job, "running")
    pids = [house.pid_of(name) for name in (SCHEDULER, QUOTA)]
    for pid in pids:
        _no_more_room(pid, full=True)
    try:
        with pytest.raises(raysched.RayschedError, match="nothing was changed.*nothing was kept") as failed:
            house.client.submit(_spec("refused"))
        assert failed.value.code == "STORE_FAILED"
        Path(early).touch()  # two jobs end while nothing can be written
        until(lambda: house.client.health()["status"] == "store_failed" or None, "the scheduler to notice")
        assert runs.status()["state"] == "running"
    finally:
        for pid in pids:
            _no_more_room(pid, full=False)
    assert function.result(60) == "done"
    assert command.wait(60)["state"] == "succeeded"
    assert house.client.health()["status"] == "ok"
    Path(late).touch()
    assert runs.result(60) == "done"
    with pytest.raises(raysched.UnknownJob):
        house.client.job("refused")
    assert [house.pid_of(name) for name in (SCHEDULER, QUOTA)] == pids


def _no_more_room(pid: int, full: bool) -> None:
    """No file of the process may grow, or all may again."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1 if full else hard, hard))


def _spec(job: str) -> dict[str, object]:
    bundles = [{"gpu_milli": 1_000}]
    return {
        "job": job,
        "user": "ana",
        "share": "vision",
        "bundles": bundles,
        "run": {"type": "command", "argv": ["true"]},
    }


def test_the_clients_own_mistakes_are_said_without_the_cluster() -> None:
    for options, what in (({"gpu": 1.5}, "whole number"), ({"gpu": 1, "priority": "P11"}, "P0"), ({}, "share")):
        given = {"share": "vision", **options} if options else {"gpu": 1}
        with pytest.raises(raysched.BadSpec, match=what):
            raysched.submit(["true"], client=Client("127.0.0.1:1"), **given)
