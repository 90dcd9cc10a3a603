"""`raysched scenario run FILE…`: policies tried out under a virtual clock, without a cluster.

Exit status 0 when every expectation holds, 1 when one does not, 2 when a file is not valid."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from raysched.cli.files import tell_problems
from raysched.cli.output import console, print_json
from raysched.cli.root import REFUSED, USAGE
from raysched.cli.session import Json
from raysched.client.errors import BadSpec, RayschedError

if TYPE_CHECKING:
    from raysched.config import Problem
    from raysched.sim.scenario import Scenario
    from raysched.sim.scenario_run import Result

app = typer.Typer(help="Try out policies: run scenario files under a virtual clock.", no_args_is_help=True)


@app.callback()
def scenario() -> None:
    """Try out policies: run scenario files under a virtual clock."""


@app.command()
def run(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", show_default=False)],
    as_json: Json = False,
    explain: Annotated[
        str | None, typer.Option(metavar="JOB", help="also say why this job waits at the end", show_default=False)
    ] = None,
) -> None:
    """Run scenarios and say which expectations do not hold; --json prints the whole result (several files: a list)."""
    from raysched.config import ConfigError
    from raysched.sim.scenario_run import run_scenario

    try:
        results = [run_scenario(scenario) for scenario in _loaded(files)]
    except ConfigError as error:
        tell_problems(error, as_json, "BAD_SCENARIO")
        raise typer.Exit(USAGE) from None
    if explain is not None and not any(explain in result.service.state.jobs for result in results):
        raise RayschedError(f"job {explain} is in none of these scenarios", code=BadSpec.code, status=422)
    _tell(results, as_json, explain)
    if not all(result.ok for result in results):
        raise typer.Exit(REFUSED)


def _loaded(files: list[Path]) -> "list[Scenario]":
    """Every file read, before any runs. Raises ConfigError with what is wrong in all of them."""
    from raysched.config import ConfigError
    from raysched.sim.scenario_reading import load_scenario

    found: list[Scenario] = []
    problems: list[Problem] = []
    for file in files:
        try:
            found.append(load_scenario(file))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return found


def _tell(results: "list[Result]", as_json: bool, explain: str | None) -> None:
    from raysched.sim.scenario_result import explain_lines, to_json, to_lines

    if as_json:
        told: list[dict[str, Any]] = [to_json(result, explain) for result in results]
        print_json(told[0] if len(told) == 1 else told)
        return
    for result in results:
        for line in to_lines(result):
            console().print(line)
        if explain is not None and explain in result.service.state.jobs:
            for line in explain_lines(result, explain):
                console().print(line)
