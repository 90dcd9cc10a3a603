"""Quota, nodes, books and their changes on the command line."""

from pathlib import Path
from typing import Any

import pytest

from tests.api.service_double import ServiceDouble
from tests.cli.conftest import Cli, answer, said

LISTS: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("quota",), ("gpu: 22 / 30, used 8", "memory: - / -")),
    (("quota", "--share", "cv", "--user", "bo"), ("cv:", "gpu: 30 / 30")),
    (("shares",), ("nlp", "cv", "open", "8 gpu, 512Gi memory", "64 gpu")),
    (("shares", "nlp"), ("nlp",)),
    (("limits", "nlp"), ("user: ana", "gpu: 30", "memory: 100Gi")),
    (("usage",), ("memory: 512Gi",)),
    (("loans",), ("nlp", "cv", "4 gpu", "lowest weight")),
    (("nodes",), ("n0", "8 H100 (declared), 96 cpu, 1Ti memory", "healthy")),
    (("nodes", "--pool", "train"), ("n1",)),
    (("admin", "groups", "list"), ("algo", "ana, bo")),
    (("pools",), ("train", "gpu: 16")),
    (("alerts",), ("NO_SPARE", "no equal spare")),
    (("health",), ("status: ok", "healthy: 2")),
    (("ledger", "rows"), ("no rows",)),
    (("check",), ("all sound",)),
    (("admin", "shares", "history", "nlp"), ("created", "weight: - → 3", "ana")),
    (("ledger", "verify"), ("1 rows", "all rows agree")),
    (("admin", "reservations", "list"), ("no reservations",)),
    (("admin", "overrides", "list"), ("no overrides",)),
]

CHANGES: list[tuple[tuple[str, ...], str, dict[str, Any]]] = [
    (("cordon", "n0", "--reason", "fan"), "cordon", {"node": "n0", "reason": "fan"}),
    (("uncordon", "n0"), "uncordon", {"node": "n0"}),
    (
        ("admin", "shares", "create", "new", "nominal={train: {gpu: 8}}", "weight=80"),
        "create_share",
        {"name": "new", "share": {"nominal": {"train": {"gpu": 8}}, "weight": 80}},
    ),
    (
        ("admin", "shares", "set", "nlp", "weight=3", "--if-version", "1"),
        "set_share",
        {"name": "nlp", "weight": 3, "base": 1},
    ),
    (("admin", "shares", "stop", "nlp"), "stop_share", {"name": "nlp"}),
    (("admin", "share", "stop", "nlp", "--base", "1"), "stop_share", {"name": "nlp", "base": 1}),
    (("admin", "share", "rollback", "nlp", "--version", "1"), "rollback", {"name": "nlp", "version": 1}),
    (("admin", "shares", "open", "nlp"), "open_share", {"name": "nlp"}),
    (
        ("admin", "limits", "set", "--share", "nlp", "enabled=true", "rules=[{user: ana, gpu: 30}]"),
        "set_limits",
        {"name": "nlp", "enabled": True, "rules": [{"user": "ana", "gpu": 30}]},
    ),
    (("admin", "limits", "set", "--pool", "train", "enabled=no"), "set_limits", {"pool": "train", "enabled": False}),
    (("admin", "groups", "set", "algo", "ana", "bo"), "set_group", {"group": "algo", "members": ["ana", "bo"]}),
    (
        ("admin", "reservations", "create", "ra", "gpu=32", "--pool", "train", "--share", "nlp", "--reason", "night"),
        "reserve",
        {"name": "ra", "owner": {"share": "nlp"}, "pool": "train", "amounts": {"gpu": "32"}, "reason": "night"},
    ),
    (
        ("admin", "overrides", "create", "gpu=2", "--user", "ana", "--until", "2030-01-01T00:00:00Z")
        + ("--reason", "demo", "--authority", "eva"),
        "override",
        {
            "user": "ana",
            "amounts": {"gpu": "2"},
            "until": "2030-01-01T00:00:00Z",
            "reason": "demo",
            "authority": "eva",
        },
    ),
    (("admin", "nodes", "remove", "n0"), "remove_node", {"node": "n0"}),
    (("admin", "nodes", "repool", "n0", "train"), "repool_node", {"node": "n0", "pool": "train"}),
    (("admin", "nodes", "repair", "n0", "--close"), "repair_task", {"node": "n0", "open": False}),
    (("admin", "pools", "report", "train", "gpu=4"), "report_reserved", {"pool": "train", "amounts": {"gpu": "4"}}),
    (("admin", "pools", "reconcile", "train"), "reconcile", {"pool": "train"}),
]


