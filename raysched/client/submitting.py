"""Submitting: `submit(function, …)`, `submit("python train.py", …)`, and the decorator `@job(gpu=8)`.

    handle = raysched.submit(train, 3, kwargs={"lr": 0.1}, share="nlp", gpu=8)
    handle = raysched.submit(["python", "train.py"], share="nlp", gpu=8, count=2, working_dir=".")

Positional arguments are the function's; its keyword arguments go into `kwargs`, so that they never meet an option of
the same name. With the decorator all arguments are the function's own: `train.submit(3, lr=0.1)`."""

import functools
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, cast

import msgspec

from raysched.client.client import Client
from raysched.client.errors import BadSpec
from raysched.client.handle import JobHandle
from raysched.client.payload import function_name, pack_directory, pickle_call
from raysched.client.quota_context import current_quota
from raysched.client.spec import JobOptions, build_spec, check_options, runtime_env_json, text_mapping
from raysched.core.model import CommandRun, FunctionRun, Run

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
What = Callable[..., Any] | str | Sequence[str]


def submit(
    what: What,
    /,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    client: Client | None = None,
    **options: Unpack[JobOptions],
) -> JobHandle:
    """Submit a function with its arguments, or a command (text is split as a shell would, nothing is expanded).

    `options`: see JobOptions. Raises SubmitRefused, BadSpec, NotRunning; TypeError for an unknown option."""
    check_options(options)
    # Everything that can be wrong without the cluster is found before anything is sent.
    draft = build_spec(options, current_quota(), client.user if client else default_client().user)
    if client is None:
        # Without a client of its own a submission is made as its owner.
        client = default_client().as_user(draft["user"])
        draft.pop("submitted_by", None)
    if callable(what):
        run = _function(client, what, args, kwargs or {}, options)
    else:
        run = _command(client, what, args, kwargs, options)
    return JobHandle(client.submit(draft | {"run": msgspec.to_builtins(run)}, fresh=not options.get("name")), client)


class SubmittableFunction(Generic[Parameters, Returned]):
    """A function with the options of its job; called as it is, it runs here."""

    def __init__(self, function: Callable[Parameters, Returned], options: JobOptions, client: Client | None) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._client = client

    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        return self._function(*args, **kwargs)

    def submit(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> JobHandle:
        """Submit the function with these arguments."""
        return submit(self._function, *args, kwargs=kwargs, client=self._client, **self._options)

    def options(
        self, *, client: Client | None = None, **options: Unpack[JobOptions]
    ) -> "SubmittableFunction[Parameters, Returned]":
        """The same function with some options changed."""
        check_options(options)
        merged = cast(JobOptions, {**self._options, **options})
        return SubmittableFunction(self._function, merged, client or self._client)


def job(
    *, client: Client | None = None, **options: Unpack[JobOptions]
) -> Callable[[Callable[Parameters, Returned]], SubmittableFunction[Parameters, Returned]]:
    """Decorate a function with the options of its job: `@job(gpu=1, share="nlp")`, then `train.submit(…)`."""
    check_options(options)
    return lambda function: SubmittableFunction(function, options, client)


@functools.cache
def default_client() -> Client:
    """The client of this process, made when first needed."""
    return Client()


def _function(
    client: Client, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: JobOptions
) -> Run:
    if options.get("working_dir") is not None:
        raise BadSpec("working_dir goes with a command; a function travels by value with the modules of its package")
    payload = client.put_blob(pickle_call(_bare(function), args, kwargs))
    return FunctionRun(payload=payload, name=function_name(_bare(function)), **_environment(options))


def _command(
    client: Client,
    what: str | Sequence[str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None,
    options: JobOptions,
) -> Run:
    if args or kwargs:
        raise BadSpec("arguments go with a function; write those of a command into the command")
    directory = options.get("working_dir")
    digest = None if directory is None else client.put_blob(pack_directory(directory))
    return command_run(what, digest, options)


def command_run(what: str | Sequence[str], working_dir: str | None, options: JobOptions) -> CommandRun:
    """The run of a command; `working_dir` is the digest of an archive that is stored already. Raises BadSpec."""
    try:
        argv = tuple(shlex.split(what) if isinstance(what, str) else what)
    except ValueError as error:
        raise BadSpec(f"command: {error} in {what!r}") from error
    if not argv or not all(isinstance(word, str) for word in argv) or not argv[0]:
        raise BadSpec(f"command: {what!r} is not a program with its arguments")
    return CommandRun(argv=argv, working_dir=working_dir, **_environment(options))


def _environment(options: JobOptions) -> dict[str, Any]:
    return {
        "env": text_mapping("env", options.get("env") or {}),
        "runtime_env": runtime_env_json(options.get("runtime_env")),
    }


def _bare(function: Callable[..., Any]) -> Callable[..., Any]:
    return function._function if isinstance(function, SubmittableFunction) else function
