"""The agent as a whole: what it reports, that it never stops reporting, and when it ends the node's work."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_node import QUICK, FakeNode, until
from raysched_agent.files import OutsideRoot
from raysched_agent.node_agent import NodeAgent

Start = Callable[..., NodeAgent]
EIGHT = {"gpu": 8, "gpu_model": "H100", "cpu_milli": 96_000, "memory_bytes": 2**40, "attach": {"disks": 16}}


class Inbox:
    """A sink that keeps what it got; `down` makes it fail, `slow` makes it never answer."""

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.down = self.slow = False
        self.stuck = self.failed = 0
        self.release = threading.Event()

    def __call__(self, reports: list[dict[str, Any]]) -> None:
        if self.slow:
            self.stuck += 1
            self.release.wait()
        if self.down:
            self.failed += 1
            raise ConnectionError("no scheduler")
        self.reports += reports

    def until(self, holds: Callable[[dict[str, Any]], Any], what: str = "the report") -> dict[str, Any]:
        """The first report from now on that fits."""
        seen = len(self.reports)
        found: dict[str, Any] = until(lambda: next((r for r in self.reports[seen:] if holds(r)), None), what)
        return found


def signals(report: dict[str, Any]) -> dict[str, str]:
    return {one["signal"]: one["class"] for one in report["evidence"]}


def test_a_report_says_what_the_node_is_and_how_it_is_used(node: FakeNode, agent: Start) -> None:
    node.gpu(7, mem_used=1_000_000_000, util=55)

    report = agent(labels={"pool": "train"}).report()

    assert (report["node"], report["ray_id"], report["labels"]) == ("n0", "ab12", {"pool": "train"})
    assert (report["spec"]["gpu"], report["spec"]["gpu_model"], report["measured"]) == (8, "H100", True)
    assert report["spec"]["cpu_milli"] == 1000 * (os.cpu_count() or 1)
    assert (report["nvml"], report["evidence"], report["attempts"]) == ("ok", [], [])
    assert report["use"]["memory_total_bytes"] > report["use"]["memory_used_bytes"] > 0
    assert report["use"]["gpus"][7] == {
        "index": 7,
        "uuid": "GPU-7",
        "name": "NVIDIA H100 80GB HBM3",
        "util_percent": 55,
        "memory_used_bytes": 1_000_000_000,
        "memory_total_bytes": 85_520_809_984,
        "temperature_c": 41,
        "power_mw": 98_000,
        "lost": False,
    }


def test_without_a_library_the_inventory_is_declared(agent: Start, tmp_path: Path) -> None:
    report = agent(EIGHT, nvml_env={"LD_LIBRARY_PATH": str(tmp_path)}).report()

    assert (report["spec"], report["measured"], report["nvml"]) == (EIGHT, False, "absent")
    assert (report["evidence"], report["use"]["gpus"]) == ([], [])


def test_nvml_can_be_left_alone(node: FakeNode, agent: Start) -> None:
    report = agent({"gpu": 3}, nvml=False).report()

    assert (report["spec"]["gpu"], report["measured"], report["nvml"]) == (3, False, "absent")
    assert node.calls() == []


def test_fewer_cards_than_declared_is_evidence_not_a_smaller_node(node: FakeNode, agent: Start) -> None:
    inbox = Inbox()
    agent({"gpu": 9}, inbox)

    report = inbox.until(lambda r: r["evidence"])

    assert (signals(report), report["spec"]["gpu"]) == ({"gpu_count": "FATAL"}, 9)


def test_a_lost_gpu_is_reported_at_once_and_by_name(node: FakeNode, agent: Start) -> None:
    inbox = Inbox()
    agent(EIGHT, inbox, beat_s=3600.0)  # only the change can cause another report
    until(lambda: inbox.reports, "the first report")
    node.gpu(3, lost=True)

    report = inbox.until(lambda r: r["evidence"])

    assert [(e["signal"], e["class"], e["gpu"]) for e in report["evidence"]] == [("gpu_lost", "FATAL", 3)]
    assert "GPU-3" in report["evidence"][0]["detail"]
    assert [(gpu["uuid"], gpu["lost"], gpu["util_percent"]) for gpu in report["use"]["gpus"][2:4]] == [
        ("GPU-2", False, 0),
        ("GPU-3", True, None),
    ]


def test_an_xid_reaches_the_scheduler(node: FakeNode, agent: Start) -> None:
    inbox = Inbox()
    agent(EIGHT, inbox)
    until(lambda: ("nvmlEventSetWait_v2", -1) in node.calls(), "the wait for events")
    node.xid(5, 79)

    report = inbox.until(lambda r: r["evidence"])

    assert [(e["signal"], e["class"], e["gpu"]) for e in report["evidence"]] == [("xid_79", "FATAL", 5)]


def test_the_heartbeat_goes_on_while_nvml_hangs(node: FakeNode, agent: Start) -> None:
    inbox = Inbox()
    agent(EIGHT, inbox)
    until(lambda: inbox.reports, "the first report")
    node.gpu(4, hang={"nvmlDeviceGetTemperatureV": 600})

    hung = inbox.until(lambda r: r["nvml"] == "hung")
    later = inbox.until(lambda r: r["seq"] >= hung["seq"] + 10)
    node.gpu(4, hang={})
    well = inbox.until(lambda r: r["nvml"] == "ok" and not r["evidence"])

    assert "nvml_hung" in signals(hung) and "GPU 4" in hung["evidence"][0]["detail"]
    assert (later["nvml"], later["spec"]["gpu"], len(later["use"]["gpus"])) == ("hung", 8, 8)
    assert later["use"]["gpus"][0]["util_percent"] is None  # not known now is not zero
    assert well["measured"]


def test_a_first_poll_that_hangs_does_not_keep_the_agent_silent(node: FakeNode, agent: Start) -> None:
    first = agent(EIGHT)
    assert first.report()["measured"]
    first.stop()
    node.set(hang={"nvmlInit": 600})

    report = agent(EIGHT, first_poll_wait_s=0.1, deadlines=replace(QUICK, first=3600.0)).report()

    assert (report["nvml"], report["measured"], report["spec"]["gpu"]) == ("error", False, 8)
    assert signals(report) == {"nvml_error": "UNKNOWN"}


def test_a_restart_of_the_agent_does_not_make_a_bad_gpu_healthy(node: FakeNode, agent: Start) -> None:
    node.gpu(3, lost=True)
    first = agent(EIGHT)
    since = first.report()["evidence"][0]["since_ms"]
    first.stop()
    node.gpu(3, lost=False)

    again = agent(EIGHT).report()["evidence"]
    rebooted = agent(EIGHT, boot_id="another-boot").report()["evidence"]

    assert [(e["signal"], e["gpu"], e["since_ms"]) for e in again] == [("gpu_lost", 3, since)]
    assert rebooted == []


def test_the_inventory_is_remembered_so_that_a_missing_card_is_missed(node: FakeNode, agent: Start) -> None:
    first = agent()
    assert first.report()["spec"]["gpu"] == 8
    first.stop()
    node.gpu(3, absent=True)
    inbox = Inbox()
    agent(None, inbox)

    report = inbox.until(lambda r: r["evidence"])

    assert report["spec"]["gpu"] == 8
    assert "missing: GPU 3 (GPU-3" in report["evidence"][0]["detail"]


def test_the_operator_clears_what_is_mended(node: FakeNode, agent: Start) -> None:
    node.gpu(3, lost=True)
    one = agent(EIGHT)
    assert signals(one.report()) == {"gpu_lost": "FATAL"}
    node.gpu(3, lost=False)
    inbox = Inbox()
    threading.Thread(target=one.run, args=(inbox,), daemon=True).start()
    inbox.until(lambda r: not any(gpu["lost"] for gpu in r["use"]["gpus"]))

    assert one.clear("gpu_lost") == []
    assert inbox.until(lambda r: r["seq"] > 3)["evidence"] == []


def test_a_broken_memory_file_costs_the_memory_only(agent: Start, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "memory.json").write_text('{"format": 1, "boot')
    assert agent(EIGHT).report()["evidence"] == []


def test_reports_go_on_after_the_scheduler_was_down(agent: Start) -> None:
    inbox = Inbox()
    agent(EIGHT, inbox)
    before = inbox.until(lambda r: True)
    inbox.down = True
    until(lambda: inbox.failed >= 3, "three refused reports")
    inbox.down = False

    assert inbox.until(lambda r: True)["seq"] >= before["seq"] + 3


def test_reports_go_on_when_a_call_to_the_scheduler_never_comes_back(agent: Start) -> None:
    inbox = Inbox()
    inbox.slow = True
    agent(EIGHT, inbox, answer_within_s=0.2)
    until(lambda: inbox.stuck >= 2, "two calls that hang")
    inbox.slow = False

    assert inbox.until(lambda r: True)["node"] == "n0"
    inbox.release.set()


# ── the lease ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def attempt(tmp_path: Path) -> Any:
    """A process of attempt ana-1/1 on n0, and one of the same cluster on another node of this machine."""
    cluster = f"lease-{os.getpid()}-{tmp_path.name}"

    def start(node: str) -> subprocess.Popen[bytes]:
        env = {**os.environ, "RAYSCHED_ATTEMPT": f"{cluster}:ana-1/1", "RAYSCHED_NODE": node}
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=env)

    here, elsewhere = start("n0"), start("n9")
    yield cluster, here, elsewhere
    for process in (here, elsewhere):
        process.kill()
        process.wait()


def test_attempts_are_reported_and_swept(agent: Start, attempt: Any) -> None:
    cluster, here, _ = attempt
    one = agent(EIGHT, cluster=cluster)
    until(lambda: one.report()["attempts"] == ["ana-1/1"], "the attempt")

    assert one.sweep("ana-1", 2) == {"killed": 0, "clean": True}
    assert one.sweep("ana-1", 1) == {"killed": 2, "clean": True}
    assert here.wait() == -9 and one.report()["attempts"] == []


def test_a_silent_scheduler_ends_the_nodes_work(agent: Start, attempt: Any, caplog: pytest.LogCaptureFixture) -> None:
    cluster, here, elsewhere = attempt
    inbox = Inbox()
    with caplog.at_level(logging.WARNING, "raysched.agent"):
        one = agent(EIGHT, inbox, cluster=cluster, fence_after_ms=1_000)
        for _ in range(3):  # answered: the work goes on
            inbox.until(lambda r: r["attempts"] == ["ana-1/1"])
        assert here.poll() is None and not one.lapsed("ana-1", 1)
        inbox.down = True

        assert here.wait(timeout=20) == -9
        until(lambda: "killed" in caplog.text, "the log line")
    assert "lease over: no answer for" in caplog.text
    assert one.lapsed("ana-1", 1) and not one.lapsed("ana-1", 2)
    assert elsewhere.poll() is None
    inbox.down = False
    assert inbox.until(lambda r: True)["attempts"] == []


def test_a_lease_that_ran_out_while_no_agent_was_there_is_over(agent: Start, attempt: Any, tmp_path: Path) -> None:
    cluster, here, _ = attempt
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "lease.json").write_text('{"boot_id": "b", "answered": -100000.0}')
    inbox = Inbox()
    inbox.down = True

    agent(EIGHT, inbox, cluster=cluster, boot_id="b")

    assert here.wait(timeout=20) == -9


# ── logs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The log root with one rank's log of three characters, one of them two bytes long."""
    (tmp_path / "logs" / "ana-1" / "1").mkdir(parents=True)
    (tmp_path / "logs" / "ana-1" / "1" / "rank0.log").write_text("aéb")
    (tmp_path / "secret.log").write_text("secret")
    return tmp_path / "logs"


