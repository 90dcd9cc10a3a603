"""A change of the books from the command line: made, or only looked at."""

from typing import Any

import typer

from raysched.cli.output import emit, tree
from raysched.cli.session import client_of


def changed(
    context: typer.Context, action: str, params: dict[str, Any], done: str, dry_run: bool, as_json: bool
) -> None:
    """Make an administrative change and say `done`; with `dry_run` show what it would change."""
    given = {key: value for key, value in params.items() if value is not None}
    answer = client_of(context).admin(action, given, dry_run=dry_run)
    emit(answer, as_json, lambda: tree({"would change": answer}, raw_amounts=False) if dry_run else done)
