"""Submitting from Python: functions, commands, options, and on whose account."""

import asyncio
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

import raysched
from raysched.client import BadSpec, Client, QuotaContext, SubmitRefused, current_quota
from raysched.client.payload import MAX_BLOB_BYTES
from tests.api.service_double import ServiceDouble

FACTOR = 3


def scaled(value: int, *, times: int = FACTOR) -> int:
    """A function of a module that the nodes do not have."""
    return value * times


def spec_of(service: ServiceDouble, handle: raysched.JobHandle) -> dict[str, Any]:
    return service.specs[handle.job]


def call_of(service: ServiceDouble, handle: raysched.JobHandle) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
    payload = spec_of(service, handle)["run"]["payload"]
    function, args, kwargs = cloudpickle.loads(service.blobs[payload])
    return function, args, kwargs


def test_a_function_travels_with_its_arguments(client: Client, service: ServiceDouble) -> None:
    handle = raysched.submit(scaled, 4, kwargs={"times": 2}, client=client, share="nlp", gpu=1)
    function, args, kwargs = call_of(service, handle)
    assert function(*args, **kwargs) == 8
    assert spec_of(service, handle)["run"]["name"] == "tests.client.test_submit.scaled"


def test_the_callers_own_module_travels_by_value(client: Client, service: ServiceDouble) -> None:
    handle = raysched.submit(scaled, 4, client=client, share="nlp")
    function, args, _ = call_of(service, handle)
    assert function is not scaled
    assert function(*args) == 12


def test_an_installed_function_is_imported_where_it_runs(client: Client, service: ServiceDouble) -> None:
    handle = raysched.submit(pickle.dumps, [1], client=client, share="nlp")
    assert call_of(service, handle)[0] is pickle.dumps


def test_a_closure_travels_with_what_it_holds(client: Client, service: ServiceDouble) -> None:
    held = {"lr": 0.1}
    function, _, _ = call_of(service, raysched.submit(lambda: held, client=client, share="nlp"))
    assert function() == {"lr": 0.1}


def test_what_cannot_be_pickled_is_said(client: Client, service: ServiceDouble) -> None:
    with pytest.raises(BadSpec, match="scaled or its arguments cannot be pickled"):
        raysched.submit(scaled, threading.Lock(), client=client, share="nlp")
    assert service.specs == {}


def test_arguments_that_are_too_large_are_refused_with_the_size(client: Client) -> None:
    with pytest.raises(BadSpec, match=r"takes 65\.\d MiB; at most 64 MiB"):
        raysched.submit(len, b"\0" * (MAX_BLOB_BYTES + 2**20), client=client, share="nlp")


def test_a_command_is_split_as_a_shell_would(client: Client, service: ServiceDouble) -> None:
    handle = raysched.submit("python train.py --name 'a b' $HOME", client=client, share="nlp", env={"LR": "1"})
    run = spec_of(service, handle)["run"]
    assert run["argv"] == ["python", "train.py", "--name", "a b", "$HOME"]
    assert run["env"] == {"LR": "1"}


