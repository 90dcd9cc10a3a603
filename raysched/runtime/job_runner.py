"""The rank actor: runs a user's entrypoint or function inside its bundle, and keeps how it ended.

One actor per bundle, detached, so that ranks outlive a scheduler. `run` runs in the actor's main thread, where a
function may use signals; being told to stop meanwhile comes over a small socket of the actor's own, because a Ray
actor with a second lane for calls has no call in its main thread. `run` is idempotent: a second call waits for the
first one and returns what it returned, which is how a restarted scheduler watches a rank again."""

import contextlib
import ctypes
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import cloudpickle
import ray
from msgspec import Struct, structs
from msgspec import json as codec
from ray.experimental import internal_kv

from raysched.runtime import context, guard, rank_files
from raysched.runtime.archive import unpack
from raysched.runtime.context import StopRequested
from raysched.runtime.rank_files import Outcome

NAMESPACE: Final = b"raysched"
DETAIL_CHARS: Final = 16_000  # a traceback; it is journaled
NO_SUCH_PROGRAM: Final = 127  # what a shell says


class Identity(Struct, frozen=True):
    """Which rank of which attempt an actor is, for whom, and where it writes."""

    cluster: str
    job: str
    attempt: int
    rank: int
    share: str
    user: str
    node: str
    log_root: str

    @property
    def mark(self) -> str:
        """The value of RAYSCHED_ATTEMPT in every process of the attempt."""
        return f"{self.cluster}:{self.job}/{self.attempt}"

    @property
    def name(self) -> str:
        """The actor's name in the namespace `raysched`."""
        return f"raysched:{self.mark}/rank{self.rank}"


class RankInfo(Struct, frozen=True):
    """What a rank knows once it is there. `devices` are the true GPU indices; `port` is kept free for rank 0's
    MASTER_PORT; `control` and `token` are for `tell_to_stop`."""

    node_id: str
    ip: str
    devices: tuple[int, ...]
    port: int
    pid: int
    control: tuple[str, int]
    token: str


class Order(Struct, frozen=True):
    """What a rank is to run. `argv` None: the payload is a pickled function, else (if any) a working directory.
    `env` comes from raysched and yields to `user_env`, except for what says which job this is and its devices."""

    argv: tuple[str, ...] | None
    env: dict[str, str]
    user_env: dict[str, str]


