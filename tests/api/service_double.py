"""A service over plain dicts: the shapes and refusals of the real one, without a scheduler behind them.

A cluster of pool `train` with nodes n0 and n1 of 8 GPUs, shares `nlp` and `cv`, user `root` as its only administrator.
Jobs stay queued until a test says how they go on."""

import hashlib
import json
import re
from typing import Any

import msgspec

from raysched.config import bundles_from_keys

Row = dict[str, Any]
NOW_MS = 1_800_000_000_000
GPUS_MILLI = 8_000
GI = 2**30
NO_EFFECTS: Row = {"starts": [], "queues": [], "over": []}
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")


def error(code: str, status: int, message: str, findings: list[Row] | None = None) -> Row:
    return {"error": {"code": code, "status": status, "message": message, "findings": findings or []}}


class ServiceDouble:
    def __init__(self) -> None:
        self.version = 1
        self.job_rows: dict[str, Row] = {}
        self.specs: dict[str, Row] = {}
        self.output: dict[str, str] = {}
        self.blobs: dict[str, bytes] = {}
        self.share_rows = {name: _share(name) for name in ("cv", "nlp")}
        self.node_rows = {name: _node(name) for name in ("n0", "n1")}
        self.posted: list[Row] = []
        self.books: dict[str, Row] = {}
        self.calls: list[tuple[str, Row, str]] = []
        self.disagreements: list[Row] = []
        self.broken: list[str] = []

    # ── how a test moves a job on ─────────────────────────────────────────────────────────────────────────────────

    def run(self, job: str, output: str = "") -> None:
        self.job_rows[job].update(state="running", reason=None, attempt=1, nodes=["n0"], started_ms=NOW_MS)
        self.output[job] = output

    def end(self, job: str, state: str, exit_code: int | None = None, result: bytes | None = None) -> None:
        digest = None if result is None else self.put_blob(result)
        self.job_rows[job].update(state=state, reason=None, exit_code=exit_code, result=digest, ended_ms=NOW_MS)

    # ── write ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, spec: Row, by: str) -> Row:
        spec = json.loads(json.dumps(spec))
        if not NAME.match(spec["job"]):
            return error("BAD_SPEC", 422, f"job name {spec['job']!r}")
        findings = self.diagnose(spec)["findings"]
        blocking = [finding for finding in findings if finding["severity"] == "block"]
        if blocking:
            return error(
                blocking[0]["kind"],
                404 if blocking[0]["kind"] == "UNKNOWN_SHARE" else 422,
                "; ".join(finding["text"] for finding in blocking),
                blocking,
            )
        if spec["job"] in self.job_rows:
            return error("JOB_EXISTS", 409, f"there is a job {spec['job']!r} already")
        self.specs[spec["job"]] = spec
        self.job_rows[spec["job"]] = _job(spec)
        return {"job": spec["job"]}

    def submit_many(self, specs: list[Row], by: str) -> list[Row]:
        return [self.submit(spec, by) for spec in specs]

    def put_blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    def get_blob(self, digest: str) -> bytes | None:
        return self.blobs.get(digest)

    def cancel(self, job: str, by: str) -> Row:
        return self._job_change(job, by, state="cancelled", reason=None)

    def set_priority(self, job: str, priority: int, by: str) -> Row:
        return self._job_change(job, by, priority=priority)

    def set_cross_pool(self, job: str, value: bool, by: str) -> Row:
        return self._job_change(job, by, cross_pool=value)

    def move(self, job: str, share: str, by: str) -> Row:
        if share not in self.share_rows:
            return error("UNKNOWN_SHARE", 404, f"there is no share {share!r}")
        return self._job_change(job, by, share=share)

    def resize(self, job: str, bundles: list[Row], by: str) -> Row:
        asked = [msgspec.to_builtins(bundle) for bundle in bundles_from_keys(bundles)]
        return self._job_change(job, by, bundles=asked)

    def _job_change(self, job: str, by: str, **change: Any) -> Row:
        row = self.job_rows.get(job)
        if row is None:
            return error("UNKNOWN_JOB", 404, f"there is no job {job!r}")
        if by not in (row["user"], "root"):
            return error("FORBIDDEN", 403, f"{job} is {row['user']}'s; {by} is no administrator")
        row.update(change)
        return {}

    def admin(self, action: str, params: Row, by: str, dry_run: bool = False) -> Row:
        self.calls.append((action, params, by))
        if by != "root":
            return error("FORBIDDEN", 403, f"{action} needs a cluster admin; {by} is none")
        name = params.get("name") or params.get("node") or params.get("pool") or params.get("reservation") or "-"
        if action in ("set_share", "stop_share", "open_share", "delete_share") and name not in self.share_rows:
            return error("UNKNOWN_SHARE", 404, f"there is no share {name!r}")
        if "node" in params and name not in self.node_rows:
            return error("UNKNOWN_NODE", 404, f"there is no node {name!r}")
        row = self.share_rows.get(name, {})
        what = (
            "share" if name in self.share_rows or action == "create_share" else "node" if "node" in params else "book"
        )
        changed = {"subject": f"{what} {name}", "before": None, "after": params}
        if params.get("base", self.version) < row.get("version", 0):
            return error("REFUSED", 409, f"share {name} was changed in version {row['version']}")
        if action == "delete_share" and row["state"] != "stopped":
            return error("REFUSED", 409, f"share {name} is not stopped")
        if action == "release" and name != self.books.get("reserve", {}).get("reservation"):
            return error("UNKNOWN_RESERVATION", 404, f"there is no reservation {name!r}")
        if dry_run:
            return {"version": self.version, "changed": changed, "effects": dict(NO_EFFECTS)}
        self.version += 1
        entry = {"type": action, "at_ms": NOW_MS, "by": by}
        self.posted.append({"version": self.version, "at_ms": NOW_MS, "entry": entry})
        self._perform(action, name, params, by)
        return {"version": self.version, "changed": changed}

    def _perform(self, action: str, name: str, params: Row, by: str) -> None:
        if action == "create_share":
            self.share_rows[name] = _share(name)
        elif action == "delete_share":
            del self.share_rows[name]
        elif action in ("stop_share", "open_share"):
            self.share_rows[name]["state"] = "stopped" if action == "stop_share" else "open"
        elif action in ("cordon", "uncordon"):
            reason = params.get("reason") or f"cordoned by {by}"
            self.node_rows[name]["cordoned"] = reason if action == "cordon" else None
        elif action in ("reserve", "override"):
            self.books[action] = {"reservation" if action == "reserve" else "override": name, **params}
        if name in self.share_rows:
            self.share_rows[name]["version"] = self.version

    # ── read ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def jobs(
        self, share: str | None = None, user: str | None = None, state: str | None = None, limit: int = 1000
    ) -> list[Row]:
        wanted = {"share": share, "user": user, "state": state}
        rows = [row for row in self.job_rows.values() if all(v in (None, row[k]) for k, v in wanted.items())]
        return rows[:limit]

    def job(self, job: str) -> Row:
        return self.job_rows.get(job) or error("UNKNOWN_JOB", 404, f"there is no job {job!r}")

    def wait(self, job: str, timeout_s: float) -> Row:
        return self.job(job)

    def explain(self, job: str) -> Row:
        row = self.job(job)
        if "error" in row:
            return row
        blocker: Row = {
            "reason": "USER_LIMIT",
            "scope": "user ana in nlp",
            "text": "8 of 8 GPUs in use, asked 8",
            "numbers": {"gpu": {"limit": 8_000, "used": 8_000, "requested": 8_000}},
            "freed_by": "ana-1",
            "freed_at_ms": NOW_MS,
        }
        step = {"text": "ask for 4 GPUs", "method": "resize", "params": {"job": job, "bundles": [{"gpu": "4"}]}}
        change = {"text": "ask for 4 GPUs", "steps": [step]}
        text = "ana is at the limit"
        return {"job": job, "state": row["state"], "reason": "USER_LIMIT", "text": text, "blockers": [blocker]} | {
            "change": change
        }

    def diagnose(self, spec: Row, by: str = "") -> Row:
        findings: list[Row] = []
        if spec["share"] not in self.share_rows:
            findings.append({"kind": "UNKNOWN_SHARE", "severity": "block", "text": f"no share {spec['share']!r}"})
        for bundle in spec["bundles"]:
            asked = bundle.get("gpu_milli", 0)
            if asked > GPUS_MILLI:
                rows = {"gpu": {"limit": GPUS_MILLI, "requested": asked, "excess": asked - GPUS_MILLI}}
                text = f"the largest node has 8 GPUs, one bundle asks {asked // 1000}"
                findings.append({"kind": "OVER_NODE_MAX", "severity": "block", "text": text, "rows": rows})
        return {"findings": findings}

    def logs(self, job: str, rank: int = 0, attempt: int | None = None, offset: int = 0, limit: int = 65_536) -> Row:
        if job not in self.job_rows:
            return error("UNKNOWN_JOB", 404, f"there is no job {job!r}")
        data = self.output.get(job, "").encode()[offset : offset + limit]
        end = offset + len(data)
        return {"data": data.decode(), "next": end, "eof": end >= len(self.output.get(job, "").encode())}

    def shares(self, name: str | None = None, pool: str | None = None, workspace: str | None = None) -> list[Row]:
        return [row for row in self.share_rows.values() if name in (None, row["share"])]

    def share_history(self, share: str) -> list[Row]:
        if share not in self.share_rows:
            return error("UNKNOWN_SHARE", 404, f"there is no share {share!r}")  # type: ignore[return-value]
        first = {"version": 1, "at_ms": NOW_MS, "by": "root", "share": {"weight": None, "state": "open"}}
        return [first, {**first, "version": 2, "by": "ana", "share": {"weight": 3, "state": "open"}}]

    def apply(self, config: Row, by: str, dry_run: bool = False, prune: bool = False) -> Row:
        self.calls.append(("apply", {"dry_run": dry_run, "prune": prune}, by))
        if by != "root":
            return error("FORBIDDEN", 403, f"apply needs a cluster admin; {by} is none")
        refused = "share cv has 1 unfinished jobs" if "cv" not in config["shares"] and prune else None
        found = [{"subject": "share nlp", "before": {"weight": None}, "after": {"weight": 3}, "refused": refused}]
        if refused and not dry_run:
            return error("REFUSED", 409, f"nothing was changed: {refused}")
        self.version += not dry_run
        answer: Row = {"version": self.version, "differences": found}
        return answer | ({"effects": dict(NO_EFFECTS)} if dry_run else {})

    def verify(self) -> Row:
        return {"rows": self.version, "decided": 2, "compared": 1, "disagreements": self.disagreements}

    def check(self) -> Row:
        return {"broken": self.broken}

    def node_specs(self) -> Row:
        return {"h100x8": {"gpu": 8, "gpu_model": "H100", "cpu_milli": 96_000, "memory_bytes": 1024 * GI}}

    def limits(self, share: str | None = None, pool: str | None = None) -> Row:
        if share is None:
            return {"pool": pool, "enabled": False, "version": 1, "rules": []}
        if share not in self.share_rows:
            return error("UNKNOWN_SHARE", 404, f"there is no share {share!r}")
        return {"share": share, "enabled": True, "version": self.share_rows[share].get("version", 0)} | {
            "rules": [{"user": "ana", "gpu": 30, "memory": "100Gi"}]
        }

    def usage(self) -> Row:
        return {"shares": {"nlp": {"gpu": 8_000}}, "users": {"ana": {"nlp": {"gpu": 8_000, "memory": 512 * GI}}}}

    def loans(self) -> list[Row]:
        loan = {"borrower": "nlp", "lender": "cv", "pool": "train", "kind": "gpu", "amount": 4_000}
        return [loan | {"since_ms": NOW_MS, "why": "lowest weight"}]

    def quota(self, user: str, share: str | None = None) -> list[Row]:
        if share is not None and share not in self.share_rows:
            return error("UNKNOWN_SHARE", 404, f"there is no share {share!r}")  # type: ignore[return-value]
        used = 8_000 if user == "ana" else 0
        gpu = {"used": used, "limit": 30_000, "idle": 30_000 - used}
        return [{"share": share or "nlp", "kinds": {"gpu": gpu, "memory": {"used": 0, "limit": None, "idle": None}}}]

    def nodes(self) -> list[Row]:
        return list(self.node_rows.values())

    def pools(self) -> list[Row]:
        return [{"pool": "train", "role": "normal", "nodes": 2, "capacity": {"gpu": 16_000}}]

    def groups(self) -> list[Row]:
        return [{"group": "algo", "members": ["ana", "bo"]}]

    def reservations(self) -> list[Row]:
        return [self.books["reserve"]] if "reserve" in self.books else []

    def overrides(self) -> list[Row]:
        return [self.books["override"]] if "override" in self.books else []

    def alerts(self) -> list[Row]:
        return [{"alert": "NO_SPARE", "text": "n7 failed and no equal spare is there", "since_ms": NOW_MS}]

    def ledger_rows(self, job: str | None = None, after: int = 0, limit: int = 100, **about: object) -> list[Row]:
        return [row for row in self.posted if row["version"] > after][:limit]

    def records(self, job: str) -> list[Row]:
        if job not in self.job_rows:
            return []
        numbers = {"quota_limit": 8_000, "quota_used": 2_000, "quota_remaining": 6_000, "request_quantity": 8_000}
        return [{"job": job, "kind": "gpu", "scope": "user ana", "admission_state": "QUEUED", **numbers}]

    def health(self) -> Row:
        counts = {"ledger_version": self.version, "journal_seq": 7, "ticks": 3, "last_tick_ms": 0.8}
        return {"status": "ok", "epoch": 1, "nodes": {"healthy": 2}, **counts}

    def metrics(self) -> list[Row]:
        queue = {"name": "raysched_queue_length", "value": len(self.job_rows), "kind": "gauge"}
        ticks = {"name": "raysched_ticks", "labels": {}, "value": 3, "kind": "counter"}
        return [queue | {"labels": {"share": 'n"l\\p\n'}}, ticks]