def test_a_working_directory_goes_with_a_command(client: Client, service: ServiceDouble, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hello')")
    handle = raysched.submit(["python", "train.py"], client=client, share="nlp", working_dir=tmp_path)
    assert service.blobs[spec_of(service, handle)["run"]["working_dir"]].startswith(b"PK")
    with pytest.raises(BadSpec, match="working_dir goes with a command"):
        raysched.submit(scaled, 1, client=client, share="nlp", working_dir=tmp_path)


def test_quantities_are_read_as_people_write_them(client: Client, service: ServiceDouble) -> None:
    handle = raysched.submit(
        "true",
        client=client,
        share="nlp",
        gpu="500m",
        cpu=1.5,
        memory="512Gi",
        count=2,
        priority="p1",
        max_runtime="2h",
        checkpoint_every=600,
        tags={"kind": "speech"},
        retries=2,
    )
    spec = spec_of(service, handle)
    assert spec["bundles"] == [{"gpu_milli": 500, "cpu_milli": 1500, "memory_bytes": 512 * 2**30, "count": 2}]
    assert (spec["priority"], spec["retries"], spec["tags"]) == (1, 2, {"kind": "speech"})
    assert (spec["max_runtime_ms"], spec["checkpoint_every_ms"]) == (7_200_000, 600_000)


def test_several_kinds_of_bundles(client: Client, service: ServiceDouble) -> None:
    bundles: list[Any] = [raysched.Bundle(gpu=8, attach={"disks": 2}), {"cpu": 4, "count": 3}]
    handle = raysched.submit("true", client=client, share="nlp", bundles=bundles)
    assert spec_of(service, handle)["bundles"] == [
        {"gpu_milli": 8000, "attach": {"disks": 2}},
        {"cpu_milli": 4000, "count": 3},
    ]


def test_a_job_that_asks_for_nothing_gets_a_core(client: Client, service: ServiceDouble) -> None:
    handle = raysched.submit("true", client=client, share="nlp")
    assert spec_of(service, handle)["bundles"] == [{"cpu_milli": 1000}]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gpu": 1.5}, "gpu: 1.5 in one bundle"),
        ({"gpu": -1}, "-1"),
        ({"gpu": True}, "True"),
        ({"gpu": 0}, "asks for nothing"),
        ({"memory": "5Xi"}, "5Xi"),
        ({"count": 0}, "count: 0"),
        ({"bundles": []}, "empty"),
        ({"bundles": [{"gpus": 1}]}, "unknown key 'gpus'"),
        ({"bundles": [{"gpu": 1}], "gpu": 1}, "both given"),
        ({"priority": 10}, "priority: 10"),
        ({"max_runtime": "soon"}, "max_runtime: 'soon'"),
        ({"tags": {"a": 1}}, "tags"),
        ({"env": {"A": 1}}, "env"),
        ({"workload": "gaming"}, "gaming"),
        ({"topology": "near"}, "near"),
        ({"retries": -1}, "retries"),
        ({"runtime_env": {"a": object()}}, "runtime_env"),
    ],
)
def test_a_wrong_option_is_said_before_anything_is_sent(
    client: Client, service: ServiceDouble, options: Any, said: str
) -> None:
    with pytest.raises(BadSpec, match=said):
        raysched.submit("true", client=client, share="nlp", **options)
    assert service.specs == {}


@pytest.mark.parametrize("command", ["", [], "echo 'open", [1], [""]])
def test_a_command_that_is_none_is_refused(client: Client, command: Any) -> None:
    with pytest.raises(BadSpec, match="command"):
        raysched.submit(command, client=client, share="nlp")


def test_an_unknown_option_names_the_nearest(client: Client) -> None:
    with pytest.raises(TypeError, match="did you mean 'share'"):
        raysched.submit("true", client=client, shar="nlp")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="kwargs="):
        raysched.submit(scaled, 1, client=client, share="nlp", zzz=2)  # type: ignore[call-arg]


def test_a_refusal_carries_its_findings(client: Client) -> None:
    with pytest.raises(SubmitRefused, match="largest node") as caught:
        raysched.submit("true", client=client, share="nlp", gpu=9)
    assert caught.value.code == "OVER_NODE_MAX"
    assert caught.value.findings[0]["rows"]["gpu"]["excess"] == 1000


def test_names_are_made_and_kept(client: Client) -> None:
    made = {raysched.submit("true", client=client, share="nlp").job for _ in range(20)}
    assert len(made) == 20
    assert all(name.startswith("ana-") for name in made)
    assert raysched.submit("true", client=client, share="nlp", name="mine").job == "mine"
    with pytest.raises(SubmitRefused, match="mine"):
        raysched.submit("true", client=client, share="nlp", name="mine")


# ── on whose account ──────────────────────────────────────────────────────────────────────────────────────────────


