"""The Python door on the running whole: results, exceptions, output, reasons, contexts, what a job sees of itself."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import raysched
from tests.live.house import House, until

pytestmark = pytest.mark.ray


def speak(numbers: list[int], factor: int = 1) -> list[int]:
    """Answer and say something."""
    print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']}", flush=True)
    return [number * factor for number in numbers]


def own_context() -> Any:
    """What a job knows about itself."""
    return raysched.current_job(), os.environ["CUDA_VISIBLE_DEVICES"]


class OutOfMemory(Exception):
    """An exception class that only the caller has."""


def fail() -> None:
    raise OutOfMemory("of 80 GiB 79.6 are in use")


def test_a_function_answers_with_its_value(house: House) -> None:
    assert house.submit(speak, [1, 2], kwargs={"factor": 3}, gpu=1).result(60) == [3, 6]


def test_the_output_of_both_ranks_of_a_gang_is_there(house: House) -> None:
    job = house.submit(speak, [1], gpu=8, count=2)
    assert job.result(60) == [1]
    assert [job.logs(rank=rank) for rank in (0, 1)] == ["rank 0 of 2\n", "rank 1 of 2\n"]
    assert "".join(job.logs(follow=True)) == "rank 0 of 2\n"
    assert house.cli("logs", job.job, "--rank", "1") == "rank 1 of 2\n"


def test_an_exception_comes_back_as_itself_with_the_traceback_of_the_node(house: House) -> None:
    job = house.submit(fail, gpu=1)
    with pytest.raises(OutOfMemory, match="79.6") as raised:
        job.result(60)
    assert isinstance(raised.value.__cause__, raysched.JobFailed)
    assert "in fail" in str(raised.value.__cause__.traceback)
    assert "OutOfMemory: of 80 GiB" in job.logs()


def test_a_job_knows_who_it_is_and_which_gpus_it_has(house: House) -> None:
    job = house.submit(own_context, gpu=2, user="cy", share="language")
    context, visible = job.result(60)
    view = job.status()
    assert (context.job, context.user, context.share, context.attempt) == (job.job, "cy", "language", 1)
    assert visible == ",".join(context.devices)
    assert view["devices"] == {context.nodes[0]: [int(device) for device in context.devices]}


def test_a_waiting_job_says_what_it_waits_for_and_with_which_numbers(house: House) -> None:
    house.submit(["sleep", "600"], user="bo", gpu=4)
    waits = house.submit(["true"], user="bo", gpu=1)
    until(lambda: waits.status()["reason"], "a reason")
    found = waits.explain()
    assert (waits.status()["state"], found["reason"]) == ("queued", "USER_LIMIT")
    assert "4" in found["text"] and "bo" in found["text"], found
    told = house.cli("explain", waits.job)
    assert found["text"] in told.replace("\n", " ")


def test_a_quota_context_is_what_is_charged(house: House) -> None:
    with raysched.QuotaContext("di", "language"):
        job = raysched.submit(["sleep", "600"], gpu=2, client=house.client)
    house.submitted.append(job)
    house.await_state(job, "running")
    usage = house.client.usage()
    assert usage["shares"]["language"] and not usage["shares"]["vision"], usage
    assert house.client.quota("di", "language")[0]["kinds"]["gpu"]["used"] == 2_000


def test_an_entrypoint_gets_its_directory_and_its_settings(house: House, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import json, os\nprint(json.dumps([os.environ['LR'], open('data').read()]))\n")
    (tmp_path / "data").write_text("42")
    job = house.submit("python main.py", gpu=1, working_dir=tmp_path, env={"LR": "0.1"})
    assert job.wait(60)["exit_code"] == 0
    assert json.loads(job.logs()) == ["0.1", "42"]


def test_the_command_line_submits_waits_and_ends_like_the_job(house: House) -> None:
    words = ("submit", "--share", "vision", "--gpu", "1")
    assert "hello" in house.cli(*words, "--name", "told", "--wait", "--", "echo", "hello")
    assert json.loads(house.cli("show", "told", "--json"))["state"] == "succeeded"
    house.cli(*words, "--wait", "--", "sh", "-c", "exit 3", check=3)
