"""Every documented key of the configuration file, and what it becomes."""

from collections.abc import Callable

from raysched.config import ClusterConfig, entries
from raysched.core.entries import GroupSet, PoolSet, SettingsSet, ShareSet
from raysched.core.model import (
    BorrowLimit,
    Instances,
    LimitRule,
    Limits,
    NodeSpec,
    Preemption,
    PriorityRule,
    Reclaim,
    Settings,
    Sharing,
)

Read = Callable[[str], ClusterConfig]
GI, TI = 2**30, 2**40

WHOLE = """
version: 1
cluster: hz-7
authorities: [head-of-compute, Head of Research]
admins: [root]
defaults:
  preset: none
  evidence_max_age: 31s
  failed_after: 61s
  healthy_after: 32s
  silent_after: 12s
  validate_for: 5m
  fence_after: 40s
  reservation_horizon: 2d
  max_creating: 100
  swaps_in_flight: 3
node_specs:
  h100x8: {gpu: 8, gpu_model: H100, cpu: 96, memory: 1Ti, attach: {disks: 16, fs_mounts: 4}}
  cpu64:  {cpu: 64, memory: 256Gi}
pools:
  train:  {region: hz, match: {pool: train}, placement: {gpu: pack, cpu: spread}, preemption: true}
  infer:  {region: hz, match: {pool: infer}, limits: {enabled: true, default: {gpu: 4}}}
  spares: {region: hz, match: {pool: spares}, role: standby}
groups:
  algo: [ana, bo]
cohorts:
  main: {}
  apart: {}
shares:
  nlp:
    description: language team
    cohort: main
    nominal: {train: {gpu: 64, cpu: 768, memory: 8Ti}}
    workloads: [notebook, training]
    workspaces: [research]
    admins: [ana]
    weight: 80
    sharing: {strategy: lend_and_borrow, borrow_limit: 100%, lend_limit: {train: {gpu: 32}}, lend_workloads: [training]}
    queue: {policy: backfill}
    priority: {default: P0, rules: [{tags: {kind: speech}, priority: P1}, {tags: {kind: eval, size: big}, priority: 7}]}
    preemption: {in_share: true, workloads: {training: true, service: false}, grace: 45s, max_preemptions: 3}
    reclaim: {policy: force, grace: 15s}
    resize: when_stopped
    overbook: false
    shrink_floor: larger
    state: stopped
    limits:
      enabled: true
      resolve: largest_each
      on_exceed: confirm
      max_rules: 9
      default: {gpu: 8, cpu: 96, memory: 1Ti}
      rules:
        - {user: ana, gpu: 30, cpu: 60, memory: 100Gi}
        - {group: algo, gpu: 40}
        - {group: algo, gpu: 60, mode: total}
  cv:
    cohort: apart
    nominal: {infer: {size: h100x2, count: 3}}
"""


def test_settings_are_in_milliseconds(read: Read) -> None:
    config = read(WHOLE)
    assert config.settings == Settings(
        cluster="hz-7",
        evidence_max_age_ms=31_000,
        silent_after_ms=12_000,
        failed_after_ms=61_000,
        healthy_after_ms=32_000,
        validate_for_ms=300_000,
        fence_wait_ms=55_000,
        reservation_horizon_ms=2 * 86_400_000,
        max_creating=100,
        swaps_in_flight=3,
        authorities=("head-of-compute", "Head of Research"),
        admins=("root",),
    )
    assert config.fence_after_ms == 40_000


def test_what_is_left_out_keeps_its_default(read: Read) -> None:
    config = read("{version: 1, pools: {p: {}}, shares: {s: {nominal: {}}}}")
    assert config.settings == Settings()
    assert config.fence_after_ms == 45_000
    assert config.shares[0].nominal == {}
    assert config.shares[0].workspaces == ("*",)
    assert config.pools[0].match == {}


def test_the_wait_for_a_fence_can_be_given_itself(read: Read) -> None:
    config = read("{version: 1, defaults: {fence_after: 3s, fence_wait: 6s}, pools: {p: {}}}")
    assert (config.fence_after_ms, config.settings.fence_wait_ms) == (3_000, 6_000)


def test_node_specs(read: Read) -> None:
    specs = read(WHOLE).node_specs
    assert specs["h100x8"] == NodeSpec(8, "H100", 96_000, TI, {"disks": 16, "fs_mounts": 4})
    assert specs["cpu64"] == NodeSpec(cpu_milli=64_000, memory_bytes=256 * GI)


def test_pools_keep_their_order(read: Read) -> None:
    train, infer, spares = read(WHOLE).pools
    assert [train.index, infer.index, spares.index] == [0, 1, 2]
    assert (train.pool, train.region, train.match, train.role) == ("train", "hz", {"pool": "train"}, "normal")
    assert spares.role == "standby"
    assert train.limits is None
    assert infer.limits == Limits(enabled=True, default=LimitRule(4_000))


