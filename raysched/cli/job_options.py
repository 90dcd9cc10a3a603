"""The options that describe a job, as `submit` and `diagnose` take them."""

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer
import yaml

from raysched.client.errors import BadSpec
from raysched.client.spec import JobOptions

Share = Annotated[str | None, typer.Option(envvar="RAYSCHED_SHARE", help="share to charge")]
Workspace = Annotated[str | None, typer.Option(help="workspace the share is used from")]
Gpu = Annotated[str | None, typer.Option(help="GPUs of a bundle: 8, 0.5")]
Cpu = Annotated[str | None, typer.Option(help="cores of a bundle: 96, 500m")]
Memory = Annotated[str | None, typer.Option(help="memory of a bundle: 512Gi")]
Count = Annotated[int | None, typer.Option(help="how many such bundles")]
Bundles = Annotated[
    list[str] | None, typer.Option("--bundle", metavar="gpu=8,cpu=96,memory=1Ti,count=2", help="may be repeated")
]
Workload = Annotated[str | None, typer.Option(help="notebook, training, service, batch or evaluation")]
Priority = Annotated[str | None, typer.Option(help="P0 (highest) to P9")]
Tags = Annotated[list[str] | None, typer.Option("--tag", metavar="KEY=VALUE", help="may be repeated")]
MaxRuntime = Annotated[str | None, typer.Option(help="stopped after this long: 2h")]
CheckpointEvery = Annotated[str | None, typer.Option(help="how often it saves its work: 10m")]
Grace = Annotated[str | None, typer.Option(help="time to save its work when stopped: 30s")]
Name = Annotated[str | None, typer.Option(help="the job's id; must be new (default: one is made)")]
Model = Annotated[str | None, typer.Option(help="GPU model: H100")]
Pool = Annotated[str | None, typer.Option(help="pool to run in")]
CrossPool = Annotated[bool, typer.Option("--cross-pool", help="may run in another pool whose shares lend")]
Confirm = Annotated[bool, typer.Option("--confirm", help="queue it even if it is over a limit now")]
Retries = Annotated[int | None, typer.Option(help="tries after a non-zero exit")]
Reservation = Annotated[str | None, typer.Option(help="reservation to draw on")]
Topology = Annotated[str | None, typer.Option(help="preferred or required")]
Env = Annotated[list[str] | None, typer.Option("--env", metavar="KEY=VALUE", help="may be repeated")]
RuntimeEnv = Annotated[str | None, typer.Option(help="Ray runtime environment: JSON, or a YAML file")]
WorkingDir = Annotated[Path | None, typer.Option(help="directory that is packed and becomes the job's")]


def options_of(**given: Any) -> JobOptions:
    """The client's options from the command's; what was not said is left out. Raises BadSpec."""
    bundles = given.pop("bundles", None)
    for key in ("tags", "env"):
        if given.get(key):
            given[key] = pairs(key, given[key])
    if given.get("runtime_env"):
        given["runtime_env"] = _runtime_env(given["runtime_env"])
    options = {key: value for key, value in given.items() if value not in (None, False, [])}
    if bundles:
        options["bundles"] = [bundle(each) for each in bundles]
    return cast(JobOptions, options)


def pairs(what: str, given: list[str]) -> dict[str, str]:
    """KEY=VALUE words as a mapping. Raises BadSpec."""
    found = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise BadSpec(f"{what}: {word!r} is not KEY=VALUE")
        found[key] = value
    return found


def bundle(word: str) -> dict[str, Any]:
    """`gpu=8,cpu=96,count=2` as a bundle; other names are attachables. Raises BadSpec."""
    asked: dict[str, Any] = {}
    attach: dict[str, Any] = {}
    for key, value in pairs("bundle", word.split(",")).items():
        if key == "count":
            if not value.isdecimal():
                raise BadSpec(f"bundle: count {value!r} is not a whole number")
            asked[key] = int(value)
        else:
            (asked if key in ("gpu", "cpu", "memory") else attach)[key] = value
    return asked | ({"attach": attach} if attach else {})


def _runtime_env(given: str) -> dict[str, Any]:
    try:
        found = json.loads(given) if given.lstrip().startswith("{") else yaml.safe_load(Path(given).read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise BadSpec(f"runtime_env: {given!r} is neither JSON nor a readable YAML file: {error}") from error
    if not isinstance(found, dict):
        raise BadSpec(f"runtime_env: {given!r} does not hold a mapping")
    return found
