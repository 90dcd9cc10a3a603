"""Microsoft's ITP traces of 2021 (ElasticFlow): ten clusters, each to be taken as a tenant."""

from pathlib import Path

from msgspec import Struct

from raysched.sim.traces.reading import TraceError, rows_in_archive

FOLDER = "microsoft-itp-2021"
ARCHIVE = "raw-traces.tar.gz"


class ItpJob(Struct, frozen=True):
    """One job; times count from the start of the trace."""

    job: str
    submit_ms: int
    duration_ms: int
    gpus: int


def read_clusters(folder: Path) -> dict[str, list[ItpJob]]:
    """The jobs of each cluster (`cluster01` …) by time of submission. Raises TraceError."""
    columns = ("job_id", "submission_time", "duration", "num_gpu")
    found: dict[str, list[ItpJob]] = {}
    for cluster, rows in rows_in_archive(folder / ARCHIVE, columns):
        jobs = [
            ItpJob(
                row.text("job_id"),
                round(row.number("submission_time") * 1000),
                round(row.number("duration") * 1000),
                row.whole("num_gpu", least=1),
            )
            for row in rows
        ]
        found[cluster] = sorted(jobs, key=lambda job: (job.submit_ms, job.job))
    if not found:
        raise TraceError(str(folder / ARCHIVE), None, "holds no CSV file")
    return found
