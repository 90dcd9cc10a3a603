"""The configurations people start from, and those of the five systems' own examples."""

from collections.abc import Callable
from pathlib import Path

import pytest

from raysched.config import ClusterConfig, load_config, parse_config, read_yaml, share_from_keys, share_to_keys
from raysched.core.model import BorrowLimit

CONFIGS = Path(__file__).parents[2] / "configs"
FILES = ["aws.yaml", "baige.yaml", "local-demo.yaml", "single-team.yaml", "tione.yaml", "xirang.yaml"]

Read = Callable[[str], ClusterConfig]


def test_every_shipped_file_is_tested() -> None:
    assert sorted(file.name for file in CONFIGS.glob("*.yaml")) == FILES


@pytest.mark.parametrize("file", FILES)
def test_a_shipped_file_loads_and_its_shares_can_be_written(file: str) -> None:
    config = load_config(CONFIGS / file)
    assert config.shares
    for share in config.shares:
        assert share_from_keys(share.share, share_to_keys(share), None, config) == share


@pytest.mark.parametrize("preset", ["aws", "baige", "tione", "xirang"])
def test_a_file_per_preset_uses_it(preset: str) -> None:
    assert {share.preset for share in load_config(CONFIGS / f"{preset}.yaml").shares} == {preset}


def test_the_demo_is_the_cluster_of_the_demo() -> None:
    config = load_config(CONFIGS / "local-demo.yaml")
    settings = config.settings
    assert settings.cluster == "demo"
    assert (settings.failed_after_ms, settings.healthy_after_ms, settings.silent_after_ms) == (8_000, 4_000, 3_000)
    assert (settings.evidence_max_age_ms, settings.validate_for_ms, config.fence_after_ms) == (10_000, 10_000, 3_000)
    assert [(pool.pool, pool.role) for pool in config.pools] == [("train", "normal"), ("spares", "standby")]
    owned = {share.share: share.nominal["train"]["gpu"] for share in config.shares}
    assert owned == {"vision": 16_000, "language": 8_000}
    assert all(share.sharing.lends and share.sharing.borrows for share in config.shares)
    assert config.shares[0].limits.enabled


def test_the_tione_file_says_what_its_comments_say() -> None:
    speech, vision = load_config(CONFIGS / "tione.yaml").shares
    assert speech.queue == "fifo_within_priority"
    assert vision.queue == "strict_fifo"
    assert vision.sharing.lend_workloads == ("training", "service")
    assert speech.limits.resolve == "largest_each"


