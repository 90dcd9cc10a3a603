"""Shares and limits changed by an administrator, and written back."""

from collections.abc import Callable

import pytest
from msgspec import structs

from raysched.config import (
    ClusterConfig,
    ConfigError,
    limits_from_keys,
    limits_to_keys,
    pool_with_limits,
    share_from_keys,
    share_to_keys,
    share_with_limits,
)
from raysched.core.model import LimitRule, Limits

Read = Callable[[str], ClusterConfig]

SHARES = """
nlp:
  preset: tione
  description: language team
  nominal: {train: {gpu: 16, cpu: 1.5, memory: 100Gi}, infer: {size: h100x2, count: 4}}
  weight: 80
  workspaces: [lab]
  sharing: {strategy: lend_and_borrow, borrow_limit: 50%, lend_limit: {train: {gpu: 8}}}
  preemption: {grace: 1500ms, workloads: {service: false}, max_preemptions: 3}
  priority: {default: P2, rules: [{tags: {kind: speech}, priority: P1}]}
  limits: {enabled: true, default: {gpu: 2},
           rules: [{user: ana, gpu: 4, cpu: 500m}, {group: algo, gpu: 6, mode: total}]}
cv: {nominal: {train: {gpu: 8}}, weight: 10, sharing: {borrow_limit: {gpu: 4}}}
cpu: {nominal: {infer: {cpu: 64}}, preset: baige, state: stopped}
"""


@pytest.fixture
def config(read_shares: Read) -> ClusterConfig:
    return read_shares(SHARES)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_what_was_read_can_be_written_and_read_again(config: ClusterConfig, number: int) -> None:
    share = config.shares[number]
    keys = share_to_keys(share)
    assert share_from_keys(share.share, keys, None, config) == share
    assert share_to_keys(share_from_keys(share.share, keys, None, config)) == keys
    assert limits_from_keys(limits_to_keys(share.limits), None) == share.limits


def test_all_keys_at_once_leave_nothing_of_the_base(config: ClusterConfig) -> None:
    nlp, cv, _ = config.shares
    base = structs.replace(cv, share=nlp.share)
    assert share_from_keys("nlp", share_to_keys(nlp), base, config) == nlp


def test_no_key_changes_nothing(config: ClusterConfig) -> None:
    assert share_from_keys("nlp", {}, config.shares[0], config) == config.shares[0]


def test_a_named_key_is_replaced_as_a_whole_and_the_others_stay(config: ClusterConfig) -> None:
    nlp = config.shares[0]
    changed = share_from_keys("nlp", {"preemption": {"grace": "1s"}, "nominal": {"train": {"gpu": 12}}}, nlp, config)
    assert changed.preemption.grace_ms == 1_000
    assert changed.preemption.workloads == {}
    assert changed.preemption.in_share is True  # of the preset
    assert changed.nominal == {"train": {"gpu": 12_000}}
    assert changed.instances == {}
    assert (changed.limits, changed.sharing, changed.priority_rules) == (nlp.limits, nlp.sharing, nlp.priority_rules)
    assert (changed.weight, changed.description, changed.workspaces) == (80, "language team", ("lab",))


def test_naming_a_priority_replaces_default_and_rules(config: ClusterConfig) -> None:
    changed = share_from_keys("nlp", {"priority": {"default": "P7"}}, config.shares[0], config)
    assert (changed.priority_default, changed.priority_rules) == (7, ())


def test_a_stopped_share_stays_stopped(config: ClusterConfig) -> None:
    assert share_from_keys("cpu", {"weight": 5}, config.shares[2], config).stopped
    assert not share_from_keys("cpu", {"state": "open"}, config.shares[2], config).stopped


def test_another_preset_sets_anew_what_presets_decide(config: ClusterConfig) -> None:
    nlp = config.shares[0]
    changed = share_from_keys("nlp", {"preset": "baige", "queue": {"policy": "any_fit"}}, nlp, config)
    assert (changed.preset, changed.queue, changed.reclaim.policy) == ("baige", "any_fit", "wait")
    assert (changed.limits.on_exceed, changed.limits.max_rules, changed.limits.rules) == (
        "confirm",
        None,
        nlp.limits.rules,
    )
    assert (changed.nominal, changed.workspaces, changed.weight) == (nlp.nominal, nlp.workspaces, nlp.weight)


