"""The outcome of a simulation in files: jobs.csv (a line a job), samples.csv (a line a sample), summary.json.

Amounts in the CSV files are GPUs, times are seconds from the workload's start; nothing is lost by it (both have three
decimals). `read_jobs` and `read_samples` give back exactly what was written."""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from raysched.core.model import JobId, ShareId, UserId
from raysched.sim.outcome import Ended, JobLine, Played, summary
from raysched.sim.recording import Sample

JOBS: Final = "jobs.csv"
SAMPLES: Final = "samples.csv"
SUMMARY: Final = "summary.json"
JOB_COLUMNS: Final = (
    "job",
    "share",
    "user",
    "size",
    "gpus",
    "nodes",
    "submit_s",
    "start_s",
    "end_s",
    "wait_s",
    "runtime_s",
    "ran_s",
    "attempts",
    "state",
    "reason",
    "held_by",
)
SUMS: Final = ("capacity", "running", "claimed", "queued", "fragmented", "stranded")
PER_SHARE: Final = ("used", "borrowed", "lent")


def write(played: Played, folder: Path) -> tuple[Path, ...]:
    """Write all three files into a folder, which is made if it is missing. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / JOBS, JOB_COLUMNS, (_job_row(line) for line in played.lines))
    shares = sorted({share for sample in played.samples for share in sample.used})
    _write(folder / SAMPLES, _sample_columns(shares), (_sample_row(sample, shares) for sample in played.samples))
    text = msgspec.json.format(msgspec.json.encode(summary_json(played)), indent=2)
    (folder / SUMMARY).write_bytes(text + b"\n")
    return tuple(folder / name for name in (JOBS, SAMPLES, SUMMARY))


def summary_json(played: Played) -> dict[str, Any]:
    """The summary with why jobs were not played, as plain values. An offered load without bound is null."""
    found: dict[str, Any] = msgspec.to_builtins(summary(played))
    if found["offered_load"] == float("inf"):
        found["offered_load"] = None
    dropped: dict[str, int] = {}
    for line in played.lines:
        if line.state in ("dropped", "refused"):
            dropped[line.reason] = dropped.get(line.reason, 0) + 1
    return {**found, "not_played": dict(sorted(dropped.items()))}


def read_jobs(file: Path) -> tuple[JobLine, ...]:
    """Every job of a jobs.csv. Raises OSError, ValueError for a file that is none."""
    return tuple(_job_of(row) for row in _read(file, JOB_COLUMNS))


def read_samples(file: Path) -> tuple[Sample, ...]:
    """Every sample of a samples.csv. Raises OSError, ValueError for a file that is none."""
    return tuple(_sample_of(row) for row in _read(file, _sample_columns([])))


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _job_row(line: JobLine) -> list[str]:
    times = (line.submit_ms, line.start_ms, line.end_ms, line.wait_ms, line.runtime_ms, line.ran_ms)
    return [
        line.job,
        line.share,
        line.user,
        line.size,
        _thousandths(line.gpu_milli),
        str(line.nodes),
        *("" if ms is None else _thousandths(ms) for ms in times),
        str(line.attempts),
        line.state,
        line.reason,
        " ".join(line.held_by),
    ]


def _job_of(row: dict[str, str]) -> JobLine:
    if row["state"] not in get_args(Ended):
        raise ValueError(f"state: {row['state']!r} is not one of {', '.join(get_args(Ended))}")
    state: Ended = row["state"]  # type: ignore[assignment]
    return JobLine(
        job=JobId(row["job"]),
        share=ShareId(row["share"]),
        user=UserId(row["user"]),
        size=row["size"],
        gpu_milli=_whole(row["gpus"]),
        nodes=int(row["nodes"]),
        submit_ms=_whole(row["submit_s"]),
        start_ms=_whole(row["start_s"]) if row["start_s"] else None,
        end_ms=_whole(row["end_s"]) if row["end_s"] else None,
        runtime_ms=_whole(row["runtime_s"]),
        ran_ms=_whole(row["ran_s"]),
        attempts=int(row["attempts"]),
        state=state,
        reason=row["reason"],
        held_by=tuple(row["held_by"].split()),
    )


# ── samples ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _sample_columns(shares: Sequence[ShareId]) -> tuple[str, ...]:
    return ("at_s", "queued_jobs", *SUMS, *(f"{name}:{share}" for name in PER_SHARE for share in shares))


def _sample_row(sample: Sample, shares: Sequence[ShareId]) -> list[str]:
    by_share = [getattr(sample, name).get(share, 0) for name in PER_SHARE for share in shares]
    sums = [getattr(sample, name) for name in SUMS]
    return [
        _thousandths(sample.at_ms),
        str(sample.queued_jobs),
        *(_thousandths(amount) for amount in (*sums, *by_share)),
    ]


def _sample_of(row: dict[str, str]) -> Sample:
    def by_share(name: str) -> dict[ShareId, int]:
        found = {key.split(":", 1)[1]: _whole(value) for key, value in row.items() if key.startswith(f"{name}:")}
        # A share that uses nothing is told of; one that borrows or lends nothing is not.
        return {ShareId(share): amount for share, amount in found.items() if amount or name == "used"}

    return Sample(
        at_ms=_whole(row["at_s"]),
        queued_jobs=int(row["queued_jobs"]),
        used=by_share("used"),
        borrowed=by_share("borrowed"),
        lent=by_share("lent"),
        **{name: _whole(row[name]) for name in SUMS},
    )


# ── CSV ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write(file: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def _read(file: Path, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as opened:
        reader = csv.DictReader(opened)
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            raise ValueError(f"{file}: lacks the columns {', '.join(missing)}")
        yield from reader


def _thousandths(amount: int) -> str:
    """1500 → `1.500`: exact, unlike a float."""
    whole, rest = divmod(amount, 1_000)
    return f"{whole}.{rest:03}"


def _whole(text: str) -> int:
    whole, _, rest = text.partition(".")
    return int(whole) * 1_000 + int(rest or 0)
