"""What each action of a scenario does to the simulation. Most are calls of the service, as a person would make them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from raysched.config import ConfigError, job_from_keys
from raysched.core.model import JobId, NodeId
from raysched.sim.scenario import NodeGroup, Scenario, Step
from raysched.sim.simulation import Runtime, Simulation

SOMEBODY: Final = "scenario"  # who acts, where the configuration names no cluster admin and the entry nobody
OWN_KEYS: Final = ("runtime", "by")
UNDER_REPAIR: Final = ("failed", "validating", "quarantined")
Answer = dict[str, Any]


class ActionFailed(Exception):
    """An action of the simulation that cannot be; the service answers with an error value instead."""


class Hands:
    """Carries out the actions of one scenario. `findings` are those of the last diagnose."""

    def __init__(self, sim: Simulation, scenario: Scenario) -> None:
        self.sim = sim
        admins = scenario.config.settings.admins
        self.admin = str(admins[0]) if admins else SOMEBODY
        self.findings: list[dict[str, Any]] = []

    def act(self, step: Step) -> str | None:
        """Carry out one action; returns its error as text, None when it was done."""
        if step.wrong is not None:
            return f"BAD_REQUEST: {step.wrong}"
        try:
            answer = ACTIONS[step.verb](self, step)
        except ActionFailed as failed:
            return str(failed)
        except ConfigError as error:
            return f"BAD_REQUEST: {error}"
        refused = answer.get("error")
        return None if refused is None else _error_text(refused["code"], refused["message"])

    def caller(self, step: Step) -> str:
        """Who acts."""
        return str(step.keys.get("by") or self.admin)

    def join(self, group: NodeGroup) -> None:
        """Nodes join their pool."""
        for name in group.names:
            self.sim.add_node(name, group.pool, group.spec, group.reporting)

    def nodes(self, step: Step) -> list[NodeId]:
        """The nodes an entry names; `*` means all."""
        wanted, known = str(step.keys["node"]), self.sim.cluster.nodes
        if wanted == "*":
            return list(known)
        if wanted not in known:
            raise ActionFailed(f"UNKNOWN_NODE: node {wanted} does not exist")
        return [NodeId(wanted)]

    def ask(self, step: Step, action: str, params: Mapping[str, Any]) -> Answer:
        """One administrative action."""
        answer: Answer = self.sim.service.admin(action, dict(params), self.caller(step))
        return answer

    def spec(self, step: Step) -> dict[str, Any]:
        """The job an entry describes, as the service takes it. Raises ConfigError."""
        keys = {key: value for key, value in step.keys.items() if key not in OWN_KEYS}
        spec: dict[str, Any] = msgspec.to_builtins(job_from_keys(keys, "unnamed"))
        if "job" not in keys:
            del spec["job"]
        return spec


def _error_text(code: str, message: str) -> str:
    """Messages that name every finding begin with their codes already."""
    return message if message.startswith(code) else f"{code}: {message}"


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _submit(hands: Hands, step: Step) -> Answer:
    keys, spec = step.parsed, hands.spec(step)
    answer: Answer = hands.sim.service.submit(spec, step.keys.get("by") or keys.submitted_by or keys.user)
    if "error" not in answer:
        hands.sim.runtimes[JobId(answer["job"])] = Runtime(keys.runtime, keys.checkpoint_every)
    return answer


def _diagnose(hands: Hands, step: Step) -> Answer:
    answer: Answer = hands.sim.service.diagnose(hands.spec(step))
    hands.findings = answer.get("findings", [])
    return answer


def _finish(hands: Hands, step: Step) -> Answer:
    job = step.parsed.job
    if not hands.sim.cluster.finish(JobId(job), step.parsed.ok):
        raise ActionFailed(f"NOT_RUNNING: job {job} has no running attempt to finish")
    return {}


def _cancel(hands: Hands, step: Step) -> Answer:
    return _plain(hands.sim.service.cancel(step.parsed.job, hands.caller(step)))


def _resize(hands: Hands, step: Step) -> Answer:
    return _plain(hands.sim.service.resize(step.parsed.job, step.keys["bundles"], hands.caller(step)))


def _set_priority(hands: Hands, step: Step) -> Answer:
    return _plain(hands.sim.service.set_priority(step.parsed.job, step.parsed.priority, hands.caller(step)))


def _set_cross_pool(hands: Hands, step: Step) -> Answer:
    return _plain(hands.sim.service.set_cross_pool(step.parsed.job, step.parsed.value, hands.caller(step)))


def _move(hands: Hands, step: Step) -> Answer:
    return _plain(hands.sim.service.move(step.parsed.job, step.parsed.share, hands.caller(step)))


def _plain(answer: Any) -> Answer:
    assert isinstance(answer, dict)
    return answer


# ── administration ────────────────────────────────────────────────────────────────────────────────────────────────


def _admin(action: str, **renamed: str) -> Callable[[Hands, Step], Answer]:
    """The service's action of this name; `renamed` maps keys of the scenario to those of the service."""

    def act(hands: Hands, step: Step) -> Answer:
        params = {renamed.get(key, key): value for key, value in step.keys.items() if key != "by"}
        return hands.ask(step, action, params)

    return act