def test_a_new_share_takes_the_settings_of_its_pool(read: Read) -> None:
    config = read("{version: 1, pools: {p: {preset: aws, queue: {policy: backfill}}}}")
    share = share_from_keys("new", {"nominal": {"p": {"gpu": 2}}}, None, config)
    assert (share.preset, share.queue, share.reclaim.policy) == ("aws", "backfill", "restore")


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({}, "share new: nominal: is required"),
        ({"nominal": {"train": {"gpu": 1}}, "weight": 80}, "share new: weight: 80 is already the weight of nlp"),
        ({"nominal": {"trian": {"gpu": 1}}}, "share new: nominal.trian: there is no such pool (did you mean train?)"),
        ({"nominal": {"infer": {"cpu": 1}}, "limits": {"enabled": True}}, "no accelerator"),
        ({"nominal": {}, "wieght": 3}, "share new: wieght: unknown key (did you mean weight?)"),
    ],
)
def test_a_new_share_is_refused(config: ClusterConfig, keys: dict[str, object], reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        share_from_keys("new", keys, None, config)
    assert reason in str(error.value)


def test_a_share_may_keep_its_own_weight(config: ClusterConfig) -> None:
    assert share_from_keys("nlp", {"weight": 80}, config.shares[0], config).weight == 80


def test_losing_all_gpus_with_limits_on_is_refused(config: ClusterConfig) -> None:
    with pytest.raises(ConfigError, match="no accelerator"):
        share_from_keys("nlp", {"nominal": {"infer": {"cpu": 8}}}, config.shares[0], config)


def test_limits_switched_off_keep_their_rules(config: ClusterConfig) -> None:
    nlp = config.shares[0]
    off = share_with_limits(nlp, {"enabled": False}, config)
    assert off.limits.rules == nlp.limits.rules
    assert share_with_limits(off, {"enabled": True}, config) == nlp


def test_named_limit_keys_replace_and_the_others_stay() -> None:
    base = Limits(enabled=True, resolve="largest_each", rules=(LimitRule(1_000, user="ana"),))
    changed = limits_from_keys({"rules": [{"user": "bo", "gpu": 0}], "default": {"gpu": 3}}, base)
    assert changed == Limits(True, "largest_each", "reject", LimitRule(3_000), (LimitRule(0, user="bo"),))
    assert limits_from_keys({"default": None}, changed).default is None


def test_limits_need_a_gpu(config: ClusterConfig, read: Read) -> None:
    with pytest.raises(ConfigError, match="no accelerator"):
        share_with_limits(config.shares[2], {"enabled": True, "rules": [{"user": "ana", "gpu": 1}]}, config)
    with pytest.raises(ConfigError, match="no accelerator"):
        cpus = read("{version: 1, pools: {p: {}}, shares: {a: {nominal: {p: {cpu: 4}}}}}")
        pool_with_limits(cpus.pools[0], {"enabled": True}, cpus)
    assert pool_with_limits(config.pools[0], {"enabled": True}, config).limits == Limits(enabled=True)


def test_the_same_rule_twice_is_a_duplicate() -> None:
    with pytest.raises(ConfigError) as error:
        limits_from_keys(
            {"rules": [{"user": "a", "gpu": 4, "memory": "1Ti"}, {"user": "a", "gpu": 4, "memory": "1024Gi"}]}, None
        )
    assert str(error.value) == "limits: rules[1]: duplicate of rules[0]"


def test_rules_that_differ_are_no_duplicates() -> None:
    rules = [
        {"user": "a", "gpu": 4},
        {"user": "a", "gpu": 5},
        {"group": "a", "gpu": 4},
        {"group": "a", "gpu": 4, "mode": "total"},
    ]
    assert len(limits_from_keys({"rules": rules}, None).rules) == 4


def test_there_are_at_most_fifty_rules_under_tione(config: ClusterConfig) -> None:
    rules = [{"user": f"u{n}", "gpu": 1} for n in range(51)]
    assert len(share_with_limits(config.shares[0], {"rules": rules[:50]}, config).limits.rules) == 50
    with pytest.raises(ConfigError, match="at most 50 rules, got 51"):
        share_with_limits(config.shares[0], {"rules": rules}, config)
    assert len(share_with_limits(config.shares[1], {"rules": rules}, config).limits.rules) == 51


def test_a_group_of_a_rule_must_exist(config: ClusterConfig) -> None:
    with pytest.raises(ConfigError, match=r"rules\[0\].group: there is no group algos \(did you mean algo\?\)"):
        share_with_limits(config.shares[0], {"rules": [{"group": "algos", "gpu": 1}]}, config)


def test_giving_up_a_pool_whose_lending_is_limited_is_refused(config: ClusterConfig) -> None:
    with pytest.raises(ConfigError, match=r"sharing.lend_limit.train: the share has no nominal in this pool"):
        share_from_keys("nlp", {"nominal": {"infer": {"gpu": 8}}}, config.shares[0], config)