@pytest.mark.parametrize(("words", "shown"), LISTS)
def test_lists_are_read_by_people_and_programs(cli: Cli, words: tuple[str, ...], shown: tuple[str, ...]) -> None:
    ran = cli(*words)
    assert ran.exit_code == 0, ran.output
    for part in shown:
        assert part in ran.stdout
    assert isinstance(answer(cli(*words, "--json")), list | dict)


@pytest.mark.parametrize(("words", "action", "params"), CHANGES)
def test_an_admin_changes_the_books(
    cli: Cli, service: ServiceDouble, words: tuple[str, ...], action: str, params: dict[str, Any]
) -> None:
    ran = cli("--user", "root", *words)
    assert ran.exit_code == 0, ran.output
    assert service.calls == [(action, params, "root")]
    assert len(ran.stdout.splitlines()) == 1


@pytest.mark.parametrize(("words", "action", "params"), CHANGES)
def test_a_dry_run_shows_what_would_change(
    cli: Cli, service: ServiceDouble, words: tuple[str, ...], action: str, params: dict[str, Any]
) -> None:
    assert "would change" in cli("--user", "root", *words, "--dry-run").stdout
    assert "effects" in answer(cli("--user", "root", *words, "--dry-run", "--json"))
    assert service.version == 1


@pytest.mark.parametrize(("words", "action", "params"), CHANGES)
def test_anybody_else_is_refused(cli: Cli, words: tuple[str, ...], action: str, params: dict[str, Any]) -> None:
    assert f"{action} needs a cluster admin" in said(cli(*words), 1)
    assert answer(cli(*words, "--json"), 1)["error"]["status"] == 403


@pytest.mark.parametrize(
    "words",
    [
        ("shares", "set", "nlp"),
        ("shares", "set", "nlp", "weight"),
        ("shares", "set", "nlp", "nominal={"),
        ("shares", "set", "nlp", "--file", "none.yaml"),
        ("limits", "set", "enabled=true"),
        ("limits", "set", "enabled=true", "--share", "nlp", "--pool", "train"),
        ("reservations", "create", "ra", "--pool", "train", "--share", "nlp"),
        ("reservations", "create", "ra", "gpu=4", "--pool", "train"),
        ("reservations", "create", "ra", "gpu=4", "--share", "nlp"),
        ("overrides", "create", "gpu=4", "--until", "x", "--reason", "y"),
        ("shares",),
        (),
    ],
)
def test_words_that_are_not_understood_are_exit_status_2(cli: Cli, words: tuple[str, ...]) -> None:
    assert said(cli("--user", "root", "admin", *words), 2)


def test_what_was_made_is_listed_and_taken_back(cli: Cli, service: ServiceDouble) -> None:
    admin = ("--user", "root", "admin")
    cli(*admin, "reservations", "create", "ra", "gpu=4", "--pool", "train", "--share", "nlp")
    assert "ra" in cli("admin", "reservations", "list").stdout
    assert cli(*admin, "reservations", "release", "ra").stdout == "reservation ra is released\n"
    assert "not stopped" in said(cli(*admin, "shares", "delete", "nlp"), 1)
    cli(*admin, "shares", "stop", "nlp")
    assert cli(*admin, "shares", "delete", "nlp").stdout == "share nlp is deleted\n"
    assert [row["share"] for row in answer(cli("shares", "--json"))] == ["cv"]


def test_settings_come_from_a_file_and_words_win(cli: Cli, service: ServiceDouble, tmp_path: Path) -> None:
    (tmp_path / "share.yaml").write_text("weight: 3\nsharing: {strategy: lend}\n")
    ran = cli("--user", "root", "admin", "shares", "set", "nlp", "weight=4", "--file", str(tmp_path / "share.yaml"))
    assert ran.exit_code == 0, ran.output
    assert service.calls[-1][1] == {"name": "nlp", "weight": 4, "sharing": {"strategy": "lend"}}


def test_a_stale_edit_is_refused(cli: Cli) -> None:
    cli("--user", "root", "admin", "shares", "set", "nlp", "weight=4")
    late = cli("--user", "root", "admin", "shares", "set", "nlp", "weight=5", "--if-version", "1")
    assert "changed in version 2" in said(late, 1)


def test_the_ledger_shows_what_was_posted(cli: Cli) -> None:
    cli("--user", "root", "cordon", "n0")
    shown = cli("ledger", "rows", "--after", "1", "--limit", "5").stdout
    assert "cordon" in shown and '{"by": "root"}' in shown
    assert answer(cli("ledger", "rows", "--json"))[0]["version"] == 2
    assert "healthy, cordoned (cordoned by root)" in cli("nodes").stdout
