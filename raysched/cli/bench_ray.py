"""`raysched bench ray`: what raysched adds to Ray's own placement groups and actors, measured in the same run."""

from typing import Annotated, Any

import typer
from rich.console import RenderableType

from raysched.cli.output import console, emit, table
from raysched.cli.session import Json, Session
from raysched.client.errors import RayschedError


def register(app: typer.Typer) -> None:
    """Add the sub-command."""
    app.command("ray")(ray)


def ray(
    context: typer.Context,
    share: Annotated[str, typer.Option(help="with --address: the share to charge")] = "bench",
    gpus: Annotated[int, typer.Option(min=1, help="with --address: GPUs of each of the two idle nodes")] = 8,
    rounds: Annotated[int, typer.Option(min=1, help="measurements of each shape")] = 6,
    jobs: Annotated[int, typer.Option(min=1, help="jobs of the sustained rate")] = 32,
    as_json: Json = False,
) -> None:
    """Submit → running beside the bare placement group and actor, as ratios. Starts a cluster of its own unless
    --address is given."""
    from raysched.runtime import bench_ray

    session = context.obj
    assert isinstance(session, Session)
    try:
        with console(stderr=True).status("measuring") as shown:
            found = bench_ray.run(
                session.address,
                share=share,
                gpus=gpus,
                rounds=rounds,
                jobs=jobs,
                tell=lambda doing: shown.update(doing),
            )
    # The runtime's errors are of many classes, all with a message for people.
    except Exception as error:
        raise RayschedError(str(error) or type(error).__name__, code="BENCH_FAILED", status=500) from error
    emit(found, as_json, lambda: _shown(found))


def _shown(found: dict[str, Any]) -> RenderableType:
    rows = [_latency("1 bundle, submit → running", found["one_bundle"])]
    rows.append(_latency("gang on 2 nodes, submit → running", found["two_nodes"]))
    rate = found["sustained"]
    what = f"{rate['jobs']} groups with a process, {rate['at_once']} at once"
    rows.append([what, f"{rate['ray_per_s']:g}/s", f"{rate['raysched_per_s']:g}/s", f"{rate['ratio']:g}", "-", "-"])
    return table(["WHAT", "RAY ALONE", "RAYSCHED", "RATIO", "RAY WORST", "RAYSCHED WORST"], rows, "nothing measured")


def _latency(what: str, row: dict[str, Any]) -> list[str]:
    times = [f"{row[key]:g} ms" for key in ("ray_ms", "raysched_ms", "ray_worst_ms", "raysched_worst_ms")]
    return [what, *times[:2], f"{row['ratio']:g}", *times[2:]]
