"""The transport over Ray: finds the scheduler actor by name and calls it, also across its restarts.

Ray is imported on the first call, never on import. A Ray that the process has already started is used as it is; this
module never starts one, and never asks Ray to guess an address."""

import logging
import math
import os
import socket
import sys
import threading
import time
from typing import Any

from raysched.client.address import find_address, remembered_cluster
from raysched.client.errors import NotRunning, RayschedError
from raysched.runtime.local_cluster import prepare_driver

NAMESPACE = "raysched"
ACTOR = "raysched:scheduler"
# Calls that are not the same when made twice: they are made once, after the actor was seen alive.
NOT_REPEATABLE = frozenset({"admin"})
PROBE_S = 3.0  # a host that does not answer by then is down; ray.init itself would try for minutes
PAUSE_S = 0.2  # between tries while the actor restarts (0.02–1 s as measured)


class ActorTransport:
    """Calls `raysched:scheduler` in Ray's namespace `raysched`. Safe to share between threads.

    `answer_s`: patience for one answer; `retry_s`: how long to go on while the actor is away."""

    def __init__(self, address: str | None = None, *, answer_s: float = 30.0, retry_s: float = 30.0) -> None:
        self._address = address
        self._answer_s = answer_s
        self._retry_s = retry_s
        self._lock = threading.Lock()
        self._handle: Any = None
        self._connected_here = False

    def call(self, method: str, *args: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        """Call the actor, again and again while it restarts. Raises NotRunning."""
        deadline = math.inf  # set when the actor is first found away: a long-poll may take longer than that
        answer_s = self._answer_s if timeout_s is None else timeout_s + self._answer_s
        if method in NOT_REPEATABLE:
            self.call("health")
        while True:
            try:
                return self._call_once(method, args, kwargs, answer_s)
            except _Away as away:
                self._handle = None
                if method in NOT_REPEATABLE:
                    raise NotRunning(
                        f"the scheduler went away during {method!r}: see if the change was made before you repeat it"
                    ) from away
                deadline = min(deadline, time.monotonic() + self._retry_s)
                if time.monotonic() >= deadline:
                    raise NotRunning(f"{away} (tried for {self._retry_s:g} s)") from away
                time.sleep(PAUSE_S)

    def _call_once(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], answer_s: float) -> Any:
        handle = self._find()
        import ray

        bound = getattr(handle, method)
        if method in NOT_REPEATABLE:
            # The actor's calls are made again by Ray itself when it restarts; this one must not be.
            bound = bound.options(max_task_retries=0)
        try:
            return ray.get(bound.remote(*args, **kwargs), timeout=answer_s)
        except ray.exceptions.GetTimeoutError as error:
            raise NotRunning(f"the scheduler did not answer {method!r} within {answer_s:g} s") from error
        except ray.exceptions.RayActorError as error:
            raise _Away("the scheduler is restarting or gone: see `raysched health`, or run `raysched up`") from error
        except ray.exceptions.RayTaskError as error:
            raise RayschedError(
                f"the scheduler failed on {method!r}: {error.cause!r}", code="INTERNAL", status=500
            ) from error
        except (ray.exceptions.RaySystemError, ConnectionError) as error:
            self._disconnect()
            raise _Away(f"the connection to Ray was lost: {_first_line(error)}") from error

    def _find(self) -> Any:
        with self._lock:
            if self._handle is None:
                self._connect()
                self._handle = _actor()
            return self._handle

    def _connect(self) -> None:
        if "ray" in sys.modules and sys.modules["ray"].is_initialized():
            return
        address = find_address(self._address)
        _probe(address)
        # Before Ray is loaded: it reads its authentication mode from there.
        for name, value in (remembered_cluster().get("ray_env") or {}).items():
            os.environ.setdefault(name, value)
        prepare_driver(address)
        import ray

        _check_answers(address)
        try:
            ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level=logging.ERROR)
        # Ray ends a failed connection with SystemExit in places; a library call must not end the caller's process.
        except (Exception, SystemExit) as error:
            raise NotRunning(f"no Ray cluster could be joined at {address}: {_first_line(error)}") from error
        self._connected_here = True

    def _disconnect(self) -> None:
        with self._lock:
            self._handle = None
            if self._connected_here:
                import ray

                ray.shutdown()
                self._connected_here = False


class _Away(Exception):
    """The actor could not be reached this time; it may come back."""


def _actor() -> Any:
    import ray

    try:
        return ray.get_actor(ACTOR, namespace=NAMESPACE)
    except ValueError as error:
        raise NotRunning("Ray is up, but no raysched scheduler runs in it: run `raysched up`") from error


def _probe(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise NotRunning(f"{address!r} is not an address of Ray (want HOST:PORT)")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_S).close()
    except (OSError, OverflowError) as error:
        raise NotRunning(
            f"nothing answers at {address} ({_first_line(error)}): start the cluster with `raysched up`, "
            "or give the address of a running one"
        ) from error


def _check_answers(address: str) -> None:
    """Raises NotRunning unless Ray's head answers where ray.init would look: it goes on trying for minutes, and
    takes this machine's own address for a loopback one, where a cluster that listens on loopback is not."""
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return
    import grpc  # type: ignore[import-untyped]
    from ray._private.services import canonicalize_bootstrap_address

    found = canonicalize_bootstrap_address(address) or address
    channel = grpc.insecure_channel(found)
    try:
        grpc.channel_ready_future(channel).result(timeout=PROBE_S)
    except grpc.FutureTimeoutError:
        raise NotRunning(
            f"no Ray answers at {found} within {PROBE_S:g} s: is {address} the address of its head?"
        ) from None
    finally:
        channel.close()


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
