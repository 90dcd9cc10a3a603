"""Scenario files read and checked: every problem at once, with file, line, path, reason and the nearest key.

A value that the action itself refuses (a half GPU too many, a priority of 12) makes the file invalid, unless the next
entry expects the error: then it is the action's own."""

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from raysched.config import (
    ClusterConfig,
    ConfigError,
    Lines,
    Problem,
    job_from_keys,
    load_config,
    parse_config,
    time_ms,
)
from raysched.config.door import note, validated
from raysched.config.lines import read_document
from raysched.config.problems import Path, Problems, nearest, shown
from raysched.config.sections import Keys
from raysched.sim.scenario import NodeGroup, Scenario, Step
from raysched.sim.scenario_expected import Expected
from raysched.sim.scenario_keys import ACTION_KEYS, SERVICE_CHECKS, ErrorKeys, GroupKeys, ScenarioKeys

EXPECTING: Final[dict[str, type[Keys]]] = {"expect": Expected, "expect_error": ErrorKeys}
VERBS: Final = {**ACTION_KEYS, **EXPECTING}
NO_VALUES: Final = frozenset({"extra_forbidden", "missing", "model_type", "invalid_key"})  # wrong whoever reads them
MOST_NODES: Final = 200_000  # a typing error in a count must not fill the memory


def load_scenario(path: str | FilePath) -> Scenario:
    """Read one scenario file. Raises ConfigError with everything that is wrong in it."""
    data, problems = read_document(path)
    keys = validated(ScenarioKeys, data, problems)
    if keys is None:
        problems.check()
    assert keys is not None
    reading = _Reading(str(path), keys, data, problems)
    config = reading.config()
    start_ms = reading.start_ms()
    nodes = reading.nodes(config)
    steps = reading.steps(config, start_ms)
    problems.check()
    assert config is not None
    return Scenario(str(path), keys.scenario, config, start_ms, nodes, steps)


class NodeNames:
    """Numbers nodes; the numbers of one prefix go on over entries."""

    def __init__(self) -> None:
        self.next: dict[str, int] = {}

    def take(self, keys: GroupKeys) -> tuple[str, ...]:
        """The names of the next `count` nodes of the entry's prefix."""
        prefix = f"{keys.pool}-" if keys.prefix is None else keys.prefix
        first = self.next.get(prefix, 0)
        self.next[prefix] = first + keys.count
        return tuple(f"{prefix}{number}" for number in range(first, first + keys.count))


