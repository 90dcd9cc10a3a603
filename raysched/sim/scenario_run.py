"""Runs a scenario: the clock goes to each entry, the action is done, a pass follows, every invariant is checked."""

from typing import Any

from msgspec import Struct, field

from raysched.config import ConfigError, Problem
from raysched.core.check import check
from raysched.runtime.problem import Refusal
from raysched.runtime.service import Service
from raysched.sim.scenario import Scenario, Step
from raysched.sim.scenario_actions import Hands
from raysched.sim.scenario_expect import checks
from raysched.sim.simulation import Simulation

EXPECTING = ("expect", "expect_error")


class Outcome(Struct, frozen=True):
    """One thing that had to hold, and whether it did."""

    at_ms: int
    line: int | None
    path: str
    expected: Any
    found: Any
    ok: bool


class Result(Struct):
    """How a scenario went. `outcomes` are its expectations, the actions that failed unexpectedly and the invariants
    that broke; the service is as it was at the end."""

    scenario: Scenario
    service: Service
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return all(outcome.ok for outcome in self.outcomes)


def run_scenario(scenario: Scenario) -> Result:
    """Run to the last entry. What goes wrong is in the outcomes. Raises ConfigError if the books refuse the
    configuration."""
    return _Run(scenario).to_the_end()


class _Run:
    def __init__(self, scenario: Scenario) -> None:
        try:
            self.sim = Simulation(scenario.config, scenario.start_ms)
        except Refusal as refusal:
            raise ConfigError([Problem(scenario.file, None, "config", refusal.message)]) from refusal
        self.hands = Hands(self.sim, scenario)
        self.result = Result(scenario, self.sim.service)
        self.error: str | None = None

    def to_the_end(self) -> Result:
        """Every entry in turn; after a broken invariant nothing that follows means anything."""
        scenario, line = self.result.scenario, None
        try:
            for group in scenario.nodes:
                self.hands.join(group)
            self.sim.settle()
            for number, step in enumerate(scenario.steps):
                line = step.line
                following = scenario.steps[number + 1].verb if number + 1 < len(scenario.steps) else None
                self._step(step, following)
        except (AssertionError, RuntimeError) as broken:
            self._note(line, "invariant", "holds", str(broken), False)
        self.result.service = self.sim.service
        return self.result

    def _step(self, step: Step, following: str | None) -> None:
        self.sim.run_until(step.at_ms)
        at = f"timeline[{step.number}].{step.verb}"
        if step.verb == "expect":
            for found in checks(step.parsed, self.sim.service, self.hands.findings):
                self._note(step.line, f"{at}.{found.path}", found.expected, found.found, found.ok)
        elif step.verb == "expect_error":
            wanted = step.parsed.contains
            self._note(step.line, f"{at}.contains", wanted, self.error or "no error", wanted in (self.error or ""))
        else:
            self._act(step, following, at)

    def _act(self, step: Step, following: str | None, at: str) -> None:
        self.error = self.hands.act(step)
        if self.error is not None and following != "expect_error":
            self._note(step.line, at, "no error", self.error, False)
        if step.verb != "crash_at":
            self.sim.settle()
        for broken in check(self.sim.service.state, self.sim.service.ledger):
            self._note(step.line, at, "every invariant holds", broken, False)

    def _note(self, line: int | None, path: str, expected: Any, found: Any, ok: bool) -> None:
        offset_ms = self.sim.clock.now_ms() - self.sim.start_ms
        self.result.outcomes.append(Outcome(offset_ms, line, path, expected, found, ok))
