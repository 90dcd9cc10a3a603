"""`raysched apply FILE`: the configuration file as changes of the books, all of it or nothing."""

from pathlib import Path
from typing import Annotated

import typer

from raysched.cli.differences import difference_lines, effect_lines
from raysched.cli.files import checked
from raysched.cli.output import emit
from raysched.cli.session import DryRun, Json, client_of
from raysched.client.client import Row
from raysched.client.errors import RayschedError


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(apply)


def apply(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", show_default=False)],
    dry_run: DryRun = False,
    prune: Annotated[bool, typer.Option(help="also delete shares that the file does not have")] = False,
    as_json: Json = False,
) -> None:
    """Make the books say what a configuration file says: list every difference, and change all of them or none."""
    from raysched.config import load_config, read_yaml

    checked(lambda: load_config(file), as_json, "BAD_CONFIG")
    keys, _ = checked(lambda: read_yaml(file), as_json, "BAD_CONFIG")
    client = client_of(context)
    answer = client.apply(keys, dry_run=True, prune=prune)
    refused = [each for each in answer["differences"] if each.get("refused")]
    if refused and not dry_run:
        if not as_json:
            emit(answer, False, lambda: _listed(answer))
        raise RayschedError("nothing was changed: " + "; ".join(str(each["refused"]) for each in refused))
    if not dry_run and answer["differences"]:
        answer = client.apply(keys, prune=prune)
    emit(answer, as_json, lambda: _told(answer, dry_run))


def _told(answer: Row, dry_run: bool) -> str:
    if not answer["differences"]:
        return "nothing differs from the file"
    end = effect_lines(answer.get("effects")) if dry_run else [f"applied as version {answer['version']}"]
    return "\n".join([_listed(answer), *end])


def _listed(answer: Row) -> str:
    lines: list[str] = []
    for each in answer["differences"]:
        lines += difference_lines(each["subject"], each.get("before"), each.get("after"))
        if each.get("refused"):
            lines.append(f"  REFUSED: {each['refused']}")
    return "\n".join(lines)
