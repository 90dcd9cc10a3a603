"""A small language for stories about the scheduler:

    c = cluster(nodes=2, gpus=8).share("a", nominal=8).share("b", nominal=8, strategy="lend")
    c.submit(job("big", share="a", gpus=8, bundles=2))
    assert c.where("big") == ["n0", "n1"]

The cluster is the real service, loop and core under a virtual clock. Until the first act shares, pools, groups and
settings may be added; from then on every act lets all that follows at that moment happen."""

from typing import Any, Literal

import msgspec

from raysched.config import ClusterConfig
from raysched.core import events as ev
from raysched.core.books import Claim
from raysched.core.check import check
from raysched.core.model import (
    Bundle,
    GroupId,
    JobId,
    JobSpec,
    LimitRule,
    Limits,
    NodeId,
    NodeSpec,
    Pool,
    PoolId,
    Settings,
    Share,
    ShareId,
    Sharing,
    UserId,
)
from raysched.core.pools import Node
from raysched.core.record import AdmissionRecord
from raysched.core.state import Job
from raysched.core.units import GPU, Amounts
from raysched.sim.simulation import Runtime, Simulation

START_MS = 1_000_000
GI = 1 << 30
Nominal = float | dict[str, float]  # GPUs in `main`, or per pool


def gpus(count: float) -> int:
    """So many GPUs as an amount."""
    return round(count * 1_000)


def job(name: str, share: str = "a", gpus: float = 1, bundles: int = 1, cpus: int = 0, **more: Any) -> JobSpec:
    """A gang of `bundles` of so many GPUs and cores each; `more` are fields of JobSpec."""
    bundle = Bundle(round(gpus * 1_000), cpus * 1_000, attach=more.pop("attach", {}), count=bundles)
    more.setdefault("user", "ann")
    return JobSpec(job=JobId(name), share=ShareId(share), bundles=(bundle,), **more)


def cluster(nodes: int = 2, gpus: int = 8, **node: Any) -> "Story":
    """`nodes` nodes n0, n1 … of one spec in pool `main`."""
    return Story().pool("main", nodes, gpus, prefix="n", **node)


