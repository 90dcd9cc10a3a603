"""Every way in which a configuration can be wrong: file, line, path, reason."""

import pickle
from collections.abc import Callable

import pytest

from raysched.config import ConfigError, Lines, parse_config
from tests.config.conftest import BASE

Faults = Callable[[str], list[str]]


def share(keys: str) -> str:
    """A valid file with one share `a` of these keys, which stand on line 12."""
    return f"{BASE}shares:\n  a: {{{keys}}}\n"


OWNS = "nominal: {train: {gpu: 8}}"
SHARE_FAULTS = [
    ("nominal: {}, limtis: {}", "limtis: unknown key (did you mean limits?)"),
    ("nominal: {}, colour: red", "colour: unknown key"),
    ("weight: 3", "nominal: is required"),
    ("nominal: 3", "nominal: must be a mapping, got 3"),
    ("nominal: {train: 8}", "nominal.train: must be a mapping of resource kinds, got 8"),
    ("nominal: {train: {}}", "nominal.train: names no resource kind; write e.g. {gpu: 8}"),
    ("nominal: {trian: {gpu: 1}}", "nominal.trian: there is no such pool (did you mean train?)"),
    ("nominal: {train: {gpu: many}}", "nominal.train.gpu: 'many' is not a quantity (want e.g. 8 or 500m)"),
    ("nominal: {train: {gpu: -1}}", "nominal.train.gpu: -1 is not a quantity (want e.g. 8 or 500m)"),
    ("nominal: {train: {gpu: true}}", "nominal.train.gpu: True is not a quantity"),
    ("nominal: {train: {gpu: 0.0001}}", "nominal.train.gpu: 0.0001 is finer than the smallest unit"),
    ("nominal: {train: {memory: 4Xi}}", "nominal.train.memory: unit 'Xi' of '4Xi' is unknown (want e.g. 512Gi)"),
    ("nominal: {train: {memory: 99999999Pi}}", "nominal.train.memory: '99999999Pi' is too large"),
    ("nominal: {train: {memroy: 4Gi}}", "nominal.train.memroy: is no resource kind (did you mean memory?)"),
    ("nominal: {train: {disk: 4}}", "nominal.train.disk: no node spec has this resource kind (did you mean disks?)"),
    ("nominal: {train: {'gpu:H10': 4}}", "nominal.train.gpu:H10: no node spec has this resource kind"),
    (
        "nominal: {train: {size: h100x3, count: 1}}",
        "nominal.train.size: must be <node spec or GPU model>x<cards> with 1, 2, 4, 8",
    ),
    ("nominal: {train: {size: h100, count: 1}}", "nominal.train.size: must be <node spec or GPU model>x<cards>"),
    (
        "nominal: {train: {size: h200x2, count: 1}}",
        "nominal.train.size: no node spec and no GPU model is called 'h200'",
    ),
    (
        "nominal: {train: {size: cpu64x1, count: 1}}",
        "nominal.train.size: 1 cards do not fit a node of cpu64, which has 0",
    ),
    ("nominal: {train: {size: h100x2}}", "nominal.train.count: is required"),
    ("nominal: {train: {size: h100x2, count: 0}}", "nominal.train.count: must be at least 1, got 0"),
    ("nominal: {train: {size: h100x2, count: 1.5}}", "nominal.train.count: must be a whole number, got 1.5"),
    ("nominal: {train: {size: h100x2, count: 1, cpu: 4}}", "nominal.train.cpu: unknown key (known: count, size)"),
    (f"{OWNS}, cohort: mian", "cohort: mian is not listed under cohorts (did you mean main?)"),
    (
        f"{OWNS}, preset: bagie",
        "preset: must be 'none', 'baige', 'xirang', 'tione' or 'aws', got 'bagie' (did you mean baige?)",
    ),
    (f"{OWNS}, weight: 0", "weight: must be at least 1, got 0"),
    (f"{OWNS}, weight: 101", "weight: must be at most 100, got 101"),
    (f"{OWNS}, weight: heavy", "weight: must be a whole number, got 'heavy'"),
    (f"{OWNS}, weight: 1.5", "weight: must be a whole number, got 1.5"),
    (f"{OWNS}, description: 3", "description: must be text (numbers in quotes), got 3"),
    (
        f"{OWNS}, workloads: [trainnig]",
        "workloads[0]: must be 'notebook', 'training', 'service', 'batch' or 'evaluation'",
    ),
    (f"{OWNS}, workloads: []", "workloads: must name at least one"),
    (f"{OWNS}, workloads: [batch, batch]", "workloads[1]: batch is listed twice"),
    (f"{OWNS}, workloads: training", "workloads: must be a list, got 'training'"),
    (f"{OWNS}, workspaces: [7]", "workspaces[0]: must be text (numbers in quotes), got 7"),
    (f"{OWNS}, admins: ['a b']", "admins[0]: 'a b' may not contain ' '"),
    (f"{OWNS}, admins: ['']", "admins[0]: must have 1 to 128 characters, has 0"),
    (f"{OWNS}, state: closed", "state: must be 'open' or 'stopped', got 'closed'"),
    (f"{OWNS}, resize: never", "resize: must be 'any_time' or 'when_stopped', got 'never'"),
    (f"{OWNS}, overbook: 1", "overbook: must be true or false, got 1"),
    (f"{OWNS}, shrink_floor: 3", "shrink_floor: must be 'none', 'smaller' or 'larger', got 3"),
    (f"{OWNS}, sharing: lend", "sharing: must be a mapping, got 'lend'"),
    (
        f"{OWNS}, sharing: {{strategy: give}}",
        "sharing.strategy: must be 'reserve', 'lend', 'lend_and_borrow' or 'borrow'",
    ),
    (
        f"{OWNS}, sharing: {{borrow_limit: 50}}",
        "sharing.borrow_limit: must be a percentage such as 50%, amounts such as {gpu: 8}, or -1",
    ),
    (f"{OWNS}, sharing: {{borrow_limit: -5%}}", "sharing.borrow_limit: must be a percentage such as 50%"),
    (f"{OWNS}, sharing: {{borrow_limit: {{gpu: x}}}}", "sharing.borrow_limit.gpu: 'x' is not a quantity"),
    (
        f"{OWNS}, sharing: {{borrow_limit: {{disk: 1}}}}",
        "sharing.borrow_limit.disk: no node spec has this resource kind",
    ),
    (
        f"{OWNS}, sharing: {{lend_limit: {{infer: {{gpu: 1}}}}}}",
        "sharing.lend_limit.infer: the share has no nominal in this pool",
    ),
    (
        f"{OWNS}, sharing: {{lend_limit: {{gpu: 1}}}}",
        "sharing.lend_limit.gpu: must be a mapping of resource kinds, got 1",
    ),
    (
        f"{OWNS}, sharing: {{lend_limit: {{train: {{disk: 1}}}}}}",
        "sharing.lend_limit.train.disk: no node spec has this resource kind",
    ),
    (f"{OWNS}, sharing: {{lend_workloads: [gaming]}}", "sharing.lend_workloads[0]: must be 'notebook'"),
    (f"{OWNS}, queue: strict_fifo", "queue: must be a mapping, got 'strict_fifo'"),
    (
        f"{OWNS}, queue: {{policy: fifo}}",
        "queue.policy: must be 'strict_fifo', 'fifo_within_priority', 'any_fit' or 'backfill'",
    ),
    (f"{OWNS}, priority: {{default: P10}}", "priority.default: must be P0 (highest) to P9, got 'P10'"),
    (f"{OWNS}, priority: {{default: high}}", "priority.default: must be P0 (highest) to P9, got 'high'"),
    (f"{OWNS}, priority: {{rules: [{{priority: P1}}]}}", "priority.rules[0].tags: is required"),
    (
        f"{OWNS}, priority: {{rules: [{{tags: {{}}, priority: P1}}]}}",
        "priority.rules[0].tags: must have at least 1, has 0",
    ),
    (f"{OWNS}, priority: {{rules: [{{tags: {{a: 1}}, priority: P1}}]}}", "priority.rules[0].tags.a: must be text"),
    (f"{OWNS}, preemption: maybe", "preemption: must be a mapping, got 'maybe'"),
    (f"{OWNS}, preemption: {{workloads: {{gaming: true}}}}", "preemption.workloads.gaming: must be 'notebook'"),
    (f"{OWNS}, preemption: {{workloads: {{batch: 1}}}}", "preemption.workloads.batch: must be true or false, got 1"),
    (f"{OWNS}, preemption: {{grace: soon}}", "preemption.grace: 'soon' is not a duration (want e.g. 90s, 15m, 2h, 1d)"),
    (f"{OWNS}, preemption: {{grace: null}}", "preemption.grace: None is not a duration"),
    (f"{OWNS}, preemption: {{max_preemptions: -1}}", "preemption.max_preemptions: must be at least 0, got -1"),
    (f"{OWNS}, reclaim: {{policy: beg}}", "reclaim.policy: must be 'wait', 'force', 'unified' or 'restore', got 'beg'"),
    (f"{OWNS}, limits: {{rules: [{{user: u}}]}}", "limits.rules[0].gpu: is required"),
    (f"{OWNS}, limits: {{rules: [{{user: u, gpu: 1.5}}]}}", "limits.rules[0].gpu: must be a whole number, got 1.5"),
    (f"{OWNS}, limits: {{rules: [{{user: u, gpu: -1}}]}}", "limits.rules[0].gpu: must be a whole number, got -1"),
    (f"{OWNS}, limits: {{rules: [{{user: u, gpu: many}}]}}", "limits.rules[0].gpu: must be a whole number, got 'many'"),
    (f"{OWNS}, limits: {{rules: [{{user: u, gpu: 1, cpu: x}}]}}", "limits.rules[0].cpu: 'x' is not a quantity"),
    (f"{OWNS}, limits: {{rules: [{{user: u, gpu: 1, disks: 1}}]}}", "limits.rules[0].disks: unknown key"),
    (f"{OWNS}, limits: {{rules: [{{gpu: 1}}]}}", "limits.rules[0]: must name either a user or a group"),
    (
        f"{OWNS}, limits: {{rules: [{{user: u, group: algo, gpu: 1}}]}}",
        "limits.rules[0]: must name either a user or a group",
    ),
    (
        f"{OWNS}, limits: {{rules: [{{user: u, gpu: 1, mode: total}}]}}",
        "limits.rules[0].mode: total is for groups only",
    ),
    (
        f"{OWNS}, limits: {{rules: [{{group: agol, gpu: 1}}]}}",
        "limits.rules[0].group: there is no group agol (did you mean algo?)",
    ),
    (
        f"{OWNS}, limits: {{rules: [{{user: u, gpu: 1}}, {{user: u, gpu: 1}}]}}",
        "limits.rules[1]: duplicate of rules[0]",
    ),
    (
        f"{OWNS}, limits: {{max_rules: 1, rules: [{{user: u, gpu: 1}}, {{user: v, gpu: 1}}]}}",
        "limits.rules: at most 1 rules, got 2",
    ),
    (f"{OWNS}, limits: {{default: {{gpu: 1, user: u}}}}", "limits.default.user: unknown key"),
    (f"{OWNS}, limits: {{on_exceed: shout}}", "limits.on_exceed: must be 'reject' or 'confirm'"),
    (
        f"{OWNS}, limits: {{resolve: least}}",
        "limits.resolve: must be 'smallest_gpu', 'largest_each' or 'smallest_each'",
    ),
    (
        "nominal: {infer: {cpu: 64}}, limits: {enabled: true}",
        "limits.enabled: limits cannot be turned on: no accelerator",
    ),
]


