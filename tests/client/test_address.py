"""Finding the cluster, and what is said when there is none."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from raysched.client import Client, NotRunning
from raysched.client.address import find_address, forget_cluster, remember_cluster, remembered_cluster, state_file
from raysched.client.client import default_user


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without a cluster."""
    monkeypatch.setenv("RAYSCHED_HOME", str(tmp_path))
    monkeypatch.delenv("RAYSCHED_ADDRESS", raising=False)
    return tmp_path


def test_the_argument_wins_then_the_environment_then_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    remember_cluster({"address": "file:1", "api_url": "http://127.0.0.1:8266"})
    assert find_address() == "file:1"
    monkeypatch.setenv("RAYSCHED_ADDRESS", "environment:1")
    assert find_address() == "environment:1"
    assert find_address("argument:1") == "argument:1"


def test_what_up_wrote_is_private_and_forgotten_by_down() -> None:
    path = remember_cluster({"address": "10.0.0.1:6379"})
    assert path.stat().st_mode & 0o077 == 0
    assert remembered_cluster() == {"address": "10.0.0.1:6379"}
    forget_cluster()
    forget_cluster()
    assert remembered_cluster() == {}


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_a_broken_file_is_named(text: str) -> None:
    state_file().write_text(text)
    with pytest.raises(NotRunning, match="cluster.json"):
        find_address()


def test_no_cluster_says_what_to_do() -> None:
    with pytest.raises(NotRunning, match="raysched up"):
        Client().health()


def test_a_cluster_that_is_down_says_where_it_was_looked_for() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(NotRunning, match=f"nothing answers at {address}"):
        Client(address).health()


def test_a_port_where_something_else_listens_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(NotRunning, match=f"no Ray answers at {address}"):
            Client(address).health()


@pytest.mark.parametrize("address", ["auto", "ray://", "host:", ":6379", "host:port", "127.0.0.1:99999999"])
def test_an_address_that_is_none_is_said(address: str) -> None:
    with pytest.raises(NotRunning, match=address):
        Client(address).health()


def test_the_caller_is_named_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSCHED_USER", "eva")
    assert default_user() == "eva"
    assert Client().user == "eva"


def test_importing_raysched_loads_neither_ray_nor_the_doors() -> None:
    program = (
        "import sys, raysched; raysched.submit, raysched.Client, raysched.QuotaContext, raysched.JobHandle; "
        "loaded = {'ray', 'fastapi', 'typer', 'sqlalchemy', 'pydantic'} & set(sys.modules); assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_unknown_public_names_are_attribute_errors() -> None:
    import raysched

    with pytest.raises(AttributeError, match="nothing"):
        raysched.nothing  # noqa: B018
    assert set(raysched.__all__) <= set(dir(raysched))