class Story:
    """A cluster, described and then lived in."""

    def __init__(self) -> None:
        self._pools: list[Pool] = []
        self._hosts: list[tuple[str, str, NodeSpec, dict[str, str]]] = []
        self._shares: list[Share] = []
        self._groups: dict[str, tuple[str, ...]] = {}
        self._settings = Settings()
        self._sim: Simulation | None = None

    # ── describing ────────────────────────────────────────────────────────────────────────────────────────────────

    def pool(
        self,
        name: str,
        nodes: int,
        gpus: int = 8,
        prefix: str | None = None,
        model: str | None = "H100",
        cpus: int = 96,
        role: Literal["normal", "standby"] = "normal",
        racks: int = 0,
        attach: Amounts | None = None,
    ) -> "Story":
        """A pool of equal nodes, named after the pool; `racks` spreads them over so many."""
        self._pools.append(Pool(PoolId(name), len(self._pools), role=role))
        spec = NodeSpec(gpus, model if gpus else None, cpus * 1_000, 1_024 * GI, attach or {})
        for i in range(nodes):
            labels = {"rack": f"r{i % racks}"} if racks else {}
            self._hosts.append((f"{prefix or name}{i}", name, spec, labels))
        return self

    def share(
        self, name: str, nominal: float | dict[str, float] = 8, strategy: str = "reserve", **more: Any
    ) -> "Story":
        """A share that owns so many GPUs in `main`, or per pool; `more` are fields of Share, or of Sharing."""
        owned = nominal if isinstance(nominal, dict) else {"main": nominal}
        sharing = {key: more.pop(key) for key in ("borrow_limit", "lend_limit", "lend_workloads") if key in more}
        made = Share(
            share=ShareId(name),
            nominal={PoolId(pool): {GPU: gpus(count)} for pool, count in owned.items()},
            sharing=Sharing(strategy, **sharing),  # type: ignore[arg-type]
            **more,
        )
        self._shares.append(made)
        return self

    def limit(self, share: str, each: float | None = None, on_exceed: str = "reject", **users: float) -> "Story":
        """Turn limits on: `each` for every user without a rule of their own, and one rule per user named."""
        rules = tuple(LimitRule(gpu=gpus(count), user=UserId(user)) for user, count in users.items())
        default = None if each is None else LimitRule(gpu=gpus(each))
        limits = Limits(True, on_exceed=on_exceed, default=default, rules=rules)  # type: ignore[arg-type]
        self._shares = [
            msgspec.structs.replace(each_share, limits=limits) if each_share.share == share else each_share
            for each_share in self._shares
        ]
        return self

    def group(self, name: str, *members: str) -> "Story":
        self._groups[name] = members
        return self

    def settings(self, **changed: Any) -> "Story":
        self._settings = msgspec.structs.replace(self._settings, **changed)
        return self

    @property
    def sim(self) -> Simulation:
        """The cluster; it comes to life here."""
        if self._sim is None:
            groups = {str(GroupId(name)): members for name, members in self._groups.items()}
            config = ClusterConfig(
                settings=self._settings, pools=tuple(self._pools), groups=groups, shares=tuple(self._shares)
            )
            self._sim = Simulation(config, START_MS, through_codec=True)
            for name, pool, spec, labels in self._hosts:
                self._sim.add_node(name, pool, spec)
                self._sim.cluster.nodes[NodeId(name)].labels.update(labels)
            self._sim.settle()
        return self._sim

    # ── acting ────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, *specs: JobSpec, runs_s: float | None = None) -> list[str]:
        """Submit jobs that run so long (None: until told to end), all before the next plan. Returns the error codes."""
        for spec in specs:
            self.sim.runtimes[spec.job] = Runtime(None if runs_s is None else round(runs_s * 1_000))
        answers = [self.sim.service.submit(msgspec.to_builtins(spec), spec.user) for spec in specs]
        self.settle()
        return [answer["error"]["code"] for answer in answers if "error" in answer]

    def ask(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Any method of the service."""
        answer = getattr(self.sim.service, method)(*args, **kwargs)
        self.settle()
        return answer

    def admin(self, action: str, **params: Any) -> Any:
        answer = self.ask("admin", action, params, "root")
        assert "error" not in answer, answer
        return answer

    def settle(self) -> None:
        self.sim.settle()
        assert check(self.sim.service.state, self.sim.service.ledger) == []

    def run(self, seconds: float) -> "Story":
        """Let time pass."""
        self.sim.run_until(self.sim.clock.at_ms + round(seconds * 1_000))
        self.settle()
        return self

    def started(self, *specs: JobSpec) -> "Story":
        """Submit, and go on until they run."""
        assert self.submit(*specs) == []
        return self.run(0.5)

    def finish(self, name: str, ok: bool = True) -> None:
        assert self.sim.cluster.finish(JobId(name), ok), f"job {name} does not run"
        self.settle()
        self.run(0.1)

    def fail(self, node: str, signal: str = "gpu_lost") -> None:
        self.sim.cluster.fail(NodeId(node), signal)
        self.settle()

    def clear(self, node: str) -> None:
        """The signal is gone, and nothing was reset."""
        self.sim.cluster.recover(NodeId(node), repaired=False)
        self.settle()

    def repair(self, node: str) -> None:
        self.sim.cluster.recover(NodeId(node), repaired=True)
        self.settle()

    def silence(self, *nodes: str) -> None:
        for node in nodes:
            self.sim.cluster.silence(NodeId(node))
        self.settle()

    # ── seeing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def job(self, name: str) -> Job:
        return self.sim.service.state.jobs[JobId(name)]

    def node(self, name: str) -> Node:
        return self.sim.service.state.nodes[NodeId(name)]

    def claim(self, name: str) -> Claim:
        return self.sim.service.ledger.claims[JobId(name)]

    def record(self, name: str) -> AdmissionRecord:
        return self.sim.service.ledger.records[JobId(name)]

    def state(self, name: str) -> str:
        return self.job(name).state

    def states(self, *names: str) -> list[str]:
        return [self.state(name) for name in names]

    def where(self, name: str) -> list[str]:
        """The nodes of a job, one for each bundle."""
        return [placed.node for placed in self.job(name).placement for _ in range(placed.count)]

    def reason(self, name: str) -> str | None:
        """Why it waits."""
        found: str | None = self.sim.service.job(name)["reason"]
        return found

    def used(self, share: str, pool: str = "main") -> int:
        return self.sim.service.ledger.quota.account(ShareId(share), PoolId(pool)).used.get(GPU, 0)

    def borrowed(self, share: str, pool: str = "main") -> int:
        return self.sim.service.ledger.quota.account(ShareId(share), PoolId(pool)).borrowed(GPU)

    def alerts(self) -> list[str]:
        return [alert for alert, _ in self.sim.service.state.alerts]

    def events(self, kind: type[ev.Event]) -> list[Any]:
        """Events of one type in the journal, in order."""
        return [event for event in self.sim.disk.events if isinstance(event, kind)]
