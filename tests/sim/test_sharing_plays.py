"""Sharing against not sharing, on clusters small enough to see who waits for whom."""

from pathlib import Path

from raysched.core.model import ShareId
from raysched.sim.run import play
from raysched.sim.sharing import Comparison, Pair, compare_alone, compare_philly
from raysched.sim.workloads import itp
from raysched.sim.workloads.workload import Workload
from tests.sim.small_workload import job, workload
from tests.sim.test_workloads import philly_folder


def of(found: Comparison, share: str) -> Pair:
    return next(pair for pair in found.pairs if pair.share == share)


def two(*jobs_of_b: tuple[int, float, float]) -> Workload:
    """Two tenants of 8 GPUs; a sends two jobs of 8 GPUs at once, b what is given (GPUs, seconds, at)."""
    mine = [job(f"a{number}", 8, 100, share="a") for number in range(2)]
    others = [job(f"b{number}", gpus, seconds, at_s, "b") for number, (gpus, seconds, at_s) in enumerate(jobs_of_b)]
    return workload(*mine, *others, shares={"a": 8, "b": 8})


def test_idle_quota_of_a_neighbour_saves_a_wait_and_hurts_nobody() -> None:
    found = compare_alone(two((8, 50, 200)), "any_fit")
    a, b = of(found, "a"), of(found, "b")
    assert (a.without.wait.most_ms, a.sharing.wait.most_ms) == (100_650, 300)
    assert (a.later, a.sooner) == (0, 1)
    assert (b.without.wait, b.later, b.sooner) == (b.sharing.wait, 0, 0)
    assert not any(pair.is_hurt for pair in found.pairs)
    assert (found.total.sooner, found.total.without.gpus) == (1, 16)


def test_without_reclaim_a_lender_waits_for_its_own_quota_and_is_told_of() -> None:
    found = compare_alone(two((8, 50, 10)), "any_fit")
    b = of(found, "b")
    assert b.is_hurt
    assert (b.without.wait.mean_ms, b.later) == (300, 1)
    assert b.sharing.wait.mean_ms > 90_000
    assert b.later_by == {"WAITING_RECLAIM": 1}


def test_the_same_jobs_are_counted_both_ways() -> None:
    found = compare_alone(two((8, 50, 10), (4, 1, 20)), "any_fit")
    assert [(pair.without.jobs, pair.sharing.jobs) for pair in found.pairs] == [(2, 2), (2, 2)]
    assert found.total.without.jobs == found.total.sharing.jobs == 4
    work = 8 * 100 * 2 + 8 * 50 + 4
    assert found.total.sharing.offered_load == work / (16 * 20)


def test_tenants_made_from_clusters_keep_their_jobs_and_never_exceed_the_window() -> None:
    clusters = {
        name: [itp.ItpJob(f"{name}{n}", n * 1_000, 4_000, 8) for n in range(6)] for name in ("cluster01", "cluster02")
    }
    found = compare_alone(itp.of_clusters(clusters, percentile=50))
    for pair in found.pairs:
        assert pair.without.jobs == pair.sharing.jobs == 6
        assert 0 < pair.without.utilisation <= 1


def test_virtual_clusters_in_strict_order_without_sharing_and_with_it(tmp_path: Path) -> None:
    names: list[str] = []

    def playing(made: Workload):  # type: ignore[no-untyped-def]
        names.extend(f"{share.queue} {share.sharing.strategy}" for share in made.config.shares)
        return play(made)

    found = compare_philly(philly_folder(tmp_path), playing=playing)
    assert set(names[:2]) == {"strict_fifo reserve"}
    assert set(names[2:]) == {"fifo_within_priority lend_and_borrow"}
    assert [pair.share for pair in found.pairs] == [ShareId("vc1"), ShareId("vc2")]
    assert of(found, "vc1").without.not_played == 1
    assert found.total.sharing.not_played == 2  # one of them of a share that has no size