def test_a_log_is_read_in_parts(agent: Start, logs: Path) -> None:
    one = agent(EIGHT, nvml=False)

    assert one.read_log("ana-1", 1, 0) == {"data": "aéb", "next": 4, "eof": True}
    assert one.read_log("ana-1", 1, 0, limit=2) == {"data": "a", "next": 1, "eof": False}  # no half character
    assert one.read_log("ana-1", 1, 0, offset=1, limit=2) == {"data": "é", "next": 3, "eof": False}
    assert one.read_log("ana-1", 1, 0, offset=4) == {"data": "", "next": 4, "eof": True}
    assert one.read_log("ana-1", 1, 7, offset=9) == {"data": "", "next": 9, "eof": True}


def test_a_log_outside_the_root_is_refused(agent: Start, logs: Path) -> None:
    one = agent(EIGHT, nvml=False)
    (logs / "ana-1" / "1" / "rank5.log").symlink_to(logs.parent / "secret.log")

    asked: list[tuple[Any, Any, Any]] = [("../logs/ana-1", 1, 0), ("..", 1, 0), ("/etc", 1, 0), ("", 1, 0)]
    asked += [("ana-1", "..", 0), ("ana-1", 1, 5), ("ana-1", 1, "0/../../../../secret")]
    for job, attempt, rank in asked:
        with pytest.raises(OutsideRoot):
            one.read_log(job, attempt, rank)


def test_an_agent_is_named_after_its_node(agent: Start) -> None:
    one = agent(EIGHT, nvml=False)
    assert (repr(one), one.ping()) == ("NodeAgent(n0)", "n0")
