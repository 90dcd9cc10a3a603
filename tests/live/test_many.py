"""Many jobs at once, by many users over two shares that lend: all end, nothing is left, the books balance."""

import random
import threading
from collections import Counter
from pathlib import Path

import pytest

from raysched.client.handle import JobHandle
from raysched.runtime.quota_actor import NAME as QUOTA
from raysched.runtime.scheduler_actor import NAME as SCHEDULER
from tests.live.house import CLUSTER, PATIENCE_S, House

pytestmark = pytest.mark.ray


def own_number(number: int) -> int:
    """What every job answers."""
    return number


def submit_all(house: House, jobs: int, users: int) -> list[JobHandle]:
    """`jobs` jobs of 1, 2 or 4 GPUs, submitted by `users` users at the same time, every other to each share."""
    handles: dict[int, JobHandle] = {}

    def submit_own(user: int) -> None:
        for number in range(user, jobs, users):
            share = ("vision", "language")[number % 2]
            handles[number] = house.submit(
                own_number, number, user=f"user{user}", share=share, gpu=(1, 1, 2, 4)[number % 4]
            )

    threads = [threading.Thread(target=submit_own, args=(user,)) for user in range(users)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    return [handles[number] for number in range(jobs)]


def check_all(house: House, handles: list[JobHandle]) -> None:
    """Each has ended with its own answer, and was claimed and released as often as it was tried."""
    assert [handle.result(600) for handle in handles] == list(range(len(handles)))
    rows = house.client.ledger(limit=100_000)
    for handle in handles:
        mine = [row["entry"]["type"] for row in rows if row["entry"].get("job") == handle.job]
        assert mine.count("Claimed") == mine.count("Released") == mine.count("Committed") == 1, mine


def test_sixty_jobs_of_twenty_users(house: House) -> None:
    check_all(house, submit_all(house, jobs=60, users=20))


@pytest.mark.slow
def test_two_hundred_jobs_of_twenty_users(house: House) -> None:
    check_all(house, submit_all(house, jobs=200, users=20))


def line(path: str) -> str:
    """Say that it ran."""
    import os
    import time

    with open(path, "a") as file:
        file.write(f"{os.environ['RAYSCHED_ATTEMPT']}\n")
    time.sleep(0.5)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_job_is_lost_and_no_attempt_runs_twice_while_the_actors_are_killed(
    house: House, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    paths = [str(tmp_path / str(number)) for number in range(40)]
    handles = []
    for path in paths:
        gang = {"gpu": 2, "count": 1} if chance.random() < 0.7 else {"cpu": 1, "count": 2}
        handles.append(house.submit(line, path, share=chance.choice(["vision", "language"]), **gang))
        if chance.random() < 0.15:
            house.kill_actor(chance.choice([SCHEDULER, QUOTA]))
    while any(not handle.status()["ended_ms"] for handle in handles):
        house.kill_actor(chance.choice([SCHEDULER, QUOTA]))
        chance.choice(handles).look(chance.random() * 4)
    assert [handle.result(PATIENCE_S) for handle in handles] == paths
    for handle, path in zip(handles, paths, strict=True):
        view = handle.status()
        ranks = sum(bundle.get("count", 1) for bundle in view["bundles"])
        ran = Counter(Path(path).read_text().split())
        # Nodes that hear from no scheduler for a while end what they run: then there is a second attempt.
        assert ran[f"{CLUSTER}:{handle.job}/{view['attempt']}"] == ranks, ran
        assert max(ran.values()) == ranks, ran
