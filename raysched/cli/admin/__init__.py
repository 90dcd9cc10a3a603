"""`raysched admin`: changes of the books, each with `--dry-run` and `--json`."""

import typer

from raysched.cli.admin import nodes, reservations, shares

app = typer.Typer(help="Change shares, limits, groups, reservations, overrides, nodes and pools.")
for name, sub in (
    ("shares", shares.shares_app),
    ("limits", shares.limits_app),
    ("groups", shares.groups_app),
    ("reservations", reservations.reservations_app),
    ("overrides", reservations.overrides_app),
    ("nodes", nodes.nodes_app),
    ("pools", nodes.pools_app),
):
    app.add_typer(sub, name=name)
    app.add_typer(sub, name=name.removesuffix("s"), hidden=True)  # `admin share stop` reads as well
