"""A change of the books from the command line: made, or only looked at."""

from typing import Any

import typer

from raysched.cli.differences import difference_lines, effect_lines
from raysched.cli.output import emit
from raysched.cli.session import client_of
from raysched.client.client import Row


def changed(
    context: typer.Context, action: str, params: dict[str, Any], done: str, dry_run: bool, as_json: bool
) -> None:
    """Make an administrative change and say `done`; with `dry_run` show what it would change and what comes of it."""
    given = {key: value for key, value in params.items() if value is not None}
    answer = client_of(context).admin(action, given, dry_run=dry_run)
    emit(answer, as_json, lambda: _preview(answer) if dry_run else done)


def _preview(answer: Row) -> str:
    change = answer["changed"]
    lines = difference_lines(str(change["subject"]), change.get("before"), change.get("after"))
    shown = ["would change:", *(f"  {line}" for line in lines)]
    return "\n".join([*shown, *effect_lines(answer.get("effects")), f"at version {answer.get('version')}"])
