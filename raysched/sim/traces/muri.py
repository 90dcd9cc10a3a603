"""Muri's Philly traces: jobs with a model, a number of GPUs, and a run time given as iterations."""

from pathlib import Path

from msgspec import Struct

from raysched.sim.traces.reading import TraceError, rows

FOLDER = "philly-muri"
COLUMNS = ("job_id", "num_gpu", "submit_time", "iterations", "model_name", "iteration_time")


class MuriJob(Struct, frozen=True):
    """One job, in the trace's own units: iterations and milliseconds."""

    job: int
    gpus: int
    submit_ms: int
    iterations: int
    iteration_ms: int
    model: str


def read_jobs(folder: Path, trace: str) -> list[MuriJob]:
    """The jobs of `trace1` … `trace4`, `trace1_pr` … or `job_type_1` …, in the file's order. Raises TraceError."""
    file = folder / f"{trace}.csv.gz"
    if not file.exists():
        raise TraceError(str(file), None, f"is missing; traces here: {', '.join(traces(folder)) or 'none'}")
    return [
        MuriJob(
            row.whole("job_id"),
            row.whole("num_gpu", least=1),
            row.whole("submit_time"),
            row.whole("iterations", least=1),
            row.whole("iteration_time", least=1),
            row.text("model_name"),
        )
        for row in rows(file, COLUMNS)
    ]


def traces(folder: Path) -> list[str]:
    """The traces that lie in the folder."""
    return sorted(file.name[: -len(".csv.gz")] for file in folder.glob("*.csv.gz"))
