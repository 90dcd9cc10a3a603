"""The command `raysched`: a registry of commands and sub-commands, each in a module of its own."""

from typing import Annotated

import typer

from raysched.cli import (
    admin,
    applying,
    bench,
    books,
    cluster,
    importing,
    jobs,
    ledger,
    nodes,
    scenario,
    shares,
    sim,
    submitting,
)
from raysched.cli.root import RootGroup
from raysched.cli.session import Session
from raysched.client.address import ADDRESS_VARIABLE
from raysched.client.client import USER_VARIABLE, Client

app = typer.Typer(
    cls=RootGroup,
    help="Quota, gangs, reservations and hot standby for teams that share GPUs on Ray.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def root(
    context: typer.Context,
    address: Annotated[
        str | None, typer.Option(envvar=ADDRESS_VARIABLE, help="Ray's head, HOST:PORT (default: the one `up` started)")
    ] = None,
    user: Annotated[str | None, typer.Option(envvar=USER_VARIABLE, help="who is calling (default: you)")] = None,
) -> None:
    """What all commands share: the cluster and the caller."""
    given = context.obj if isinstance(context.obj, Client) else None
    context.obj = Session(address, user, given)


for module in (cluster, submitting, jobs, shares, nodes, books, applying):
    module.register(app)
app.add_typer(admin.app, name="admin")
app.add_typer(ledger.app, name="ledger")
app.add_typer(scenario.app, name="scenario")
app.add_typer(sim.app, name="sim")
app.add_typer(bench.app, name="bench")
app.add_typer(importing.app, name="import")
