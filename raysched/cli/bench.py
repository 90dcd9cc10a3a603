"""`raysched bench …`: measurements that anybody can repeat, each with its yardstick in the same run."""

import typer

from raysched.cli import bench_core, bench_fgd, bench_kueue, bench_ledger, bench_muri, bench_ray

app = typer.Typer(help="Measure raysched, each time next to a yardstick.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure raysched, each time next to a yardstick."""


for module in (bench_core, bench_ledger, bench_ray, bench_fgd, bench_muri, bench_kueue):
    module.register(app)
