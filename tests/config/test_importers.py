"""Policies of TI-ONE and quota shares of AWS Batch become keys that can be loaded."""

import json
from pathlib import Path

import pytest

from raysched.config import ConfigError, parse_config, share_from_keys
from raysched.core.model import BorrowLimit, NodeSpec, PriorityRule
from raysched.importers import aws_quota_share, read_json, tione_policy

SPECS = {
    "ml.p5": NodeSpec(8, "H100", 192_000, 2 * 2**40, {"disks": 8}),
    "ml.g5": NodeSpec(1, "A10G", 8_000, 32 * 2**30),
}
POLICY: dict[str, object] = {
    "Version": "1.0",
    "ResourceRule": {
        "DefaultPriority": "P0",
        "DefaultQueue": 1,
        "Preempted": True,
        "PreemptedRule": {"TrainingTask": True, "ServiceGroup": False},
    },
    "TaskRules": [
        {"AttrRules": [{"ValueType": "Tag", "Key": "task", "Value": "speech"}], "ScheduleRule": {"Priority": "P1"}},
        {
            "AttrRules": [
                {"ValueType": "Tag", "Key": "task", "Value": "vision"},
                {"ValueType": "Tag", "Key": "size", "Value": "big"},
            ],
            "ScheduleRule": {"Priority": 2},
        },
    ],
}
QUOTA_SHARE: dict[str, object] = {
    "quotaShareName": "research",
    "jobQueue": "arn:aws:batch:us-east-1:1:job-queue/fleet",
    "capacityLimits": [{"maxCapacity": 4, "capacityUnit": "ml.p5"}, {"maxCapacity": 2, "capacityUnit": "ml.g5"}],
    "resourceSharingConfiguration": {"strategy": "LEND_AND_BORROW", "borrowLimit": 200},
    "preemptionConfiguration": {"inSharePreemption": "ENABLED"},
    "state": "ENABLED",
    "tags": {"team": "x"},
}


def faults(error: pytest.ExceptionInfo[ConfigError]) -> list[str]:
    return [str(problem) for problem in error.value.problems]


def test_a_policy_becomes_a_share() -> None:
    config = parse_config({"version": 1, "pools": {"p": {}}})
    share = share_from_keys("s", tione_policy(POLICY) | {"nominal": {"p": {"gpu": 8}}}, None, config)
    assert share.preset == "tione"
    assert share.priority_default == 0
    assert share.priority_rules == (
        PriorityRule({"task": "speech"}, 1),
        PriorityRule({"task": "vision", "size": "big"}, 2),
    )
    assert share.queue == "fifo_within_priority"
    assert (share.preemption.in_share, share.preemption.default) == (True, True)
    assert share.preemption.workloads == {"training": True, "service": False}


def test_a_policy_may_stand_on_a_pool() -> None:
    config = parse_config(
        {"version": 1, "pools": {"p": tione_policy(POLICY)}, "shares": {"s": {"nominal": {"p": {"gpu": 1}}}}}
    )
    assert (config.shares[0].preset, config.shares[0].priority_default) == ("tione", 0)


@pytest.mark.parametrize(("number", "policy"), [(0, "strict_fifo"), (1, "fifo_within_priority"), (2, "any_fit")])
def test_the_three_queues(number: int, policy: str) -> None:
    assert tione_policy({"Version": 1, "ResourceRule": {"DefaultQueue": number}})["queue"] == {"policy": policy}


def test_a_policy_that_says_nothing_leaves_all_to_the_preset() -> None:
    assert tione_policy({"Version": "1"}) == {"preset": "tione"}
    assert tione_policy({"Version": "1", "ResourceRule": {"Preempted": False}})["preemption"] == {"default": False}