@pytest.mark.parametrize(("keys", "reason"), SHARE_FAULTS, ids=[reason[:40] for _, reason in SHARE_FAULTS])
def test_a_wrong_share_is_named_with_line_path_and_reason(faults: Faults, keys: str, reason: str) -> None:
    found = faults(share(keys))
    assert len(found) == 1
    assert found[0].startswith(f"cluster.yaml:12: shares.a.{reason}")


CLUSTER_FAULTS = [
    ("pools: {p: {}}", "version: is required"),
    ("version: 2\npools: {p: {}}", "version: must be 1, got 2"),
    ("version: '1'\npools: {p: {}}", "version: must be 1, got '1'"),
    ("version: 1", "pools: is required"),
    ("version: 1\npools: {}", "pools: must have at least 1, has 0"),
    ("version: 1\npools: {p: {}}\nshars: {}", "shars: unknown key (did you mean shares?)"),
    ("version: 1\npools: {p: {}}\nshares: {a: null}", "shares.a: must be a mapping, got nothing"),
    ("version: 1\npools: {p: {}}\nshares: {a/b: {nominal: {}}}", "shares.\"a/b\": 'a/b' may not contain '/'"),
    ("version: 1\ncluster: 'a:b'\npools: {p: {}}", "cluster: 'a:b' may not contain ':'"),
    (
        "version: 1\npools: {p: {}}\ndefaults: {failed_afer: 1s}",
        "defaults.failed_afer: unknown key (did you mean failed_after?)",
    ),
    ("version: 1\npools: {p: {}}\ndefaults: {failed_after: 0s}", "defaults.failed_after: must be longer than 0"),
    ("version: 1\npools: {p: {}}\ndefaults: {failed_after: fast}", "defaults.failed_after: 'fast' is not a duration"),
    ("version: 1\npools: {p: {}}\ndefaults: {max_creating: 0}", "defaults.max_creating: must be at least 1, got 0"),
    (
        "version: 1\npools: {p: {}}\ndefaults: {fence_after: 9s, fence_wait: 9s}",
        "defaults.fence_wait: must be longer than fence_after (9000 ms), got 9000 ms",
    ),
    ("version: 1\npools: {p: {}}\ndefaults: {preset: best}", "defaults.preset: must be 'none'"),
    ("version: 1\npools: {p: {}}\nauthorities: boss", "authorities: must be a list, got 'boss'"),
    ("version: 1\npools: {p: {}}\nadmins: [root, root]", "admins[1]: root is listed twice"),
    ("version: 1\npools: {p: {}}\ngroups: {g: [a, a]}", "groups.g[1]: a is listed twice"),
    ("version: 1\npools: {p: {}}\ncohorts: {c: {lend: true}}", "cohorts.c.lend: unknown key"),
    ("version: 1\npools: {p: {}}\nnode_specs: {n: {}}", "node_specs.n: a node needs a gpu or a cpu"),
    ("version: 1\npools: {p: {}}\nnode_specs: {n: {gpu: 1.5}}", "node_specs.n.gpu: must be a whole number, got 1.5"),
    (
        "version: 1\npools: {p: {}}\nnode_specs: {n: {cpu: 1, gpu_model: X}}",
        "node_specs.n.gpu_model: is given, but gpu is 0",
    ),
    (
        "version: 1\npools: {p: {}}\nnode_specs: {n: {gpu: 8, memory: 1TB}}",
        "node_specs.n.memory: unit 'TB' of '1TB' is unknown",
    ),
    (
        "version: 1\npools: {p: {}}\nnode_specs: {n: {gpu: 8, attach: {cpu: 1}}}",
        "node_specs.n.attach.cpu: cpu is a key of its own",
    ),
    ("version: 1\npools: {p: {}, q: {}}", "pools.q.match: is the same as that of p: a node would belong to both"),
    ("version: 1\npools: {p: {placement: {gpu: spread}}}", "pools.p.placement.gpu: must be 'pack', got 'spread'"),
    ("version: 1\npools: {p: {role: spare}}", "pools.p.role: must be 'normal' or 'standby', got 'spare'"),
    ("version: 1\npools: {p: {match: {rack: 3}}}", "pools.p.match.rack: must be text (numbers in quotes), got 3"),
    (
        "version: 1\npools: {p: {role: standby, queue: {policy: any_fit}}}",
        "pools.p.queue: a standby pool takes no queue policy",
    ),
    ("version: 1\npools: {p: {role: standby, preset: aws}}", "pools.p.preset: a standby pool takes no queue policy"),
    (
        "version: 1\npools: {p: {role: standby}}\nshares: {a: {nominal: {p: {gpu: 1}}}}",
        "shares.a.nominal.p: is a standby pool",
    ),
    (
        "version: 1\npools: {p: {limits: {enabled: true, rules: [{group: g, gpu: 1}]}}}",
        "pools.p.limits.rules[0].group: there is no group g",
    ),
    (
        "version: 1\npools: {p: {limits: {enabled: true}}}\nnode_specs: {c: {cpu: 1}}",
        "pools.p.limits.enabled: limits cannot be turned on: no accelerator",
    ),
]


