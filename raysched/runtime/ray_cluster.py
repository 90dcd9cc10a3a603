"""The cluster port on Ray: decisions become coroutines in a thread of their own, their answers become events.

`perform` and `poll` only touch queues. The thread runs one event loop; each attempt is a story of its own
(attempt.py), nodes are looked at once a second, and what blocks goes to a few more threads."""

import asyncio
import collections
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar, assert_never

from raysched.core.decisions import CreateGang, Decision, RemoveGang, StartAttempt, StopAttempt
from raysched.core.events import AlertCleared, AlertRaised, AnyEvent, AttemptEnded, GangRemoved
from raysched.core.model import JobId, NodeId, PoolId
from raysched.runtime import placement_groups as groups
from raysched.runtime import ranks
from raysched.runtime.attempt import Attempt, answer
from raysched.runtime.freeze import FROZEN_S, FreezeWatch
from raysched.runtime.node_watch import NodeWatch, list_nodes
from raysched.runtime.placement_groups import Group, Key
from raysched.runtime.ports import Clock, Gang

NODES_S: Final = 1.0
VIEW_S: Final = 0.01  # Ray's view of a freed group lags by 30-100 ms
VIEW_DEADLINE_S: Final = 5.0  # then the next group on that room may take a second longer; nothing worse
SWEEP_S: Final = 12.0  # an agent gives up after 10 s
ASK_S: Final = 5.0  # an agent answers from memory
FROZEN: Final = "ray_frozen"
THREADS: Final = 8  # calls to the GCS in flight; more do not make it faster (ray.md 2)

T = TypeVar("T")

log = logging.getLogger(__name__)


