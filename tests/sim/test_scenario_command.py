"""`raysched scenario run`: exit statuses, what people read, and JSON that is the same for every run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from raysched.cli.main import app
from tests.sim.places import EXAMPLES, ROOT
from tests.sim.small import submit, written

HOLDS = "{at: 1s, expect: {jobs: {j: running}}}"
WRONG = "{at: 1s, expect: {jobs: {j: queued}}}"


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["scenario", "run", *map(str, words)])


def test_all_expectations_hold(tmp_path: Path) -> None:
    ran = run(written(tmp_path, submit("j", 1), HOLDS))
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.startswith("ok ")
    assert "small (1 checked)" in ran.stdout


def test_what_does_not_hold_is_printed_with_line_and_what_was_found(tmp_path: Path) -> None:
    file = written(tmp_path, submit("j", 1), WRONG)
    ran = run(file)
    assert ran.exit_code == 1
    head, line = ran.stdout.splitlines()
    assert head.startswith("FAILED")
    assert line.strip() == f"{file}:12: at 1s: timeline[1].expect.jobs.j.state: expected queued, found running"


def test_an_action_that_fails_unexpectedly_fails_the_scenario(tmp_path: Path) -> None:
    ran = run(written(tmp_path, "{at: 0s, cancel: {job: nobody}}"))
    assert ran.exit_code == 1
    assert "timeline[0].cancel: expected no error, found UNKNOWN_JOB: job nobody does not exist" in ran.stdout


def test_a_file_that_is_not_valid_tells_every_problem_and_runs_nothing(tmp_path: Path) -> None:
    good = written(tmp_path, submit("j", 1), HOLDS).rename(tmp_path / "good.yaml")
    bad = written(tmp_path, "{at: 0s, submitt: {}}", "{at: x, expect: {}}")
    ran = run(good, bad)
    assert ran.exit_code == 2
    assert ran.stdout == ""
    first, second = ran.stderr.splitlines()
    assert first == f"{bad}:11: timeline[0].submitt: unknown key (did you mean submit?)"
    assert second.startswith(f"{bad}:12: timeline[1].at: must be a time")


def test_a_file_that_is_not_valid_in_json(tmp_path: Path) -> None:
    bad = written(tmp_path, "{at: 0s, submitt: {}}")
    ran = run(bad, "--json")
    assert ran.exit_code == 2
    (problem,) = json.loads(ran.stdout)["error"]["problems"]
    assert problem == {
        "file": str(bad),
        "line": 11,
        "path": "timeline[0].submitt",
        "reason": "unknown key (did you mean submit?)",
    }


@pytest.mark.parametrize("word", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read(word: str) -> None:
    ran = run(word)
    assert ran.exit_code == 2
    assert ran.stderr.startswith(f"{word}: ")


def test_json_holds_the_whole_result(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        submit("j", 3, share="t", more="pool: p, runtime: 1h"),
        submit("k", 9, more="confirm: true, runtime: 1h", at="1s"),
        "{at: 1s, expect_error: {contains: OVER_NODE_MAX}}",
        "{at: 2s, expect: {jobs: {j: queued}}}",
    )
    ran = run(file, "--json")
    assert ran.exit_code == 1
    told = json.loads(ran.stdout)
    assert (told["scenario"], told["file"], told["ok"]) == ("small", str(file), False)
    assert [(each["path"], each["ok"]) for each in told["expectations"]] == [
        ("timeline[2].expect_error.contains", True),
        ("timeline[3].expect.jobs.j.state", False),
    ]
    assert told["jobs"]["j"]["state"] == "running"
    assert told["shares"]["s"]["lent"] == {"gpu": 3_000}
    assert [(loan["borrower"], loan["amount"]) for loan in told["loans"]] == [("t", 3_000)]
    assert told["nodes"]["p-0"]["attempts"] == ["j/1"]
    assert told["usage"]["users"] == {"ana": {"t": {"gpu": 3_000, "gpu:N": 3_000}}}
    states = {job: [record["admission_state"] for record in records] for job, records in told["admission"].items()}
    assert states == {"j": ["ADMITTED"], "k": ["REJECTED"]}


def test_a_record_is_written_only_when_the_answer_changes(tmp_path: Path) -> None:
    # k waits for the share's quota over many passes, l behind it has no record of its own
    file = written(
        tmp_path,
        submit("j", 4, more="runtime: 10m"),
        submit("i", 4, more="runtime: 20m"),
        submit("k", 2, at="1s"),
        submit("l", 1, at="2s", more="priority: P7, runtime: 1m"),
        "{at: 60s, expect: {jobs: {k: {state: queued, reason: SHARE_QUOTA}, l: queued}}}",
        "{at: 15m, expect: {jobs: {k: running, l: succeeded}}}",
    )
    told = json.loads(run(file, "--json").stdout)
    assert told["ok"], told["expectations"]
    assert [(r["admission_state"], r.get("reason")) for r in told["admission"]["k"]] == [
        ("QUEUED", "SHARE_QUOTA"),
        ("ADMITTED", None),
    ]
    assert [r["admission_state"] for r in told["admission"]["l"]] == ["ADMITTED"]


def test_several_files_give_a_list(tmp_path: Path) -> None:
    file = written(tmp_path, submit("j", 1), HOLDS)
    told = json.loads(run(file, file, "--json").stdout)
    assert [each["ok"] for each in told] == [True, True]


def test_explain_says_why_a_job_waits_at_the_end(tmp_path: Path) -> None:
    file = written(tmp_path, submit("j", 4), submit("i", 4), submit("k", 1, at="1s"), "{at: 2s, expect: {}}")
    ran = run(file, "--explain", "k")
    assert ran.exit_code == 0
    assert "k: queued (SHARE_QUOTA)" in ran.stdout
    assert "1. SHARE_QUOTA [share s]" in ran.stdout
    told = json.loads(run(file, "--explain", "k", "--json").stdout)
    assert told["explain"]["blockers"][0]["reason"] == "SHARE_QUOTA"


def test_explaining_a_job_that_is_nowhere_is_a_mistake(tmp_path: Path) -> None:
    ran = run(written(tmp_path, submit("j", 4)), "--explain", "x")
    assert ran.exit_code == 2
    assert "job x is in none of these scenarios" in ran.stderr


def test_two_runs_give_the_same_bytes_whatever_the_hash_seed() -> None:
    def told(seed: str) -> bytes:
        words = [sys.executable, "-m", "raysched.cli.main", "scenario", "run", "--json", *map(str, EXAMPLES)]
        code = "from raysched.cli.main import app; app()"
        words[1:3] = ["-c", code]
        env = {**os.environ, "PYTHONHASHSEED": seed}
        return subprocess.run(words, env=env, cwd=ROOT, capture_output=True, check=True).stdout

    assert told("1") == told("2")


def test_running_a_scenario_needs_neither_ray_nor_a_database_nor_a_web_server() -> None:
    code = (
        "import sys\n"
        "from raysched.cli.main import app\n"
        f"status = app(['scenario', 'run', {str(EXAMPLES[0])!r}], standalone_mode=False)\n"
        "heavy = [name for name in ('ray', 'sqlalchemy', 'fastapi', 'uvicorn') if name in sys.modules]\n"
        "sys.exit(f'{status} {heavy}' if status or heavy else 0)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
