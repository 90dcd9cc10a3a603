"""One history: a simulated cluster, everything people and machines may do to it, and witnesses of the laws.

Every act takes plain numbers, so that hypothesis and a random generator can play the same game. After each act
`verify` reads what was journaled and posted; what broke a law is in `broken`."""

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import msgspec

from raysched.core import events as ev
from raysched.core.check import check
from raysched.core.entries import ShareSet
from raysched.core.model import ACTIVE, Bundle, JobId, JobSpec, NodeId, PlacedBundle, UserId
from raysched.core.plan import plan
from raysched.runtime.ports import Journal, StoreFailed
from raysched.sim.crash import CrashStep
from raysched.sim.simulation import Runtime, Simulation
from tests.model.digest import digest, ledger_digest
from tests.model.replay import Replay
from tests.model.witness import Broken, JobWitness, QuotaWitness, RunWitness
from tests.model.worlds import USERS, WORK, World, limits, sharing

START_MS = 1_000_000
LEASE_MS = 45_000  # an agent without an answer this long kills its attempts
WAITS_MS = (100, 400, 1_000, 5_000, 16_000, 31_000, 61_000, 130_000, 3_600_000)
SIGNALS = ("gpu_lost", "xid_79", "ray_dead", "power_off")
SHAPES = (
    Bundle(gpu_milli=1_000),
    Bundle(gpu_milli=2_000, cpu_milli=4_000),
    Bundle(gpu_milli=4_000, attach={"disks": 1}),
    Bundle(gpu_milli=500),
    Bundle(gpu_milli=300, cpu_milli=1_000),
    Bundle(gpu_milli=1_000, attach={"disks": 1}),
    Bundle(cpu_milli=8_000, memory_bytes=32 << 30),
)


class Stumbling:
    """A journal whose disk is full after `left` more appends."""

    def __init__(self, journal: Journal, left: int) -> None:
        self.journal, self.left, self.failed = journal, left, False

    def append(self, events: Sequence[ev.AnyEvent]) -> int:
        self.failed = self.failed or (self.left <= 0 and bool(events))
        if self.left <= 0 and events:
            raise StoreFailed("no space left on device; nothing was kept")
        self.left -= 1
        return self.journal.append(events)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.journal, name)


