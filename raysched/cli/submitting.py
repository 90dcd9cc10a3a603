"""`submit` and `diagnose`: a command with what it needs, sent or only looked at."""

import sys
from typing import Annotated, Any

import typer

from raysched.cli import job_options as ask
from raysched.cli.follow import exit_status, follow
from raysched.cli.output import console, emit, print_json, table
from raysched.cli.session import Json, client_of
from raysched.client.client import Row
from raysched.client.handle import JobHandle
from raysched.client.spec import JobOptions, build_spec
from raysched.client.submitting import submit as submit_job
from raysched.core import units

Command = Annotated[list[str], typer.Argument(metavar="COMMAND...", help="after `--`", show_default=False)]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command(context_settings={"allow_interspersed_args": False})(submit)
    app.command()(diagnose)


def submit(
    context: typer.Context,
    command: Command,
    share: ask.Share = None,
    workspace: ask.Workspace = None,
    gpu: ask.Gpu = None,
    cpu: ask.Cpu = None,
    memory: ask.Memory = None,
    count: ask.Count = None,
    bundles: ask.Bundles = None,
    workload: ask.Workload = None,
    priority: ask.Priority = None,
    tags: ask.Tags = None,
    max_runtime: ask.MaxRuntime = None,
    checkpoint_every: ask.CheckpointEvery = None,
    grace: ask.Grace = None,
    name: ask.Name = None,
    model: ask.Model = None,
    pool: ask.Pool = None,
    cross_pool: ask.CrossPool = False,
    confirm: ask.Confirm = False,
    retries: ask.Retries = None,
    reservation: ask.Reservation = None,
    topology: ask.Topology = None,
    env: ask.Env = None,
    runtime_env: ask.RuntimeEnv = None,
    working_dir: ask.WorkingDir = None,
    wait: Annotated[bool, typer.Option("--wait", help="show its output, end with its exit status")] = False,
    as_json: Json = False,
) -> int:
    """Submit a command: raysched submit --share nlp --gpu 8 --count 2 -- python train.py"""
    given = {key: value for key, value in locals().items() if key not in _NOT_OPTIONS}
    handle = _sent(context, command, ask.options_of(**given))
    if wait:
        return _waited(handle, as_json)
    emit({"job": handle.job}, as_json, lambda: handle.job)
    return 0


def diagnose(
    context: typer.Context,
    share: ask.Share = None,
    workspace: ask.Workspace = None,
    gpu: ask.Gpu = None,
    cpu: ask.Cpu = None,
    memory: ask.Memory = None,
    count: ask.Count = None,
    bundles: ask.Bundles = None,
    workload: ask.Workload = None,
    priority: ask.Priority = None,
    tags: ask.Tags = None,
    max_runtime: ask.MaxRuntime = None,
    model: ask.Model = None,
    pool: ask.Pool = None,
    cross_pool: ask.CrossPool = False,
    confirm: ask.Confirm = False,
    reservation: ask.Reservation = None,
    topology: ask.Topology = None,
    as_json: Json = False,
) -> int:
    """Say what would block a job, without submitting it. Exit status 1 when it would be refused."""
    given = {key: value for key, value in locals().items() if key not in _NOT_OPTIONS}
    client = client_of(context)
    findings = client.diagnose(build_spec(ask.options_of(**given), None, client.user))
    emit({"findings": findings}, as_json, lambda: findings_table(findings))
    return 1 if any(finding["severity"] == "block" for finding in findings) else 0


_NOT_OPTIONS = frozenset({"context", "command", "wait", "as_json"})


def findings_table(findings: list[Row]) -> Any:
    """Findings, each with a line per kind: limit or available, requested, excess."""
    rows = []
    for finding in findings:
        rows.append([finding["severity"], finding["kind"], finding.get("text"), "", "", "", ""])
        for kind, row in (finding.get("rows") or {}).items():
            numbers = [_amount(kind, row.get(key)) for key in ("limit", "requested", "excess")]
            rows.append(["", "", "", kind, *numbers])
    columns = ["SEVERITY", "FINDING", "WHY", "KIND", "LIMIT", "REQUESTED", "EXCESS"]
    shown = [[cell if cell != "" else " " for cell in row] for row in rows]
    return table(columns, shown, "nothing stands in the way: it would start now")


def _amount(kind: str, amount: int | None) -> str | None:
    return None if amount is None else units.format_amount(kind, amount)


def _sent(context: typer.Context, command: list[str], options: JobOptions) -> JobHandle:
    client = client_of(context)
    if not sys.stderr.isatty():
        return submit_job(command, client=client, **options)
    with console(stderr=True).status("submitting"):
        return submit_job(command, client=client, **options)


def _waited(handle: JobHandle, as_json: bool) -> int:
    # With --json stdout holds the answer alone; the job's output goes to stderr.
    view = follow(handle, sys.stderr if as_json else sys.stdout)
    if as_json:
        print_json(view)
    return exit_status(view)