class _Reading:
    """One file."""

    def __init__(self, file: str, keys: ScenarioKeys, data: dict[str, object], problems: Problems) -> None:
        self.file, self.keys, self.data, self.problems = file, keys, data, problems
        self.names = NodeNames()
        self.taken: dict[str, str] = {}

    def config(self) -> ClusterConfig | None:
        """The cluster configuration, inline or from a file; None when it is wrong."""
        keys = self.keys
        if (keys.config is None) == (keys.config_file is None):
            self.problems.add(("config",), "a scenario has either config or config_file")
            return None
        try:
            if keys.config is not None:
                return parse_config(keys.config, self.problems.lines.under("config"))
            return load_config(FilePath(self.file).parent / (keys.config_file or ""))
        except ConfigError as error:
            self.problems.found += error.problems
            return None

    def start_ms(self) -> int:
        """What offset 0 means."""
        try:
            if not isinstance(self.keys.start, str) or "-" not in self.keys.start:
                raise ValueError(f"must be a time such as 2026-01-01T18:00:00Z, got {shown(self.keys.start)}")
            return time_ms(self.keys.start, 0)
        except ValueError as error:
            self.problems.add(("start",), str(error))
            return 0

    def nodes(self, config: ClusterConfig | None) -> tuple[NodeGroup, ...]:
        """The nodes that are there at the start."""
        found = [self._group(keys, config, ("nodes", n)) for n, keys in enumerate(self.keys.nodes)]
        return tuple(group for group in found if group is not None)

    def _group(self, keys: GroupKeys, config: ClusterConfig | None, at: Path) -> NodeGroup | None:
        if config is None:
            return None
        pools = [str(pool.pool) for pool in config.pools]
        before = len(self.problems.found)
        if keys.pool not in pools:
            self.problems.add((*at, "pool"), f"there is no pool {keys.pool}" + nearest(keys.pool, pools))
        if keys.spec not in config.node_specs:
            reason = f"there is no node spec {keys.spec}" + nearest(keys.spec, config.node_specs)
            self.problems.add((*at, "spec"), reason)
        if len(self.taken) + keys.count > MOST_NODES:
            self.problems.add((*at, "count"), f"makes more than {MOST_NODES} nodes in all")
        if len(self.problems.found) > before:
            return None
        names = self.names.take(keys)
        twice = next((name for name in names if name in self.taken), None)
        if twice is not None:
            self.problems.add((*at, "prefix"), f"node {twice} exists already, in {self.taken[twice]}")
        self.taken.update(dict.fromkeys(names, f"pool {keys.pool}"))
        return NodeGroup(keys.pool, config.node_specs[keys.spec], names, keys.reporting)

    # ── the timeline ──────────────────────────────────────────────────────────────────────────────────────────────

    def steps(self, config: ClusterConfig | None, start_ms: int) -> tuple[Step, ...]:
        """Every entry, as far as it could be read."""
        entries = self.keys.timeline
        found: list[Step] = []
        diagnosed = False
        for number, entry in enumerate(entries):
            at: Path = ("timeline", number)
            verb = self._verb(entry, at)
            if verb is None:
                continue
            if verb == "expect_error" and (not found or found[-1].verb in EXPECTING or found[-1].number != number - 1):
                self.problems.add((*at, verb), "there is no action just before it")
            at_ms = self._time(entry, start_ms, found[-1].at_ms if found else start_ms, at)
            following = entries[number + 1] if number + 1 < len(entries) else None
            excused = isinstance(following, Mapping) and "expect_error" in following
            step = self._step(number, at_ms, verb, entry[verb], config, excused)
            if not diagnosed and isinstance(step.parsed, Expected) and "findings" in step.parsed.model_fields_set:
                self.problems.add((*at, verb, "findings"), "there is no diagnose before it")
            diagnosed = diagnosed or verb == "diagnose"
            found.append(step)
        return tuple(found)

    def _verb(self, entry: object, at: Path) -> str | None:
        if not isinstance(entry, dict):
            self.problems.add(at, f"must be a mapping such as {{at: 10s, submit: …}}, got {shown(entry)}")
            return None
        given = [key for key in entry if key != "at"]
        for key in given:
            if key not in VERBS:
                self.problems.add((*at, key), "unknown key" + nearest(key, ["at", *VERBS]))
        known = [key for key in given if key in VERBS]
        if len(known) != 1 and len(known) == len(given):
            what = f"has {' and '.join(known)}" if known else "has nothing but a time"
            self.problems.add(at, f"must have one action, expect or expect_error; {what}")
        return known[0] if len(known) == 1 == len(given) else None

    def _time(self, entry: dict[str, Any], start_ms: int, before_ms: int, at: Path) -> int:
        if "at" not in entry:
            self.problems.add((*at, "at"), "is required")
            return before_ms
        try:
            at_ms = time_ms(entry["at"], start_ms)
        except ValueError as error:
            # A number alone is a count of seconds, as in every duration.
            if isinstance(entry["at"], bool) or not isinstance(entry["at"], int | float):
                self.problems.add((*at, "at"), str(error))
                return before_ms
            at_ms = start_ms + int(entry["at"] * 1_000) if 0 <= entry["at"] < 2**43 else -1
        if at_ms < before_ms:
            reason = "is before the start" if at_ms < start_ms else "is before the entry above it"
            self.problems.add((*at, "at"), reason)
            return before_ms
        return at_ms

    def _step(
        self, number: int, at_ms: int, verb: str, given: object, config: ClusterConfig | None, excused: bool
    ) -> Step:
        at: Path = ("timeline", number, verb)
        line = self.problems.lines.line(at)
        keys = {} if given is None and not _needs_keys(verb) else given
        wrong: list[Problem] = []
        parsed: Any = None
        try:
            parsed = VERBS[verb].model_validate(keys)
            if verb in ("submit", "diagnose") and isinstance(keys, dict):
                _check_job(keys)
            if isinstance(parsed, GroupKeys):
                parsed = self._group(parsed, config, at)
        except ValidationError as error:
            wrong = self._problems(verb, error, excused, at)
        except ConfigError as error:
            wrong = list(error.problems)
            if not excused:
                for problem in wrong:
                    self.problems.add(at, f"{problem.path}: {problem.reason}")
        plain = dict(keys) if isinstance(keys, dict) else {}
        return Step(number, line, at_ms, verb, plain, parsed, "; ".join(map(_brief, wrong)) or None)

    def _problems(self, verb: str, error: ValidationError, excused: bool, at: Path) -> list[Problem]:
        """Notes what makes the file invalid; returns what the action is left to refuse."""
        refused = Problems(Lines(verb))
        for detail in error.errors(include_url=False):
            if verb in SERVICE_CHECKS and not _is_static(detail):
                continue
            values = excused and verb not in EXPECTING and detail["type"] not in NO_VALUES
            note(refused if values else self.problems, () if values else at, VERBS[verb], detail)
        return refused.found


def _is_static(detail: ErrorDetails) -> bool:
    """Of actions that the service checks: unknown keys, and the keys that are the scenario's own."""
    return detail["type"] in ("extra_forbidden", "model_type") or detail["loc"][:1] in (("share",), ("by",))


def _needs_keys(verb: str) -> bool:
    return verb in EXPECTING or any(field.is_required() for field in VERBS[verb].model_fields.values())


def _check_job(keys: dict[str, Any]) -> None:
    """What the fields of a job say together. Raises ConfigError."""
    job_from_keys({key: value for key, value in keys.items() if key not in ("runtime", "by")}, "job")


def _brief(problem: Problem) -> str:
    return f"{problem.path}: {problem.reason}" if problem.path else problem.reason
