"""A result as JSON and as lines for people. Two runs of one scenario give the same bytes."""

from typing import Any

import msgspec

from raysched.core.units import format_duration
from raysched.runtime import views
from raysched.sim.scenario_run import Outcome, Result


def to_json(result: Result, explain: str | None = None) -> dict[str, Any]:
    """The whole result as plain values: every outcome, and the final jobs, shares, loans, nodes and books."""
    service = result.service
    found: dict[str, Any] = {
        "scenario": result.scenario.name,
        "file": result.scenario.file,
        "ok": result.ok,
        "ended_ms": service.loop.clock.now_ms(),
        "expectations": [msgspec.to_builtins(outcome) for outcome in result.outcomes],
        "jobs": {view["job"]: view for view in reversed(service.jobs(limit=len(service.state.jobs)))},
        "usage": service.usage(),
        "shares": {view["share"]: view for view in service.shares()},
        "loans": service.loans(),
        "nodes": {view["node"]: view for view in service.nodes()},
        "pools": {view["pool"]: view for view in service.pools()},
        "reservations": {view["reservation"]: view for view in service.reservations()},
        "overrides": service.overrides(),
        "alerts": service.alerts(),
        "admission": _records(result),
    }
    if explain is not None:
        found["explain"] = service.explain(explain)
    return found


def _records(result: Result) -> dict[str, list[Any]]:
    """Every admission record by job, oldest first."""
    found: dict[str, list[Any]] = {}
    for change in result.service.loop.quota.read(0, 1_000_000_000):
        record = getattr(change.entry, "record", None)
        if record is not None:
            found.setdefault(record.job, []).append(views.plain(record))
    return found


def to_lines(result: Result) -> list[str]:
    """One line for the scenario, then one for everything that did not hold."""
    failed = [outcome for outcome in result.outcomes if not outcome.ok]
    count, scenario = len(result.outcomes), result.scenario
    if not failed:
        return [f"ok      {scenario.file}: {scenario.name} ({count} checked)"]
    head = f"FAILED  {scenario.file}: {scenario.name} ({len(failed)} of {count} failed)"
    return [head, *(f"        {_line(result, outcome)}" for outcome in failed)]


def _line(result: Result, outcome: Outcome) -> str:
    where = result.scenario.file if outcome.line is None else f"{result.scenario.file}:{outcome.line}"
    at = format_duration(outcome.at_ms) if outcome.at_ms else "0s"
    return f"{where}: at {at}: {outcome.path}: expected {_text(outcome.expected)}, found {_text(outcome.found)}"


def _text(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return "; ".join(map(_text, value)) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(each)}" for key, each in value.items())
    return str(value)


def explain_lines(result: Result, job: str) -> list[str]:
    """The blocker chain of one job at the end."""
    found = result.service.explain(job)
    if "error" in found:
        return [f"{job}: {found['error']['message']}"]
    lines = [f"{job}: {found['state']}" + (f" ({found['reason']})" if found["reason"] else "") + f": {found['text']}"]
    for number, blocker in enumerate(found["blockers"], 1):
        freed = f"; freed by {blocker['freed_by']}" if blocker["freed_by"] else ""
        lines.append(f"  {number}. {blocker['reason']} [{blocker['scope']}] {blocker['text']}{freed}")
    return lines