@pytest.mark.parametrize(("text", "reason"), CLUSTER_FAULTS, ids=[reason[:40] for _, reason in CLUSTER_FAULTS])
def test_a_wrong_cluster_is_named_with_path_and_reason(faults: Faults, text: str, reason: str) -> None:
    found = faults(text)
    assert len(found) == 1
    where, path, rest = found[0].split(": ", 2)
    assert where.startswith("cluster.yaml:")
    assert f"{path}: {rest}".startswith(reason)


def test_one_standby_pool_per_region(faults: Faults) -> None:
    text = """\
    version: 1
    pools:
      a: {region: hz, match: {p: a}, role: standby}
      b: {region: bj, match: {p: b}, role: standby}
      c:
        region: hz
        match: {p: c}
        role: standby
    """
    reason = "region hz already has the standby pool a; one is the most"
    assert faults(text) == [f"cluster.yaml:8: pools.c.role: {reason}"]


def test_weights_are_unique_in_a_cohort_only(faults: Faults) -> None:
    text = """\
    version: 1
    pools: {p: {}}
    cohorts: {x: {}}
    shares:
      a: {nominal: {}, weight: 9}
      b: {nominal: {}, weight: 9, cohort: x}
      c: {nominal: {}, weight: 9}
    """
    assert faults(text) == [
        "cluster.yaml:7: shares.c.weight: 9 is already the weight of a; weights are unique in a cohort"
    ]


