"""Microsoft's Philly trace, flattened: one job a line with its virtual cluster, and how large each of those was."""

from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from raysched.sim.traces.reading import Row, rows

FOLDER = "philly"
GPUS_PER_NODE = 8


class PhillyJob(Struct, frozen=True):
    """One job. `submit_ms` counts from the first submission in the file."""

    submit_ms: int
    duration_ms: int
    gpus: int
    cluster: str


def read_jobs(folder: Path) -> list[PhillyJob]:
    """All jobs by time of submission; equal times in the file's order. Raises TraceError."""
    found = [
        (_seconds(row), round(row.number("duration") * 1000), row.whole("num_gpus", least=1), row.text("cluster"))
        for row in rows(folder / "philly.csv.gz", ("timestamp", "duration", "num_gpus", "cluster"))
    ]
    start = min((seconds for seconds, *_ in found), default=0)
    found.sort(key=lambda job: job[0])
    return [PhillyJob((at - start) * 1000, duration, gpus, cluster) for at, duration, gpus, cluster in found]


def read_cluster_gpus(folder: Path) -> dict[str, int]:
    """GPUs of each virtual cluster of the Helios experiment; the trace has jobs of more. Raises TraceError."""
    file = rows(folder / "philly_vc.csv", ("vc", "node num"))
    return {row.text("vc"): row.whole("node num", least=1) * GPUS_PER_NODE for row in file}


def _seconds(row: Row) -> int:
    text = row.text("timestamp")
    try:
        # The file's times are local without an offset; read as UTC, since only differences are used.
        return int(datetime.strptime(text, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise row.error(f"timestamp: {text!r} is not YYYY-MM-DD HH:MM:SS") from None
