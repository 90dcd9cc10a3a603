"""Planned ends in order, through random changes."""

from random import Random

import pytest

from raysched.core.agenda import SLACK, Agenda
from raysched.core.model import JobId


@pytest.mark.parametrize("seed", range(20))
def test_it_reads_what_sorting_would(seed: int) -> None:
    rng, agenda, plain = Random(seed), Agenda(), dict[JobId, int]()
    for _ in range(500):
        job = JobId(f"j{rng.randrange(30)}")
        if rng.random() < 0.6:
            agenda.put(job, at := rng.randrange(1_000))
            plain[job] = at
        else:
            agenda.drop(job)
            plain.pop(job, None)
        if rng.random() < 0.1:
            assert list(agenda) == sorted((at, job) for job, at in plain.items())
    assert agenda.times == plain


def test_what_is_no_longer_due_does_not_pile_up() -> None:
    agenda = Agenda()
    for number in range(100 * SLACK):
        agenda.put(JobId(f"j{number % 3}"), 1_000_000 - number)
    assert len(agenda._heap) <= 2 * 3 + SLACK + 1
