"""A small simulated cluster with its service, spoken to as people do: jobs that run until they are told to end, and
changes by `root`, its only administrator."""

from typing import Any

import msgspec
import yaml

from raysched.config import job_from_keys, parse_config
from raysched.core.check import check
from raysched.core.model import JobId
from raysched.runtime.service import Service
from raysched.sim.simulation import Runtime, Simulation
from tests.model.digest import digest, ledger_digest

START_MS = 1_800_000_000_000
HEAD = """\
version: 1
admins: [root]
node_specs:
  n4: {gpu: 4, gpu_model: N, cpu: 32, memory: 256Gi, attach: {disks: 2}}
pools:
  p: {match: {pool: p}}
  q: {match: {pool: q}}
groups: {ml: [ana, bo]}
"""
Row = dict[str, Any]


class House:
    """The cluster. `nodes`: how many nodes of 4 GPUs each pool has."""

    def __init__(self, shares: str, head: str = HEAD, **nodes: int) -> None:
        self.sim = Simulation(parse_config(yaml.safe_load(f"{head}shares:\n{shares}")), START_MS)
        for pool, count in (nodes or {"p": 2}).items():
            for number in range(count):
                self.sim.add_node(f"{pool}{number}", pool, self.sim.config.node_specs["n4"])
        self.sim.settle()

    @property
    def service(self) -> Service:
        return self.sim.service

    @property
    def version(self) -> int:
        return self.service.ledger.version

    def submit(self, job: str, gpu: object = 1, share: str = "s", user: str = "ana", **keys: Any) -> Row:
        """A job of one kind of bundle; it is looked at before this returns, and runs until it is told to end."""
        runtime = keys.pop("runtime_ms", None)
        bundle = {"gpu": gpu, **({"cpu": keys.pop("cpu")} if "cpu" in keys else {}), "count": keys.pop("count", 1)}
        spec = job_from_keys({"job": job, "user": user, "share": share, "bundles": [bundle], **keys})
        self.sim.runtimes[JobId(job)] = Runtime(runtime)
        answer = self.service.submit(msgspec.to_builtins(spec), user)
        self.sim.settle()
        return dict(answer)

    def admin(self, action: str, by: str = "root", **params: Any) -> Row:
        """A change that must be carried out."""
        answer = self.asked(action, by, **params)
        assert "error" not in answer, answer
        return answer

    def asked(self, action: str, by: str = "root", **params: Any) -> Row:
        """A change, or the error why not."""
        answer = dict(self.service.admin(action, params, by))
        self.sim.settle()
        return answer

    def preview(self, action: str, by: str = "root", **params: Any) -> Row:
        """What a change would do; nothing may come of asking."""
        before = self.digest()
        answer = dict(self.service.admin(action, params, by, dry_run=True))
        assert self.digest() == before, "a dry run changed something"
        return answer

    def explain(self, job: str) -> Row:
        """Why a job waits; nothing may come of asking."""
        before = self.digest()
        answer = dict(self.service.explain(job))
        assert self.digest() == before, f"explaining {job} changed something"
        assert check(self.service.state, self.service.ledger) == []
        return answer

    def follow(self, change: Row) -> None:
        """Carry out the steps of an explanation's change, just as they are written."""
        for step in change["steps"]:
            answer = getattr(self.service, step["method"])(**step["params"], by="root")
            assert "error" not in answer, (step, answer)
            self.sim.settle()
        self.wait(1_000)

    def wait(self, ms: int) -> None:
        self.sim.run_until(self.sim.clock.at_ms + ms)

    def state(self, job: str) -> str:
        return str(self.service.job(job)["state"])

    def reason(self, job: str) -> str | None:
        found: str | None = self.service.job(job)["reason"]
        return found

    def digest(self) -> tuple[bytes, bytes]:
        """State and books as bytes."""
        return digest(self.service.state), ledger_digest(self.service.ledger)
