"""Administration over REST, with its effect on real jobs: a share is stopped, a limit lowered, a reservation made, an
override given; each change is previewed first and taken back in the end, and the ledger of all of it agrees."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import raysched
from raysched.client.handle import JobHandle
from raysched.runtime import bringup
from tests.live.house import House, until

pytestmark = pytest.mark.ray
LIMITS = {"enabled": True, "rules": [{"user": "bo", "gpu": 4}]}


class Rest:
    """The API of the cluster, asked as its administrator."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}/v1"

    def __call__(self, method: str, path: str, body: Any = None, status: int = 200) -> Any:
        answer = httpx.request(method, self.base + path, json=body, headers={"X-Raysched-User": "root"}, timeout=60)
        assert answer.status_code == status, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def rest(started: House, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rest]:
    """The API as a process of its own."""
    port = bringup.free_port()
    pid = bringup.start_api(started.local.address, port, tmp_path_factory.mktemp("api"))
    yield Rest(port)
    os.kill(pid, signal.SIGTERM)


@pytest.fixture
def desk(house: House, rest: Rest) -> Iterator[Rest]:
    """The API; what a test changed of the shares is set right again before the cluster comes to rest."""
    yield rest
    rest("POST", "/shares/language/open")
    rest("PATCH", "/shares/vision/limits", LIMITS)


def sleeping(house: House, gpu: float, **options: Any) -> JobHandle:
    return house.submit(["sleep", "600"], gpu=gpu, grace="1s", **options)


def await_reason(job: JobHandle, reason: str) -> None:
    until(lambda: job.status()["reason"] == reason or None, f"{job.job} to wait for {reason}", job.status)


def test_a_stopped_share_takes_no_new_jobs_and_lets_those_present_run_out(house: House, desk: Rest) -> None:
    present = sleeping(house, 2, share="language")
    house.await_state(present, "running")
    preview = desk("POST", "/shares/language/stop?dry_run=true")
    assert preview["changed"]["after"]["state"] == "stopped"
    house.await_state(sleeping(house, 1, share="language"), "running")  # it was only a preview
    desk("POST", "/shares/language/stop")
    with pytest.raises(raysched.SubmitRefused, match="SHARE_STOPPED"):
        sleeping(house, 1, share="language")
    assert present.status()["state"] == "running"
    desk("POST", "/shares/language/open")
    house.await_state(sleeping(house, 1, share="language"), "running")


def test_a_lowered_limit_stops_nobody_and_holds_the_next_until_it_is_rolled_back(house: House, desk: Rest) -> None:
    running = sleeping(house, 4)
    house.await_state(running, "running")
    before = desk("GET", "/shares/vision/history")[-1]["version"]
    lowered = {"rules": [*LIMITS["rules"], {"user": "ana", "gpu": 4}]}  # type: ignore[misc]
    preview = desk("PATCH", "/shares/vision/limits?dry_run=true", {**lowered, "rules": [{"user": "ana", "gpu": 1}]})
    assert preview["effects"]["over"][0]["jobs"] == [running.job]
    desk("PATCH", "/shares/vision/limits", lowered)
    waiting = sleeping(house, 2)
    await_reason(waiting, "USER_LIMIT")
    assert running.status()["state"] == "running"
    explained = desk("GET", f"/jobs/{waiting.job}/explain")
    assert explained["blockers"][0]["numbers"]["limit"] == 4_000
    desk("POST", "/shares/vision/rollback", {"version": before})
    house.await_state(waiting, "running")
    assert running.status()["state"] == "running"


def test_a_reservation_keeps_room_for_its_owner_until_it_is_released(house: House, desk: Rest) -> None:
    keys = {"name": "campaign", "owner": {"share": "language"}, "pool": "train", "amounts": {"gpu": 18}}
    desk("POST", "/reservations", {**keys, "release_condition": "the campaign is over"}, 201)
    others = sleeping(house, 8)
    await_reason(others, "RESERVED")
    owners = sleeping(house, 8, share="language")
    house.await_state(owners, "running")
    (book,) = [book for book in desk("GET", "/reservations") if book["reservation"] == "campaign"]
    assert (book["state"], book["drawn"]["gpu"]) == ("active", 8_000)
    assert others.status()["state"] == "queued"
    (step,) = desk("GET", f"/jobs/{others.job}/explain")["change"]["steps"]
    assert step["params"] == {"action": "release", "params": {"reservation": "campaign"}}
    desk("DELETE", "/reservations/campaign")
    house.await_state(others, "running")


def test_an_override_with_authority_admits_more_and_one_without_blocks(house: House, desk: Rest) -> None:
    desk("PATCH", "/shares/vision/limits", {"rules": [*LIMITS["rules"], {"user": "eve", "gpu": 2}]})  # type: ignore[misc]
    house.await_state(sleeping(house, 2, user="eve"), "running")
    waiting = sleeping(house, 2, user="eve")
    await_reason(waiting, "USER_LIMIT")
    keys = {"user": "eve", "share": None, "amounts": {"gpu": 2}, "for": "1h", "reason": "the deadline"}
    desk("POST", "/overrides", keys, 201)
    await_reason(waiting, "OVERRIDE_BLOCKED")
    desk("POST", "/overrides", {**keys, "authority": "cto"}, 201)
    house.await_state(waiting, "running")
    record = desk("GET", f"/jobs/{waiting.job}/records")[-1]
    assert (record["admission_state"], record["override_authority"]) == ("ADMITTED_OVERRIDE", "cto")


def test_the_whole_ledger_agrees_live_and_from_its_file(house: House, desk: Rest) -> None:
    """Of everything that was done on this cluster up to here."""
    job = sleeping(house, 1)
    house.await_state(job, "running")
    found = desk("GET", "/ledger/verify")
    assert found["disagreements"] == [] and found["decided"] >= found["compared"] > 0
    assert "all rows agree" in house.cli("ledger", "verify")
    assert "the chain of digests is whole" in house.cli(
        "ledger", "verify", "--store", str(house.base / "data" / "ledger.db")
    )
    assert "attempt 1: ADMITTED" in house.cli("ledger", "show", job.job)