class RayCluster:
    """Implements ports.Cluster. Ray must be connected; `close` before disconnecting."""

    def __init__(
        self,
        cluster: str,
        log_root: str,
        get_blob: Callable[[str], bytes | None],
        put_blob: Callable[[bytes], str],
        pool_of: Callable[[Mapping[str, str]], PoolId],
        clock: Clock,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """`pool_of` places a node by its labels; `wake` is called, from the thread, when `poll` has something."""
        self.cluster = cluster
        self.log_root = log_root
        self._get_blob, self._put_blob = get_blob, put_blob
        self._clock, self._wake = clock, wake
        self._events: collections.deque[AnyEvent] = collections.deque()
        self._attempts: dict[Key, Attempt] = {}
        self._making: dict[Key, int] = {}
        self._before: dict[Key, Group] = {}  # groups that were there before this object
        self._names_before: dict[Key, list[str]] = {}
        self._freeze = FreezeWatch()
        self._nodes = NodeWatch(pool_of)
        self._chores: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(ThreadPoolExecutor(THREADS, "raysched-ray"))
        self._thread = threading.Thread(target=self._loop.run_forever, name="raysched-cluster", daemon=True)
        self._thread.start()
        self._submit(self._look_back()).result()
        self._loop.call_soon_threadsafe(lambda: self._begin(self._watch_nodes()))

    # ── the port ──────────────────────────────────────────────────────────────────────────────────────────────────

    def perform(self, decisions: Iterable[Decision]) -> None:
        """Begin to carry out decisions."""
        for decision in decisions:
            self._loop.call_soon_threadsafe(self._take, decision)

    def poll(self) -> list[AnyEvent]:
        """What has happened since the last call."""
        events = []
        while self._events:
            events.append(self._events.popleft())
        return events

    def observe(self) -> list[Gang]:
        """Every group of ours that existed when this object was made, and whether its ranks were told to run."""
        return self._submit(self._observe()).result()

    def adopt(self, gangs: Iterable[CreateGang]) -> None:
        """Watch attempts of an earlier scheduler again."""
        for gang in gangs:
            self._loop.call_soon_threadsafe(self._create, gang, True)

    def close(self) -> None:
        """Stop watching; nothing in Ray changes."""
        self._submit(self._leave()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # ── in the thread ─────────────────────────────────────────────────────────────────────────────────────────────

    def _submit(self, story: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(story, self._loop)

    def _begin(self, story: Coroutine[Any, Any, None]) -> None:
        chore = asyncio.create_task(story)
        self._chores.add(chore)
        chore.add_done_callback(self._finished)

    def _finished(self, chore: asyncio.Task[None]) -> None:
        self._chores.discard(chore)
        if not chore.cancelled() and chore.exception() is not None:
            log.error("an order to Ray failed", exc_info=chore.exception())

    def _take(self, decision: Decision) -> None:
        match decision:
            case CreateGang():
                self._create(decision)
            case StartAttempt():
                attempt = self._attempts.get((decision.job, decision.attempt))
                if attempt is not None:
                    attempt.start_ordered.set()
            case StopAttempt():
                attempt = self._attempts.get((decision.job, decision.attempt))
                if attempt is None:
                    self._announce([self._nothing_ran(decision)])
                else:
                    self._begin(attempt.stop(decision.grace_ms))
            case RemoveGang():
                self._begin(self._remove((decision.job, decision.attempt)))
            case _:
                assert_never(decision)

    def _create(self, create: CreateGang, adopted: bool = False) -> None:
        key = (create.job, create.attempt)
        if key in self._attempts:
            return
        known = self._before.get(key)
        attempt = Attempt(self, create, None if known is None else known.ray_id, adopted or known is not None)
        self._attempts[key] = attempt
        self._making[key] = len(attempt.plan.bundles)
        attempt.begin()

    def _nothing_ran(self, order: StopAttempt) -> AnyEvent:
        now_ms = self._clock.now_ms()
        return AttemptEnded(at_ms=now_ms, job=order.job, attempt=order.attempt, outcome="stopped", detail="nothing ran")

    async def _look_back(self) -> None:
        self._before = await asyncio.to_thread(groups.list_groups, self.cluster)
        for name in await asyncio.to_thread(ranks.rank_names, self.cluster):
            job, _, attempt = name.split(":", 2)[2].rpartition("/rank")[0].rpartition("/")
            self._names_before.setdefault((JobId(job), int(attempt)), []).append(name)

    async def _observe(self) -> list[Gang]:
        found = []
        for key in sorted({*self._before, *self._names_before}):
            group = self._before.get(key)
            started = await asyncio.to_thread(ranks.was_started, self._mark(key))
            found.append(Gang(*key, group is not None and group.ready, started and key in self._names_before))
        return found

    def _mark(self, key: Key) -> str:
        return f"{self.cluster}:{key[0]}/{key[1]}"

    async def _leave(self) -> None:
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        for attempt in self._attempts.values():
            await attempt.leave()
        await self._loop.shutdown_default_executor()

    # ── removing ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _remove(self, key: Key) -> None:
        attempt = self._attempts.get(key)
        if attempt is None:
            await self._kill_by_name(key)
            nodes: tuple[NodeId, ...] = tuple(sorted(self._nodes.alive))
            known = self._before.get(key)
            group_id = None if known is None else known.ray_id
        else:
            await attempt.leave()
            await attempt.kill_ranks()
            nodes, group_id = attempt.nodes, attempt.group_id
        if group_id is not None:
            await asyncio.to_thread(groups.remove_group, group_id)
        swept = await asyncio.gather(*(self._sweep(node, key) for node in nodes))
        if group_id is not None:
            await self._until_freed(group_id)
        await asyncio.to_thread(ranks.forget, self._mark(key))
        for book in (self._attempts, self._before, self._names_before, self._making):
            book.pop(key, None)
        unfenced = tuple(node for node, clean in zip(nodes, swept, strict=True) if not clean)
        self.emit(lambda at_ms: GangRemoved(at_ms=at_ms, job=key[0], attempt=key[1], unfenced=unfenced))

    async def _kill_by_name(self, key: Key) -> None:
        for name in self._names_before.get(key, ()):
            actor = await asyncio.to_thread(ranks.find_rank, name)
            if actor is not None:
                await asyncio.to_thread(ranks.kill, [actor])

    async def _sweep(self, node: NodeId, key: Key) -> bool:
        """Whether the node's agent says that nothing of the attempt is left there."""
        if node not in self._nodes.alive:
            return False
        agent = await asyncio.to_thread(ranks.agent_of, node)
        if agent is None:
            return False
        try:
            said = await asyncio.wait_for(answer(agent.sweep.remote(*key)), SWEEP_S)
        except Exception as problem:
            log.warning("the agent of %s did not sweep %s/%s: %r", node, *key, problem)
            return False
        return bool(said["clean"])

    async def _until_freed(self, group_id: str) -> None:
        deadline = time.monotonic() + VIEW_DEADLINE_S
        while time.monotonic() < deadline:
            began = time.monotonic()
            if group_id not in await asyncio.to_thread(groups.shown_groups):
                return
            # A large cluster's view takes long to read: leave most of the GCS's time to others.
            await asyncio.sleep(max(VIEW_S, 4 * (time.monotonic() - began)))

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _watch_nodes(self) -> None:
        while True:
            try:
                await self._look_at_nodes()
            except Exception as problem:
                log.warning("Ray's nodes could not be listed: %r", problem)
            await asyncio.sleep(NODES_S)

    async def _look_at_nodes(self) -> None:
        rows = await asyncio.to_thread(list_nodes)
        events = self._nodes.compare(rows, self._clock.now_ms())
        self._announce(events)
        for attempt in self._attempts.values():
            for node, ray_id in attempt.create.ray_ids.items():
                if ray_id in self._nodes.dead and not attempt.lost.done():
                    attempt.lost.set_result(f"node {node} died")

    def _announce(self, events: list[AnyEvent]) -> None:
        self._events.extend(events)
        if events and self._wake is not None:
            self._wake()

    # ── what attempts ask of their surroundings ───────────────────────────────────────────────────────────────────

    def emit(self, make: Callable[[int], AnyEvent]) -> None:
        """Announce what has just happened."""
        self._announce([make(self._clock.now_ms())])

    def bundles_ahead(self) -> int:
        """Bundles of groups that are not made yet, the asking one's included."""
        return sum(self._making.values())

    def group_made(self, key: Key, made: bool) -> None:
        """A group is made, or given up."""
        self._making.pop(key, None)
        if made and self._freeze.made():
            self.emit(lambda at_ms: AlertCleared(at_ms=at_ms, alert=FROZEN, subject=self.cluster))

    def group_queued(self) -> None:
        """Ray has not even looked at a group yet."""
        if self._freeze.queued(time.monotonic()):
            text = f"Ray has made no placement group for {FROZEN_S:.0f} s although one is queued"
            self.emit(lambda at_ms: AlertRaised(at_ms=at_ms, alert=FROZEN, subject=self.cluster, text=text))

    async def is_dead(self, ray_id: str) -> bool:
        """Whether Ray has declared the node dead."""
        rows = await asyncio.to_thread(list_nodes)
        return not any(row["NodeID"] == ray_id and row["Alive"] for row in rows)

    async def lapsed(self, node: NodeId, key: Key) -> bool:
        """Whether the node's agent ended the attempt because no scheduler answered it; False where nobody says."""
        agent = await asyncio.to_thread(ranks.agent_of, node)
        if agent is None:
            return False
        try:
            return bool(await asyncio.wait_for(answer(agent.lapsed.remote(*key)), ASK_S))
        except Exception as problem:
            log.warning("the agent of %s did not say whether it ended %s/%s: %r", node, *key, problem)
            return False

    async def get_blob(self, digest: str) -> bytes | None:
        """Stored bytes."""
        return await asyncio.to_thread(self._get_blob, digest)

    async def put_blob(self, data: bytes) -> str:
        """Store bytes; their digest."""
        return await asyncio.to_thread(self._put_blob, data)