class RankActor:
    """See the module. Ray calls: `prepare`, `run`; everything else goes over the socket."""

    def __init__(self, identity: Identity) -> None:
        # Where Ray's subreaper is on, workers ignore SIGCHLD, and every child would seem to end with status 0.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._me = identity
        self._lock = threading.Lock()
        self._begun = False
        self._stopping = False
        self._child: subprocess.Popen[bytes] | None = None
        self._in_function = False
        self._outcome: Outcome | None = None
        rank_files.attempt_dir(identity.log_root, identity.job, identity.attempt).mkdir(parents=True, exist_ok=True)
        _mark_process({context.ATTEMPT: identity.mark, context.NODE: identity.node})
        self._scratch = Path(tempfile.gettempdir()) / f"{identity.name.replace(':', '-').replace('/', '-')}-{_token()}"
        self._guard = _start_guard(identity, self._scratch)
        self._held_port = _listen(_node_ip())
        self._info = self._listen_for_orders()
        # A restarted scheduler finds it there while `run` occupies the actor.
        internal_kv._internal_kv_put(identity.name, codec.encode(self._info), namespace=NAMESPACE)

    def __repr__(self) -> str:
        return f"{self._me.job}/rank{self._me.rank} (share {self._me.share}, user {self._me.user})"

    def prepare(self) -> RankInfo:
        """Where this rank is and which devices it has."""
        return self._info

    def run(self, order: Order, payload: bytes | None) -> Outcome:
        """Run the order to its end, once; repeats return the same outcome."""
        with self._lock:
            begun, self._begun = self._begun, True
        if begun:
            # Calls of an actor are run one after the other, so the first one has ended.
            assert self._outcome is not None
            return self._outcome
        self._outcome = self._run(order, payload)
        rank_files.keep_outcome(*self._place(), self._outcome)
        return self._outcome

    # ── running ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self, order: Order, payload: bytes | None) -> Outcome:
        # Ray kills the children of a dying worker: before the guard has left this process it guards nothing.
        self._guard.wait()
        self._held_port.close()
        env = self._environment(order)
        try:
            with open(rank_files.log_path(*self._place()), "ab", buffering=0) as log:
                if order.argv is not None:
                    outcome = self._run_command(order.argv, payload, env, log.fileno())
                elif payload is None:
                    outcome = Outcome("failed", detail="the stored function is gone")
                else:
                    outcome = self._run_function(payload, env, log.fileno())
        except OSError as problem:
            outcome = Outcome("failed", detail=f"the rank could not be run: {problem}")
        if self._stopping:
            return structs.replace(outcome, outcome="stopped", result=None)
        return outcome

    def _environment(self, order: Order) -> dict[str, str]:
        """The settings of the job, without what the process has already."""
        me, own = self._me, {}
        own[context.ATTEMPT], own[context.NODE], own[context.JOB] = me.mark, me.node, me.job
        own[context.SHARE], own[context.USER] = me.share, me.user
        own[context.STOP_FILE] = str(rank_files.stop_path(*self._place()))
        own[context.DEVICES] = ",".join(map(str, self._info.devices))
        theirs = {key: value for key, value in order.user_env.items() if not key.startswith("RAYSCHED_")}
        master = {"MASTER_ADDR": self._info.ip, "MASTER_PORT": str(self._info.port)}
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} | master | order.env | theirs | own

    def _run_command(self, argv: tuple[str, ...], archive: bytes | None, env: dict[str, str], log: int) -> Outcome:
        self._scratch.mkdir(mode=0o700)
        if archive is not None:
            unpack(archive, self._scratch)
        return self._wait_for(argv, self._scratch, _scrubbed_environment() | env, log)

    def _wait_for(self, argv: tuple[str, ...], directory: Path, env: dict[str, str], log: int) -> Outcome:
        try:
            with self._lock:  # an order to stop comes either before this, or finds the child
                if self._stopping:
                    return Outcome("stopped", detail="stopped before its program was started")
                self._child = subprocess.Popen(
                    argv,
                    cwd=directory,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError as problem:
            detail = f"{argv[0]}: {problem.strerror or problem}"
            os.write(log, f"raysched: {detail}\n".encode())
            return Outcome("failed", NO_SUCH_PROGRAM, detail)
        return _exit_outcome(self._child.wait())

    def _run_function(self, payload: bytes, env: dict[str, str], log: int) -> Outcome:
        os.environ.update(env)
        with _output_to(log), _interruptible():
            try:
                with self._lock:
                    if self._stopping:
                        return Outcome("stopped", detail="stopped before its function was called")
                    self._in_function = True
                function, args, kwargs = cloudpickle.loads(payload)
                value = function(*args, **kwargs)
                self._in_function = False
                return Outcome("succeeded", 0, result=cloudpickle.dumps({"ok": True, "value": value}))
            except StopRequested:
                return Outcome("stopped", detail="stopped while its function ran")
            except SystemExit as end:
                return _exit_outcome(end.code if isinstance(end.code, int) else int(end.code is not None))
            except BaseException as problem:
                return _raised(problem)
            finally:
                self._in_function = False

    # ── being told to stop ────────────────────────────────────────────────────────────────────────────────────────

    def _listen_for_orders(self) -> RankInfo:
        ip = _node_ip()
        ears = _listen(ip)
        ears.listen()
        token = _token()
        threading.Thread(target=self._hear, args=(ears, token), name="raysched-control", daemon=True).start()
        return RankInfo(
            node_id=ray.get_runtime_context().get_node_id(),
            ip=ip,
            devices=tuple(int(index) for index in ray.get_gpu_ids()),
            port=self._held_port.getsockname()[1],
            pid=os.getpid(),
            control=ears.getsockname(),
            token=token,
        )

    def _hear(self, ears: socket.socket, token: str) -> None:
        while True:
            caller, _ = ears.accept()
            with contextlib.suppress(OSError, ValueError), caller:
                caller.settimeout(5)
                said = codec.decode(caller.makefile("rb").readline())
                if said["token"] == token:
                    self._stop(int(said["grace_ms"]))
                    caller.sendall(b"{}\n")

    def _stop(self, grace_ms: int) -> None:
        """Notice, then SIGTERM; an entrypoint that is still there after the grace is killed."""
        with self._lock:
            if self._outcome is not None:
                return
            self._stopping = True
            child = self._child
        rank_files.stop_path(*self._place()).touch()
        if child is not None:
            _signal_group(child.pid, signal.SIGTERM)
            killer = threading.Timer(grace_ms / 1000, _signal_group, (child.pid, signal.SIGKILL))
            killer.daemon = True
            killer.start()
        elif self._in_function:
            # To the main thread, so that a sleep or a read of the function is interrupted.
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGTERM)

    def _place(self) -> tuple[str, str, int, int]:
        return self._me.log_root, self._me.job, self._me.attempt, self._me.rank


