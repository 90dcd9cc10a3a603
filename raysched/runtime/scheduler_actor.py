"""The scheduler actor: the only maker of placement groups, as a detached Ray actor around `Service` and `Loop`.

The loop runs in a thread of its own and ticks when something happens; calls come in over concurrency groups, so that
reports, submissions, reads and long-polls never wait for each other. After a restart it recovers from journal and
ledger and takes the running gangs up again."""

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

import ray
from msgspec import Struct, structs
from raysched_agent.node_agent import AgentOptions

from raysched.config import ClusterConfig, load_config
from raysched.core.model import NodeId, PoolId
from raysched.metrics import Gauges
from raysched.runtime import quota_actor
from raysched.runtime.agent_keeper import AgentKeeper
from raysched.runtime.local_cluster import POOL_LABEL
from raysched.runtime.loop import Fenced, Loop
from raysched.runtime.memory import settle_in
from raysched.runtime.ranks import AGENT
from raysched.runtime.ray_cluster import RayCluster
from raysched.runtime.service import Service
from raysched.runtime.wall_clock import WallClock
from raysched.store.journal import SqlJournal

NAME: Final = "raysched:scheduler"
NAMESPACE: Final = "raysched"
IDLE_S: Final = 1.0  # a tick at least this often: the heartbeat of the epoch
GATHER_S: Final = 0.002  # what happens together is planned together
CHORES_S: Final = 1.0
METRICS_S: Final = 2.0
POLL_S: Final = (0.01, 0.25)  # long-polls look more and more rarely

log = logging.getLogger("raysched.scheduler")

GROUPS: Final = {
    "commands": (
        "submit",
        "submit_many",
        "put_blob",
        "cancel",
        "set_priority",
        "set_cross_pool",
        "move",
        "resize",
        "admin",
        "apply",
    ),
    "reads": (
        "get_blob",
        "jobs",
        "job",
        "explain",
        "diagnose",
        "shares",
        "limits",
        "usage",
        "loans",
        "nodes",
        "pools",
        "groups",
        "node_specs",
        "reservations",
        "overrides",
        "alerts",
        "quota",
        "ledger",
        "records",
        "health",
        "metrics",
        "check",
        "share_history",
        "verify",
    ),
}


class Setup(Struct, frozen=True):
    """What a scheduler needs to start, and to start again: `config_path` on the head, store URLs, where logs go on the
    nodes. `nvml` False: nodes of a local cluster, whose GPUs are declared whatever the machine has."""

    config_path: str
    journal_url: str
    ledger_url: str
    log_root: str
    state_dir: str
    nvml: bool = True


