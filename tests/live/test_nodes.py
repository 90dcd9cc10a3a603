"""Nodes: one that dies is replaced and comes back as the standby, one that is cordoned takes nothing new."""

from pathlib import Path

import pytest

from tests.live.house import House, await_ids, family, is_alive, node, once, until

pytestmark = pytest.mark.ray


def test_a_killed_node_is_replaced_and_comes_back_as_the_standby(house: House, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    gang = house.submit(once, str(tmp_path / "lines"), gate, gpu=8, count=2)
    kept = house.submit(once, str(tmp_path / "kept"), gate, gpu=8, share="language")
    house.await_state(gang, "running")
    house.await_state(kept, "running")
    until(lambda: len((tmp_path / "lines").read_text().split()) == 2 or None, "both ranks")
    victim = gang.status()["nodes"][1]
    standby = next(name for name, view in house.nodes().items() if view["role"] == "standby")
    ray_id = house.nodes()[victim]["ray_id"]

    house.local.kill(victim)
    # The other two nodes are full: only the standby has room for the lost half.
    view = until(lambda: (v := gang.status())["attempt"] == 2 and v["state"] == "running" and v or None, "attempt 2")
    assert standby in view["nodes"] and victim not in view["nodes"]
    assert house.nodes()[standby]["pool"] == "train"
    assert kept.status()["attempt"] == 1
    Path(gate).touch()
    assert (gang.result(60), kept.result(60)) == ("done", "done")
    assert sorted((tmp_path / "lines").read_text().split()) == ["0", "0", "1", "1"]
    assert (tmp_path / "kept").read_text() == "0\n"

    house.local.add(node(victim))
    until(lambda: house.nodes()[victim]["ray_id"] != ray_id or None, f"{victim} to join again")
    house.await_nodes()
    assert (house.nodes()[victim]["pool"], house.nodes()[victim]["role"]) == ("spares", "standby")


def test_a_job_on_a_killed_node_leaves_no_process(house: House, tmp_path: Path) -> None:
    job = house.submit(family(tmp_path / "ids"), gpu=8)
    pids = await_ids(tmp_path / "ids")
    house.await_state(job, "running")
    victim = job.status()["nodes"][0]
    (tmp_path / "ids").unlink()
    (tmp_path / "ids.daemon").unlink()
    house.local.kill(victim)
    until(lambda: (v := job.status())["attempt"] == 2 and v["state"] == "running" or None, "attempt 2")
    assert [pid for pid in pids if is_alive(pid)] == []
    again = await_ids(tmp_path / "ids")
    job.cancel()
    job.wait(60)
    until(lambda: [pid for pid in again if is_alive(pid)] == [] or None, "the end of the second attempt")
    house.local.add(node(victim))
    until(lambda: house.nodes()[victim]["health"] == "healthy" or None, f"{victim} to be healthy", house.nodes)


def test_a_cordoned_node_takes_nothing_new_until_it_is_uncordoned(house: House, tmp_path: Path) -> None:
    gate = str(tmp_path / "gate")
    runs = house.submit(once, str(tmp_path / "runs"), gate, gpu=8)
    where = house.await_state(runs, "running")["nodes"][0]
    try:
        house.cli("cordon", where, "--reason", "new fans")
        assert house.nodes()[where]["cordoned"] == "new fans"
        Path(gate).touch()
        assert runs.result(60) == "done"  # what runs there goes on
        Path(gate).unlink()
        placed = [house.submit(once, str(tmp_path / "next"), gate, gpu=8) for _ in range(2)]
        assert {house.await_state(job, "running")["nodes"][0] for job in placed} == {
            name for name, view in house.nodes().items() if view["pool"] == "train" and name != where
        }
        waits = house.submit(once, str(tmp_path / "next"), gate, gpu=8)
        until(lambda: waits.status()["reason"], f"{waits.job} to have a reason to wait")
        assert waits.status()["state"] == "queued"
    finally:
        house.cli("uncordon", where)
    assert house.await_state(waits, "running")["nodes"] == [where]