def test_a_share_with_every_key(read: Read) -> None:
    nlp = read(WHOLE).shares[0]
    assert (nlp.share, nlp.description, nlp.cohort) == ("nlp", "language team", "main")
    assert nlp.nominal == {"train": {"gpu": 64_000, "cpu": 768_000, "memory": 8 * TI}}
    assert (nlp.workloads, nlp.workspaces, nlp.admins) == (("notebook", "training"), ("research",), ("ana",))
    assert nlp.weight == 80
    assert nlp.sharing == Sharing(
        "lend_and_borrow", BorrowLimit(percent=100), {"train": {"gpu": 32_000}}, ("training",)
    )
    assert nlp.queue == "backfill"
    assert nlp.priority_default == 0
    assert nlp.priority_rules == (PriorityRule({"kind": "speech"}, 1), PriorityRule({"kind": "eval", "size": "big"}, 7))
    assert nlp.preemption == Preemption(True, True, {"training": True, "service": False}, 45_000, 3)
    assert nlp.reclaim == Reclaim("force", 15_000)
    assert (nlp.resize, nlp.overbook, nlp.shrink_floor, nlp.stopped) == ("when_stopped", False, "larger", True)


def test_limits_with_every_key(read: Read) -> None:
    limits = read(WHOLE).shares[0].limits
    assert (limits.enabled, limits.resolve, limits.on_exceed, limits.max_rules) == (True, "largest_each", "confirm", 9)
    assert limits.default == LimitRule(8_000, cpu=96_000, memory=TI)
    assert limits.rules == (
        LimitRule(30_000, user="ana", cpu=60_000, memory=100 * GI),
        LimitRule(40_000, group="algo"),
        LimitRule(60_000, group="algo", mode="total"),
    )


def test_an_instance_brings_its_part_of_the_node(read: Read) -> None:
    cv = read(WHOLE).shares[1]
    assert cv.instances["infer"] == Instances("h100x2", 2, 3, {"gpu": 2_000, "cpu": 24_000, "memory": 256 * GI})
    assert cv.nominal == {"infer": {"gpu": 6_000, "cpu": 72_000, "memory": 768 * GI}}


def test_a_size_names_a_spec_or_a_model(read: Read) -> None:
    text = """
    version: 1
    node_specs:
      big: {gpu: 8, gpu_model: H800, cpu: 64, memory: 1Ti}
      h20x8: {gpu: 8, cpu: 32, memory: 512Gi}
    pools: {p: {}}
    shares:
      by-model: {nominal: {p: {size: h800x4, count: 1}}}
      by-spec: {nominal: {p: {size: bigx1, count: 1}}}
      by-prefix: {nominal: {p: {size: h20x8, count: 2}}}
      whole-name: {nominal: {p: {size: h20x8x2, count: 1}}}
    """
    cpus = {share.share: share.nominal["p"]["cpu"] for share in read(text).shares}
    assert cpus == {"by-model": 32_000, "by-spec": 8_000, "by-prefix": 64_000, "whole-name": 8_000}


def test_gpu_not_listed_is_the_sum_of_the_models_listed(read: Read) -> None:
    text = """
    version: 1
    node_specs: {a: {gpu: 8, gpu_model: A, cpu: 8}, b: {gpu: 8, gpu_model: B, cpu: 8}}
    pools: {p: {}}
    shares:
      both: {nominal: {p: {"gpu:A": 8, "gpu:B": 4}}}
      fewer: {nominal: {p: {gpu: 10, "gpu:A": 8, "gpu:B": 4}}}
      none: {nominal: {p: {cpu: 8}}}
    """
    gpus = {share.share: share.nominal["p"]["gpu"] for share in read(text).shares}
    assert gpus == {"both": 12_000, "fewer": 10_000, "none": 0}


def test_borrow_limits(read_shares: Read) -> None:
    config = read_shares("""
        percent: {nominal: {train: {gpu: 8}}, sharing: {borrow_limit: 50%}}
        amount: {nominal: {train: {gpu: 8}}, sharing: {borrow_limit: {gpu: 4, cpu: 500m}}}
        unlimited: {nominal: {train: {gpu: 8}}, sharing: {borrow_limit: -1}}
    """)
    limits = [share.sharing.borrow_limit for share in config.shares]
    assert limits == [BorrowLimit(percent=50), BorrowLimit(amounts={"gpu": 4_000, "cpu": 500}), BorrowLimit()]


def test_an_attachable_of_a_node_spec_can_be_owned(read_shares: Read) -> None:
    assert read_shares("a: {nominal: {train: {disks: 3}}}").shares[0].nominal == {"train": {"gpu": 0, "disks": 3}}


def test_the_books_are_filled_in_file_order(read: Read) -> None:
    lines = entries(read(WHOLE), at_ms=7, by="root")
    kinds = [type(line) for line in lines]
    assert kinds == [SettingsSet, PoolSet, PoolSet, PoolSet, GroupSet, ShareSet, ShareSet]
    assert all(line.at_ms == 7 for line in lines)
    names = [line.share.share for line in lines if isinstance(line, ShareSet)]
    assert names == ["nlp", "cv"]


def test_anchors_and_merge_keys_work(read_shares: Read) -> None:
    config = read_shares("""
        a: &team
          nominal: {train: {gpu: 8}}
          queue: {policy: any_fit}
        b:
          <<: *team
          queue: {policy: backfill}
        c: *team
    """)
    assert [share.queue for share in config.shares] == ["any_fit", "backfill", "any_fit"]
    assert config.shares[1].nominal == config.shares[0].nominal