def tell_to_stop(info: RankInfo, grace_ms: int) -> None:
    """Tell the rank to stop. Raises OSError if nobody is there."""
    with socket.create_connection(info.control, timeout=5) as line:
        line.sendall(codec.encode({"token": info.token, "grace_ms": grace_ms}) + b"\n")
        line.makefile("rb").readline()


# ── the process ───────────────────────────────────────────────────────────────────────────────────────────────────


def _mark_process(marks: dict[str, str]) -> None:
    """Make this process show the attempt's marks to whoever reads /proc/<pid>/environ.

    Ray starts its processes before it knows for whom. The kernel shows the memory in which the environment was
    handed over at the start, so the marks are written there; Python and the children use their own copy."""
    with open("/proc/self/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    text = b"".join(f"{name}={value}\0".encode() for name, value in marks.items())
    if end - start < len(text):
        raise RuntimeError(f"the environment has {end - start} bytes, the marks need {len(text)}")
    ctypes.memmove(start, text, len(text))


def _token() -> str:
    return secrets.token_hex(16)


def _start_guard(me: Identity, scratch: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", guard.__file__, me.mark, me.node, str(os.getpid()), str(scratch)],
        env={},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _node_ip() -> str:
    ip: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return ip


def _listen(ip: str) -> socket.socket:
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((ip, 0))
    return held


def _scrubbed_environment() -> dict[str, str]:
    """What an entrypoint inherits: nothing of Ray, and this Python first on the path."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "RAYSCHED_"))}
    env["PATH"] = os.path.dirname(sys.executable) + os.pathsep + env.get("PATH", os.defpath)
    env.pop("PYTHONBREAKPOINT", None)  # Ray's debugger
    return env


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


@contextlib.contextmanager
def _output_to(log: int) -> Iterator[None]:
    """Standard output and error into the log, also what C code and children write."""
    kept = [os.dup(1), os.dup(2)]
    streams = sys.stdout, sys.stderr
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = streams
        for number, copy in zip((1, 2), kept, strict=True):
            os.dup2(copy, number)
            os.close(copy)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM raises in the function instead of ending the process."""

    def interrupt(_number: int, _frame: Any) -> None:
        raise StopRequested("the job was told to stop")

    before: Callable[..., Any] | int | None = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit_outcome(code: int) -> Outcome:
    if code == 0:
        return Outcome("succeeded", 0)
    if code < 0:
        return Outcome("failed", 128 - code, f"killed by {signal.Signals(-code).name}")
    return Outcome("failed", code, f"exit status {code}")


def _raised(problem: BaseException) -> Outcome:
    text = "".join(traceback.format_exception(problem))
    print(text, file=sys.stderr, flush=True)
    try:
        pickled = cloudpickle.dumps(problem)
    except Exception:
        pickled = None  # the text has to do
    result = cloudpickle.dumps({"ok": False, "exception": pickled, "traceback": text})
    return Outcome("failed", 1, text[-DETAIL_CHARS:], result)
