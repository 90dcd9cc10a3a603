"""Random histories by seed, for what must run the same way many times: planted mistakes, crashes, replays."""

from collections.abc import Callable
from random import Random

from raysched.sim.crash import CrashStep
from tests.model.play import Play
from tests.model.worlds import World, world

STEPS = 25
STEPS_OF_A_TICK: tuple[CrashStep, ...] = ("polled", "journaled", "planned", "posted", "folded", "performed")


def history(seed: int, steps: int = STEPS, of: Callable[[int], World] = world) -> Play:
    """A whole history; its end is compared with a replay."""
    play = Play(of(seed), seed)
    rng = Random(seed)
    for _ in range(steps):
        act(play, rng)
        play.verify()
    play.mend(sure=True)
    play.verify()
    play.end()
    return play


def act(play: Play, rng: Random) -> None:
    """One random act; submitting and waiting are the most frequent."""
    n = [rng.randint(0, 1 << 16) for _ in range(7)]
    acts: list[tuple[int, Callable[[], None]]] = [
        (10, lambda: play.submit(n[0], n[1], n[2], n[3], n[4], n[5], n[6])),
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
        (1, lambda: play.reserve(n[0], n[1], n[2], n[3])),
        (1, lambda: play.release(n[0])),
        (2, lambda: play.override(n[0], n[1], n[2] % 2 > 0)),
        (2, lambda: play.operate(n[0], n[1])),
        (1, lambda: play.regroup(n[0])),
        (1, lambda: play.outside_book(n[0])),
        (2, lambda: play.break_disk(n[0])),
        (1, play.restart_scheduler),
        (1, play.restart_quota),
        (2, lambda: play.crash(STEPS_OF_A_TICK[n[0] % len(STEPS_OF_A_TICK)])),
    ]
    play.mend()
    rng.choices([each for _, each in acts], [weight for weight, _ in acts])[0]()
