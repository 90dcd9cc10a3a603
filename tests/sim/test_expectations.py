"""What an expectation compares, and that each can fail."""

from pathlib import Path

import pytest

from tests.sim.small import failed, ran, submit


def test_what_holds_is_kept_with_what_was_found(tmp_path: Path) -> None:
    result = ran(tmp_path, submit("j", 3), "{at: 1s, expect: {jobs: {j: {state: running, attempt: 1, nodes: [p-0]}}}}")
    assert result.ok
    assert [(o.at_ms, o.expected, o.found) for o in result.outcomes] == [
        (1_000, "running", "running"),
        (1_000, 1, 1),
        (1_000, ["p-0"], ["p-0"]),
    ]


@pytest.mark.parametrize(
    ("expect", "path", "found"),
    [
        ("jobs: {j: queued}", "jobs.j.state", "running"),
        ("jobs: {j: {reason: USER_LIMIT}}", "jobs.j.reason", None),
        ("jobs: {j: {contention: ENTITLEMENT_OVERBOOKED}}", "jobs.j.contention", "NORMAL"),
        ("jobs: {j: {priority: P1}}", "jobs.j.priority", "P5"),
        ("jobs: {k: running}", "jobs.k", "no such job"),
        ("usage: {shares: {s: {gpu: 2}}}", "usage.shares.s.gpu", "3"),
        ("usage: {shares: {s: {gpu: 3, cpu: 500m}}}", "usage.shares.s.cpu", "0"),
        ("usage: {shares: {x: {gpu: 0}}}", "usage.shares.x", "no such share"),
        ("usage: {users: {ana: {share: t, gpu: 1}}}", "usage.users.ana.gpu", "0"),
        ("usage: {users: {ana: {gpu: 1}}}", "usage.users.ana.gpu", "3"),
        ("nodes: {p-0: {health: suspect}}", "nodes.p-0.health", "healthy"),
        ("nodes: {p-9: {pool: p}}", "nodes.p-9", "no such node"),
        ("pools: {p: {nodes: 1}}", "pools.p.nodes", 2),
        ("pools: {p: {free: {gpu: 4}}}", "pools.p.free.gpu", "5"),
        ("pools: {p: {capacity: {memory: 1Gi}}}", "pools.p.capacity.memory", "128Gi"),
        ("admission: {j: {quota_used: 1}}", "admission.j.quota_used", "0"),
        ("admission: {j: {capacity_allocatable: null}}", "admission.j.capacity_allocatable", "8"),
        ("admission: {j: {kind: 'gpu:N', request_quantity: 1}}", "admission.j.request_quantity", "3"),
        ("admission: {j: {override_authority: me}}", "admission.j.override_authority", None),
        ("reservations: {r: {state: active}}", "reservations.r", "no such reservation"),
        ("shares: {s: {lent: {gpu: 1}}}", "shares.s.lent.gpu", "0"),
        ("quota: {ana: {share: s, kinds: {gpu: {limit: 8}}}}", "quota.ana.gpu.limit", None),
        ("alerts: [{alert: no_spare}]", "alerts[0]", []),
    ],
)
def test_an_expectation_that_does_not_hold_says_what_is_there(
    tmp_path: Path, expect: str, path: str, found: object
) -> None:
    result = ran(tmp_path, submit("j", 3), f"{{at: 1s, expect: {{{expect}}}}}")
    ((where, _, there),) = failed(result)
    assert (where, there) == (f"timeline[1].expect.{path}", found)


@pytest.mark.parametrize(
    ("loans", "holds"),
    [
        ("[{borrower: t, lender: s, gpu: 3}]", True),
        ("[{borrower: t, lender: s, pool: p, gpu: 3}]", True),
        ("[{borrower: t, lender: s, gpu: 1}, {borrower: t, lender: s, gpu: 2}]", True),
        ("[{borrower: t, lender: s, pool: q, gpu: 3}]", False),
        ("[{borrower: t, lender: s, gpu: 2}]", False),
        ("[{borrower: s, lender: t, gpu: 3}]", False),
        ("[{borrower: t, lender: s, gpu: 3}, {borrower: s, lender: t, gpu: 1}]", False),
        ("[]", False),
        ("[{borrower: t, lender: s, cpu: 0}]", True),
    ],
)
def test_loans_are_exactly_those_of_the_kinds_that_are_named(tmp_path: Path, loans: str, holds: bool) -> None:
    result = ran(tmp_path, submit("j", 3, share="t"), f"{{at: 1s, expect: {{loans: {loans}}}}}")
    assert result.ok is holds


def test_a_refused_submission_leaves_no_job_and_counts_as_rejected(tmp_path: Path) -> None:
    result = ran(
        tmp_path,
        submit("j", 5),
        "{at: 0s, expect_error: {contains: OVER_NODE_MAX}}",
        "{at: 1s, expect: {jobs: {j: {state: rejected, admission: REJECTED, reason: null}}}}",
        "{at: 1s, expect: {admission: {j: {refused: [OVER_NODE_MAX]}}}}",
        submit("j", 4, at="2s"),
        "{at: 3s, expect: {jobs: {j: {state: running, admission: ADMITTED}}}}",
    )
    assert failed(result) == []


def test_an_admission_in_gpus_is_of_the_gpu_rows_although_another_kind_binds(tmp_path: Path) -> None:
    result = ran(
        tmp_path,
        "{at: 0s, set_limits: {share: s, enabled: true, default: {gpu: 8, cpu: 2}}}",
        "{at: 0s, submit: {job: j, user: ana, share: s, bundles: [{gpu: 2, cpu: 2}], runtime: 1h}}",
        "{at: 1s, submit: {job: k, user: ana, share: s, bundles: [{gpu: 3, cpu: 1}], runtime: 1h}}",
        "{at: 2s, expect: {admission: {k: {scope: user ana in share s, request_quantity: 3, quota_remaining: 6}}}}",
        "{at: 2s, expect: {admission: {k: {kind: cpu, request_quantity: 1, quota_remaining: 0, quota_limit: 2}}}}",
    )
    assert failed(result) == []


def test_findings_need_only_be_among_those_found(tmp_path: Path) -> None:
    ask = "{at: 0s, diagnose: {user: ana, share: s, bundles: [{gpu: 5}], count: 2}}"
    holds = "{at: 0s, expect: {findings: [{kind: OVER_SHARE_MAX}]}}"
    wrong = "{at: 0s, expect: {findings: [{kind: OVER_NODE_MAX, rows: {gpu: {excess: 2}}}, {kind: NO_LENDER}]}}"
    none = "{at: 0s, expect: {findings: []}}"
    result = ran(tmp_path, ask, holds, wrong, none)
    kinds = ["OVER_NODE_MAX", "OVER_SHARE_MAX"]
    assert failed(result) == [
        ("timeline[2].expect.findings[0].rows.gpu.excess", "2", "1"),
        ("timeline[2].expect.findings[1]", "NO_LENDER", kinds),
        ("timeline[3].expect.findings", [], kinds),
    ]
