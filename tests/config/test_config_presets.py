"""The presets, cell by cell, and which setting wins."""

from collections.abc import Callable

import pytest

from raysched.config import ClusterConfig
from raysched.core.model import BorrowLimit, Share

Read = Callable[[str], ClusterConfig]

PRESET_NAMES = ("none", "baige", "xirang", "tione", "aws")
# One row per setting, one cell per preset, in the order above.
TABLE: list[tuple[str, Callable[[Share], object], list[object]]] = [
    ("resolve", lambda s: s.limits.resolve, ["smallest_gpu"] * 3 + ["largest_each", "smallest_gpu"]),
    ("on_exceed", lambda s: s.limits.on_exceed, ["reject", "confirm", "reject", "reject", "reject"]),
    ("max_rules", lambda s: s.limits.max_rules, [None, None, None, 50, None]),
    ("enabled", lambda s: s.limits.enabled, [False] * 5),
    ("queue", lambda s: s.queue, ["fifo_within_priority"] + ["strict_fifo"] * 4),
    ("strategy", lambda s: s.sharing.strategy, ["reserve", "reserve", "lend", "reserve", "reserve"]),
    ("borrow_limit", lambda s: s.sharing.borrow_limit, [BorrowLimit()] * 5),
    ("lend_workloads", lambda s: s.sharing.lend_workloads, [None, None, None, ("training", "service"), None]),
    ("in_share", lambda s: s.preemption.in_share, [False, False, False, True, False]),
    ("may be preempted", lambda s: s.preemption.default, [True, False, False, True, True]),
    ("per workload", lambda s: s.preemption.workloads, [{}] * 5),
    ("preemption grace", lambda s: s.preemption.grace_ms, [30_000] * 5),
    ("reclaim", lambda s: s.reclaim.policy, ["restore", "wait", "wait", "force", "restore"]),
    ("reclaim grace", lambda s: s.reclaim.grace_ms, [30_000] * 5),
    ("resize", lambda s: s.resize, ["any_time", "any_time", "when_stopped", "any_time", "any_time"]),
    ("overbook", lambda s: s.overbook, [True, True, False, True, True]),
    ("shrink_floor", lambda s: s.shrink_floor, ["none", "none", "smaller", "none", "none"]),
    ("workspaces", lambda s: s.workspaces, [("*",), ("*",), (), ("*",), ("*",)]),
]
CELLS = [(row, preset, cell) for row in TABLE for preset, cell in zip(PRESET_NAMES, row[2], strict=True)]


@pytest.mark.parametrize(("row", "preset", "cell"), CELLS, ids=[f"{preset}-{row[0]}" for row, preset, _ in CELLS])
def test_a_cell_of_the_table(
    read_shares: Read, row: tuple[str, Callable[[Share], object], object], preset: str, cell: object
) -> None:
    share = read_shares(f"a: {{preset: {preset}, nominal: {{train: {{gpu: 8}}}}}}").shares[0]
    assert row[1](share) == cell
    assert share.preset == preset


def layered(read: Read, share: str = "", pool: str = "", default: str = "none") -> Share:
    """A share with nominal in one pool, with keys in either."""
    return read(f"""
    version: 1
    defaults: {{preset: {default}}}
    pools: {{p: {{{pool}}}}}
    shares: {{a: {{nominal: {{p: {{gpu: 8}}}}, {share}}}}}
    """).shares[0]


def test_the_defaults_come_last(read: Read) -> None:
    assert layered(read, default="baige").reclaim.policy == "wait"


def test_the_preset_of_a_pool_wins_over_the_defaults(read: Read) -> None:
    share = layered(read, pool="preset: tione", default="baige")
    assert (share.preset, share.reclaim.policy) == ("tione", "force")


def test_the_preset_of_a_share_wins_over_that_of_its_pool(read: Read) -> None:
    share = layered(read, share="preset: none", pool="preset: tione", default="baige")
    assert (share.preset, share.reclaim.policy, share.queue) == ("none", "restore", "fifo_within_priority")


def test_a_key_of_a_pool_wins_over_the_preset_of_a_share(read: Read) -> None:
    assert layered(read, share="preset: tione", pool="reclaim: {policy: unified}").reclaim.policy == "unified"


def test_a_key_of_a_share_wins_over_that_of_its_pool(read: Read) -> None:
    share = layered(read, share="reclaim: {policy: wait}", pool="reclaim: {policy: unified, grace: 5s}")
    assert (share.reclaim.policy, share.reclaim.grace_ms) == ("wait", 5_000)


def test_of_several_pools_the_first_that_gives_a_setting_counts(read: Read) -> None:
    share = read("""
    version: 1
    pools:
      first: {match: {p: a}}
      second: {match: {p: b}, queue: {policy: backfill}, preemption: false}
      third: {match: {p: c}, queue: {policy: any_fit}, resize: when_stopped}
      foreign: {match: {p: d}, shrink_floor: larger}
    shares: {a: {nominal: {third: {gpu: 1}, second: {gpu: 1}, first: {gpu: 1}}}}
    """).shares[0]
    assert share.queue == "backfill"
    assert share.preemption.default is False
    assert share.resize == "when_stopped"
    assert share.shrink_floor == "none"


def test_a_pool_keeps_its_limits_to_itself(read: Read) -> None:
    config = read("""
    version: 1
    pools: {p: {preset: tione, limits: {enabled: true, default: {gpu: 1}}}}
    shares: {a: {nominal: {p: {gpu: 8}}}}
    """)
    assert config.shares[0].limits.default is None
    assert config.shares[0].limits.enabled is False
    limits = config.pools[0].limits
    assert limits is not None
    assert (limits.resolve, limits.max_rules) == ("largest_each", 50)


def test_one_key_of_a_section_keeps_the_other_keys_of_the_preset(read: Read) -> None:
    share = layered(
        read,
        default="tione",
        share="""preemption: {grace: 1s}, reclaim: {grace: 2s}, sharing: {strategy: lend_and_borrow},
                 limits: {on_exceed: confirm}""",
    )
    assert (share.preemption.in_share, share.preemption.grace_ms) == (True, 1_000)
    assert (share.reclaim.policy, share.reclaim.grace_ms) == ("force", 2_000)
    assert (share.sharing.strategy, share.sharing.lend_workloads) == ("lend_and_borrow", ("training", "service"))
    assert (share.limits.resolve, share.limits.on_exceed, share.limits.max_rules) == ("largest_each", "confirm", 50)


def test_a_switch_for_preemption_keeps_the_rest_of_the_preset(read: Read) -> None:
    share = layered(read, default="tione", share="preemption: false")
    assert (share.preemption.in_share, share.preemption.default) == (True, False)


def test_a_given_default_value_is_given(read: Read) -> None:
    # `restore` and `any_time` are also what the models start from; written down they must win over the preset.
    share = layered(read, default="xirang", share="reclaim: {policy: restore}, resize: any_time, overbook: true")
    assert (share.reclaim.policy, share.resize, share.overbook) == ("restore", "any_time", True)
