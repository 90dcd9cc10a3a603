"""When queued groups become an alarm. Needs no Ray cluster."""

from raysched.runtime.freeze import FROZEN_S, FreezeWatch


def test_groups_that_stay_queued_raise_one_alarm() -> None:
    watch = FreezeWatch()
    seen = [watch.queued(float(second)) for second in range(int(FROZEN_S) + 4)]
    assert seen.count(True) == 1
    assert seen.index(True) == FROZEN_S + 1


def test_a_group_that_is_made_ends_the_alarm_once() -> None:
    watch = FreezeWatch()
    for second in range(int(FROZEN_S) + 2):
        watch.queued(float(second))
    assert watch.made()
    assert not watch.made()


def test_a_group_made_in_between_starts_the_count_again() -> None:
    watch = FreezeWatch()
    assert not any(watch.queued(float(second)) for second in range(8))
    watch.made()
    assert not any(watch.queued(float(second)) for second in range(8, 16))


def test_two_short_waits_far_apart_are_no_freeze() -> None:
    watch = FreezeWatch()
    assert not watch.queued(0.0)
    assert not watch.queued(3600.0)