def _create_share(hands: Hands, step: Step) -> Answer:
    keys = {key: value for key, value in step.keys.items() if key not in ("share", "by")}
    return hands.ask(step, "create_share", {"name": step.keys["share"], "share": keys})


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _fail_node(hands: Hands, step: Step) -> Answer:
    for node in hands.nodes(step):
        hands.sim.cluster.fail(node, step.parsed.signal)
    return {}


def _silence_node(hands: Hands, step: Step) -> Answer:
    for node in hands.nodes(step):
        hands.sim.cluster.silence(node)
    return {}


def _recover_node(hands: Hands, step: Step) -> Answer:
    """Of a failed node without an open repair task it is the finished repair."""
    for name in hands.nodes(step):
        node = hands.sim.service.state.nodes.get(name)
        repaired = node is not None and node.health in UNDER_REPAIR and "repair_task" not in node.fatal
        hands.sim.cluster.recover(name, repaired)
    return {}


def _repair_task(hands: Hands, step: Step) -> Answer:
    return _each_node(hands, step, "repair_task", {"open": step.parsed.is_open})


def _remove_node(hands: Hands, step: Step) -> Answer:
    for node in hands.nodes(step):
        hands.sim.cluster.remove(node)
        answer = hands.ask(step, "remove_node", {"node": node})
        if "error" in answer:
            return answer
    return {}


def _add_nodes(hands: Hands, step: Step) -> Answer:
    hands.join(step.parsed)
    return {}


def _on_nodes(action: str) -> Callable[[Hands, Step], Answer]:
    def act(hands: Hands, step: Step) -> Answer:
        return _each_node(hands, step, action, {k: v for k, v in step.keys.items() if k not in ("node", "by")})

    return act


def _each_node(hands: Hands, step: Step, action: str, params: dict[str, Any]) -> Answer:
    answers = [hands.ask(step, action, {"node": node, **params}) for node in hands.nodes(step)]
    return next((answer for answer in answers if "error" in answer), {})


# ── crashes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _restart_scheduler(hands: Hands, step: Step) -> Answer:
    hands.sim.restart_scheduler()
    return {}


def _restart_quota(hands: Hands, step: Step) -> Answer:
    hands.sim.restart_quota()
    return {}


def _crash_at(hands: Hands, step: Step) -> Answer:
    hands.sim.crash_at(step.parsed.step)
    return {}


ACTIONS: Final[dict[str, Callable[[Hands, Step], Answer]]] = {
    "submit": _submit,
    "cancel": _cancel,
    "finish": _finish,
    "resize": _resize,
    "set_priority": _set_priority,
    "set_cross_pool": _set_cross_pool,
    "report_reserved": _admin("report_reserved"),
    "reconcile": _admin("reconcile"),
    "move": _move,
    "diagnose": _diagnose,
    "set_limits": _admin("set_limits", share="name"),
    "set_share": _admin("set_share", share="name"),
    "stop_share": _admin("stop_share", share="name"),
    "open_share": _admin("open_share", share="name"),
    "delete_share": _admin("delete_share", share="name"),
    "create_share": _create_share,
    "set_group": _admin("set_group"),
    "reserve": _admin("reserve"),
    "release": _admin("release"),
    "override": _admin("override"),
    "fail_node": _fail_node,
    "recover_node": _recover_node,
    "silence_node": _silence_node,
    "repair_task": _repair_task,
    "add_nodes": _add_nodes,
    "remove_node": _remove_node,
    "cordon": _on_nodes("cordon"),
    "uncordon": _on_nodes("uncordon"),
    "repool_node": _on_nodes("repool_node"),
    "restart_scheduler": _restart_scheduler,
    "restart_quota": _restart_quota,
    "crash_at": _crash_at,
}