def test_a_size_that_two_specs_could_mean_is_refused(faults: Faults) -> None:
    text = """\
    version: 1
    node_specs: {fat: {gpu: 8, gpu_model: A, cpu: 64}, thin: {gpu: 8, gpu_model: A, cpu: 32},
                 small: {gpu: 2, gpu_model: B}}
    pools: {p: {}}
    shares:
      a: {nominal: {p: {size: ax2, count: 1}}}
      b: {nominal: {p: {size: bx4, count: 1}}}
    """
    assert faults(text) == [
        "cluster.yaml:6: shares.a.nominal.p.size: could be cut from fat, thin; name one, e.g. fatx2",
        "cluster.yaml:7: shares.b.nominal.p.size: 4 cards do not fit a node of small, which has 2",
    ]


def test_all_problems_come_at_once_in_the_order_of_the_file(faults: Faults) -> None:
    text = """\
    version: 1
    cluster: [x]
    pools:
      p: {regoin: hz}
    shares:
      a:
        nominal:
          p: {gpu: x, cpu: y}
        weight: 200
        weight: 3
      b: {}
    """
    assert faults(text) == [
        "cluster.yaml:2: cluster: must be text (numbers in quotes), got a list",
        "cluster.yaml:4: pools.p.regoin: unknown key (did you mean region?)",
        "cluster.yaml:8: shares.a.nominal.p.gpu: 'x' is not a quantity (want e.g. 8 or 500m)",
        "cluster.yaml:8: shares.a.nominal.p.cpu: 'y' is not a quantity (want e.g. 8 or 500m)",
        "cluster.yaml:9: shares.a.weight: must be at most 100, got 200",
        "cluster.yaml:10: shares.a.weight: duplicate key, already given on line 9",
        "cluster.yaml:11: shares.b.nominal: is required",
    ]