CASES = {
    "three strategies": """
        node_specs: {g: {gpu: 8, gpu_model: A10G, cpu: 96, memory: 384Gi}}
        pools: {fleet: {match: {pool: fleet}}}
        shares:
          both: {preset: aws, nominal: {fleet: {gpu: 40}}, weight: 30,
                 sharing: {strategy: lend_and_borrow, borrow_limit: 100%}, preemption: {in_share: true, grace: 0s}}
          gives: {preset: aws, nominal: {fleet: {gpu: 64}}, weight: 20,
                  sharing: {strategy: lend}, reclaim: {policy: restore, grace: 0s}}
          keeps: {preset: aws, nominal: {fleet: {gpu: 16}}, weight: 10, sharing: {strategy: reserve}}
        """,
    "a queue without an accelerator": """
        node_specs: {a: {gpu: 8, gpu_model: A800, cpu: 64, memory: 512Gi}, c: {cpu: 64, memory: 256Gi}}
        pools: {gq: {match: {pool: gq}}, cq: {match: {pool: cq}}}
        shares:
          g: {preset: baige, nominal: {gq: {gpu: 16, cpu: 128, memory: 1Ti}},
              limits: {enabled: false, rules: [{user: an, gpu: 4}]}}
          c: {preset: baige, nominal: {cq: {cpu: 64, memory: 256Gi}}}
        """,
    "a user rule and a group rule": """
        node_specs: {a: {gpu: 8, gpu_model: A800, cpu: 128, memory: 1Ti}}
        pools: {queue: {match: {pool: queue}}}
        groups: {team: [one, two]}
        shares:
          q:
            preset: baige
            nominal: {queue: {gpu: 100, cpu: 1600, memory: 12Ti}}
            limits:
              enabled: true
              resolve: smallest_gpu
              rules: [{user: one, gpu: 30, cpu: 60, memory: 100Gi}, {group: team, gpu: 40, cpu: 50, memory: 60Gi}]
        """,
    "ten engineers": """
        node_specs: {a: {gpu: 8, gpu_model: A800, cpu: 64, memory: 512Gi}}
        pools: {queue: {match: {pool: queue}}}
        groups: {engineers: [e0, e1, e2, e3, e4, e5, e6, e7, e8, e9]}
        shares:
          q: {preset: baige, nominal: {queue: {gpu: 100, cpu: 800, memory: 6144Gi}},
              limits: {enabled: true, rules: [{group: engineers, gpu: 20}]}}
        """,
    "three books": """
        defaults: {evidence_max_age: 30s, failed_after: 60s}
        node_specs: {one: {gpu: 1, gpu_model: X, cpu: 8, memory: 64Gi}}
        pools: {p: {match: {pool: p}}}
        shares: {a: {nominal: {p: {gpu: 8}}}, b: {nominal: {p: {gpu: 8}}}, c: {nominal: {p: {gpu: 4}}}}
        """,
    "a lender and its guest": """
        node_specs: {a: {gpu: 8, gpu_model: A100, cpu: 96, memory: 1Ti}}
        pools: {home: {match: {pool: home}}, away: {match: {pool: away}}}
        shares:
          guest: {preset: tione, nominal: {home: {gpu: 8, cpu: 96, memory: 1Ti}}, weight: 10,
                  sharing: {strategy: lend_and_borrow}}
          host: {preset: tione, nominal: {away: {gpu: 16, cpu: 192, memory: 2Ti}}, weight: 20,
                 sharing: {strategy: lend, lend_workloads: [training]}, reclaim: {policy: force, grace: 0s}}
        """,
    "tags and services": """
        node_specs: {a: {gpu: 8, gpu_model: A100, cpu: 96, memory: 1Ti}}
        pools: {group1: {match: {pool: group1}}}
        shares:
          group1:
            preset: tione
            nominal: {group1: {gpu: 16, cpu: 192, memory: 2Ti}}
            priority: {default: P0, rules: [{tags: {task: speech}, priority: P1}]}
            preemption: {in_share: true, workloads: {training: true, service: false}, grace: 0s}
        """,
    "default and own limits": """
        node_specs: {t: {gpu: 8, gpu_model: T4, cpu: 128, memory: 512Gi}}
        pools: {group1: {match: {pool: group1}}}
        groups: {g: [one]}
        shares:
          group1:
            preset: tione
            nominal: {group1: {gpu: 32, cpu: 512, memory: 2Ti}}
            limits:
              enabled: true
              default: {gpu: 8, cpu: 32, memory: 128Gi}
              rules: [{user: one, cpu: 16, memory: 32Gi, gpu: 2}, {group: g, cpu: 32, memory: 64Gi, gpu: 1}]
        """,
    "spares of two kinds": """
        node_specs: {a: {gpu: 8, gpu_model: A100, cpu: 96, memory: 1Ti},
                     h: {gpu: 8, gpu_model: H20, cpu: 96, memory: 1Ti}}
        pools: {train: {region: gz, match: {pool: train}}, spares: {region: gz, match: {pool: spares}, role: standby}}
        shares: {team: {preset: tione, nominal: {train: {gpu: 16, cpu: 192, memory: 2Ti}}}}
        """,
    "sizes and workspaces": """
        node_specs: {h800x8: {gpu: 8, gpu_model: H800, cpu: 128, memory: 1Ti}}
        pools: {dedicated: {match: {pool: dedicated}}}
        shares:
          train: {preset: xirang, nominal: {dedicated: {size: h800x2, count: 8}}, weight: 90,
                  workloads: [training], workspaces: [lab]}
          ide: {preset: xirang, workspaces: ["*"], nominal: {dedicated: {size: h800x4, count: 2}}, weight: 10,
                sharing: {strategy: lend}}
          vip: {preset: xirang, workspaces: ["*"], nominal: {dedicated: {size: h800x8, count: 1}}, weight: 99,
                sharing: {strategy: borrow}}
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_the_configuration_of_an_example_loads(read: Read, case: str) -> None:
    config = read(
        "version: 1\ncluster: example\n" + "\n".join(line.strip("\n")[8:] for line in CASES[case].splitlines())
    )
    assert config.shares


def test_the_numbers_of_the_examples(read: Read) -> None:
    def share(case: str, number: int):  # type: ignore[no-untyped-def]
        return read("version: 1\n" + "\n".join(line[8:] for line in CASES[case].splitlines())).shares[number]

    assert share("three strategies", 0).sharing.borrow_limit == BorrowLimit(percent=100)
    assert share("three strategies", 1).reclaim.grace_ms == 0
    assert share("a lender and its guest", 1).sharing.lend_workloads == ("training",)
    assert share("sizes and workspaces", 0).nominal["dedicated"]["gpu"] == 16_000
    assert share("sizes and workspaces", 0).workspaces == ("lab",)


def test_a_scenario_can_carry_its_configuration(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(
        "scenario: x\nconfig: &c\n  version: 1\n  pools: {p: {}}\n  shares: {a: {nominal: {p: {gpu: 1}}}}\nagain: *c\n"
    )
    data, lines = read_yaml(file)
    assert parse_config(data["config"], lines.under("config")) == parse_config(data["again"], lines.under("again"))
