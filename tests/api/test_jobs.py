"""Jobs over REST: what is submitted, what comes back, what a caller may change."""

import io
import zipfile

from raysched.client.payload import MAX_BLOB_BYTES
from tests.api.conftest import AnyService, Api, only_double, problem
from tests.api.service_double import ServiceDouble


def test_a_submitted_command_is_the_callers_job(api: Api) -> None:
    body = {"share": "nlp", "command": "python train.py --name 'a b'", "gpu": 8, "memory": "512Gi", "count": 2}
    answer = api("POST", "/v1/jobs", json=body)
    assert answer.status_code == 201
    job = answer.json()["job"]
    assert answer.headers["location"] == f"/v1/jobs/{job}"
    view = api("GET", f"/v1/jobs/{job}").json()
    assert view["user"] == "ana"
    assert view["bundles"] == [{"gpu_milli": 8000, "memory_bytes": 512 * 2**30, "count": 2}]


def test_the_command_reaches_the_scheduler_as_words(api: Api, service: AnyService) -> None:
    job = api.submit(command="python train.py --name 'a b'", env={"LR": "0.1"}, runtime_env={"pip": ["numpy"]})
    run = service.specs[job]["run"]
    assert run["argv"] == ["python", "train.py", "--name", "a b"]
    assert run["env"] == {"LR": "0.1"}
    assert run["runtime_env"] == '{"pip": ["numpy"]}'


def test_options_are_read_as_people_write_them(api: Api, service: AnyService) -> None:
    job = api.submit(gpu="500m", cpu=1.5, priority="P1", max_runtime="2h", tags={"kind": "speech"}, name="mine")
    spec = service.specs[job]
    assert job == "mine"
    assert spec["bundles"] == [{"gpu_milli": 500, "cpu_milli": 1500}]
    assert (spec["priority"], spec["max_runtime_ms"], spec["tags"]) == (1, 7_200_000, {"kind": "speech"})


def test_a_refused_job_names_its_findings(api: Api) -> None:
    body = {"share": "nlp", "command": ["true"], "gpu": 9}
    refused = problem(api("POST", "/v1/jobs", json=body), 422)
    assert refused["code"] == "OVER_NODE_MAX"
    assert refused["findings"][0]["rows"]["gpu"] == {"limit": 8000, "requested": 9000, "excess": 1000}


def test_diagnose_leaves_no_job(api: Api) -> None:
    found = api("POST", "/v1/diagnose", json={"share": "nlp", "gpu": 9}).json()["findings"]
    assert [finding["kind"] for finding in found] == ["OVER_NODE_MAX"]
    assert api("GET", "/v1/jobs").json() == []


def test_a_name_that_is_taken_is_a_conflict(api: Api) -> None:
    api.submit(name="mine")
    body = {"share": "nlp", "command": ["true"], "gpu": 2, "name": "mine"}
    assert problem(api("POST", "/v1/jobs", json=body), 409)["code"] == "JOB_EXISTS"


def test_jobs_are_listed_by_share_user_and_state(api: Api) -> None:
    mine, theirs = api.submit(), api.as_user("bo").submit(share="cv")

    def listed(query: str) -> list[str]:
        return [row["job"] for row in api("GET", f"/v1/jobs?{query}").json()]

    assert sorted(listed("")) == sorted([mine, theirs])
    assert listed("share=cv") == [theirs]
    assert listed("user=ana") == [mine]
    assert listed("state=succeeded") == []
    assert len(listed("limit=1")) == 1


def test_explain_gives_the_chain_of_blockers(api: Api) -> None:
    for _ in range(2):
        api.submit(share="cv", gpu=8)
    (waiting, *_) = [row["job"] for row in api("GET", "/v1/jobs?state=queued").json()]
    found = api("GET", f"/v1/jobs/{waiting}/explain").json()
    assert (found["job"], found["state"]) == (waiting, "queued")
    assert found["reason"] == found["blockers"][0]["reason"]
    assert found["blockers"][0]["text"]


def test_a_cancelled_job_ends(api: Api) -> None:
    job = api.submit()
    assert api("POST", f"/v1/jobs/{job}/cancel").status_code == 202
    assert api("GET", f"/v1/jobs/{job}/wait?timeout_s=0").json()["state"] in ("stopping", "cancelled")


def test_only_the_owner_or_an_admin_changes_a_job(api: Api) -> None:
    job = api.submit()
    assert problem(api.as_user("bo")("POST", f"/v1/jobs/{job}/cancel"), 403)["code"] == "FORBIDDEN"
    assert api.as_user("root")("POST", f"/v1/jobs/{job}/cancel").status_code == 202


def test_priority_share_size_and_pools_can_be_changed(api: Api) -> None:
    job = api.submit()
    assert api("POST", f"/v1/jobs/{job}/priority", json={"priority": "P0"}).status_code == 200
    assert api("POST", f"/v1/jobs/{job}/move", json={"share": "cv"}).status_code == 200
    assert api("POST", f"/v1/jobs/{job}/cross_pool", json={"value": True}).status_code == 200
    resized = api("POST", f"/v1/jobs/{job}/resize", json={"bundles": [{"gpu": 2, "count": 3}]})
    assert resized.status_code == 200
    view = api("GET", f"/v1/jobs/{job}").json()
    assert (view["priority"], view["share"]) == (0, "cv")
    assert view["bundles"] == [{"gpu_milli": 2000, "count": 3}]


@only_double
def test_output_is_read_piece_by_piece(api: Api, service: ServiceDouble) -> None:
    job = api.submit()
    service.run(job, "grün und weiß\n")
    first = api("GET", f"/v1/jobs/{job}/logs?limit=5").json()
    rest = api("GET", f"/v1/jobs/{job}/logs?offset={first['next']}").json()
    assert first["data"] + rest["data"] == "grün und weiß\n"
    assert (first["eof"], rest["eof"]) == (False, True)


def test_records_say_how_it_was_decided(api: Api) -> None:
    record = api("GET", f"/v1/jobs/{api.submit()}/records").json()[0]
    assert record["quota_remaining"] == record["quota_limit"] - record["quota_used"]


def test_a_working_directory_is_stored_and_named_by_its_digest(api: Api, service: AnyService) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("train.py", "print('hello')")
    stored = api("POST", "/v1/blobs", content=buffer.getvalue())
    assert stored.status_code == 201
    digest = stored.json()["digest"]
    job = api.submit(working_dir=digest)
    assert service.specs[job]["run"]["working_dir"] == digest
    assert service.get_blob(digest) == buffer.getvalue()


def test_an_archive_that_is_too_large_is_refused(api: Api) -> None:
    answer = api("POST", "/v1/blobs", content=b"\0" * (MAX_BLOB_BYTES + 1))
    assert problem(answer, 413)["code"] == "TOO_LARGE"
