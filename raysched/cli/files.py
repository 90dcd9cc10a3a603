"""What is wrong in a file that a command reads: every problem with file, line and path, and exit status 2."""

from collections.abc import Callable
from typing import TypeVar

import typer

from raysched.cli.output import console, print_json
from raysched.cli.root import USAGE
from raysched.config import ConfigError

Read = TypeVar("Read")


def checked(read: Callable[[], Read], as_json: bool, code: str) -> Read:
    """What `read` gives; its problems are told, and the command ends."""
    try:
        return read()
    except ConfigError as error:
        tell_problems(error, as_json, code)
        raise typer.Exit(USAGE) from None


def tell_problems(error: ConfigError, as_json: bool, code: str) -> None:
    """Each problem on a line of stderr, or all as one JSON error."""
    problems = error.problems
    if not as_json:
        for problem in problems:
            console(stderr=True).print(str(problem))
        return
    told = [{"file": p.file, "line": p.line, "path": p.path, "reason": p.reason} for p in problems]
    message = f"{len(problems)} problems; the first: {problems[0]}" if problems else "not valid"
    print_json({"error": {"code": code, "status": 422, "message": message, "problems": told}})
