"""What travels with a job as bytes: a pickled function, a packed working directory, and its pickled result back."""

import io
import os
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from raysched.client.errors import BadSpec, JobFailed, RayschedError

MAX_BLOB_BYTES = 64 * 2**20  # it lives in the store's database and crosses Ray in one message
LEFT_OUT = frozenset({".git", "__pycache__"})
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time a zip file can hold: equal trees give equal archives
_CHUNK_BYTES = 2**20


def pickle_call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """A cloudpickle of (function, args, kwargs). Code of the caller's own modules travels by value, so that the nodes
    need not have it; installed packages are imported there. Raises BadSpec."""
    with _by_value(function):
        try:
            data = cloudpickle.dumps((function, args, dict(kwargs)))
        except Exception as error:  # whatever a user's __reduce__ raises
            raise BadSpec(f"{function_name(function)} or its arguments cannot be pickled: {error}") from error
    return _checked(data, f"{function_name(function)} with its arguments")


def function_name(function: Callable[..., Any]) -> str:
    """How a function is shown: `train.main`, without a module for scripts and notebooks."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    module = getattr(function, "__module__", None)
    return name if module in (None, "__main__") else f"{module}.{name}"


def pack_directory(directory: str | os.PathLike[str]) -> bytes:
    """A zip archive of a directory without `.git` and `__pycache__`; equal contents give equal bytes. File modes are
    in the external attributes. Raises BadSpec."""
    root = Path(directory)
    if not root.is_dir():
        raise BadSpec(f"working_dir: {root} is not a directory")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _files(root):
            try:
                _add(archive, buffer, root, path)
            except OSError as error:
                raise BadSpec(f"working_dir: {path.relative_to(root)} cannot be read: {error.strerror}") from error
    return _checked(buffer.getvalue(), f"working_dir {root}")


def unpickle_result(job: str, data: bytes) -> Any:
    """The value a job's function returned, or its exception raised again, with the traceback of the node as its
    cause. Raises JobFailed where the exception itself could not travel."""
    try:
        result = cloudpickle.loads(data)
    except Exception as error:  # classes that are missing here, versions that differ
        raise RayschedError(f"the result of {job} cannot be unpickled here: {error}", code="BAD_RESULT") from error
    if result["ok"]:
        return result["value"]
    failed = JobFailed(job, f"{job} raised an exception", traceback=result.get("traceback"))
    raised = _exception(result.get("exception"))
    if raised is None:
        raise failed
    raise raised from failed


def _exception(pickled: bytes | None) -> BaseException | None:
    if pickled is None:
        return None
    try:
        error = cloudpickle.loads(pickled)
    except Exception:  # the traceback text still says everything; JobFailed carries it
        return None
    return error if isinstance(error, BaseException) else None


def _checked(data: bytes, what: str) -> bytes:
    if len(data) > MAX_BLOB_BYTES:
        raise _too_large(what, len(data))
    return data


def _too_large(what: str, size: int) -> BadSpec:
    return BadSpec(
        f"{what} takes {size / 2**20:.1f} MiB; at most {MAX_BLOB_BYTES // 2**20} MiB travel with a job "
        "(put data on shared storage and pass its path)",
        code="TOO_LARGE",
    )


@contextmanager
def _by_value(function: Callable[..., Any]) -> Iterator[None]:
    package = _own_package(function)
    if package is None or package.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(package)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(package)


def _own_package(function: Callable[..., Any]) -> ModuleType | None:
    """The top package of a function's module if it is the caller's own; None for installed and built-in ones."""
    name = str(getattr(function, "__module__", None) or "__main__").partition(".")[0]
    package = sys.modules.get(name)
    if package is None or name in {"__main__", "raysched"} or name in sys.stdlib_module_names:
        return None
    places = [getattr(package, "__file__", None), *getattr(package, "__path__", [])]
    installed = tuple(sysconfig.get_path(key) + os.sep for key in ("purelib", "platlib"))
    return None if any(str(place).startswith(installed) for place in places if place) else package


def _files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - LEFT_OUT)
        for name in folders:
            if (Path(folder) / name).is_symlink():
                raise BadSpec(f"working_dir: {Path(folder, name).relative_to(root)} is a link to a directory")
        yield from (Path(folder) / name for name in sorted(names) if (Path(folder) / name).is_file())


def _add(archive: zipfile.ZipFile, buffer: io.BytesIO, root: Path, path: Path) -> None:
    entry = zipfile.ZipInfo(path.relative_to(root).as_posix(), _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (path.stat().st_mode & 0o777) << 16
    with path.open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
        while chunk := source.read(_CHUNK_BYTES):
            target.write(chunk)
            # Looked at per chunk, so that a disk full of data is refused before it is read.
            if buffer.tell() > MAX_BLOB_BYTES:
                raise _too_large(f"working_dir {root}", buffer.tell())
