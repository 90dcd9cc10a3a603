"""The configuration file: read, checked, turned into core values, written back.

Keys beyond the design page, and where a choice was made:

    top level           version (1, required), cluster, defaults, authorities, admins, node_specs, pools, groups,
                        cohorts, shares. Names hold no spaces and none of / : *. Every cohort but main is listed.
    local_nodes         list of {pool, spec, count, prefix}: nodes with declared GPUs that `raysched up` starts here
    defaults            preset, evidence_max_age, failed_after, healthy_after, silent_after (no report for this long
                        = silent), validate_for (clean this long after a repair), fence_after (an agent without an
                        answer this long kills its attempts), fence_wait (the scheduler waits this long from the
                        last answer; default fence_after + 15s), reservation_horizon, max_creating, swaps_in_flight
    node_specs.NAME     gpu, gpu_model, cpu, memory, attach. Kinds in quotas must be had by some node spec.
    pools.NAME          region, match, role, placement (gpu: pack, cpu: spread: the one rule there is, so nothing
                        else is accepted), preset, limits (the pool's own), and as settings for the shares that own
                        quota there: sharing, queue, priority, preemption, reclaim, resize, overbook, shrink_floor.
                        A standby pool takes none of the settings. No two pools have the same match.
    shares.NAME         also preset, state (open | stopped), resize, overbook, shrink_floor. `nominal` is required,
                        `{}` owns nothing. `gpu` not listed is the sum of the listed gpu:<model>, else 0.
    nominal size        <node spec>x<cards> or <GPU model, lower case>x<cards>; 1, 2, 4 or 8 cards with their part of
                        the node's cores and memory
    sharing             borrow_limit is a percentage, amounts per kind (one not listed is not bounded) or -1
    preemption          true | false stands for {default: …}; default: whether kinds not under workloads may be stopped
    limits              also max_rules
    override            `for: 1d` instead of `until`: how long it lasts from its start
    submit              user is the owner; also submitted_by, pool, retries, grace, topology; bundles also take attach

A setting is looked for in the share, its pools in file order, the share's preset, its pools' presets, the defaults.
Errors come all at once, each with file, line, path and reason."""

from raysched.config.bundles import read_bundles
from raysched.config.cluster import load_config, parse_config
from raysched.config.jobs import bundles_from_keys, job_from_keys, override_from_keys, reservation_from_keys
from raysched.config.lines import read_yaml
from raysched.config.presets import PRESETS
from raysched.config.problems import ConfigError, Lines, Problem
from raysched.config.shares import limits_from_keys, pool_with_limits, share_from_keys, share_with_limits
from raysched.config.times import time_ms
from raysched.config.values import ClusterConfig, Layer, LocalNode, entries
from raysched.config.writing import amounts_to_keys, duration_text, limits_to_keys, share_to_keys

__all__ = [
    "PRESETS",
    "ClusterConfig",
    "ConfigError",
    "Layer",
    "Lines",
    "LocalNode",
    "Problem",
    "amounts_to_keys",
    "bundles_from_keys",
    "duration_text",
    "entries",
    "job_from_keys",
    "limits_from_keys",
    "limits_to_keys",
    "load_config",
    "override_from_keys",
    "parse_config",
    "pool_with_limits",
    "read_bundles",
    "read_yaml",
    "reservation_from_keys",
    "share_from_keys",
    "share_to_keys",
    "share_with_limits",
    "time_ms",
]
