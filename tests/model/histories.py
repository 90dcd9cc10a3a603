"""Random histories by seed, for what must run the same way many times: planted mistakes, crashes, replays."""

from collections.abc import Callable
from functools import cache
from random import Random

from raysched.sim.crash import CrashStep
from tests.model.play import Play
from tests.model.worlds import World, world

STEPS = 30
STEPS_OF_A_TICK: tuple[CrashStep, ...] = ("polled", "journaled", "planned", "posted", "folded", "performed")


Act = Callable[[], None]


def history(seed: int, steps: int = STEPS, of: Callable[[int], World] = world) -> Play:
    """A whole history; its end is compared with a replay. Of every four seeds one is a story of silent agents."""
    play = Play(of(seed), seed)
    rng = Random(seed)
    acts = silences if seed % 4 == 3 else everything
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
