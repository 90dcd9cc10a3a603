"""Random histories by seed, for what must run the same way many times: planted mistakes, crashes, replays."""

from collections.abc import Callable
from functools import cache
from random import Random

from msgspec import structs

from raysched.core.model import WORKLOADS, LimitRule, Limits
from raysched.sim.crash import CrashStep
from tests.model.play import Play
from tests.model.worlds import MAIN, World, world

STEPS = 30
STEPS_OF_A_TICK: tuple[CrashStep, ...] = ("polled", "journaled", "planned", "posted", "folded", "performed")


Act = Callable[[], None]


def history(seed: int, steps: int = STEPS, of: Callable[[int], World] = world) -> Play:
    """A whole history; its end is compared with a replay. Of every eight seeds two are stories of silent agents, one
    of users who all ask for the same."""
    rng = Random(seed)
    acts = silences if seed % 4 == 3 else crowds if seed % 8 == 6 else everything
    play = Play(limited(of(seed)) if acts is crowds else of(seed), seed)
    for _ in range(steps):
        play.mend()
        n = [rng.randint(0, 1 << 16) for _ in range(7)]
        weighted = acts(play, n)
        rng.choices([each for _, each in weighted], [weight for weight, _ in weighted])[0]()
        play.verify()
    play.mend(sure=True)
    play.verify()
    play.end()
    return play


@cache
def played(seed: int) -> Play:
    """The history of a seed, played once for all tests that only read it."""
    return history(seed)


def everything(play: Play, n: list[int]) -> list[tuple[int, Act]]:
    """All that can be done, with weights; submitting and waiting are the most frequent."""
    return [
        (15, lambda: play.submit(n[0], n[1], n[2], n[3], n[4], n[5], n[6])),
        (6, lambda: play.wait(n[0])),
        (2, lambda: play.finish(n[0], n[1] % 3 > 0)),
        (1, lambda: play.cancel(n[0])),
        (1, lambda: play.prioritise(n[0], n[1])),
        (1, lambda: play.cross_pool(n[0], n[1] % 2 > 0)),
        (1, lambda: play.move(n[0], n[1])),
        (1, lambda: play.resize(n[0], n[1], n[2])),
        (1, lambda: play.lose(n[0], n[1])),
        (1, lambda: play.silence(n[0])),
        (2, lambda: play.recover(n[0], n[1] % 2 > 0)),
        (3, lambda: play.share(n[0], n[1], n[2])),
        (2, lambda: play.reserve(n[0], n[1], n[2], n[3])),
        (1, lambda: play.release(n[0])),
        (4, lambda: play.override(n[0], n[1], n[2] % 2 > 0)),
        (2, lambda: play.operate(n[0], n[1])),
        (1, lambda: play.regroup(n[0])),
        (1, lambda: play.outside_book(n[0])),
        (2, lambda: play.break_disk(n[0])),
        (1, play.restart_scheduler),
        (1, play.restart_quota),
        (2, lambda: play.crash(STEPS_OF_A_TICK[n[0] % len(STEPS_OF_A_TICK)])),
    ]


def limited(found: World) -> World:
    """The same cluster, where the first share has room for more than each of its users may have."""
    first, *others = found.config.shares
    first = structs.replace(
        first,
        nominal={**first.nominal, MAIN: {"gpu": 6_000}},
        workloads=WORKLOADS,
        limits=Limits(enabled=True, default=LimitRule(2_000)),
    )
    return World(structs.replace(found.config, shares=(first, *others)), found.hosts)


def crowds(play: Play, n: list[int]) -> list[tuple[int, Act]]:
    """Many users ask one share for the same thing, while limits, loans and priorities change: who is looked at?"""
    return [
        (16, lambda: play.submit(0, n[1], n[2] % 2, 0, n[4], 1, 1)),
        (4, lambda: play.wait(n[0] % 3)),
        (6, lambda: play.finish(n[0], True)),
        (2, lambda: play.cancel(n[0])),
        (2, lambda: play.prioritise(n[0], n[1])),
        (1, lambda: play.cross_pool(n[0], n[1] % 2 > 0)),
        (2, lambda: play.share(0, n[1], n[2])),
        (2, lambda: play.override(n[0], n[1], n[2] % 2 > 0)),
        (1, lambda: play.regroup(n[0])),
        (1, lambda: play.silence(n[0])),
        (1, lambda: play.recover(n[0], n[1] % 2 > 0)),
        (1, play.restart_scheduler),
    ]


def silences(play: Play, n: list[int]) -> list[tuple[int, Act]]:
    """Agents fall silent while attempts end and are to run again: what fencing is for."""
    return [
        (8, lambda: play.submit(n[0], n[1], n[2], n[3], n[4], n[5], 2 * n[6] + 1)),
        (4, lambda: play.wait(n[0] % 4)),
        (3, lambda: play.wait(n[0])),
        (4, lambda: play.finish(n[0], False)),
        (2, lambda: play.resize(n[0], n[1], n[2])),
        (2, lambda: play.lose(n[0], n[1])),
        (4, lambda: play.silence(n[0])),
        (1, play.silence_all),
        (2, lambda: play.recover(n[0], n[1] % 2 > 0)),
        (1, play.restart_scheduler),
    ]
