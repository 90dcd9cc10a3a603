"""Jobs: `ps`, `show`, `explain`, `logs`, `cancel`, `priority`, `cross-pool`, `move`, `resize`."""

import sys
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from raysched.cli.job_options import bundle as bundle_words
from raysched.cli.output import ago, amounts, emit, moment, print_json, table, tree
from raysched.cli.session import JobName, Json, client_of
from raysched.client.bundle import bundle_of
from raysched.client.client import Client, Row
from raysched.client.errors import RayschedError
from raysched.client.handle import JobHandle
from raysched.client.spec import parse_priority
from raysched.core import units
from raysched.core.model import FINAL, Bundle

_TIMES = ("submitted_ms", "claimed_ms", "started_ms", "ended_ms")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (ps, show, explain, logs, cancel, priority, cross_pool, move, resize):
        app.command()(command)


def ps(
    context: typer.Context,
    share: Annotated[str | None, typer.Option(help="only of this share")] = None,
    user: Annotated[str | None, typer.Option(help="only of this user")] = None,
    state: Annotated[str | None, typer.Option(help="only in this state")] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="also those that have ended")] = False,
    limit: Annotated[int, typer.Option(min=1, help="at most so many")] = 1000,
    as_json: Json = False,
) -> None:
    """List jobs that have not ended."""
    rows = client_of(context).jobs(share, user, state, limit)
    if not everything and state is None:
        rows = [row for row in rows if row["state"] not in FINAL]
    emit(rows, as_json, lambda: _jobs_table(rows))


def show(context: typer.Context, job: JobName, as_json: Json = False) -> None:
    """Show one job."""
    view = client_of(context).job(job)
    emit(view, as_json, lambda: tree(_readable(view)))


def explain(context: typer.Context, job: JobName, as_json: Json = False) -> None:
    """Say why a job waits, and what would start it."""
    found = client_of(context).explain(job)
    emit(found, as_json, lambda: "\n".join(_explained(found)))


def logs(
    context: typer.Context,
    job: JobName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on until the job has ended")] = False,
    rank: Annotated[int, typer.Option(min=0, help="whose output")] = 0,
    attempt: Annotated[int | None, typer.Option(min=0, help="which try (default: the latest)")] = None,
    as_json: Json = False,
) -> None:
    """Print the output of a job. With --json each piece is one line of JSON."""
    handle = JobHandle(job, client_of(context))
    handle.status()  # an unknown job is an error, not an empty output
    pieces = (
        handle.logs(follow=True, rank=rank, attempt=attempt) if follow else [handle.logs(rank=rank, attempt=attempt)]
    )
    for piece in pieces:
        data = msgspec.json.encode({"data": piece}).decode() + "\n" if as_json else piece
        sys.stdout.write(data)
        sys.stdout.flush()


def cancel(
    context: typer.Context,
    jobs: Annotated[list[str], typer.Argument(metavar="JOB...", show_default=False)],
    as_json: Json = False,
) -> int:
    """Stop jobs, or take them out of the queue."""
    return _each(client_of(context), jobs, as_json, lambda client, job: client.cancel(job), "cancelled")


def priority(
    context: typer.Context,
    job: JobName,
    to: Annotated[str, typer.Argument(metavar="P0..P9", show_default=False)],
    as_json: Json = False,
) -> int:
    """Change the priority of a job."""
    value = parse_priority(to)
    return _each(
        client_of(context), [job], as_json, lambda client, each: client.set_priority(each, value), f"now P{value}"
    )


def cross_pool(
    context: typer.Context,
    job: JobName,
    allowed: Annotated[bool, typer.Option("--on/--off", help="allow or forbid it")] = True,
    as_json: Json = False,
) -> int:
    """Let a waiting job run in other pools that lend, or no longer."""
    done = "may run in other pools" if allowed else "stays in its own pools"
    return _each(client_of(context), [job], as_json, lambda client, each: client.set_cross_pool(each, allowed), done)


