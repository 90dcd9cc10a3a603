"""Reading traces: what is wrong is said with the file and the line."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from raysched.sim.traces import itp, muri, openb, philly
from raysched.sim.traces.reading import TraceError
from tests.sim.traces_at import TRACES, needs_traces

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
JOBS = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time\n"


def zipped(folder: Path, name: str, text: str) -> Path:
    """A gzipped file in the folder; returns the folder."""
    (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def test_pods_are_read_by_name_with_the_experiments_corrections(tmp_path: Path) -> None:
    rows = "p2,0,1024,1,460,T4|G2|T4\np1,4000,2048,0,0,\n"
    first, second = openb.read_pods(zipped(tmp_path, "openb_pod_list_w.csv", PODS + rows), "w")
    assert first == openb.OpenbPod("p1", 4000, 2048, 0, 0, ())
    assert second == openb.OpenbPod("p2", 100, 1024, 1, 460, ("G2", "T4"))  # no CPU counts as a tenth of a core


def test_a_workload_without_model_column_allows_any(tmp_path: Path) -> None:
    rows = PODS.replace(",gpu_spec", "") + "p1,4000,2048,8,1000\n"
    assert openb.read_pods(zipped(tmp_path, "openb_pod_list_w.csv", rows), "w")[0].models == ()


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("p1,4000,2048,x,0,", "num_gpu: 'x' is not a whole number"),
        ("p1,-4,2048,0,0,", "cpu_milli: -4 is below 0"),
        ("p1,4000,2048,2,500,", "gpu_milli: 500 of each of 2 GPUs; only one GPU can be shared"),
        ("p1,4000,2048,9,1000,", "num_gpu: 9 is above 8"),
        ("p1,4000", "has 2 values, the header 6 columns"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, row: str, reason: str) -> None:
    folder = zipped(tmp_path, "openb_pod_list_w.csv", PODS + "p0,1,1,0,0,\n" + row + "\n")
    with pytest.raises(TraceError) as caught:
        openb.read_pods(folder, "w")
    assert str(caught.value) == f"{folder / 'openb_pod_list_w.csv.gz'}:3: {reason}"


def test_a_missing_file_names_those_that_are_there(tmp_path: Path) -> None:
    zipped(tmp_path, "openb_pod_list_w.csv", PODS)
    with pytest.raises(TraceError, match="is missing; workloads here: w"):
        openb.read_pods(tmp_path, "v")
    with pytest.raises(TraceError, match="is missing; traces here: none"):
        muri.read_jobs(tmp_path / "none", "trace1")


def test_missing_columns_and_broken_files_are_told(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r":1: lacks the columns gpu, model"):
        openb.read_nodes(zipped(tmp_path, "openb_node_list_gpu_node.csv", "sn,cpu_milli,memory_mib\n"))
    (tmp_path / "trace1.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(TraceError, match="cannot be read"):
        muri.read_jobs(tmp_path, "trace1")


def test_philly_counts_from_the_first_submission(tmp_path: Path) -> None:
    rows = "2017-10-01 00:00:10,60.5,2,121.0,vc1\n2017-10-01 00:00:00,5,1,5,vc2\n\n"
    zipped(tmp_path, "philly.csv", "timestamp,duration,num_gpus,gpu_time,cluster\n" + rows)
    assert philly.read_jobs(tmp_path) == [
        philly.PhillyJob(0, 5_000, 1, "vc2"),
        philly.PhillyJob(10_000, 60_500, 2, "vc1"),
    ]
    (tmp_path / "philly_vc.csv").write_text("vc,node num\nvc1,4\n")
    assert philly.read_cluster_gpus(tmp_path) == {"vc1": 32}


def test_a_time_that_is_none_is_named(tmp_path: Path) -> None:
    zipped(tmp_path, "philly.csv", "timestamp,duration,num_gpus,cluster\nyesterday,5,1,vc\n")
    with pytest.raises(TraceError, match=r":2: timestamp: 'yesterday' is not YYYY-MM-DD HH:MM:SS"):
        philly.read_jobs(tmp_path)


def test_each_cluster_of_the_archive_is_read(tmp_path: Path) -> None:
    text = b"job_id,submission_time,duration,num_gpu\nb,7,3,1\na,0,12,8\n"
    with tarfile.open(tmp_path / itp.ARCHIVE, "w:gz") as archive:
        member = tarfile.TarInfo("cluster01.csv")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    assert itp.read_clusters(tmp_path) == {
        "cluster01": [itp.ItpJob("a", 0, 12_000, 8), itp.ItpJob("b", 7_000, 3_000, 1)]
    }


@needs_traces
def test_the_public_traces_have_as_many_rows_as_their_readmes_say() -> None:
    nodes = openb.read_nodes(TRACES / openb.FOLDER)
    assert (len(nodes), sum(node.gpus for node in nodes)) == (1213, 6212)
    assert len(openb.read_pods(TRACES / openb.FOLDER, "default")) == 8152
    assert len(muri.read_jobs(TRACES / muri.FOLDER, "trace2_pr")) == 5755
    assert len(philly.read_jobs(TRACES / philly.FOLDER)) == 82_247
    clusters = itp.read_clusters(TRACES / itp.FOLDER)
    assert (len(clusters), sum(len(jobs) for jobs in clusters.values())) == (10, 69_351)
