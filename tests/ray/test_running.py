"""Jobs run in their bundles: functions, entrypoints, gangs."""

import io
import json
import os
import sys
import zipfile
from typing import Any

import cloudpickle
import pytest

from raysched.core.events import GangReady
from raysched.core.model import Bundle, CommandRun
from tests.ray.shell import Shell, gpus, on, ray_id_of

pytestmark = pytest.mark.ray

cloudpickle.register_pickle_by_value(sys.modules[__name__])


def environment() -> dict[str, str]:
    return dict(os.environ)


def script(text: str) -> CommandRun:
    return CommandRun(("python", "-c", text))


def directory(shell: Shell, files: dict[str, str]) -> str:
    """A stored working directory with executable files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in files.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = 0o755 << 16
            archive.writestr(member, text)
    return shell.put_blob(buffer.getvalue())


# ── functions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_function_runs_on_the_node_of_its_placement_and_returns_its_value(shell: Shell) -> None:
    def where() -> str:
        import ray

        return str(ray.get_runtime_context().get_node_id())

    ended = shell.run_to_end("where", [gpus(1)], (on("n1"),), shell.function(where))
    assert shell.value(ended) == ray_id_of("n1")
    assert shell.remove("where").unfenced == ()


def test_what_a_function_and_its_children_print_is_in_its_log(shell: Shell) -> None:
    def shout() -> int:
        print("from python")
        return os.system("echo from a child; exit 3") >> 8

    assert shell.value(shell.run_to_end("shout", [gpus(0)], (on("n0"),), shell.function(shout))) == 3
    assert shell.log("shout") == "from python\nfrom a child\n"


def test_an_exception_comes_back_with_its_traceback_and_itself(shell: Shell) -> None:
    def divide(number: int) -> float:
        return number / 0

    ended = shell.run_to_end("divide", [gpus(0)], (on("n0"),), shell.function(divide, 8))
    assert ended.outcome == "failed" and ended.exit_code == 1
    assert "in divide" in ended.detail and "ZeroDivisionError" in ended.detail
    assert ended.result is not None
    raised = cloudpickle.loads(shell.blobs[ended.result])
    assert isinstance(cloudpickle.loads(raised["exception"]), ZeroDivisionError)
    assert "in divide" in shell.log("divide")


def test_a_function_knows_its_job(shell: Shell) -> None:
    def who() -> Any:
        from raysched.runtime.context import current_job

        return current_job()

    job = shell.value(shell.run_to_end("who", [gpus(2)], (on("n1"),), shell.function(who)))
    assert (job.job, job.attempt, job.share, job.user) == ("who", 1, "team", "ann")
    assert (job.rank, job.world_size, job.nodes, len(job.devices)) == (0, 1, ("n1",), 2)
    assert len(job.placement_group) == 36


def test_what_a_function_starts_in_ray_runs_inside_its_own_group(shell: Shell) -> None:
    def spread() -> tuple[str, str]:
        import ray

        @ray.remote(num_cpus=1)
        def inner() -> str:
            return str(ray.util.get_current_placement_group().id.hex())

        return ray.util.get_current_placement_group().id.hex(), ray.get(inner.remote())

    own, inner = shell.value(shell.run_to_end("spread", [gpus(0, cpus=2)], (on("n0"),), shell.function(spread)))
    assert own == inner


def test_the_runtime_env_of_a_job_reaches_its_rank(shell: Shell) -> None:
    settings = json.dumps({"env_vars": {"FROM_RUNTIME_ENV": "yes"}})
    run = shell.function(environment, runtime_env=settings)
    assert shell.value(shell.run_to_end("renv", [gpus(0)], (on("n0"),), run))["FROM_RUNTIME_ENV"] == "yes"


# ── entrypoints ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_entrypoint_ends_with_its_exit_code_and_its_output_is_kept(shell: Shell) -> None:
    ended = shell.run_to_end("exits", [gpus(0)], (on("n0"),), script("import sys; print('seven'); sys.exit(7)"))
    assert (ended.outcome, ended.exit_code) == ("failed", 7)
    assert shell.log("exits") == "seven\n"


def test_an_entrypoint_runs_in_its_working_directory(shell: Shell) -> None:
    files = {"main.sh": "#!/bin/sh\ncat data/answer\n", "data/answer": "42\n"}
    ended = shell.run_to_end("dir", [gpus(0)], (on("n0"),), CommandRun(("./main.sh",), directory(shell, files)))
    assert (ended.outcome, ended.exit_code) == ("succeeded", 0)
    assert shell.log("dir") == "42\n"


def test_a_program_that_does_not_exist_is_named(shell: Shell) -> None:
    ended = shell.run_to_end("typo", [gpus(0)], (on("n0"),), CommandRun(("pyhton", "x.py")))
    assert (ended.outcome, ended.exit_code) == ("failed", 127)
    assert "pyhton" in ended.detail


def test_an_entrypoint_sees_its_job_and_nothing_of_ray(shell: Shell) -> None:
    text = "import json, os; print(json.dumps(dict(os.environ)))"
    env = {"MINE": "1", "CUDA_VISIBLE_DEVICES": "7", "RAYSCHED_JOB": "another"}
    run = CommandRun(("python", "-c", text), env=env)
    started = shell.run("env", [gpus(1)], (on("n0"),), run)
    assert shell.end("env").outcome == "succeeded"
    seen = json.loads(shell.log("env"))
    assert [name for name in seen if name.startswith("RAY_")] == []
    assert (seen["RAYSCHED_JOB"], seen["RAYSCHED_ATTEMPT"], seen["MINE"]) == ("env", "test:env/1", "1")
    assert seen["CUDA_VISIBLE_DEVICES"] == str(started.devices[0][0])
    assert seen["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


# ── devices ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_whole_gpus_are_distinct_fractions_share_one_and_none_is_none(shell: Shell) -> None:
    def visible() -> str:
        return os.environ["CUDA_VISIBLE_DEVICES"]

    def seen(job: str, bundle: Bundle) -> tuple[str, tuple[int, ...]]:
        started = shell.run(job, [bundle], (on("n0"),), shell.function(visible))
        text = shell.value(shell.end(job))
        assert text == ",".join(map(str, started.devices[0]))
        return text, started.devices[0]

    _, three = seen("three", gpus(3))
    _, two = seen("two", gpus(2))
    assert len({*three, *two}) == 5
    half, other = seen("half", gpus(0.5)), seen("other", gpus(0.5))
    assert half == other and not {*half[1]} & {*three, *two}
    assert seen("none", gpus(0)) == ("", ())


def test_bundles_of_one_node_share_a_ray_bundle_and_keep_their_devices_apart(shell: Shell) -> None:
    placement = (on("n0", 0, count=2), on("n0", 1))
    started = shell.run("mixed", [gpus(2), gpus(0.5)], placement, script("print('up')"))
    assert shell.end("mixed").outcome == "succeeded"
    whole, part = started.devices
    assert len(whole) == 4 and len(part) == 1 and len({*whole, *part}) == 5
    assert [shell.log("mixed", rank) for rank in range(3)] == ["up\n"] * 3


# ── gangs ─────────────────────────────────────────────────────────────────────────────────────────────────────────

MEET = """
import os, socket
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(where) as door:
        for _ in range(world - 1):
            line, _ = door.accept()
            print("met", line.recv(100).decode())