def account(service: ServiceDouble, handle: raysched.JobHandle) -> tuple[str, str, str | None]:
    spec = spec_of(service, handle)
    return spec["user"], spec["share"], spec.get("workspace")


def test_a_context_is_given_or_entered(client: Client, service: ServiceDouble) -> None:
    nlp = QuotaContext("ana", "nlp", workspace="research")
    assert account(service, raysched.submit("true", client=client, quota=nlp)) == ("ana", "nlp", "research")
    with nlp:
        assert account(service, raysched.submit("true", client=client)) == ("ana", "nlp", "research")


def test_the_inner_context_wins_and_the_outer_comes_back(client: Client, service: ServiceDouble) -> None:
    nlp, cv = QuotaContext("ana", "nlp"), QuotaContext("bo", "cv")
    with nlp:
        with cv, nlp:
            assert current_quota() is nlp
        assert account(service, raysched.submit("true", client=client, quota=cv))[:2] == ("bo", "cv")
        assert account(service, raysched.submit("true", client=client, share="cv"))[:2] == ("ana", "cv")
        with pytest.raises(ZeroDivisionError), cv:
            raise ZeroDivisionError
        assert current_quota() is nlp
    assert current_quota() is None


def test_threads_and_tasks_do_not_share_an_entered_context() -> None:
    seen: list[QuotaContext | None] = []

    async def inside(context: QuotaContext, entered: asyncio.Barrier) -> bool:
        with context:
            await entered.wait()
            return current_quota() is context

    async def both() -> tuple[bool, bool]:
        entered = asyncio.Barrier(2)
        return await asyncio.gather(inside(QuotaContext("a", "x"), entered), inside(QuotaContext("b", "y"), entered))

    with QuotaContext("ana", "nlp"):
        thread = threading.Thread(target=lambda: seen.append(current_quota()))
        thread.start()
        thread.join()
        assert all(asyncio.run(both()))
    assert seen == [None]


def test_without_a_share_nothing_is_submitted(client: Client) -> None:
    with pytest.raises(BadSpec, match="no share to charge"):
        raysched.submit("true", client=client)


def test_who_submits_for_somebody_else_is_recorded(client: Client, service: ServiceDouble) -> None:
    handle = raysched.submit("true", client=client, user="bo", share="nlp")
    assert (spec_of(service, handle)["user"], spec_of(service, handle)["submitted_by"]) == ("bo", "ana")


# ── the decorator ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_decorated_function_is_submitted_with_its_own_arguments(client: Client, service: ServiceDouble) -> None:
    @raysched.job(gpu=1, share="nlp", client=client)
    def train(epochs: int, *, share: str = "of data") -> str:
        """Train."""
        return f"{epochs} on a {share}"

    handle = train.submit(3, share="part")
    function, args, kwargs = call_of(service, handle)
    assert function(*args, **kwargs) == "3 on a part"
    assert spec_of(service, handle)["share"] == "nlp"
    assert train(1) == "1 on a of data"
    assert train.__doc__ == "Train."


def test_options_are_changed_on_a_copy(client: Client, service: ServiceDouble) -> None:
    @raysched.job(gpu=1, share="nlp", client=client)
    def train() -> None: ...

    large = train.options(gpu=8, count=2, priority=0)
    assert spec_of(service, large.submit())["bundles"] == [{"gpu_milli": 8000, "count": 2}]
    assert spec_of(service, train.submit())["bundles"] == [{"gpu_milli": 1000}]
    with pytest.raises(TypeError, match="did you mean 'gpu'"):
        train.options(gpus=8)  # type: ignore[call-arg]


def test_a_decorated_function_of_a_module_can_be_submitted_plainly(client: Client, service: ServiceDouble) -> None:
    decorated = raysched.job(gpu=1, share="cv", client=client)(scaled)
    handle = raysched.submit(decorated, 2, client=client, share="nlp")
    function, args, _ = call_of(service, handle)
    assert function(*args) == 6
