"""From raw reports to facts. Agents tell their whole state every few seconds; only a change of fact becomes an event.

Facts: fresh, silent, stale, a FATAL or DEGRADED latch seen or cleared, observed use that disagrees with the books. Ages
come from a heap of deadlines, so a quiet tick costs nothing. Safe to call from any thread."""

import threading
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Any

from raysched.core import events as ev
from raysched.core.model import NodeId, NodeSpec, Settings
from raysched.core.state import State

STRAY_MS = 10_000  # an attempt that the books ended this long ago and that still has processes is a disagreement

Report = dict[str, Any]


class Seen:
    """What the inbox last knew of one node."""

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.speaks = False
        self.stale = False
        self.fatal: set[str] = set()
        self.degraded: set[str] = set()
        self.strays: dict[str, int] = {}
        self.disagrees = False
        self.report: Report = {}


class Inbox:
    """Reports in, events out."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._reports: dict[NodeId, Report] = {}
        self._events: list[ev.AnyEvent] = []
        self._seen: dict[NodeId, Seen] = {}
        self._due: list[tuple[int, NodeId]] = []

    def report(self, reports: Iterable[Report]) -> None:
        """Take reports of agents; of one node the latest wins."""
        with self._lock:
            for report in reports:
                self._reports[NodeId(str(report["node"]))] = report

    def heard(self, nodes: Iterable[NodeId], at_ms: int) -> None:
        """Note reports that said nothing new, of nodes that were heard before."""
        for name in nodes:
            seen = self._seen.get(name)
            if seen is not None and seen.speaks and not seen.stale:
                seen.at_ms = max(seen.at_ms, at_ms)

    def add(self, events: Iterable[ev.AnyEvent]) -> None:
        """Take events that need no reduction."""
        with self._lock:
            self._events.extend(events)

    def restart(self, state: State, now_ms: int) -> None:
        """After a recovery: every node that had spoken counts as just heard, and what it had told is known."""
        for name, node in state.nodes.items():
            if node.reported:
                seen = self._seen[name] = Seen(now_ms)
                seen.speaks = node.silent_ms is None
                seen.stale = node.stale
                seen.fatal = set(node.fatal) - {"ray_dead", "repair_task"}
                seen.degraded = set(node.degraded) - {"spec_changed"}
                seen.disagrees = node.disputed is not None
                heappush(self._due, (now_ms + self.settings.silent_after_ms, name))

    def latest(self, node: NodeId) -> Report:
        """The last whole report of a node; empty if there is none."""
        found = self._seen.get(node)
        return found.report if found is not None else {}

    def last_ms(self, node: NodeId) -> int | None:
        """When the node last reported."""
        found = self._seen.get(node)
        return found.at_ms if found is not None else None

    @property
    def has_news(self) -> bool:
        """Whether reports or events wait for `drain`."""
        with self._lock:
            return bool(self._reports or self._events)

    def next_due_ms(self) -> int | None:
        """When silence alone would become a fact."""
        return self._due[0][0] if self._due else None

    def drain(self, state: State, now_ms: int) -> list[ev.AnyEvent]:
        """Everything new, as events. Reports of nodes that the cluster has not announced yet wait."""
        with self._lock:
            events, self._events = self._events, []
            known = [name for name in sorted(self._reports) if name in state.nodes]
            reports = [(name, self._reports.pop(name)) for name in known]
        for name, report in reports:
            events += self._reduce(state, name, report, now_ms)
        events += self._ages(state, now_ms)
        return events

    # ── one report ────────────────────────────────────────────────────────────────────────────────────────────────

    def _reduce(self, state: State, name: NodeId, report: Report, now_ms: int) -> list[ev.AnyEvent]:
        if report.get("ray_id") not in (None, state.nodes[name].ray_id):
            return []  # an agent of the node's former life
        seen = self._seen.get(name)
        if seen is None:
            seen = self._seen[name] = Seen(now_ms)
            heappush(self._due, (now_ms + self.settings.silent_after_ms, name))
        found: list[ev.AnyEvent] = []
        found += self._inventory(state, name, report, now_ms)
        fatal = _signals(report, "FATAL")
        # What could not be measured takes no new work, but alone it never fails a node.
        other = _signals(report, "DEGRADED", "UNKNOWN")
        for signal in sorted(fatal.keys() - seen.fatal):
            found.append(ev.FatalSeen(at_ms=now_ms, node=name, signal=signal, detail=fatal[signal]))
        for signal in sorted(seen.fatal - fatal.keys()):
            found.append(ev.FatalCleared(at_ms=now_ms, node=name, signal=signal))
        for signal in sorted(other.keys() - seen.degraded):
            found.append(ev.DegradedSeen(at_ms=now_ms, node=name, signal=signal, detail=other[signal]))
        for signal in sorted(seen.degraded - other.keys()):
            found.append(ev.DegradedCleared(at_ms=now_ms, node=name, signal=signal))
        if not seen.speaks or seen.stale or not state.nodes[name].reported:
            found.append(ev.NodeFresh(at_ms=now_ms, node=name))
        found += self._strays(state, name, seen, report, now_ms)
        seen.at_ms, seen.speaks, seen.stale = now_ms, True, False
        seen.fatal, seen.degraded, seen.report = set(fatal), set(other), report
        return found

    def _inventory(self, state: State, name: NodeId, report: Report, now_ms: int) -> list[ev.AnyEvent]:
        """A measured model or a new boot id is news; the counts are Ray's."""
        node, told = state.nodes[name], report.get("spec") or {}
        if not node.present:
            return []  # it speaks, but Ray has declared it dead: only Ray can say that it joined again
        model = told.get("gpu_model") or node.spec.gpu_model
        spec = NodeSpec(node.spec.gpu, model, node.spec.cpu_milli, node.spec.memory_bytes, node.spec.attach)
        boot_id, measured = report.get("boot_id"), bool(report.get("measured"))
        if spec == node.spec and measured == node.measured and boot_id in (None, node.boot_id):
            return []
        joined = ev.NodeJoined(
            at_ms=now_ms,
            node=name,
            ray_id=node.ray_id,
            spec=spec,
            pool=node.pool,
            labels=node.labels,
            boot_id=boot_id,
            measured=measured,
        )
        return [joined]

    def _strays(self, state: State, name: NodeId, seen: Seen, report: Report, now_ms: int) -> list[ev.AnyEvent]:
        """Attempts with live processes that the books do not have on this node, for longer than a stop takes."""
        mine = {f"{job}/{state.jobs[job].attempt}" for job in state.nodes[name].jobs if job in state.jobs}
        strays = [attempt for attempt in report.get("attempts") or [] if attempt not in mine]
        seen.strays = {attempt: seen.strays.get(attempt, now_ms) for attempt in strays}
        old = sorted(attempt for attempt, since in seen.strays.items() if now_ms - since >= STRAY_MS)
        if bool(old) == seen.disagrees:
            return []
        seen.disagrees = bool(old)
        detail = f"processes of {', '.join(old[:4])} run here, the books have none" if old else ""
        return [ev.UseDisagrees(at_ms=now_ms, node=name, disagrees=bool(old), detail=detail)]

    # ── silence ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _ages(self, state: State, now_ms: int) -> list[ev.AnyEvent]:
        found: list[ev.AnyEvent] = []
        while self._due and self._due[0][0] <= now_ms:
            _, name = heappop(self._due)
            seen = self._seen.get(name)
            if seen is None or name not in state.nodes:
                self._seen.pop(name, None)
                continue
            silent, stale = seen.at_ms + self.settings.silent_after_ms, seen.at_ms + self.settings.evidence_max_age_ms
            if seen.speaks and now_ms >= silent:
                seen.speaks = False
                found.append(ev.NodeSilent(at_ms=now_ms, node=name))
            if not seen.stale and now_ms >= stale:
                seen.stale = True
                found.append(ev.NodeStale(at_ms=now_ms, node=name))
            due = silent if seen.speaks else stale if not seen.stale else now_ms + self.settings.silent_after_ms
            heappush(self._due, (due, name))
        return found


def _signals(report: Report, *classes: str) -> dict[str, str]:
    """Open signals of these classes with what was seen; of one signal on several GPUs the details are joined."""
    found: dict[str, str] = {}
    for evidence in report.get("evidence") or []:
        if evidence.get("class") in classes:
            signal, detail = str(evidence["signal"]), str(evidence.get("detail", ""))
            found[signal] = f"{found[signal]}; {detail}" if signal in found else detail
    return found