class SchedulerActor:
    """The actor's body; `as_actor` gives each of the service's methods its concurrency group."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.setup = Setup(**setup)
        self.config: ClusterConfig = load_config(self.setup.config_path)
        self.quota = quota_actor.start(self.setup.ledger_url)
        journal = SqlJournal(self.setup.journal_url)
        self.clock = WallClock(_last_ms(journal))
        self._wake, self._stop = threading.Event(), threading.Event()
        self.cluster = RayCluster(
            self.config.settings.cluster,
            self.setup.log_root,
            journal.get_blob,
            journal.put_blob,
            self.pool_of,
            self.clock,
            self._wake.set,
        )
        loop = Loop(self.clock, journal, quota_actor.RayQuota(self.quota), self.cluster)
        loop.recover()
        settle_in()
        self.service = Service(loop, self.config)
        self.service.wake = self._wake.set
        self.service.fill(self.config)
        self.keeper = AgentKeeper(self._agent_options)
        self._gauges = Gauges(_ray_gauge)
        self._fenced = ""
        threading.Thread(target=self._run, name="raysched-loop", daemon=True).start()
        threading.Thread(target=self._chores, name="raysched-chores", daemon=True).start()

    def __repr__(self) -> str:
        return f"SchedulerActor({self.config.settings.cluster})"

    # ── threads ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                due_ms = self.service.tick()
            except Fenced as fenced:
                self._give_way(str(fenced))
                return
            except Exception:
                # Nothing half-done can be trusted: the next life recovers from what is durable.
                log.exception("a tick failed; the scheduler starts again")
                os._exit(1)
            pause_s = IDLE_S if due_ms is None else min(IDLE_S, max(0.0, (due_ms - self.clock.now_ms()) / 1_000))
            if self._wake.wait(pause_s):
                time.sleep(GATHER_S)
                self._wake.clear()

    def _give_way(self, why: str) -> None:
        log.error("fenced: %s", why)
        self._fenced = why
        self._stop.set()

    def _chores(self) -> None:
        """What is kept up beside the loop: an agent on every node, the figures in Ray's own metrics."""
        published = 0.0
        while not self._stop.wait(CHORES_S):
            try:
                self.keeper.keep()
                if time.monotonic() - published >= METRICS_S:
                    published = time.monotonic()
                    self._gauges.publish(self.service.metrics())
            except Exception:
                log.exception("a chore failed; it is tried again")

    # ── what the parts ask ────────────────────────────────────────────────────────────────────────────────────────

    def pool_of(self, labels: Mapping[str, str]) -> PoolId:
        """Where a node belongs the first time it is seen: the first pool all of whose `match` labels it carries."""
        told = {key.removeprefix("raysched/"): value for key, value in labels.items()}
        for pool in self.config.pools:
            if pool.match and all(told.get(key) == value for key, value in pool.match.items()):
                return pool.pool
        named = labels.get(POOL_LABEL)
        known = {pool.pool for pool in self.config.pools}
        if named in known:
            return PoolId(str(named))
        return next((pool.pool for pool in self.config.pools if not pool.match), PoolId("unmatched"))

    def _agent_options(self, node: NodeId, labels: dict[str, str]) -> AgentOptions:
        settings = self.service.ledger.settings
        return AgentOptions(
            cluster=settings.cluster,
            state_dir=f"{self.setup.state_dir}/{node}",
            log_root=self.setup.log_root,
            labels=labels,
            beat_s=min(5.0, settings.silent_after_ms / 4_000),
            fence_after_ms=self.config.fence_after_ms,
            nvml=self.setup.nvml,
        )

    # ── calls ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def ready(self) -> dict[str, Any]:
        """Answers once the scheduler has recovered."""
        found: dict[str, Any] = await self.call("health")
        return found

    async def report(self, reports: list[dict[str, Any]]) -> int:
        """Reports of node agents; any answer renews their lease, so a fenced scheduler gives none."""
        if self._fenced:
            raise Fenced(self._fenced)
        self.service.report(reports)
        return self.service.loop.epoch

    async def wait(self, job: str, timeout_s: float = 30.0) -> Any:
        """The job once it has ended, or when the time is over."""
        until, pause = time.monotonic() + timeout_s, POLL_S[0]
        while not self.service.is_final(job) and time.monotonic() < until:
            await asyncio.sleep(min(pause, max(0.0, until - time.monotonic())))
            pause = min(pause * 1.3, POLL_S[1])
        return await self.call("job", job)

    async def logs(
        self, job: str, rank: int = 0, attempt: int | None = None, offset: int = 0, limit: int = 65_536
    ) -> Any:
        """A part of a rank's log, read by the agent of the node where it is."""
        view = await self.call("job", job)
        if "error" in view:
            return view
        number = view["attempt"] if attempt is None else attempt
        final = view["state"] in ("succeeded", "failed", "cancelled")
        if number < 1:
            return {"data": "", "next": 0, "eof": final}
        for node in await asyncio.to_thread(self._log_nodes, job, number, rank):
            found = await asyncio.to_thread(self._read_log, node, job, number, rank, offset, limit)
            if found is not None:
                return {**found, "eof": found["eof"] and (final or number < view["attempt"])}
        return {"data": "", "next": offset, "eof": final}

    def _log_nodes(self, job: str, attempt: int, rank: int) -> list[str]:
        """The node where the rank ran, by the ledger; then the others, which see the same file on a shared disk."""
        rows = self.service.ledger_rows(job=job, limit=1_000)
        found: list[str] = []
        for row in rows:
            entry = row["entry"]
            if entry.get("type") == "Claimed" and entry["attempt"] == attempt:
                ranks = [node for node, _, count, *_ in entry["placement"] for _ in range(count)]
                found = ranks[rank : rank + 1]
        return list(dict.fromkeys([*found, *sorted(self.service.state.nodes)]))

    def _read_log(self, node: str, job: str, attempt: int, rank: int, offset: int, limit: int) -> Any:
        with contextlib.suppress(Exception):
            agent = ray.get_actor(AGENT.format(node=node), namespace=NAMESPACE)
            return ray.get(agent.read_log.remote(job, attempt, rank, offset, limit), timeout=10.0)
        return None

    async def call(self, method: str, *args: Any, **named: Any) -> Any:
        """One method of the service, off the event loop."""
        return await asyncio.to_thread(getattr(self.service, method), *args, **named)

    async def stop(self) -> None:
        """End the loop and the agents; jobs and their groups stay."""
        self._stop.set()
        self._wake.set()
        await asyncio.to_thread(self.keeper.stop)


def _last_ms(journal: SqlJournal) -> int:
    """The time of the journal's last event: a host clock that went back must not take the books with it."""
    last = journal.last_seq()
    return max((event.at_ms for _, event in journal.read(last - 1)), default=0) if last else 0


def _ray_gauge(name: str, text: str, labels: tuple[str, ...]) -> Any:
    from ray.util.metrics import Gauge

    return Gauge(name, text, labels)


def as_actor() -> Any:
    """The Ray actor class: every method of the service under its own name, in its concurrency group."""

    class RaySchedulerActor(SchedulerActor):
        pass

    for group, names in GROUPS.items():
        for name in names:
            setattr(RaySchedulerActor, name, ray.method(concurrency_group=group)(_forwarding(name)))
    for name, group in {"report": "reports", "wait": "waits", "logs": "logs", "ready": "reads"}.items():
        setattr(RaySchedulerActor, name, ray.method(concurrency_group=group)(_own(name)))
    RaySchedulerActor.__name__ = RaySchedulerActor.__qualname__ = "SchedulerActor"
    groups = {"commands": 64, "reads": 64, "reports": 256, "waits": 10_000, "logs": 256}
    make: Any = ray.remote
    return make(concurrency_groups=groups)(RaySchedulerActor)


def _forwarding(name: str) -> Any:
    target = "ledger_rows" if name == "ledger" else name

    async def method(self: SchedulerActor, *args: Any, **named: Any) -> Any:
        return await self.call(target, *args, **named)

    method.__name__ = name
    return method


def _own(name: str) -> Any:
    inherited = getattr(SchedulerActor, name)

    async def method(self: SchedulerActor, *args: Any, **named: Any) -> Any:
        return await inherited(self, *args, **named)

    method.__name__ = name
    return method


def start(setup: Setup) -> Any:
    """The scheduler actor, started if there is none. Raises Refusal when the configuration does not fill the books."""
    options = {
        "name": NAME,
        "namespace": NAMESPACE,
        "lifetime": "detached",
        "get_if_exists": True,
        "max_restarts": -1,
        "max_task_retries": -1,
        "num_cpus": 0,
        "resources": quota_actor.HEAD,
    }
    return as_actor().options(**options).remote(structs.asdict(setup))
