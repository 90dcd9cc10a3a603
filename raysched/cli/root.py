"""How the command line ends: one clear line on stderr (or JSON on stdout) and an exit status, never a traceback."""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from raysched.cli.output import print_json
from raysched.client.errors import BadSpec, RayschedError

REFUSED, USAGE, INTERRUPTED = 1, 2, 130
DEBUG_VARIABLE = "RAYSCHED_DEBUG"  # set: an unexpected error shows its traceback


class RootGroup(TyperGroup):
    """The outermost command; all errors of all commands arrive here."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run and leave with the exit status; without `standalone_mode` return it."""
        words = list(sys.argv[1:] if args is None else args) or ["--help"]
        status = _status(lambda: super(RootGroup, self).main(words, "raysched", complete_var, False, **extra), words)
        if standalone_mode:
            sys.exit(status)
        return status


def _status(run: Any, words: Sequence[str]) -> int:
    """The exit status of a run, with its error told in the way that was asked for."""
    as_json = _wants_json(words)
    try:
        result = run()
        return result if isinstance(result, int) else 0
    except typer.TyperException as error:
        return _tell(RayschedError(_usage(error), code="USAGE", status=400), as_json, error.exit_code)
    except RayschedError as error:
        # What cannot even be read is the caller's words, like a wrong option; all else is a refusal.
        return _tell(error, as_json, USAGE if error.code == BadSpec.code else REFUSED)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader went away (`| head`): nothing more can be said, also not while Python closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        message = f"internal error: {type(error).__name__}: {error} ({DEBUG_VARIABLE}=1 shows where)"
        return _tell(RayschedError(message, code="INTERNAL", status=500), as_json, REFUSED)


def _tell(error: RayschedError, as_json: bool, status: int) -> int:
    if as_json:
        print_json({"error": error.to_dict()})
    else:
        print(f"raysched: {error.message}", file=sys.stderr)
    return status


def _usage(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)
    where = f" (see `{context.command_path} --help`)" if context is not None else ""
    return " ".join(error.format_message().split()) + where


def _wants_json(words: Sequence[str]) -> bool:
    # Words after `--` belong to the job.
    own = words[: words.index("--")] if "--" in words else words
    return "--json" in own