else:
    import time
    while True:
        try:
            line = socket.create_connection(where)
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    line.sendall(("rank %s of %s, local %s of %s" % (rank, world, os.environ["LOCAL_RANK"], os.environ["LOCAL_WORLD_SIZE"])).encode())
"""  # noqa: E501


def test_the_ranks_of_a_gang_over_two_nodes_meet(shell: Shell) -> None:
    placement = (on("n0"), on("n1", count=2))
    ended = shell.run_to_end("meet", [Bundle(1000, 1000, count=3)], placement, script(MEET))
    assert ended.outcome == "succeeded", ended.detail
    met = sorted(shell.log("meet").splitlines())
    assert met == ["met rank 1 of 3, local 0 of 2", "met rank 2 of 3, local 1 of 2"]


def test_the_first_rank_that_fails_stops_the_others(shell: Shell) -> None:
    text = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(5)\ntime.sleep(600)"
    ended = shell.run_to_end("one-fails", [gpus(0)], (on("n0"), on("n1")), script(text))
    assert (ended.outcome, ended.exit_code) == ("failed", 5)
    shell.remove("one-fails")
    assert shell.processes("one-fails") == []


def test_every_rank_runs_the_function_and_rank_0_answers(shell: Shell) -> None:
    def rank() -> str:
        print("rank", os.environ["RANK"])
        return os.environ["RANK"]

    assert shell.value(shell.run_to_end("ranks", [gpus(0)], (on("n0"), on("n1")), shell.function(rank))) == "0"
    assert shell.log("ranks", 1) == "rank 1\n"


# ── groups that cannot be ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_group_that_its_node_can_never_hold_fails(shell: Shell) -> None:
    from raysched.core.events import GangFailed

    shell.create("too-big", [gpus(9)], (on("n0"),))
    assert "INFEASIBLE" in shell.wait_for(GangFailed, "too-big").detail


def test_an_order_repeated_is_carried_out_once(shell: Shell) -> None:
    order = shell.create("twice", [gpus(8)], (on("n1"),), script("print('once')"))
    shell.cluster.perform([order])
    shell.wait_for(GangReady, "twice")
    shell.start("twice")
    shell.start("twice")
    assert shell.end("twice").outcome == "succeeded"
    assert shell.log("twice") == "once\n"
    shell.remove("twice")
    assert len(shell.all(GangReady)) == 1