def changed(path: list[str | int], value: object) -> object:
    """POLICY with one value replaced."""
    copy = json.loads(json.dumps(POLICY))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return copy


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (changed(["Extra"], 1), "policy.json: Extra: unknown key"),
        (
            changed(["ResourceRule", "Preemted"], True),
            "policy.json: ResourceRule.Preemted: unknown key (did you mean Preempted?)",
        ),
        (
            changed(["ResourceRule", "PreemptedRule", "Notebook"], True),
            "policy.json: ResourceRule.PreemptedRule.Notebook: unknown key",
        ),
        (
            changed(["TaskRules", 0, "ScheduleRule", "Queue"], 1),
            "policy.json: TaskRules[0].ScheduleRule.Queue: unknown key",
        ),
        (
            changed(["ResourceRule", "DefaultQueue"], 3),
            "policy.json: ResourceRule.DefaultQueue: must be 0, 1 or 2, got 3",
        ),
        (changed(["ResourceRule", "DefaultPriority"], "P12"), "policy.json: ResourceRule.DefaultPriority: must be P0"),
        (
            changed(["TaskRules", 0, "AttrRules", 0, "ValueType"], "User"),
            "policy.json: TaskRules[0].AttrRules[0].ValueType: must be 'Tag'",
        ),
        (
            changed(["TaskRules", 0, "AttrRules"], []),
            "policy.json: TaskRules[0].AttrRules: must have at least 1, has 0",
        ),
        (
            changed(["TaskRules", 1, "AttrRules", 1, "Key"], "task"),
            "policy.json: TaskRules[1].AttrRules[1].Value: the tag task cannot be both vision and big",
        ),
        (changed(["Version"], []), "policy.json: Version: must be text or a number, got a list"),
        ([], "policy.json: must be a mapping, got a list"),
        ({}, "policy.json: Version: is required"),
    ],
)
def test_policies_that_are_none(policy: object, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        tione_policy(policy, "policy.json")
    assert len(faults(error)) == 1
    assert faults(error)[0].startswith(reason)


def test_a_quota_share_becomes_a_share() -> None:
    keys = aws_quota_share(QUOTA_SHARE, SPECS)
    nodes = {
        name: {"gpu": spec.gpu, "gpu_model": spec.gpu_model, "cpu": 1, "attach": spec.attach}
        for name, spec in SPECS.items()
    }
    config = parse_config({"version": 1, "node_specs": nodes, "pools": {"fleet": {}}, "shares": keys})
    share = config.shares[0]
    assert (share.share, share.preset, share.stopped) == ("research", "aws", False)
    assert share.nominal == {
        "fleet": {
            "gpu": 34_000,
            "gpu:H100": 32_000,
            "gpu:A10G": 2_000,
            "cpu": 784_000,
            "memory": 8 * 2**40 + 64 * 2**30,
            "disks": 32,
        }
    }
    assert share.sharing.strategy == "lend_and_borrow"
    assert share.sharing.borrow_limit == BorrowLimit(percent=200)
    assert share.preemption.in_share is True


@pytest.mark.parametrize(
    ("given", "strategy", "limit"),
    [
        ({"strategy": "RESERVE"}, "reserve", -1),
        ({"strategy": "LEND", "borrowLimit": -1}, "lend", -1),
        ({"strategy": "LEND_AND_BORROW", "borrowLimit": 0}, "lend_and_borrow", "0%"),
    ],
)
def test_strategies(given: dict[str, object], strategy: str, limit: object) -> None:
    keys = aws_quota_share(QUOTA_SHARE | {"resourceSharingConfiguration": given}, SPECS)["research"]
    assert isinstance(keys, dict)
    assert keys["sharing"] == {"strategy": strategy, "borrow_limit": limit}


def test_a_disabled_share_is_stopped_and_a_named_pool_wins() -> None:
    keys = aws_quota_share(QUOTA_SHARE | {"state": "DISABLED"}, SPECS, pool="mine")["research"]
    assert isinstance(keys, dict)
    assert keys["state"] == "stopped"
    assert list(keys["nominal"]) == ["mine"]


LIMIT = {"maxCapacity": 1, "capacityUnit": "ml.p5"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"priority": 3}, "q.json: priority: unknown key"),
        ({"capacityLimits": []}, "q.json: capacityLimits: must have at least 1, has 0"),
        ({"capacityLimits": [LIMIT] * 6}, "q.json: capacityLimits: must have at most 5, has 6"),
        ({"capacityLimits": [LIMIT] * 2}, "q.json: capacityLimits[1].capacityUnit: duplicate limit for ml.p5"),
        (
            {"capacityLimits": [LIMIT | {"capacityUnit": "ml.p6"}]},
            "q.json: capacityLimits[0].capacityUnit: there is no node spec ml.p6 (did you mean ml.p5?)",
        ),
        (
            {"capacityLimits": [LIMIT | {"maxCapacity": 0}]},
            "q.json: capacityLimits[0].maxCapacity: must be at least 1, got 0",
        ),
        ({"capacityLimits": [LIMIT | {"weight": 1}]}, "q.json: capacityLimits[0].weight: unknown key"),
        (
            {"resourceSharingConfiguration": {"strategy": "GIVE"}},
            "q.json: resourceSharingConfiguration.strategy: must be 'RESERVE', 'LEND' or 'LEND_AND_BORROW'",
        ),
        (
            {"resourceSharingConfiguration": {"strategy": "LEND", "borrowLimit": -2}},
            "q.json: resourceSharingConfiguration.borrowLimit: must be at least -1, got -2",
        ),
        (
            {"preemptionConfiguration": {"inSharePreemption": True}},
            "q.json: preemptionConfiguration.inSharePreemption: must be 'ENABLED' or 'DISABLED'",
        ),
        ({"quotaShareName": "a b"}, "q.json: quotaShareName: must match"),
        ({"jobQueue": None}, "q.json: jobQueue: is required where no pool is named"),
    ],
)
def test_quota_shares_that_are_none(change: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        aws_quota_share(QUOTA_SHARE | change, SPECS, file="q.json")
    assert len(faults(error)) == 1
    assert faults(error)[0].startswith(reason)


def test_a_json_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps(POLICY, indent="\t"))
    assert read_json(file) == POLICY


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "p.json:1: is not valid JSON"),
        (b'{\n"a": }', "p.json:2: is not valid JSON"),
        (b'{"a": 1, "a": 2}', "p.json: a: duplicate key"),
        (b"\xff", "p.json: is not UTF-8 text (byte 0)"),
        (b"[" * 200_000, "p.json"),
        (b" " * 2_000_000, "p.json: is larger than 1048576 bytes"),
        (b"9" * 5_000, "p.json: "),
    ],
)
def test_json_files_that_are_none(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "p.json"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        read_json(file)
    assert str(error.value).replace(f"{tmp_path}/", "").startswith(reason)


def test_a_json_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_json(tmp_path / "p.json")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_json(tmp_path)
