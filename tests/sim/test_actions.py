"""Actions: what fails without being expected fails the scenario, and every invariant is looked at after each."""

from pathlib import Path

import pytest

from raysched.core.units import GPU
from raysched.sim.scenario_reading import load_scenario
from raysched.sim.scenario_run import run_scenario
from raysched.sim.simulation import Simulation
from tests.sim.small import failed, ran, submit, written

ABSENT = [
    ("cancel: {job: x}", "UNKNOWN_JOB"),
    ("finish: {job: x}", "NOT_RUNNING"),
    ("resize: {job: x, bundles: [{gpu: 1}]}", "UNKNOWN_JOB"),
    ("set_priority: {job: x, priority: P1}", "UNKNOWN_JOB"),
    ("set_cross_pool: {job: x, value: true}", "UNKNOWN_JOB"),
    ("move: {job: x, share: s}", "UNKNOWN_JOB"),
    ("report_reserved: {pool: x, amounts: {gpu: 1}}", "UNKNOWN_POOL"),
    ("reconcile: {pool: x}", "UNKNOWN_POOL"),
    ("set_limits: {share: x, enabled: true}", "UNKNOWN_SHARE"),
    ("set_limits: {pool: x, enabled: true}", "UNKNOWN_POOL"),
    ("set_share: {share: x, weight: 1}", "UNKNOWN_SHARE"),
    ("stop_share: {share: x}", "UNKNOWN_SHARE"),
    ("open_share: {share: x}", "UNKNOWN_SHARE"),
    ("delete_share: {share: x}", "UNKNOWN_SHARE"),
    ("create_share: {share: s, nominal: {}}", "SHARE_EXISTS"),
    ("reserve: {name: r, owner: {share: x}, pool: p, amounts: {gpu: 1}}", "UNKNOWN_SHARE"),
    ("release: {reservation: x}", "UNKNOWN_RESERVATION"),
    ("override: {share: x, amounts: {gpu: 1}, until: 1h, reason: r}", "UNKNOWN_SHARE"),
    ("fail_node: {node: x}", "UNKNOWN_NODE"),
    ("recover_node: {node: x}", "UNKNOWN_NODE"),
    ("silence_node: {node: x}", "UNKNOWN_NODE"),
    ("repair_task: {node: x, open: true}", "UNKNOWN_NODE"),
    ("remove_node: {node: x}", "UNKNOWN_NODE"),
    ("cordon: {node: x}", "UNKNOWN_NODE"),
    ("uncordon: {node: x}", "UNKNOWN_NODE"),
    ("repool_node: {node: p-0, pool: x}", "UNKNOWN_POOL"),
    ("submit: {user: ana, share: x, bundles: [{gpu: 1}]}", "UNKNOWN_SHARE"),
]


@pytest.mark.parametrize(("action", "code"), ABSENT)
def test_an_action_on_what_is_not_there_fails_with_its_code(tmp_path: Path, action: str, code: str) -> None:
    ((path, expected, found),) = failed(ran(tmp_path, f"{{at: 0s, {action}}}"))
    assert path == f"timeline[0].{action.split(':')[0]}"
    assert expected == "no error"
    assert str(found).startswith(code)


def test_an_error_that_is_expected_is_no_failure(tmp_path: Path) -> None:
    assert ran(tmp_path, "{at: 0s, cancel: {job: x}}", "{at: 0s, expect_error: {contains: UNKNOWN_JOB}}").ok


def test_an_expected_error_that_does_not_come_fails(tmp_path: Path) -> None:
    result = ran(tmp_path, submit("j", 1), "{at: 0s, expect_error: {contains: UNKNOWN_JOB}}")
    assert failed(result) == [("timeline[1].expect_error.contains", "UNKNOWN_JOB", "no error")]


def test_another_error_than_the_expected_fails_and_is_shown(tmp_path: Path) -> None:
    result = ran(tmp_path, "{at: 0s, cancel: {job: x}}", "{at: 0s, expect_error: {contains: FORBIDDEN}}")
    assert failed(result)[0][2] == "UNKNOWN_JOB: job x does not exist"


def test_a_job_that_is_finished_badly_has_failed(tmp_path: Path) -> None:
    entries = (submit("j", 1), "{at: 5s, finish: {job: j, ok: false}}", "{at: 6s, expect: {jobs: {j: failed}}}")
    assert ran(tmp_path, *entries).ok


def test_a_job_goes_on_from_its_last_checkpoint_after_a_move_to_another_size(tmp_path: Path) -> None:
    def ends(more: str) -> int | None:
        result = ran(
            tmp_path,
            submit("j", 1, more=f"runtime: 10m, {more}"),
            "{at: 350s, resize: {job: j, bundles: [{gpu: 2}]}}",
            "{at: 2h, expect: {jobs: {j: succeeded}}}",
        )
        assert result.ok
        view = result.service.job("j")
        ran_ms = view["ended_ms"] - view["started_ms"]
        assert isinstance(ran_ms, int)
        return ran_ms // 1_000

    assert ends("checkpoint_every: 100s") == 300
    assert ends("cross_pool: false") == 600


def test_a_name_is_counted_where_none_is_given(tmp_path: Path) -> None:
    nameless = "{at: 0s, submit: {user: ana, share: s, bundles: [{gpu: 1}], runtime: 1m}}"
    assert ran(tmp_path, nameless, nameless, "{at: 2m, expect: {jobs: {ana-1: succeeded, ana-2: succeeded}}}").ok


def test_a_broken_invariant_fails_the_scenario_with_its_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = load_scenario(written(tmp_path, submit("j", 2), submit("k", 2, at="1s")))
    settle = Simulation.settle

    def cheat(sim: Simulation) -> None:
        settle(sim)
        for account in sim.service.ledger.quota.accounts.values():
            account.used[GPU] = 1_000

    monkeypatch.setattr(Simulation, "settle", cheat)
    found = failed(run_scenario(scenario))
    assert found and all(expected == "every invariant holds" or path == "invariant" for path, expected, _ in found)
    assert any("its claims sum to" in str(text) for _, _, text in found)


def test_a_year_passes_in_a_few_ticks(tmp_path: Path) -> None:
    result = ran(tmp_path, submit("j", 1, more="runtime: 364d"), "{at: 365d, expect: {jobs: {j: succeeded}}}")
    assert result.ok
    assert result.service.loop.ticks < 100