def _job(spec: Row) -> Row:
    bundles = spec["bundles"]
    gpu = sum(bundle.get("gpu_milli", 0) * bundle.get("count", 1) for bundle in bundles)
    return {
        "job": spec["job"],
        "user": spec["user"],
        "share": spec["share"],
        "workload": spec.get("workload", "training"),
        "priority": spec.get("priority", 5),
        "tags": spec.get("tags", {}),
        "state": "queued",
        "reason": "USER_LIMIT",
        "attempt": 0,
        "nodes": [],
        "bundles": bundles,
        "amounts": {"gpu": gpu},
        "submitted_ms": NOW_MS,
        "exit_code": None,
        "detail": None,
        "result": None,
    }


def _share(name: str) -> Row:
    fixed = {"share": name, "cohort": "main", "state": "open", "weight": None, "strategy": "reserve"}
    return fixed | {
        "queue": "strict_fifo",
        "version": 1,
        "nominal": {"train": {"gpu": 64_000}},
        "owned": {"gpu": 64_000},
        "used": {"gpu": 8_000, "memory": 512 * GI},
        "jobs": {"running": 1, "queued": 0},
    }


def _node(name: str) -> Row:
    return {
        "node": name,
        "pool": "train",
        "role": "normal",
        "health": "healthy",
        "why": None,
        "cordoned": None,
        "spec": {"gpu": 8, "gpu_model": "H100", "cpu_milli": 96_000, "memory_bytes": 1024 * GI},
        "free": {"gpu": 8_000},
        "attempts": [],
        "measured": False,
        "last_report_ms": NOW_MS,
    }
