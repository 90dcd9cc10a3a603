"""One attempt in Ray, from the order to make its group until the group is gone: a story told by coroutines.

`live` runs from CreateGang to the end of the ranks; `stop` and `remove` interrupt it wherever it is. Every step is
safe to repeat, so the same story is told for an attempt that an earlier scheduler began (`adopted`)."""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.util.placement_group import PlacementGroup

from raysched.core.decisions import CreateGang
from raysched.core.events import AnyEvent, AttemptEnded, AttemptStarted, GangFailed, GangReady
from raysched.core.model import NodeId
from raysched.runtime import placement_groups as groups
from raysched.runtime import rank_files, ranks
from raysched.runtime.job_runner import RankInfo, tell_to_stop
from raysched.runtime.placement_groups import Key, Layout
from raysched.runtime.ports import StoreFailed
from raysched.runtime.rank_files import Outcome, gang_outcome

LOOK_S: Final = 0.5  # how often a group that is not ready yet is looked at; a ready one says so itself
RETRY_S: Final = 0.3  # a rank that cannot be reached is asked again until Ray knows whether it is dead
GANG_GRACE_MS: Final = 5_000  # what the other ranks get when one of a gang has failed
STORE_RETRY_S: Final = 1.0  # a store that fails is asked again as often as by the loop
RESULT_BYTES: Final = 64 * 2**20  # as much as may come with a job; more belongs on shared storage
KILL_SLACK_S: Final = 2.0  # from the kill of an entrypoint at the end of its grace to the rank's answer

log = logging.getLogger(__name__)


class Surroundings(Protocol):
    """What an attempt needs of the cluster object around it."""

    cluster: str
    log_root: str

    def emit(self, make: Callable[[int], AnyEvent]) -> None: ...
    def group_queued(self) -> None: ...
    def group_made(self, key: Key, made: bool) -> None: ...
    def bundles_ahead(self) -> int: ...
    async def is_dead(self, ray_id: str) -> bool: ...
    async def lapsed(self, node: NodeId, key: Key) -> bool: ...
    async def get_blob(self, digest: str) -> bytes | None: ...
    async def put_blob(self, data: bytes) -> str: ...


async def answer(ref: Any) -> Any:
    """The value of a Ray reference, awaited in any event loop."""
    return await asyncio.wrap_future(ref.future())