def test_what_contradicts_something_else_also_comes_at_once(faults: Faults) -> None:
    text = """\
    version: 1
    pools: {p: {}}
    shares:
      a: {nominal: {q: {gpu: 1}}, cohort: x}
      b: {nominal: {r: {gpu: 1}}, limits: {rules: [{group: g, gpu: 1}]}}
    """
    assert [line.split(": ")[1] for line in faults(text)] == [
        "shares.a.nominal.q",
        "shares.a.cohort",
        "shares.b.nominal.r",
        "shares.b.limits.rules[0].group",
    ]


def test_an_inline_configuration_keeps_the_lines_of_its_file() -> None:
    lines = Lines("scenario.yaml", {("config",): 2, ("config", "shares", "a"): 5}, ("config",))
    with pytest.raises(ConfigError) as error:
        parse_config({"version": 1, "pools": {"p": {}}, "shares": {"a": {}}}, lines)
    assert str(error.value) == "scenario.yaml:5: config.shares.a.nominal: is required"


@pytest.mark.parametrize("data", [None, 3, "text", [], [1]])
def test_values_that_are_no_mapping(data: object) -> None:
    with pytest.raises(ConfigError, match="configuration: must be a mapping"):
        parse_config(data)


def test_keys_that_are_no_text() -> None:
    with pytest.raises(ConfigError) as error:
        parse_config({"version": 1, "pools": {7: {}}, "shares": {"a": {"nominal": {"p": {3: 1}}}}, 5: 6})
    paths = {problem.path for problem in error.value.problems}
    assert paths == {"pools.7", "shares.a.nominal.p.3", "5"}


def test_an_error_is_the_same_after_it_was_sent_to_another_process() -> None:
    with pytest.raises(ConfigError) as error:
        parse_config({})
    again = pickle.loads(pickle.dumps(error.value))
    assert isinstance(again, ConfigError)
    assert again.problems == error.value.problems


def test_the_file_that_the_faults_are_put_into_is_valid(read: Callable[[str], object]) -> None:
    text = share(OWNS)
    assert text.splitlines()[11].startswith("  a:")
    read(text)
