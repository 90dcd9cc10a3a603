"""The real service over a simulated cluster, with the double's cast: pool `train` with nodes n0 and n1 of 8 GPUs,
shares `nlp` and `cv`, `root` as the only administrator. Everything that follows a call has happened when it returns."""

from collections.abc import Callable
from typing import Any

import msgspec
import yaml

from raysched.config import parse_config
from raysched.core.model import JobId
from raysched.sim.simulation import Simulation

START_MS = 1_800_000_000_000
CONFIG = """
version: 1
cluster: api
admins: [root]
node_specs:
  h100x8: {gpu: 8, gpu_model: H100, cpu: 96, memory: 1Ti}
pools:
  train: {match: {pool: train}}
groups:
  algo: [ana, bo]
shares:
  cv: {nominal: {train: {gpu: 8}}, sharing: {strategy: lend}}
  nlp: {nominal: {train: {gpu: 8}}, sharing: {strategy: lend_and_borrow, borrow_limit: 100%}}
"""


class RealService:
    """All methods of the service, by name."""

    def __init__(self) -> None:
        config = parse_config(yaml.safe_load(CONFIG))
        self.simulation = Simulation(config, START_MS)
        for name in ("n0", "n1"):
            self.simulation.add_node(name, "train", config.node_specs["h100x8"])
        self.simulation.run_until(START_MS + 1_000)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.simulation.service, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            answer = method(*args, **kwargs)
            self.simulation.settle()
            return answer

        return called

    def logs(self, job: str, **which: Any) -> dict[str, Any]:
        """Output is the business of Ray's shell; a simulated job writes nothing."""
        found: dict[str, Any] = self.simulation.service.job(job)
        return found if "error" in found else {"data": "", "next": 0, "eof": True}

    @property
    def version(self) -> int:
        return self.simulation.service.ledger.version

    @property
    def specs(self) -> dict[str, dict[str, Any]]:
        jobs = self.simulation.service.state.jobs
        return {str(job): msgspec.json.decode(msgspec.json.encode(jobs[JobId(job)].spec)) for job in jobs}
