"""A job in the caller's hands: waiting, results, exceptions from the node, output."""

import pickle
import threading
from typing import Any

import cloudpickle
import pytest

import raysched
from raysched.client import Client, JobCancelled, JobFailed, JobHandle, RayschedError, Timeout, UnknownJob
from tests.api.service_double import ServiceDouble


class DivergedError(Exception):
    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        return _missing_on_this_side, ()


def _missing_on_this_side() -> None:
    raise ModuleNotFoundError("No module named 'only_on_the_node'")


@pytest.fixture
def handle(client: Client) -> JobHandle:
    return raysched.submit("true", client=client, share="nlp")


def returned(value: object) -> bytes:
    return bytes(cloudpickle.dumps({"ok": True, "value": value}))


def raised(error: BaseException | None, traceback: str) -> bytes:
    pickled = None if error is None else cloudpickle.dumps(error)
    return bytes(cloudpickle.dumps({"ok": False, "exception": pickled, "traceback": traceback}))


def test_a_result_comes_back(handle: JobHandle, service: ServiceDouble) -> None:
    service.run(handle.job)
    service.end(handle.job, "succeeded", 0, returned({"loss": 0.5}))
    assert handle.wait(5)["state"] == "succeeded"
    assert handle.result(5) == {"loss": 0.5}


def test_waiting_ends_when_the_job_does(handle: JobHandle, service: ServiceDouble) -> None:
    threading.Timer(0.2, service.end, (handle.job, "succeeded", 0)).start()
    assert handle.wait(30)["state"] == "succeeded"
    assert handle.result() is None


def test_patience_ends_with_a_timeout_that_says_why(handle: JobHandle) -> None:
    with pytest.raises(Timeout, match=r"still queued, USER_LIMIT after 0\.1 s"):
        handle.wait(0.1)
    with pytest.raises(TimeoutError):
        handle.result(0)


def test_the_users_exception_is_raised_again_with_its_traceback(handle: JobHandle, service: ServiceDouble) -> None:
    service.end(handle.job, "failed", 1, raised(DivergedError(7), 'File "train.py", line 3, in train'))
    with pytest.raises(DivergedError) as caught:
        handle.result(5)
    assert caught.value.step == 7
    assert isinstance(caught.value.__cause__, JobFailed)
    assert 'File "train.py", line 3' in str(caught.value.__cause__)


@pytest.mark.parametrize("error", [None, Unpicklable()])
def test_an_exception_that_cannot_travel_leaves_its_traceback(
    handle: JobHandle, service: ServiceDouble, error: BaseException | None
) -> None:
    service.end(handle.job, "failed", 1, raised(error, "ValueError: NaN in layer 3"))
    with pytest.raises(JobFailed, match="NaN in layer 3") as caught:
        handle.result(5)
    assert caught.value.job == handle.job
    assert caught.value.traceback == "ValueError: NaN in layer 3"


def test_a_result_that_cannot_be_read_here_is_said(handle: JobHandle, service: ServiceDouble) -> None:
    service.end(handle.job, "succeeded", 0, returned(Unpicklable()))
    with pytest.raises(RayschedError, match="only_on_the_node"):
        handle.result(5)


def test_a_failed_command_has_its_exit_code(handle: JobHandle, service: ServiceDouble) -> None:
    service.end(handle.job, "failed", 3)
    with pytest.raises(JobFailed, match="exit code 3") as caught:
        handle.result(5)
    assert caught.value.exit_code == 3


def test_a_cancelled_job_has_no_result(handle: JobHandle) -> None:
    handle.cancel()
    with pytest.raises(JobCancelled, match=handle.job):
        handle.result(5)


def test_output_is_read_whole_or_followed(handle: JobHandle, service: ServiceDouble) -> None:
    service.run(handle.job, "one\n")
    assert handle.logs() == "one\n"
    pieces = handle.logs(follow=True)
    assert next(pieces) == "one\n"
    service.output[handle.job] += "two\n"
    assert next(pieces) == "two\n"
    service.end(handle.job, "succeeded", 0)
    service.output[handle.job] += "last\n"
    assert list(pieces) == ["last\n"]


def test_long_output_is_read_in_pieces(handle: JobHandle, service: ServiceDouble) -> None:
    service.run(handle.job, "x" * 200_000)
    assert len(handle.logs()) == 200_000


def test_explain_and_status(handle: JobHandle) -> None:
    assert handle.explain()["reason"] == "USER_LIMIT"
    assert handle.status()["state"] == "queued"


def test_an_unknown_job_is_an_error_of_its_own(client: Client) -> None:
    nobody = JobHandle("none", client)
    for look in (nobody.status, nobody.wait, nobody.result, nobody.explain, nobody.logs, nobody.cancel):
        with pytest.raises(UnknownJob, match="none"):
            look()


def test_a_handle_can_be_pickled(handle: JobHandle) -> None:
    assert pickle.loads(pickle.dumps(handle)).job == handle.job


def test_many_are_submitted_in_one_step(client: Client) -> None:
    from raysched.client.spec import build_spec

    good = build_spec({"share": "nlp", "gpu": 1}, None, "ana")
    bad = build_spec({"share": "nlp", "gpu": 16}, None, "ana")
    first, second = client.submit_many([good, bad])
    assert first == good["job"]
    assert isinstance(second, RayschedError)
    assert second.code == "OVER_NODE_MAX"
