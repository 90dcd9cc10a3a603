"""A crash after any step of a tick changes nothing that is expected: every example is run with one, here and there.

Not those about nodes and evidence: after a restart missing evidence counts only from then, so their times move."""

import random
from pathlib import Path

import pytest
from msgspec import structs

from raysched.core.check import check
from raysched.core.state import State
from raysched.core.transitions import apply
from raysched.sim.scenario import Scenario, Step
from raysched.sim.scenario_keys import ACTION_KEYS
from raysched.sim.scenario_reading import load_scenario
from raysched.sim.scenario_result import to_lines
from raysched.sim.scenario_run import run_scenario
from raysched.sim.simulation import Simulation
from tests.sim.places import EXAMPLES

STEPS = ["polled", "journaled", "planned", "posted", "folded", "performed", "killed"]
TIMELESS = [file for file in EXAMPLES if not file.stem.startswith(("nodes-failing", "nodes-standby", "evidence"))]
TRIES = 4  # places in each file and step


def with_crash(scenario: Scenario, step: str, place: int) -> Scenario:
    """The scenario with a crash before its entry number `place`."""
    at_ms = scenario.steps[place].at_ms
    if step == "killed":
        crash = Step(-1, None, at_ms, "restart_scheduler", {})
    else:
        crash = Step(-1, None, at_ms, "crash_at", {}, ACTION_KEYS["crash_at"].model_validate({"step": step}))
    return structs.replace(scenario, steps=(*scenario.steps[:place], crash, *scenario.steps[place:]))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("file", TIMELESS, ids=lambda file: file.stem)
def test_an_example_holds_with_a_crash(file: Path, step: str) -> None:
    scenario = load_scenario(file)
    places = [n for n, each in enumerate(scenario.steps) if each.verb != "expect_error"]
    for place in random.Random(f"{file.stem} {step}").sample(places, TRIES):
        result = run_scenario(with_crash(scenario, step, place))
        assert result.ok, "\n".join([f"crash before entry {place}", *to_lines(result)])


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_the_journal_alone_gives_the_same_jobs_and_nodes(file: Path) -> None:
    result = run_scenario(load_scenario(file))
    state, loop = State(), result.service.loop
    for _, event in loop.journal.read():
        apply(state, event)
    assert state.jobs == loop.state.jobs
    assert state.nodes == loop.state.nodes
    assert check(state, loop.ledger) == []


def test_through_the_stored_form_of_events_and_entries_the_end_is_the_same() -> None:
    scenario = load_scenario(next(file for file in EXAMPLES if file.stem == "crashes"))
    ends = []
    for through_codec in (False, True):
        sim = Simulation(scenario.config, scenario.start_ms, through_codec)
        for group in scenario.nodes:
            for name in group.names:
                sim.add_node(name, group.pool, group.spec)
        sim.settle()
        sim.service.submit({"job": "a", "user": "lea", "share": "own", "bundles": [{"gpu_milli": 2_000}]}, "lea")
        sim.run_until(scenario.start_ms + 10_000)
        sim.restart_quota()
        sim.restart_scheduler()
        sim.run_until(scenario.start_ms + 20_000)
        ends.append((sim.service.jobs(), sim.service.usage(), sim.service.nodes(), sim.service.check()))
    assert ends[0] == ends[1]
