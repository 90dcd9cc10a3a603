"""`raysched apply`, `raysched import`, `admin share history` and `rollback`, over the real service."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.api.real_service import CONFIG
from tests.cli.conftest import answer, said
from tests.cli.real import Desk

TIONE: dict[str, Any] = {
    "Version": "1",
    "ResourceRule": {"DefaultPriority": 7, "DefaultQueue": 1, "Preempted": True},
    "TaskRules": [
        {"AttrRules": [{"ValueType": "Tag", "Key": "kind", "Value": "speech"}], "ScheduleRule": {"Priority": 2}}
    ],
}
AWS: dict[str, Any] = {
    "quotaShareName": "research",
    "jobQueue": "queues/train",
    "capacityLimits": [{"maxCapacity": 2, "capacityUnit": "h100x8"}],
    "resourceSharingConfiguration": {"strategy": "LEND_AND_BORROW", "borrowLimit": 50},
    "preemptionConfiguration": {"inSharePreemption": "ENABLED"},
    "state": "ENABLED",
}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def config(tmp_path: Path, *changes: tuple[str, str]) -> str:
    text = CONFIG
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "cluster.yaml").write_text(text)
    return str(tmp_path / "cluster.yaml")


def policy(tmp_path: Path, keys: dict[str, Any]) -> str:
    (tmp_path / "policy.json").write_text(json.dumps(keys))
    return str(tmp_path / "policy.json")


# ── apply ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_says_what_the_books_say_changes_nothing(desk: Desk, tmp_path: Path) -> None:
    assert desk.done("apply", config(tmp_path)) == "nothing differs from the file\n"


def test_a_dry_run_shows_what_would_change_and_what_comes_of_it(desk: Desk, tmp_path: Path) -> None:
    desk.done("submit", "--share", "cv", "--gpu", "8", "--name", "first", "--", "true")
    desk.done("submit", "--share", "cv", "--gpu", "4", "--name", "next", "--confirm", "--", "true")
    file = config(tmp_path, ("cv: {nominal: {train: {gpu: 8}}", "cv: {nominal: {train: {gpu: 12}}"))
    shown = desk.done("apply", file, "--dry-run")
    assert "share cv: nominal.train.gpu: 8 → 12" in shown and "starts: next" in shown and "over: -" in shown
    assert desk.service.simulation.service.shares("cv")[0]["owned"] == {"gpu": 8_000}


def test_every_difference_is_listed_and_made(desk: Desk, tmp_path: Path) -> None:
    file = config(tmp_path, ("[ana, bo]", "[ana]"), ("borrow_limit: 100%", "borrow_limit: 50%"))
    shown = desk.done("apply", file)
    assert "group algo: [ana, bo] → [ana]" in shown and "share nlp: sharing.borrow_limit: 100% → 50%" in shown
    assert "applied as version" in shown
    assert answer(desk("apply", file, "--json"))["differences"] == []


def test_one_refused_difference_leaves_everything_as_it_was(desk: Desk, tmp_path: Path) -> None:
    desk.done("submit", "--share", "cv", "--gpu", "8", "--name", "first", "--", "true")
    lines = [line for line in CONFIG.splitlines() if not line.startswith("  cv:")]
    file = tmp_path / "without.yaml"
    file.write_text("\n".join(lines).replace("[ana, bo]", "[ana]"))
    before = desk.service.version
    ran = desk("apply", str(file), "--prune")
    assert ran.exit_code == 1 and "share cv has 1 unfinished jobs" in ran.stderr
    assert "group algo: [ana, bo] → [ana]" in ran.stdout and "REFUSED: share cv has 1" in ran.stdout
    assert answer(desk("apply", str(file), "--prune", "--json"), 1)["error"]["code"] == "REFUSED"
    assert desk.service.version == before
    assert "REFUSED" in desk.done("apply", str(file), "--prune", "--dry-run")


def test_a_file_that_cannot_be_used_is_told_with_lines_before_anybody_is_asked(desk: Desk, tmp_path: Path) -> None:
    file = config(
        tmp_path, ("borrow_limit: 100%", "borow_limit: 100%"), ("gpu: 8}}, sharing: {strategy: lend}}", "gpu: x}}}")
    )
    ran = desk("apply", file)
    assert ran.exit_code == 2 and ran.stdout == ""
    assert (
        "cluster.yaml:12: shares.cv.nominal" in ran.stderr
        and "cluster.yaml:13: shares.nlp.sharing.borow_limit" in ran.stderr
    )
    problems = answer(desk("apply", file, "--json"), 2)["error"]["problems"]
    assert [problem["line"] for problem in problems] == [12, 13]
    assert desk("apply", str(tmp_path / "none.yaml")).exit_code == 2


def test_only_a_cluster_admin_applies(desk: Desk, tmp_path: Path) -> None:
    assert "may not apply" in said(desk("--user", "ana", "apply", config(tmp_path)), 1)


# ── history and rollback ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_history_of_a_share_and_the_way_back(desk: Desk) -> None:
    first = answer(desk("admin", "share", "history", "nlp", "--json"))[0]["version"]
    desk.done("admin", "shares", "set", "nlp", "weight=7", "description=language")
    shown = desk.done("admin", "share", "history", "nlp")
    assert "created" in shown and "weight: - → 7" in shown and "description: - → language" in shown
    preview = desk.done("admin", "share", "rollback", "nlp", "--version", str(first), "--dry-run")
    assert "share nlp: weight: 7 → -" in preview and "starts: -" in preview
    assert desk.done("admin", "share", "rollback", "nlp", "--version", str(first)).startswith("share nlp is as it was")
    assert answer(desk("shares", "nlp", "--json"))[0]["weight"] is None


def test_a_stale_rollback_is_refused(desk: Desk) -> None:
    desk.done("admin", "shares", "set", "nlp", "weight=7")
    late = desk("admin", "share", "rollback", "nlp", "--version", "5", "--base", "1")
    assert "was changed in version" in said(late, 1)


def test_a_dry_run_names_who_is_over(desk: Desk) -> None:
    desk.done("submit", "--share", "cv", "--gpu", "4", "--name", "first", "--", "true")
    shown = desk.done(
        "admin", "limits", "set", "--share", "cv", "enabled=true", "rules=[{user: root, gpu: 1}]", "--dry-run"
    )
    assert "share cv: limits.enabled: no → yes" in shown
    assert "over: user root in share cv: 3 gpu too many, with first" in shown


# ── import ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tione_policy_is_printed_as_keys(desk: Desk, tmp_path: Path) -> None:
    printed = yaml.safe_load(desk.done("import", "tione-policy", policy(tmp_path, TIONE), "--share", "nlp"))
    assert printed["nlp"]["preset"] == "tione" and printed["nlp"]["queue"] == {"policy": "fifo_within_priority"}
    assert printed["nlp"]["priority"]["rules"] == [{"tags": {"kind": "speech"}, "priority": "P2"}]


def test_a_tione_policy_is_applied(desk: Desk, tmp_path: Path) -> None:
    file = policy(tmp_path, TIONE)
    assert "share nlp: priority.default: P5 → P7" in desk.done(
        "import", "tione-policy", file, "--share", "nlp", "--dry-run"
    )
    desk.done("import", "tione-policy", file, "--share", "nlp", "--apply")
    desk.done("submit", "--share", "nlp", "--gpu", "1", "--tag", "kind=speech", "--name", "talk", "--", "true")
    desk.done("submit", "--share", "nlp", "--gpu", "1", "--name", "other", "--", "true")
    rows = {row["job"]: row["priority"] for row in answer(desk("ps", "--json"))}
    assert rows == {"talk": 2, "other": 7}
    share = desk.service.simulation.service.ledger.shares["nlp"]  # type: ignore[index]
    assert (share.preset, share.queue, share.reclaim.policy) == ("tione", "fifo_within_priority", "force")


def test_an_aws_quota_share_is_created_then_changed(desk: Desk, tmp_path: Path) -> None:
    printed = yaml.safe_load(desk.done("import", "aws-quota-share", policy(tmp_path, AWS)))
    assert printed["research"]["nominal"]["train"]["gpu"] == 16
    assert desk.done("import", "aws-quota-share", policy(tmp_path, AWS), "--apply") == "share research is there\n"
    smaller = {**AWS, "capacityLimits": [{"maxCapacity": 1, "capacityUnit": "h100x8"}], "state": "DISABLED"}
    assert desk.done("import", "aws-quota-share", policy(tmp_path, smaller), "--apply") == "share research is changed\n"
    (row,) = answer(desk("shares", "research", "--json"))
    assert (row["owned"]["gpu"], row["state"], row["preset"]) == (8_000, "stopped", "aws")


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6])
def test_one_to_five_capacity_limits(desk: Desk, tmp_path: Path, count: int) -> None:
    specs = "".join(f"  c{n}: {{cpu: {n + 1}}}\n" for n in range(6))
    file = config(tmp_path, ("node_specs:\n", f"node_specs:\n{specs}"))
    limits = [{"maxCapacity": 2, "capacityUnit": f"c{n}"} for n in range(count)]
    ran = desk("import", "aws-quota-share", policy(tmp_path, {**AWS, "capacityLimits": limits}), "--config", file)
    if 1 <= count <= 5:
        expected = 2 * sum(range(1, count + 1))
        assert yaml.safe_load(ran.stdout)["research"]["nominal"]["train"] == {"cpu": expected}
    else:
        assert ran.exit_code == 2 and "capacityLimits" in ran.stderr


@pytest.mark.parametrize(
    ("kind", "keys", "named"),
    [
        ("tione-policy", {**TIONE, "Versoin": "1"}, "Versoin: unknown key"),
        ("tione-policy", {**TIONE, "ResourceRule": {"DefaultQeue": 1}}, "ResourceRule.DefaultQeue"),
        ("aws-quota-share", {**AWS, "borrow": 1}, "borrow: unknown key"),
        ("aws-quota-share", {**AWS, "capacityLimits": [{"maxCapacity": 1, "capacityUnit": "x"}]}, "no node spec x"),
        ("aws-quota-share", {**AWS, "state": "ON"}, "state"),
    ],
)
def test_what_is_not_known_is_named(desk: Desk, tmp_path: Path, kind: str, keys: dict[str, Any], named: str) -> None:
    ran = desk(
        "import", kind, policy(tmp_path, keys), "--apply", *(["--share", "nlp"] if kind == "tione-policy" else [])
    )
    assert ran.exit_code == 2 and named in ran.stderr
    assert [row["share"] for row in answer(desk("shares", "--json"))] == ["cv", "nlp"]


def test_a_policy_needs_a_share_to_be_applied(desk: Desk, tmp_path: Path) -> None:
    assert "--share" in said(desk("import", "tione-policy", policy(tmp_path, TIONE), "--apply"), 2)
    assert desk("import", "tione-policy", str(tmp_path / "none.json")).exit_code == 2


# ── what a waiting job needs ──────────────────────────────────────────────────────────────────────────────────────


def test_the_calls_that_would_start_a_job_are_shown(desk: Desk) -> None:
    desk.done("admin", "limits", "set", "--share", "nlp", "enabled=true", "rules=[{user: root, gpu: 4}]")
    desk.done("submit", "--share", "nlp", "--gpu", "4", "--name", "one", "--", "true")
    desk.done("submit", "--share", "nlp", "--gpu", "2", "--name", "two", "--", "true")
    shown = desk.done("explain", "two")
    assert "starts now with: an override of 2 gpu for user root" in shown
    assert '    - override user=root amounts={"gpu":"2"} for=1d' in shown
    desk.done(
        "admin", "overrides", "create", "gpu=2", "--user", "root", "--for", "1d", "--reason", "x", "--authority", "cto"
    )
    assert answer(desk("show", "two", "--json"))["state"] == "claimed"


def test_a_waiting_job_is_let_into_other_pools_and_back(desk: Desk) -> None:
    desk.done("submit", "--share", "cv", "--gpu", "8", "--name", "one", "--", "true")
    desk.done("submit", "--share", "cv", "--gpu", "8", "--name", "two", "--", "true")
    assert desk.done("cross-pool", "two") == "two may run in other pools\n"
    assert answer(desk("show", "two", "--json"))["cross_pool"] is True
    assert desk.done("cross-pool", "two", "--off") == "two stays in its own pools\n"
    assert answer(desk("show", "two", "--json"))["cross_pool"] is False
