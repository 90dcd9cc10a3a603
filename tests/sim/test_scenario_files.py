"""A file that is not valid: every problem at once, with line, path, reason and the nearest key."""

from pathlib import Path

import pytest

from raysched.config import ConfigError
from raysched.sim.scenario_reading import load_scenario
from tests.sim.small import HEAD, submit, written


def problems(tmp_path: Path, *entries: str, head: str = HEAD) -> list[tuple[int | None, str, str]]:
    """Line (of the timeline, from 1), path and reason of everything that is wrong."""
    with pytest.raises(ConfigError) as caught:
        load_scenario(written(tmp_path, *entries, head=head))
    lines = len(head.splitlines())
    return [(None if p.line is None else p.line - lines, p.path, p.reason) for p in caught.value.problems]


ONE_PROBLEM = [
    ("{at: 0s, submitt: {job: j}}", "submitt", "unknown key (did you mean submit?)"),
    ("{submit: {user: a, share: s, bundles: [{gpu: 1}]}}", "at", "is required"),
    ("{at: soon, expect: {}}", "at", "must be a time"),
    ("{at: 2025-12-31T23:59:59Z, expect: {}}", "at", "is before the start"),
    ("{at: 0s}", "", "has nothing but a time"),
    ("{at: 0s, cancel: {job: j}, expect: {}}", "", "has cancel and expect"),
    ("hello", "", "must be a mapping"),
    (
        "{at: 0s, submit: {user: a, share: s, bundels: [{gpu: 1}], bundles: [{gpu: 1}]}}",
        "submit.bundels",
        "did you mean bundles",
    ),
    ("{at: 0s, submit: {share: s, bundles: [{gpu: 1}]}}", "submit.user", "is required"),
    (
        "{at: 0s, submit: {user: a, share: s, bundles: [{gpu: 1.5}]}}",
        "submit.bundles[0].gpu",
        "must be a whole number or below 1",
    ),
    ("{at: 0s, submit: {user: a, share: s, bundles: [{gpus: 1}]}}", "submit.bundles[0].gpus", "did you mean gpu"),
    (
        "{at: 0s, submit: {user: a, share: s, bundles: [{gpu: 1}], runtime: long}}",
        "submit.runtime",
        "is not a duration",
    ),
    (
        "{at: 0s, submit: {user: a, share: s, bundles: [{gpu: 1}], workload: trainin}}",
        "submit.workload",
        "did you mean training",
    ),
    ("{at: 0s, submit: }", "submit", "must be a mapping"),
    ("{at: 0s, set_limits: {share: s, rule: []}}", "set_limits.rule", "did you mean rules"),
    ("{at: 0s, set_share: {share: s, sharing: {strateg: lend}}}", "set_share.sharing.strateg", "did you mean strategy"),
    ("{at: 0s, set_share: {weight: 3}}", "set_share.share", "is required"),
    (
        "{at: 0s, reserve: {name: r, owner: {}, pool: p, amounts: {gpu: 1}}}",
        "reserve.owner",
        "either a share or a user",
    ),
    ("{at: 0s, override: {share: s, amounts: {gpu: 1}, until: 1h}}", "override.reason", "is required"),
    ("{at: 0s, add_nodes: {pool: x, spec: n4}}", "add_nodes.pool", "there is no pool x"),
    ("{at: 0s, add_nodes: {pool: p, spec: n5}}", "add_nodes.spec", "there is no node spec n5 (known: n4)"),
    ("{at: 0s, add_nodes: {pool: q, spec: n4, count: 500000}}", "add_nodes.count", "more than 200000"),
    ("{at: 0s, crash_at: {step: polling}}", "crash_at.step", "did you mean polled"),
    ("{at: 0s, restart_quota: {now: true}}", "restart_quota.now", "unknown key"),
    ("{at: 0s, expect_error: {contains: x}}", "expect_error", "there is no action just before it"),
    ("{at: 0s, expect: {job: {j: running}}}", "expect.job", "did you mean jobs"),
    ("{at: 0s, expect: {jobs: {j: runing}}}", "expect.jobs.j.state", "did you mean running"),
    ("{at: 0s, expect: {jobs: {j: {reason: USER_LIMT}}}}", "expect.jobs.j.reason", "did you mean USER_LIMIT"),
    ("{at: 0s, expect: {jobs: {j: {admision: QUEUED}}}}", "expect.jobs.j.admision", "did you mean admission"),
    ("{at: 0s, expect: {loans: [{lender: s, gpu: 1}]}}", "expect.loans[0].borrower", "is required"),
    ("{at: 0s, expect: {loans: [{lender: s, borrower: t, gpus: 1}]}}", "expect.loans[0].gpus", "did you mean gpu"),
    ("{at: 0s, expect: {usage: {shares: {s: {gpu: -1}}}}}", "expect.usage.shares.s.gpu", "is not a quantity"),
    (
        "{at: 0s, expect: {usage: {users: {ana: {shares: s, gpu: 1}}}}}",
        "expect.usage.users.ana.shares",
        "did you mean share",
    ),
    ("{at: 0s, expect: {admission: {j: {quota_limit: many}}}}", "expect.admission.j.quota_limit", "is not a quantity"),
    ("{at: 0s, expect: {nodes: {n: {health: ill}}}}", "expect.nodes.n.health", "must be"),
    ("{at: 0s, expect: {findings: []}}", "expect.findings", "there is no diagnose before it"),
]


