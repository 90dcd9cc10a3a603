"""A small scenario to vary: two nodes of 4 GPUs, a share `s` of 8 that lends, a share `t` of 0 that borrows."""

from pathlib import Path

from raysched.sim.scenario_reading import load_scenario
from raysched.sim.scenario_run import Result, run_scenario

HEAD = """\
scenario: small
config:
  version: 1
  node_specs: {n4: {gpu: 4, gpu_model: N, cpu: 16, memory: 64Gi}}
  pools: {p: {match: {pool: p}}, q: {match: {pool: q}}}
  shares:
    s: {nominal: {p: {gpu: 8}}, sharing: {strategy: lend}}
    t: {nominal: {p: {gpu: 0}}, sharing: {strategy: lend_and_borrow}}
nodes: [{pool: p, spec: n4, count: 2}]
timeline:
"""


def written(tmp_path: Path, *entries: str, head: str = HEAD) -> Path:
    """The small scenario with these entries of the timeline."""
    file = tmp_path / "small.yaml"
    file.write_text(head + "".join(f"  - {entry}\n" for entry in entries))
    return file


def ran(tmp_path: Path, *entries: str) -> Result:
    """How it went."""
    return run_scenario(load_scenario(written(tmp_path, *entries)))


def failed(result: Result) -> list[tuple[str, object, object]]:
    """What did not hold: path, expected, found."""
    return [(outcome.path, outcome.expected, outcome.found) for outcome in result.outcomes if not outcome.ok]


def submit(job: str, gpu: object, at: str = "0s", share: str = "s", more: str = "runtime: 1h") -> str:
    return f"{{at: {at}, submit: {{job: {job}, user: ana, share: {share}, bundles: [{{gpu: {gpu}}}], {more}}}}}"
