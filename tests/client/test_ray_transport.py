"""The transport over a real Ray: the named actor, its restarts, and clients that join by address."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysched.client import ActorTransport, Client, NotRunning, RayschedError, UnknownJob
from tests.api.service_double import ServiceDouble

pytestmark = pytest.mark.ray


class Scheduler(ServiceDouble):
    """The double as an actor; `admin` and `limits` break in ways a real one may."""

    def health(self) -> dict[str, Any]:
        return super().health() | {"pid": os.getpid()}

    def admin(self, action: str, params: dict[str, Any], by: str, dry_run: bool = False) -> dict[str, Any]:
        if action == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return super().admin(action, params, by, dry_run)

    def limits(self, share: str) -> dict[str, Any]:
        raise KeyError(share)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A Ray of this process, with the scheduler's actor in it."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, namespace="another")
    ray.remote(Scheduler).options(
        name="raysched:scheduler",
        namespace="raysched",
        lifetime="detached",
        max_restarts=-1,
        max_task_retries=-1,
        num_cpus=0,
    ).remote()
    yield str(ray.get_runtime_context().gcs_address)
    ray.shutdown()


@pytest.fixture
def client(address: str) -> Client:
    return Client(user="root", transport=ActorTransport(retry_s=30))


def test_the_running_ray_is_used(client: Client) -> None:
    assert client.health()["status"] == "ok"
    with pytest.raises(UnknownJob):
        client.job("none")


def test_a_call_goes_on_while_the_actor_restarts(client: Client) -> None:
    before = client.health()["pid"]
    os.kill(before, signal.SIGKILL)
    assert client.health()["pid"] != before


def test_an_admin_change_is_not_made_twice(client: Client) -> None:
    with pytest.raises(NotRunning, match="see if the change was made"):
        client.admin("die", {})
    assert client.admin("reconcile", {"pool": "train"})["version"] == 2


def test_an_error_inside_the_scheduler_is_said_as_one(client: Client) -> None:
    with pytest.raises(RayschedError, match="failed on 'limits'") as caught:
        client.limits("nlp")
    assert caught.value.status == 500


def test_another_process_joins_by_address(address: str, tmp_path: Path) -> None:
    program = "from raysched import Client; print(Client().health()['status'])"
    environment = {**os.environ, "RAYSCHED_ADDRESS": address, "RAYSCHED_HOME": str(tmp_path)}
    ran = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.stdout == "ok\n", ran.stderr


def test_a_ray_without_a_scheduler_says_so(address: str) -> None:
    import ray

    ray.kill(ray.get_actor("raysched:scheduler", namespace="raysched"))
    with pytest.raises(NotRunning, match="no raysched scheduler runs in it|restarting or gone"):
        Client(transport=ActorTransport(retry_s=1)).health()