def move(
    context: typer.Context,
    job: JobName,
    share: Annotated[str, typer.Argument(show_default=False)],
    as_json: Json = False,
) -> int:
    """Charge a job to another share."""
    return _each(client_of(context), [job], as_json, lambda client, each: client.move(each, share), f"now in {share}")


def resize(
    context: typer.Context,
    job: JobName,
    bundles: Annotated[list[str], typer.Option("--bundle", metavar="gpu=8,cpu=96,count=2", help="may be repeated")],
    as_json: Json = False,
) -> int:
    """Change what a job asks for."""
    asked = [bundle_of(bundle_words(word)).to_keys() for word in bundles]
    return _each(client_of(context), [job], as_json, lambda client, each: client.resize(each, asked), "resized")


def _each(client: Client, jobs: list[str], as_json: bool, change: Callable[[Client, str], Row], done: str) -> int:
    """Change every job; one that is refused does not keep the others from it. Returns the exit status."""
    answers: list[Row] = []
    for job in jobs:
        try:
            answers.append({"job": job} | change(client, job))
        except RayschedError as error:
            answers.append({"job": job, "error": error.to_dict()})
    failed = [answer for answer in answers if "error" in answer]
    if as_json:
        # One job has one answer; an error of it has the same place as that of every other command.
        single = failed and {"error": failed[0]["error"]}
        print_json(single or answers[0] if len(answers) == 1 else answers)
    else:
        for answer in answers:
            if "error" in answer:
                print(f"raysched: {answer['job']}: {answer['error']['message']}", file=sys.stderr)
            else:
                print(f"{answer['job']} {done}")
    return 1 if failed else 0


def _jobs_table(rows: list[Row]) -> Any:
    columns = ["JOB", "USER", "SHARE", "STATE", "REASON", "PRIO", "ASKS", "NODES", "AGE"]
    return table(columns, (_job_row(row) for row in rows), "no jobs")


def _job_row(row: Row) -> list[Any]:
    level = row.get("priority")
    shown = None if level is None else f"P{level}"
    asks, age = amounts(row.get("amounts")), ago(row.get("submitted_ms"))
    return [row["job"], row["user"], row["share"], row["state"], row.get("reason"), shown, asks, row.get("nodes"), age]


def _readable(view: Row) -> Row:
    shown = {key: value for key, value in view.items() if value not in (None, [], {}, "")}
    for key in _TIMES:
        if key in shown:
            shown[key.removesuffix("_ms")] = moment(shown.pop(key))
    if "priority" in shown:
        shown["priority"] = f"P{shown['priority']}"
    if "bundles" in shown:
        shown["bundles"] = ", ".join(_bundle(asked) for asked in shown["bundles"])
    return shown


def _bundle(asked: Row) -> str:
    bundle = msgspec.convert(asked, Bundle)
    return f"{bundle.count} × ({units.format_amounts(bundle.amounts(None))})"


def _explained(found: Row) -> list[str]:
    reason = f", {found['reason']}" if found.get("reason") else ""
    text = _without_reason(found.get("text") or "nothing holds it", found.get("reason"))
    lines = [f"{found['job']} is {found['state']}{reason}: {text}"]
    for number, blocker in enumerate(found.get("blockers") or [], 1):
        text = _without_reason(blocker["text"], blocker["reason"])
        lines.append(f"  {number}. {blocker['reason']} ({blocker.get('scope') or '-'}): {text}")
        if blocker.get("freed_by"):
            at = blocker.get("freed_at_ms")
            lines.append(f"     freed by {blocker['freed_by']}" + (f" at {moment(at)}" if at else ""))
    change = found.get("change")
    if change:
        lines.append(f"  starts now with: {change['text']}")
        lines += [f"    - {_call(step)}" for step in change.get("steps") or []]
    return lines


def _call(step: Row) -> str:
    """A step as the call that carries it out."""
    params = step["params"]
    name, given = (params["action"], params["params"]) if step["method"] == "admin" else (step["method"], params)
    return " ".join([name, *(f"{key}={_word(value)}" for key, value in given.items())])


def _word(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _without_reason(text: str, reason: str | None) -> str:
    return text.removeprefix(f"{reason}: ")