class Play:
    """A history in the making. `broken` is complete after `verify`."""

    def __init__(self, world: World, seed: int = 0) -> None:
        self.sim = Simulation(world.config, START_MS, through_codec=False)
        self.quota, self.jobs, self.runs = QuotaWitness(), JobWitness(), RunWitness()
        self.ask_broken: Broken = []
        self.state_broken: Broken = []
        self._rng = Random(seed)
        self._silenced: dict[NodeId, int] = {}
        self._truth: dict[tuple[JobId, int], list[tuple[NodeId, tuple[int, ...], int]]] = {}
        self._listen()
        for name, pool, spec in world.hosts:
            self.sim.add_node(name, pool, spec)
        self.sim.settle()

    @property
    def broken(self) -> Broken:
        """Every (law, what happened) so far."""
        found = [*self.quota.broken, *self.jobs.broken, *self.runs.broken]
        return [*found, *self.ask_broken, *self.state_broken]

    # ── what the hosts do ─────────────────────────────────────────────────────────────────────────────────────────

    def _listen(self) -> None:
        """Hear the cluster's news before the loop does, and let it choose GPU ids of its own."""
        cluster = self.sim.cluster
        poll = cluster.poll

        def listening() -> list[ev.AnyEvent]:
            return [self._news(event) for event in poll()]

        cluster.poll = listening  # type: ignore[method-assign]

    def _news(self, event: ev.AnyEvent) -> ev.AnyEvent:
        now_ms = self.sim.clock.at_ms
        match event:
            case ev.AttemptStarted():
                self.runs.started(event.job, event.attempt, now_ms)
                return msgspec.structs.replace(event, devices=self._devices(event))
            case ev.AttemptEnded():
                self.runs.ended(event.job, event.attempt)
            case ev.GangRemoved():
                self._truth.pop((event.job, event.attempt), None)
                self._removed(event, now_ms)
            case _:
                pass
        return event

    def _removed(self, event: ev.GangRemoved, now_ms: int) -> None:
        nodes = self.sim.cluster.nodes
        deaf = [n for n in event.unfenced if n in nodes and nodes[n].alive and not nodes[n].reporting]
        until_ms = max((self._silenced.get(n, now_ms) + LEASE_MS for n in deaf), default=0)
        if until_ms > now_ms and self.runs.has_started(event.job, event.attempt):
            self.runs.lingers(event.job, event.attempt, until_ms)
        else:
            self.runs.swept(event.job, event.attempt)

    def _devices(self, event: ev.AttemptStarted) -> tuple[tuple[int, ...], ...]:
        """What Ray chose: whole GPUs in any order, a fraction on the fullest device; nothing is told where that
        leaves no room."""
        found = self.sim.cluster.attempts.get((event.job, event.attempt))
        if found is None:
            return event.devices
        key = (event.job, event.attempt)
        if key not in self._truth:
            self._truth[key] = []
            for placed in found.order.placement:
                chosen = self._choose(placed)
                self._truth[key].append((placed.node, chosen, placed.milli))
        return tuple(devices for _, devices, _ in self._truth[key])

    def _choose(self, placed: PlacedBundle) -> tuple[int, ...]:
        if not placed.devices or placed.node not in self.sim.cluster.nodes:
            return ()
        left = [1_000] * self.sim.cluster.nodes[placed.node].spec.gpu
        for held in self._truth.values():
            for node, devices, milli in held:
                for index in devices if node == placed.node else ():
                    left[index] -= milli
        fitting = [index for index, n in enumerate(left) if n >= placed.milli]
        if placed.milli < 1_000:
            return (min(fitting, key=lambda i: (left[i], i)),) if fitting else ()
        if len(fitting) < len(placed.devices):
            return ()
        return tuple(sorted(self._rng.sample(fitting, len(placed.devices))))

    # ── acts ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, share: int, user: int, shape: int, count: int, priority: int, work: int, more: int) -> None:
        """Somebody asks for a gang. Law 9: what `diagnose` says of it is what becomes of it."""
        service = self.sim.service
        shares = sorted(service.ledger.shares)
        self._submitted = getattr(self, "_submitted", 0) + 1
        spec = JobSpec(
            job=JobId(f"j{self._submitted}"),
            user=UserId(USERS[user % 3]),
            share=shares[share % len(shares)],
            bundles=(msgspec.structs.replace(SHAPES[shape % len(SHAPES)], count=1 + count % 4),),
            workload=WORK[work % 3],
            priority=(None, 3, 5, 7)[priority % 4],
            cross_pool=more % 4 == 0,
            confirm=more % 5 == 0,
            max_runtime_ms=(None, 60_000, 600_000)[more % 3],
            retries=more % 2,
            topology="required" if more % 7 == 0 else "preferred",
        )
        self.sim.runtimes[spec.job] = Runtime((None, 5_000, 90_000)[more % 3])
        self._ask(spec)

    def _ask(self, spec: JobSpec) -> None:
        service = self.sim.service
        if service.loop.store_error is not None:
            service.submit(msgspec.to_builtins(spec), spec.user)
            return  # what was posted is folded only now: not the same state
        alone = not any(job.share == spec.share and job.state == "queued" for job in service.state.jobs.values())
        told = msgspec.to_builtins(spec)
        before = digest(service.state), ledger_digest(service.ledger)
        findings = service.diagnose(told)["findings"]
        if (digest(service.state), ledger_digest(service.ledger)) != before:
            self.ask_broken.append((9, f"diagnosing {spec.job} had a side effect"))
        answer = service.submit(told, spec.user)
        refused = "error" in answer
        if refused and answer["error"]["code"] == "STORE_FAILED":
            return
        made = plan(service.state, service.ledger, self.sim.clock.at_ms)
        admitted = any(isinstance(event, ev.Admitted) and event.job == spec.job for event in made.events)
        blocking = [finding for finding in findings if finding["severity"] == "block"]
        room = not service.state.creating and service.ledger.settings.max_creating > 16
        if not findings and (refused or (alone and room and not admitted)):
            self.ask_broken.append((9, f"{spec} was allowed, refused: {refused}, admitted: {admitted}"))
        if findings and admitted:
            self.ask_broken.append((9, f"{spec} was admitted against {findings}"))
        if refused != bool(blocking) and not (blocking and spec.confirm):
            self.ask_broken.append((9, f"{spec} was refused: {refused}, blocked by {blocking}"))

    def _pick(self, states: frozenset[str], number: int) -> JobId | None:
        jobs = [name for name, job in self.sim.service.state.jobs.items() if job.state in states]
        return jobs[number % len(jobs)] if jobs else None

    def _node(self, number: int) -> NodeId | None:
        names = sorted(self.sim.cluster.nodes)
        return names[number % len(names)] if names else None

    def finish(self, number: int, ok: bool) -> None:
        job = self._pick(frozenset({"running"}), number)
        if job is not None:
            self.sim.cluster.finish(job, ok)

    def cancel(self, number: int) -> None:
        job = self._pick(ACTIVE | {"queued"}, number)
        if job is not None:
            self.answer(self.sim.service.cancel(job, "ann"))

    def prioritise(self, number: int, priority: int) -> None:
        job = self._pick(ACTIVE | {"queued"}, number)
        if job is not None:
            self.answer(self.sim.service.set_priority(job, priority % 10, "ann"))

    def cross_pool(self, number: int, value: bool) -> None:
        job = self._pick(ACTIVE | {"queued"}, number)
        if job is not None:
            self.answer(self.sim.service.set_cross_pool(job, value, "ann"))

    def move(self, number: int, share: int) -> None:
        job, shares = self._pick(ACTIVE | {"queued"}, number), sorted(self.sim.service.ledger.shares)
        if job is not None:
            self.answer(self.sim.service.move(job, shares[share % len(shares)], "ann"))

    def resize(self, number: int, shape: int, count: int) -> None:
        job = self._pick(ACTIVE | {"queued"}, number)
        if job is not None:
            bundle = SHAPES[shape % len(SHAPES)]
            keys = {"gpu": bundle.gpu_milli / 1_000, "cpu": bundle.cpu_milli / 1_000, "count": 1 + count % 3}
            self.answer(self.sim.service.resize(job, [{k: v for k, v in keys.items() if v}], "ann"))

    def lose(self, number: int, signal: int) -> None:
        node = self._node(number)
        if node is not None:
            self.sim.cluster.fail(node, SIGNALS[signal % len(SIGNALS)])

    def silence(self, number: int) -> None:
        node = self._node(number)
        if node is not None:
            self._silenced.setdefault(node, self.sim.clock.at_ms)
            self.sim.cluster.silence(node)

    def silence_all(self) -> None:
        for number in range(len(self.sim.cluster.nodes)):
            self.silence(number)

    def recover(self, number: int, repaired: bool) -> None:
        node = self._node(number)
        if node is None:
            return
        self._silenced.pop(node, None)
        self.sim.cluster.recover(node, repaired)
        for job, attempts in self.runs.running.items():
            for attempt in [n for n, until_ms in attempts.items() if until_ms is not None]:
                self.runs.swept(job, attempt)  # its agent speaks again, and sweeps what it was told to

    def share(self, number: int, what: int, seed: int) -> None:
        """An administrator changes a share: its nominal, its sharing, its limits; stops or opens it."""
        shares = sorted(self.sim.service.ledger.shares)
        name, rng = shares[number % len(shares)], Random(seed)
        old = self.sim.service.ledger.shares[name]
        match what % 5:
            case 0:
                nominal = {pool: {**kinds, "gpu": rng.randint(0, 8) * 1_000} for pool, kinds in old.nominal.items()}
                self._set(msgspec.structs.replace(old, nominal=nominal))
            case 1:
                self._set(msgspec.structs.replace(old, sharing=sharing(rng)))
            case 2:
                self._set(msgspec.structs.replace(old, limits=limits(rng)))
            case 3:
                self._admin("stop_share", {"name": name})
            case _:
                self._admin("open_share", {"name": name})

    def _set(self, share: Any) -> None:
        with suppress(StoreFailed):
            self.sim.service.loop.ask((ShareSet(at_ms=self.sim.clock.at_ms, share=share, by=UserId("root")),))

    def reserve(self, number: int, gpus: int, start_s: int, for_s: int) -> None:
        """A reservation of a share or a user; without a length it is on hold."""
        shares = sorted(self.sim.service.ledger.shares)
        owner = {"share": shares[number % len(shares)]} if number % 2 else {"user": USERS[number % 3]}
        at_s = (self.sim.clock.at_ms - START_MS) // 1_000 + start_s % 200
        keys: dict[str, Any] = {"name": f"r{len(self.sim.service.ledger.reservations) + 1}", "pool": "main"}
        keys |= {"amounts": {"gpu": 2 + gpus % 7}, "owner": owner, "start": f"{at_s}s"}
        if for_s % 5:
            keys["expiry"] = f"{at_s + 1 + for_s % 300}s"
        self._admin("reserve", keys)

    def release(self, number: int) -> None:
        names = sorted(self.sim.service.ledger.reservations)
        if names:
            params = {"reservation": names[number % len(names)]}
            self._admin("release", params)

    def override(self, number: int, gpus: int, authority: bool) -> None:
        shares = sorted(self.sim.service.ledger.shares)
        scope = {"share": shares[number % len(shares)]} if number % 2 else {"user": USERS[number % 3]}
        until_s = (self.sim.clock.at_ms - START_MS) // 1_000 + 60
        keys = {**scope, "amounts": {"gpu": 1 + gpus % 4}, "until": f"{until_s}s", "reason": "a deadline"}
        where = {"pool": ("main", "side")[number // 5 % 2]} if number % 5 == 0 else {}
        self._admin("override", keys | where | ({"authority": "cto"} if authority else {}))

    def operate(self, number: int, what: int) -> None:
        """An operator cordons, opens a repair task, moves a node to another pool, takes it out for good."""
        node = self._node(number)
        if node is None:
            return
        ray = self.sim.cluster
        match what % 8:
            case 0 | 1:
                self._admin("cordon", {"node": node})
            case 2 | 3:
                self._admin("uncordon", {"node": node})
            case 4:
                self._admin("repair_task", {"node": node, "open": True})
            case 5:
                self._admin("repair_task", {"node": node, "open": False})
            case 6:
                self._admin("repool_node", {"node": node, "pool": ("main", "side", "spare")[number % 3]})
            case _ if len(ray.nodes) > 3:
                self._admin("remove_node", {"node": node})
                ray.remove(node)
            case _:
                pass

    def regroup(self, number: int) -> None:
        members = [user for i, user in enumerate(USERS) if number >> i & 1]
        self._admin("set_group", {"group": "ml", "members": members})

    def outside_book(self, gpus: int) -> None:
        """Somebody else's book of reservations says so many, or is reconciled."""
        if gpus % 3:
            self._admin("report_reserved", {"pool": "main", "amounts": {"gpu": gpus % 4}})
        else:
            self._admin("reconcile", {"pool": "main"})

    def break_disk(self, appends: int) -> None:
        """After so many more appends the journal is broken: ticks wait, commands are refused, nothing is lost."""
        self.sim.service.loop.journal = Stumbling(self.sim.service.loop.journal, appends % 3)

    def mend(self, sure: bool = False) -> None:
        """Once it has failed, the journal can be written again, and the next act comes before the next tick."""
        journal = self.sim.service.loop.journal
        if isinstance(journal, Stumbling) and (journal.failed or sure):
            self.sim.service.loop.journal = journal.journal

    def _admin(self, action: str, params: dict[str, Any]) -> None:
        self.answer(self.sim.service.admin(action, params, "root"))

    def wait(self, number: int) -> None:
        self.sim.run_until(self.sim.clock.at_ms + WAITS_MS[number % len(WAITS_MS)])

    def restart_scheduler(self) -> None:
        self.sim.restart_scheduler()

    def restart_quota(self) -> None:
        self.sim.restart_quota()

    def crash(self, step: CrashStep) -> None:
        """The next tick that gets to `step` is the scheduler's last."""
        self.sim.crash_at(step)

    def answer(self, answered: Any) -> None:
        """Commands may be refused, but never for a fault of ours."""
        if isinstance(answered, dict) and "error" in answered:
            assert answered["error"]["status"] in (403, 404, 409, 422, 503), answered

    # ── after each act ────────────────────────────────────────────────────────────────────────────────────────────

    def verify(self) -> None:
        """Let what follows happen, then read what was written."""
        self.sim.settle()
        service, disk = self.sim.service, self.sim.disk
        if service.loop.store_error is not None:
            return  # what was posted is not journaled yet: it will be, when the next act has mended the disk
        self.quota.hear(disk.entries)
        self.jobs.hear(disk.events)
        self.jobs.whisper()
        for why in [*check(service.state, service.ledger), *check(service.state, self.sim.quota.ledger)]:
            self.state_broken.append((1, why))
        if digest(service.state) != digest(self.jobs.state):
            self.state_broken.append((10, "the journal tells another state than the one that lives"))
        made = plan(service.state, service.ledger, self.sim.clock.at_ms)
        service.state.pending.wake_all()
        if plan(service.state, service.ledger, self.sim.clock.at_ms) != made:
            self.state_broken.append((10, "who looks at every job plans something else"))
        if ledger_digest(service.ledger) != ledger_digest(self.sim.quota.ledger):
            self.state_broken.append((10, "the scheduler's copy of the ledger is not the ledger"))

    def end(self) -> Replay:
        """Read journal and ledger once more, planning at each tick."""
        replay = Replay(self.sim.disk).run()
        self.state_broken += [(10, why) for why in replay.differences]
        if digest(replay.state) != digest(self.sim.service.state):
            self.state_broken.append((10, "a replay ends in another state"))
        return replay