class Attempt:
    """One attempt that is being watched."""

    def __init__(self, around: Surroundings, create: CreateGang, group_id: str | None, adopted: bool) -> None:
        """`group_id`: of a group that exists already; `adopted`: an earlier scheduler may have started the ranks."""
        self.create = create
        self.key: Key = (create.job, create.attempt)
        self.plan: Layout = groups.layout(create.placement, create.spec.bundles)
        self.group_id = group_id
        self.adopted = adopted
        self.start_ordered = asyncio.Event()
        self.lost = asyncio.get_running_loop().create_future()
        self._around = around
        self._actors: list[Any] = []
        self._infos: list[RankInfo] = []
        self._running = False
        self._ended = False
        self._story: asyncio.Task[None] | None = None
        self._calls: set[asyncio.Future[None]] = set()

    @property
    def mark(self) -> str:
        return f"{self._around.cluster}:{self.create.job}/{self.create.attempt}"

    @property
    def nodes(self) -> tuple[NodeId, ...]:
        return groups.nodes_of(self.plan)

    def names(self) -> list[str]:
        return [f"raysched:{self.mark}/rank{place.rank}" for place in self.plan.ranks]

    def begin(self) -> None:
        """Tell the story from here."""
        self._story = asyncio.create_task(self._live())

    # ── the story ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _live(self) -> None:
        try:
            outcome = await self._past() if self.adopted and await self._was_started() else await self._from_start()
            if outcome is not None:
                await self._end(outcome)
        except RayActorError as death:
            meanings = [await self._meaning_of(place, death) for place in self.plan.ranks]
            await self._end(gang_outcome(meanings))
        except Exception as problem:
            await self._end(Outcome("failed", detail=f"{type(problem).__name__}: {problem}"))

    async def _from_start(self) -> Outcome | None:
        """Group, ranks, the order to start, the run. None if there was no group: that has been said."""
        group = await self._make_group()
        if group is None:
            return None
        # Before the start is ordered: the ranks' processes come up while the loop commits the claim.
        await self._completed(self._make_ranks, group)
        self._around.emit(lambda at_ms: GangReady(at_ms=at_ms, job=self.key[0], attempt=self.key[1]))
        ordered = asyncio.create_task(self.start_ordered.wait())
        try:
            await asyncio.wait({ordered, self.lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ordered.cancel()
        if self.lost.done():
            return Outcome("node_lost", detail=str(self.lost.result()))
        return await self._run()

    async def _past(self) -> Outcome:
        """Go on with an attempt whose ranks were told to run by an earlier scheduler; never start it again."""
        self._running = True
        self._around.group_made(self.key, made=False)
        self._actors = [await asyncio.to_thread(ranks.find_rank, name) for name in self.names()]
        if self.group_id is None or None in self._actors:
            return await self._end_of_gone()
        return await self._run()

    async def _was_started(self) -> bool:
        return await asyncio.to_thread(ranks.was_started, self.mark)

    async def _make_group(self) -> PlacementGroup | None:
        try:
            if self.group_id is None:
                await self._completed(self._create_group)
            assert self.group_id is not None
            group = groups.handle_of(self.group_id)
            problem = await self._until_ready(group)
        except (RayError, KeyError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        self._around.group_made(self.key, made=problem is None)
        if problem is None:
            return group
        if self.group_id is not None:
            await asyncio.to_thread(groups.remove_group, self.group_id)
        self._ended = True
        self._around.emit(lambda at_ms: GangFailed(at_ms=at_ms, job=self.key[0], attempt=self.key[1], detail=problem))
        return None

    def _create_group(self) -> None:
        self.group_id = groups.create_group(self._around.cluster, self.create, self.plan).id.hex()

    async def _until_ready(self, group: PlacementGroup) -> str | None:
        """None once the group is CREATED; else why it is not."""
        assert self.group_id is not None
        ready = asyncio.wrap_future(group.ready().future())
        since = time.monotonic()
        allowed_s = groups.deadline_ms(self._around.bundles_ahead()) / 1000
        infeasible = 0
        while True:
            done, _ = await asyncio.wait({ready}, timeout=LOOK_S)
            state, scheduling = await asyncio.to_thread(groups.condition, self.group_id)
            if state == "CREATED":
                return None
            if done and state == "REMOVED":
                return "the group was removed by somebody else"
            if scheduling == "QUEUED":
                self._around.group_queued()
            infeasible = infeasible + 1 if scheduling == "INFEASIBLE" else 0
            waited_s = time.monotonic() - since
            if infeasible == 2:
                return "INFEASIBLE: its nodes are gone, or can never hold it"
            if waited_s > allowed_s:
                return f"not made after {waited_s:.1f} s: {state} / {scheduling}"

    def _make_ranks(self, group: PlacementGroup) -> None:
        for place in self.plan.ranks:
            who = ranks.identity_of(self._around.cluster, self._around.log_root, self.create, place)
            self._actors.append(ranks.make_rank(who, place, group, self.create.spec.run))

    # ── running ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> Outcome:
        run = self.create.spec.run
        assert run is not None, "a job without anything to run was started"
        digest = ranks.payload_digest(run)
        payload = None if digest is None else await self._around.get_blob(digest)
        if payload is None and digest is not None and not self._running:
            return Outcome("failed", detail=f"the stored payload {digest} is gone")
        await asyncio.to_thread(ranks.note_start, self.mark)
        alone = len(self._actors) == 1
        # A gang meets first: nobody runs before all are there and rank 0's address is known. A single rank is told
        # to run at once, behind its question; Ray does the calls in order.
        meeting = asyncio.create_task(self._meet())
        if alone:
            await asyncio.sleep(0)
        elif not await self._unless_lost(meeting):
            return Outcome("node_lost", detail=str(self.lost.result()))
        self._running = True
        first = None if alone else meeting.result()[0]
        endings = [asyncio.create_task(self._run_rank(place, first, payload)) for place in self.plan.ranks]
        try:
            await asyncio.wait({meeting, self.lost, *endings}, return_when=asyncio.FIRST_COMPLETED)
            if not self.lost.done():
                # The end of a short run can be noticed before the answer that came ahead of it.
                await asyncio.wait({meeting}, timeout=LOOK_S)
            if meeting.done() and meeting.exception() is None:
                self._emit_started()
            return await self._first_end(endings)
        finally:
            for task in (meeting, *endings):
                task.cancel()

    async def _unless_lost(self, task: asyncio.Task[list[RankInfo]]) -> bool:
        """Wait for the task; False if a node was lost before. Raises what the task raises."""
        await asyncio.wait({task, self.lost}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            return False
        task.result()
        return True

    async def _meet(self) -> list[RankInfo]:
        infos = await asyncio.gather(*(self._info(number) for number in range(len(self._actors))))
        self._infos = list(infos)
        return self._infos

    async def _info(self, number: int) -> RankInfo:
        if self.adopted:
            # A rank that runs does not answer calls, but it has left what it would answer.
            kept = await asyncio.to_thread(ranks.kept_info, self.names()[number])
            if kept is not None:
                return kept
        info: RankInfo = await answer(self._actors[number].prepare.remote())
        return info

    def _emit_started(self) -> None:
        devices = ranks.devices_by_entry(self.plan, self._infos)
        self._around.emit(
            lambda at_ms: AttemptStarted(at_ms=at_ms, job=self.key[0], attempt=self.key[1], devices=devices)
        )

    async def _run_rank(self, place: groups.RankPlace, first: RankInfo | None, payload: bytes | None) -> Outcome:
        assert self.group_id is not None
        order = ranks.order_of(self.create, self.plan, place, self.group_id, first)
        while True:
            try:
                outcome: Outcome = await answer(self._actors[place.rank].run.remote(order, payload))
                return outcome
            except ActorUnavailableError:
                await asyncio.sleep(RETRY_S)
            except RayActorError as death:
                return await self._meaning_of(place, death)
            except RayError as problem:
                return Outcome("failed", detail=f"rank {place.rank}: {type(problem).__name__}: {problem}")

    async def _meaning_of(self, place: groups.RankPlace, death: RayActorError) -> Outcome:
        """What the death of a rank's actor says: its node is gone, it left an outcome, or it crashed."""
        if await self._around.is_dead(await self._ray_id(place)):
            return Outcome("node_lost", detail=f"node {place.node} died")
        kept = rank_files.kept_outcome(self._around.log_root, *self.key, place.rank)
        if kept is not None:
            return kept
        if await self._around.lapsed(place.node, self.key):
            return rank_files.lapsed(place.node)
        cause = str(death).strip().splitlines()
        return Outcome("failed", detail=f"rank {place.rank} died: {' '.join(cause)[:1000]}")

    async def _ray_id(self, place: groups.RankPlace) -> str:
        """The Ray node that the rank ran on; after a restart of the raylet the order names another."""
        kept = await asyncio.to_thread(ranks.kept_info, self.names()[place.rank])
        return self.create.ray_ids[place.node] if kept is None else kept.node_id

    async def _first_end(self, endings: list[asyncio.Task[Outcome]]) -> Outcome:
        """All ranks succeeded, or the first that did not and the end of the others."""
        ended: list[Outcome] = []
        left: set[asyncio.Future[Any]] = set(endings)
        told = False
        deadline: float | None = None
        while left:
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            done, _ = await asyncio.wait(left | {self.lost}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if self.lost in done:
                return Outcome("node_lost", detail=str(self.lost.result()))
            if not done:
                break
            left -= done
            ended += [ending.result() for ending in endings if ending in done]
            if not told and left and gang_outcome(ended).outcome != "succeeded":
                told, deadline = True, time.monotonic() + GANG_GRACE_MS / 1000 + KILL_SLACK_S
                await self._tell(GANG_GRACE_MS)
        outcome = gang_outcome(ended)
        if outcome.outcome == "succeeded":
            return endings[0].result()
        return outcome

    async def _end_of_gone(self) -> Outcome:
        """The end of an attempt that was started and whose ranks are not all there any more."""
        for rank in self.plan.ranks:
            if await self._around.is_dead(await self._ray_id(rank)):
                return Outcome("node_lost", detail=f"node {rank.node} died while nobody watched")
        kept = [await self._end_of_gone_rank(rank) for rank in self.plan.ranks]
        outcome = gang_outcome(kept)
        return kept[0] if outcome.outcome == "succeeded" else outcome

    async def _end_of_gone_rank(self, rank: groups.RankPlace) -> Outcome:
        kept = rank_files.kept_outcome(self._around.log_root, *self.key, rank.rank)
        if kept is not None:
            return kept
        return rank_files.lapsed(rank.node) if await self._around.lapsed(rank.node, self.key) else rank_files.GONE

    async def _end(self, outcome: Outcome) -> None:
        if self._ended:
            return
        self._ended = True
        outcome, digest = await self._stored(outcome)
        self._around.emit(
            lambda at_ms: AttemptEnded(
                at_ms=at_ms,
                job=self.key[0],
                attempt=self.key[1],
                outcome=outcome.outcome,
                exit_code=outcome.exit_code,
                detail=outcome.detail,
                result=digest,
            )
        )

    async def _stored(self, outcome: Outcome) -> tuple[Outcome, str | None]:
        """The outcome and the digest of its result, once that is stored. A full disk does not fail a job: its end
        waits until there is room, as every other news does."""
        if outcome.result is None:
            return outcome, None
        size = len(outcome.result)
        if size > RESULT_BYTES:
            detail = f"its result takes {size / 2**20:.1f} MiB, at most {RESULT_BYTES // 2**20} are kept"
            return Outcome("failed", outcome.exit_code, detail), None
        while True:
            try:
                return outcome, await self._around.put_blob(outcome.result)
            except StoreFailed as problem:
                log.warning("the result of %s waits for the store: %s", self.mark, problem)
                await asyncio.sleep(STORE_RETRY_S)
            except Exception as problem:
                return Outcome("failed", outcome.exit_code, f"its result could not be stored: {problem}"), None

    # ── interrupted ───────────────────────────────────────────────────────────────────────────────────────────────

    async def stop(self, grace_ms: int) -> None:
        """Notice, grace, kill; ends with AttemptEnded."""
        if self._ended:
            return
        if not self._running and not (self.adopted and await self._was_started()):
            await self.leave()
            await self._end(Outcome("stopped", detail="stopped before it ran"))
            return
        await self._tell(grace_ms)
        assert self._story is not None
        await asyncio.wait({self._story}, timeout=grace_ms / 1000 + KILL_SLACK_S)
        if not self._ended:
            await self.leave()
            await self.kill_ranks()
            await self._end(Outcome("stopped", detail=f"killed: still there {grace_ms} ms after the notice"))

    async def _tell(self, grace_ms: int) -> None:
        """Give every rank that is there the notice; one that cannot be reached is killed later."""
        infos = self._infos or await self._known_infos()
        told = (asyncio.to_thread(tell_to_stop, info, grace_ms) for info in infos)
        await asyncio.gather(*told, return_exceptions=True)

    async def _known_infos(self) -> list[RankInfo]:
        kept = [await asyncio.to_thread(ranks.kept_info, name) for name in self.names()]
        return [info for info in kept if info is not None]

    async def leave(self) -> None:
        """Stop watching; nothing in Ray changes. What was being made is made when this returns."""
        if self._story is not None and not self._story.done():
            self._story.cancel()
            await asyncio.wait({self._story})
        if self._calls:
            await asyncio.wait(self._calls)

    async def _completed(self, call: Callable[..., None], *given: Any) -> None:
        """A blocking call that makes something in Ray; it is not lost sight of when the story is cancelled."""
        made = asyncio.ensure_future(asyncio.to_thread(call, *given))
        self._calls.add(made)
        made.add_done_callback(self._calls.discard)
        await asyncio.shield(made)

    async def kill_ranks(self) -> None:
        """ray.kill of every rank's actor; those that are gone already do not matter."""
        await asyncio.to_thread(ranks.kill, [actor for actor in self._actors if actor is not None])
