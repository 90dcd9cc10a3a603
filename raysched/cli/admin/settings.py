"""Settings as words: `KEY=VALUE` where the value is YAML, or a whole file of them."""

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from raysched.cli.job_options import pairs
from raysched.client.errors import BadSpec

Settings = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="KEY=VALUE...", help="keys of the configuration file, values as in YAML", show_default=False
    ),
]
File = Annotated[Path | None, typer.Option("--file", "-f", help="YAML file with the keys")]
Base = Annotated[
    int | None, typer.Option("--base", "--if-version", help="refuse if it changed since this ledger version")
]


def settings(words: list[str] | None, file: Path | None) -> dict[str, Any]:
    """The keys of a file, then those of the words. Raises BadSpec where there are none."""
    found = _from_file(file) if file else {}
    found.update({key: value_of(key, text) for key, text in pairs("settings", words or []).items()})
    if not found:
        raise BadSpec("nothing to set: give KEY=VALUE words or --file")
    return found


def value_of(key: str, text: str) -> Any:
    """A value as YAML. Raises BadSpec."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BadSpec(f"{key}: {text!r} is not YAML") from error


def amounts_of(words: list[str]) -> dict[str, str]:
    """`gpu=8 memory=1Ti` as amounts per kind. Raises BadSpec."""
    return pairs("amounts", words)


def _from_file(file: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BadSpec(f"{file}: {error}") from error
    if not isinstance(found, dict):
        raise BadSpec(f"{file}: want a mapping of keys")
    return found