@pytest.mark.parametrize(("entry", "path", "reason"), ONE_PROBLEM)
def test_a_problem_is_told_with_line_path_and_reason(tmp_path: Path, entry: str, path: str, reason: str) -> None:
    ((line, where, why),) = problems(tmp_path, entry)
    assert (line, where) == (1, f"timeline[0].{path}".removesuffix("."))
    assert reason in why


def test_everything_that_is_wrong_is_told_at_once_and_in_order(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        submit("j", "1x"),
        "{at: 5s, expect: {jobs: {j: waiting}}}",
        "{at: 4s, cancel: {jobs: j}}",
    )
    assert [(line, path) for line, path, _ in found] == [
        (1, "timeline[0].submit.bundles[0].gpu"),
        (2, "timeline[1].expect.jobs.j.state"),
        (3, "timeline[2].at"),
        (3, "timeline[2].cancel.job"),
        (3, "timeline[2].cancel.jobs"),
    ]


def test_problems_of_the_inline_configuration_have_their_lines(tmp_path: Path) -> None:
    head = HEAD.replace("strategy: lend}}", "strategy: lent}}")
    ((line, path, reason),) = problems(tmp_path, "{at: 0s, expect: {}}", head=head)
    assert (line, path) == (7 - len(HEAD.splitlines()), "config.shares.s.sharing.strategy")
    assert "did you mean lend" in reason


def test_a_value_the_action_refuses_is_the_actions_error_where_the_next_entry_expects_it(tmp_path: Path) -> None:
    refused = "{at: 0s, submit: {user: a, share: s, bundles: [{gpu: 1.5}], priority: P12}}"
    scenario = load_scenario(written(tmp_path, refused, "{at: 0s, expect_error: {contains: whole number}}"))
    assert scenario.steps[0].wrong is not None
    assert "bundles[0].gpu: must be a whole number or below 1" in scenario.steps[0].wrong
    assert "priority: must be P0" in scenario.steps[0].wrong


def test_an_unknown_key_is_wrong_whatever_the_next_entry_expects(tmp_path: Path) -> None:
    entry = "{at: 0s, submit: {user: a, share: s, bundles: [{gpu: 1}], prio: P1}}"
    ((_, path, _),) = problems(tmp_path, entry, "{at: 0s, expect_error: {contains: x}}")
    assert path == "timeline[0].submit.prio"


def test_nodes_of_one_prefix_are_numbered_on_and_no_name_is_given_twice(tmp_path: Path) -> None:
    more = "{at: 0s, add_nodes: {pool: p, spec: n4, count: 2}}"
    scenario = load_scenario(written(tmp_path, more, "{at: 1s, add_nodes: {pool: q, spec: n4, prefix: p-}}"))
    assert scenario.nodes[0].names == ("p-0", "p-1")
    assert [step.parsed.names for step in scenario.steps] == [("p-2", "p-3"), ("p-4",)]
    clash = [
        "{at: 0s, add_nodes: {pool: p, spec: n4, count: 11, prefix: x}}",
        "{at: 1s, add_nodes: {pool: p, spec: n4, prefix: x1}}",
    ]
    ((_, path, reason),) = problems(tmp_path, *clash)
    assert (path, reason) == ("timeline[1].add_nodes.prefix", "node x10 exists already, in pool p")


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("scenario: small\n", "", "scenario"),
        ("nodes: [", "node: [", "node"),
        ("timeline:\n", "timelime:\n", "timeline"),
        ("nodes: [", "start: yesterday\nnodes: [", "start"),
        ("nodes: [", "start: 2026-01-01T00:00:00\nnodes: [", "start"),
        ("nodes: [", "config_file: other.yaml\nnodes: [", "config"),
        ("spec: n4, count: 2", "spec: n4, count: 0", "nodes[0].count"),
    ],
)
def test_the_top_of_the_file_is_checked(tmp_path: Path, old: str, new: str, path: str) -> None:
    assert old in HEAD
    found = problems(tmp_path, "{at: 0s, expect: {}}", head=HEAD.replace(old, new))
    assert path in [where for _, where, _ in found]


def test_a_configuration_may_lie_in_a_file_beside_the_scenario(tmp_path: Path) -> None:
    config = "version: 1\npools: {p: {match: {pool: p}}}\nshares: {s: {nominal: {p: {gpu: 4}}}}\n"
    (tmp_path / "cluster.yaml").write_text(config)
    file = tmp_path / "s.yaml"
    file.write_text("scenario: s\nconfig_file: cluster.yaml\ntimeline: []\n")
    assert load_scenario(file).config.shares[0].share == "s"
    (tmp_path / "cluster.yaml").write_text(config.replace("nominal", "nominl"))
    with pytest.raises(ConfigError) as caught:
        load_scenario(file)
    assert {Path(problem.file).name for problem in caught.value.problems} == {"cluster.yaml"}
    (tmp_path / "cluster.yaml").unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        load_scenario(file)


def test_times_may_be_offsets_seconds_or_dates(tmp_path: Path) -> None:
    entries = [
        "{at: 0, expect: {}}",
        "{at: 1.5, expect: {}}",
        "{at: 1m, expect: {}}",
        "{at: 2026-01-01T01:00:00+00:30, expect: {}}",
    ]
    scenario = load_scenario(written(tmp_path, *entries))
    assert [step.at_ms - scenario.start_ms for step in scenario.steps] == [0, 1_500, 60_000, 1_800_000]
