"""Jobs on the command line."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from raysched.cli.main import app
from raysched.client import Client, LocalTransport
from tests.api.service_double import ServiceDouble
from tests.cli.conftest import Cli, answer, said


def test_submit_prints_the_id_and_sends_the_words_after_the_dashes(cli: Cli, service: ServiceDouble) -> None:
    ran = cli("submit", "--share", "nlp", "--gpu", "8", "--count", "2", "--", "python", "train.py", "--json")
    assert ran.exit_code == 0
    job = ran.stdout.strip()
    assert service.specs[job]["run"]["argv"] == ["python", "train.py", "--json"]
    assert service.specs[job]["bundles"] == [{"gpu_milli": 8000, "count": 2}]
    assert service.specs[job]["user"] == "ana"


def test_options_after_the_first_word_are_the_jobs(cli: Cli, service: ServiceDouble) -> None:
    job = cli("submit", "--share", "nlp", "python", "train.py", "--gpu", "3").stdout.strip()
    assert service.specs[job]["run"]["argv"] == ["python", "train.py", "--gpu", "3"]


def test_every_option_of_a_job(cli: Cli, service: ServiceDouble, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "env.yaml").write_text("pip: [numpy]")
    ran = cli(
        *("--user", "eva", "submit", "--share", "cv", "--workspace", "research", "--json"),
        *("--bundle", "gpu=8,cpu=96,memory=1Ti,disks=2,count=2", "--bundle", "cpu=500m"),
        *("--workload", "batch", "--priority", "P2", "--tag", "kind=speech", "--max-runtime", "2h"),
        *(
            "--model",
            "H100",
            "--pool",
            "train",
            "--cross-pool",
            "--confirm",
            "--retries",
            "1",
            "--topology",
            "required",
        ),
        *("--env", "LR=0.1", "--runtime-env", str(tmp_path / "env.yaml"), "--working-dir", str(tmp_path)),
        *("--reservation", "ra", "--grace", "1m", "--checkpoint-every", "10m", "--name", "big", "--", "sh", "run.sh"),
    )
    assert answer(ran) == {"job": "big"}
    spec = service.specs["big"]
    assert spec["bundles"] == [
        {"gpu_milli": 8000, "cpu_milli": 96000, "memory_bytes": 2**40, "attach": {"disks": 2}, "count": 2},
        {"cpu_milli": 500},
    ]
    run = spec.pop("run")
    assert (run["env"], run["runtime_env"]) == ({"LR": "0.1"}, '{"pip": ["numpy"]}')
    assert run["working_dir"] in service.blobs
    for key, value in {
        "user": "eva",
        "share": "cv",
        "workspace": "research",
        "workload": "batch",
        "priority": 2,
        "tags": {"kind": "speech"},
        "max_runtime_ms": 7_200_000,
        "checkpoint_every_ms": 600_000,
        "grace_ms": 60_000,
        "model": "H100",
        "pool": "train",
        "cross_pool": True,
        "confirm": True,
        "retries": 1,
        "reservation": "ra",
        "topology": "required",
    }.items():
        assert spec[key] == value


def test_a_refused_job_is_one_line_with_numbers(cli: Cli) -> None:
    words = ("submit", "--share", "nlp", "--gpu", "9")
    assert "the largest node has 8 GPUs, one bundle asks 9" in said(cli(*words, "--", "true"), 1)
    refused = answer(cli(*words, "--json", "--", "true"), 1)["error"]
    assert refused["code"] == "OVER_NODE_MAX"
    assert refused["findings"][0]["rows"]["gpu"]["excess"] == 1000


@pytest.mark.parametrize(
    "words",
    [
        ("submit", "--share", "nlp", "--gpu", "1.5", "--", "true"),
        ("submit", "--share", "nlp", "--bundle", "gpu", "--", "true"),
        ("submit", "--share", "nlp", "--bundle", "gpu=1,count=x", "--", "true"),
        ("submit", "--share", "nlp", "--tag", "kind", "--", "true"),
        ("submit", "--share", "nlp", "--runtime-env", "{", "--", "true"),
        ("submit", "--gpu", "1", "--", "true"),
        ("submit", "--share", "nlp", "--count", "many", "--", "true"),
        ("submit", "--share", "nlp"),
        ("submit", "--bogus"),
        ("priority", "ana-1", "P11"),
        ("resize", "ana-1", "--bundle", "gpu=1.5"),
        ("logs",),
        ("bogus",),
    ],
)
def test_words_that_are_not_understood_are_exit_status_2(cli: Cli, submitted: str, words: tuple[str, ...]) -> None:
    assert said(cli(*words), 2)
    options, dashes, command = (words.index("--"), ["--"], ["true"]) if "--" in words else (len(words), [], [])
    assert answer(cli(*words[:options], "--json", *dashes, *command), 2)["error"]["status"] in (400, 422)


def test_diagnose_shows_a_row_per_kind(cli: Cli, service: ServiceDouble) -> None:
    ran = cli("diagnose", "--share", "nlp", "--gpu", "10")
    assert ran.exit_code == 1
    for word in ("OVER_NODE_MAX", "block", "gpu", " 8 ", " 10 ", " 2"):
        assert word in ran.stdout
    assert answer(cli("diagnose", "--share", "nlp", "--gpu", "10", "--json"), 1)["findings"]
    fits = cli("diagnose", "--share", "nlp", "--gpu", "1")
    assert (fits.exit_code, fits.stdout) == (0, "nothing stands in the way: it would start now\n")
    assert service.specs == {}


def test_ps_lists_what_has_not_ended(cli: Cli, submitted: str, service: ServiceDouble) -> None:
    other = cli("submit", "--share", "cv", "--", "true").stdout.strip()
    service.end(other, "succeeded", 0)
    listed = cli("ps").stdout
    assert all(word in listed for word in (submitted, "ana", "nlp", "queued", "USER_LIMIT", "P5", "8 gpu"))
    assert other not in listed
    assert other in cli("ps", "--all").stdout
    assert [row["job"] for row in answer(cli("ps", "--share", "cv", "--all", "--json"))] == [other]
    assert answer(cli("ps", "--state", "succeeded", "--user", "ana", "--limit", "5", "--json"))[0]["job"] == other
    assert cli("ps", "--user", "nobody").stdout == "no jobs\n"


def test_show_explain_and_records(cli: Cli, submitted: str) -> None:
    shown = cli("show", submitted).stdout
    assert "state: queued" in shown and "priority: P5" in shown and "bundles: 1 × (8 gpu)" in shown
    assert answer(cli("show", submitted, "--json"))["amounts"] == {"gpu": 8000}
    explained = cli("explain", submitted).stdout
    assert "1. USER_LIMIT (user ana in nlp): 8 of 8 GPUs in use, asked 8" in explained
    assert "starts now with: ask for 4 GPUs" in explained
    assert answer(cli("explain", submitted, "--json"))["reason"] == "USER_LIMIT"
    assert "QUEUED" in cli("records", submitted).stdout
    assert answer(cli("records", submitted, "--json"))[0]["quota_remaining"] == 6000


def test_logs_are_printed_as_they_are(cli: Cli, submitted: str, service: ServiceDouble) -> None:
    service.run(submitted, "[red]loss[/red] 0.5\n")
    assert cli("logs", submitted).stdout == "[red]loss[/red] 0.5\n"
    assert answer(cli("logs", submitted, "--json")) == {"data": "[red]loss[/red] 0.5\n"}
    service.end(submitted, "succeeded", 0)
    assert cli("logs", "-f", submitted).stdout == "[red]loss[/red] 0.5\n"


def test_jobs_are_cancelled_each_for_itself(cli: Cli, submitted: str, service: ServiceDouble) -> None:
    ran = cli("cancel", "none", submitted)
    assert ran.exit_code == 1
    assert ran.stdout == f"{submitted} cancelled\n"
    assert "none" in ran.stderr
    assert service.job_rows[submitted]["state"] == "cancelled"
    assert answer(cli("cancel", submitted, "--json")) == {"job": submitted}
    assert answer(cli("cancel", "none", "--json"), 1)["error"]["code"] == "UNKNOWN_JOB"
    assert [("error" in row) for row in answer(cli("cancel", submitted, "none", "--json"), 1)] == [False, True]


def test_a_job_is_changed(cli: Cli, submitted: str, service: ServiceDouble) -> None:
    assert cli("priority", submitted, "P1").stdout == f"{submitted} now P1\n"
    assert cli("move", submitted, "cv").stdout == f"{submitted} now in cv\n"
    assert cli("resize", submitted, "--bundle", "gpu=2,count=3").exit_code == 0
    row = service.job_rows[submitted]
    assert (row["priority"], row["share"], row["bundles"]) == (1, "cv", [{"gpu_milli": 2000, "count": 3}])
    assert answer(cli("move", submitted, "none", "--json"), 1)["error"]["code"] == "UNKNOWN_SHARE"


@pytest.mark.parametrize("command", ["show", "explain", "logs", "cancel"])
def test_an_unknown_job_is_exit_status_1(cli: Cli, command: str) -> None:
    assert "none" in said(cli(command, "none"), 1)
    assert answer(cli(command, "none", "--json"), 1)["error"]["code"] == "UNKNOWN_JOB"


class Runs(ServiceDouble):
    """A service on which a job waits, runs and ends, one step at each look."""

    ends: tuple[str, int | None] = ("succeeded", 0)

    def wait(self, job: str, timeout_s: float) -> dict[str, object]:
        state = self.job_rows[job]["state"]
        if state == "queued" and self.job_rows[job].get("looked"):
            self.run(job, "loss 0.5\n")
        elif state == "running":
            self.output[job] += "done\n"
            self.end(job, *self.ends)
        self.job_rows[job]["looked"] = True
        return dict(self.job_rows[job])


@pytest.mark.parametrize(
    ("ends", "status"), [(("succeeded", 0), 0), (("failed", 3), 3), (("failed", None), 1), (("cancelled", None), 1)]
)
def test_wait_shows_the_output_and_ends_as_the_job_did(ends: tuple[str, int | None], status: int) -> None:
    service = Runs()
    service.ends = ends
    client = Client(user="ana", transport=LocalTransport(service))
    words = ["submit", "--share", "nlp", "--name", "j", "--wait"]
    ran = CliRunner().invoke(app, [*words, "--", "true"], obj=client)
    assert ran.exit_code == status, ran.output
    assert ran.stdout == "loss 0.5\ndone\n"
    assert ran.stderr.splitlines()[:2] == ["j queued: USER_LIMIT", "j running on n0"]
    assert ran.stderr.splitlines()[2].startswith(f"j {ends[0]}")
    words[words.index("j")] = "k"
    with_json = CliRunner().invoke(app, [*words, "--json", "--", "true"], obj=client)
    assert answer(with_json, status)["state"] == ends[0]
    assert "loss 0.5\n" in with_json.stderr
