"""Jobs: submit, look, explain, cancel, read output, change."""

from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from raysched.api.doors import Caller
from raysched.api.problems import ApiError
from raysched.api.requests import CrossPoolIn, JobIn, MoveIn, PriorityIn, ResizeIn, SubmitIn
from raysched.api.views import Blob, Diagnosis, Explanation, JobId, JobView, LogPiece, Row
from raysched.client.bundle import bundle_of
from raysched.client.payload import MAX_BLOB_BYTES
from raysched.client.spec import JobOptions, build_spec, parse_priority
from raysched.client.submitting import command_run

router = APIRouter(tags=["jobs"])
MAX_WAIT_S = 60.0  # proxies cut longer silences


@router.post("/jobs", status_code=201, response_model=JobId)
def submit(body: SubmitIn, client: Caller, response: Response) -> Any:
    """Submit a command. A refusal is a problem with the findings that block it."""
    options: JobOptions = {**body.options(), "env": body.env, "runtime_env": body.runtime_env}
    run = command_run(body.command, body.working_dir, options)
    spec = build_spec(options, None, client.user) | {"run": msgspec.to_builtins(run)}
    job = client.submit(spec, fresh=body.name is None)
    response.headers["Location"] = f"/v1/jobs/{quote(job, safe='')}"
    return {"job": job}


@router.post("/diagnose", response_model=Diagnosis)
def diagnose(body: JobIn, client: Caller) -> Any:
    """Findings on a job that is not submitted; none when it would start now."""
    return {"findings": client.diagnose(build_spec(body.options(), None, client.user))}


@router.post("/blobs", status_code=201, response_model=Blob)
async def put_blob(request: Request, client: Caller) -> Any:
    """Store a zip archive for `working_dir`; the body is the archive itself (`application/octet-stream`)."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MAX_BLOB_BYTES:
            message = f"more than {MAX_BLOB_BYTES} bytes ({MAX_BLOB_BYTES // 2**20} MiB)"
            raise ApiError(message, code="TOO_LARGE", status=413)
    return {"digest": await run_in_threadpool(client.put_blob, bytes(data)), "size": len(data)}


@router.get("/jobs", response_model=list[JobView])
def list_jobs(
    client: Caller,
    share: str | None = None,
    user: str | None = None,
    state: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Any:
    """Jobs, newest first, filtered by share, user or state."""
    return client.jobs(share, user, state, limit)


@router.get("/jobs/{job}", response_model=JobView)
def show(job: str, client: Caller) -> Any:
    return client.job(job)


@router.get("/jobs/{job}/wait", response_model=JobView)
def wait(job: str, client: Caller, timeout_s: Annotated[float, Query(ge=0, le=MAX_WAIT_S)] = 30.0) -> Any:
    """The job once it has ended, or as it is after `timeout_s` seconds."""
    return client.wait(job, timeout_s)


@router.get("/jobs/{job}/explain", response_model=Explanation)
def explain(job: str, client: Caller) -> Any:
    return client.explain(job)


@router.get("/jobs/{job}/logs", response_model=LogPiece)
def logs(
    job: str,
    client: Caller,
    rank: Annotated[int, Query(ge=0)] = 0,
    attempt: Annotated[int | None, Query(ge=0)] = None,
    offset: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=2**20)] = 65_536,
) -> Any:
    """A piece of one rank's output, from byte `offset` on."""
    return client.logs(job, rank, attempt, offset, limit)


@router.get("/jobs/{job}/records", response_model=list[Row])
def records(job: str, client: Caller) -> Any:
    """The admission records of a job: each decision with every field it was made from."""
    return client.records(job)


@router.post("/jobs/{job}/cancel", status_code=202, response_model=JobId)
def cancel(job: str, client: Caller) -> Any:
    """Stop a job, or take it out of the queue."""
    return {"job": job} | client.cancel(job)


@router.post("/jobs/{job}/priority", response_model=JobId)
def set_priority(job: str, body: PriorityIn, client: Caller) -> Any:
    return {"job": job} | client.set_priority(job, parse_priority(body.priority))


@router.post("/jobs/{job}/cross_pool", response_model=JobId)
def set_cross_pool(job: str, body: CrossPoolIn, client: Caller) -> Any:
    return {"job": job} | client.set_cross_pool(job, body.value)


@router.post("/jobs/{job}/move", response_model=JobId)
def move(job: str, body: MoveIn, client: Caller) -> Any:
    """Charge the job to another share; refused if that share cannot be charged."""
    return {"job": job} | client.move(job, body.share)


@router.post("/jobs/{job}/resize", response_model=JobId)
def resize(job: str, body: ResizeIn, client: Caller) -> Any:
    """Change what the job asks for; the owner's limits are checked again."""
    bundles = [bundle_of(bundle.model_dump()).to_keys() for bundle in body.bundles]
    return {"job": job} | client.resize(job, bundles)
