"""Administrative changes: each becomes ledger entries or events, checked on the present state, with who and what.

An action is a name and keys as in the configuration file. With `dry_run` everything is checked and planned, and nothing
is kept (what would start, what would be over)."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct, structs

from raysched.config import (
    ClusterConfig,
    limits_from_keys,
    limits_to_keys,
    override_from_keys,
    pool_with_limits,
    reservation_from_keys,
    share_from_keys,
    share_to_keys,
    share_with_limits,
)
from raysched.core import entries as e
from raysched.core import events as ev
from raysched.core.ledger import Ledger
from raysched.core.model import (
    GroupId,
    NodeId,
    NodeSpec,
    PoolId,
    ReservationId,
    Share,
    ShareId,
    UserId,
)
from raysched.core.sharebook import refuses_change, refuses_delete, refuses_size
from raysched.core.state import State
from raysched.core.units import BadQuantity, parse_amount
from raysched.runtime.problem import Refusal

Params = dict[str, Any]
ShareVersion = tuple[int, e.ShareSet | e.ShareDeleted]


class Change(Struct):
    """What an action amounts to: entries to post, events to record, and what it changed for the journal."""

    subject: str
    entries: list[e.AnyEntry]
    events: list[ev.AnyEvent]
    before: Any = None
    after: Any = None


class Desk:
    """Turns actions into changes over one state and one ledger. `context` is the part of the configuration file that
    the books do not hold (node specs, presets of pools)."""

    def __init__(
        self,
        state: State,
        ledger: Ledger,
        context: ClusterConfig,
        origin_ms: int,
        history: Callable[[ShareId], list[ShareVersion]],
    ) -> None:
        self.state, self.ledger, self.context, self.origin_ms = state, ledger, context, origin_ms
        self.history = history

    def config(self) -> ClusterConfig:
        """The configuration as the books have it now."""
        ledger = self.ledger
        return structs.replace(
            self.context,
            settings=ledger.settings,
            pools=tuple(ledger.pools[pool] for pool in ledger.pool_order()),
            groups={str(group): tuple(members) for group, members in ledger.groups.items()},
            shares=tuple(share for _, share in sorted(ledger.shares.items())),
            node_specs={**self.context.node_specs, **self._seen_specs()},
        )

    def _seen_specs(self) -> dict[str, NodeSpec]:
        known = set(map(str, self.context.node_specs.values()))
        return {
            f"{(node.spec.gpu_model or 'cpu').lower()}x{node.spec.gpu}": node.spec
            for node in self.state.nodes.values()
            if str(node.spec) not in known
        }

    def change(self, action: str, params: Params, by: UserId, now_ms: int) -> Change:
        """Check one action. Raises Refusal or ConfigError; nothing is changed yet."""
        found = ACTIONS.get(action)
        if found is None:
            raise Refusal("BAD_REQUEST", 400, f"unknown action {action!r}; known: {', '.join(sorted(ACTIONS))}")
        self.allow(action, params, by)
        base = params.get("base")
        if base is not None and action not in EDITS:
            raise Refusal("BAD_REQUEST", 422, f"{action} takes no base: what it changes has no version")
        if base is not None and (isinstance(base, bool) or not isinstance(base, int)):
            raise Refusal("BAD_REQUEST", 422, f"base: must be a whole number, got {base!r}")
        try:
            return found(self, dict(params), by, now_ms)
        except BadQuantity as error:
            raise Refusal("BAD_REQUEST", 422, str(error)) from error
        except KeyError as error:
            raise Refusal("BAD_REQUEST", 422, f"{action}: {error.args[0]} is required") from error

    def allow(self, action: str, params: Params, by: UserId) -> None:
        """Cluster admins may do everything; a share's admins what concerns their share alone, and everybody may
        reserve for themselves (semantics 7.14)."""
        admins = self.ledger.settings.admins
        if not admins or by in admins:
            return
        if action in SHARE_ADMIN and self._runs(params.get("name"), by):
            return
        if action in ("reserve", "release") and self._reserves_own(params, by):
            return
        raise Refusal("FORBIDDEN", 403, f"{by} may not {action}: that needs a cluster admin")

    def _runs(self, name: object, by: UserId) -> bool:
        """Whether the user is an admin of the share of this name."""
        share = self.ledger.shares.get(ShareId(str(name)))
        return share is not None and by in share.admins

    def _reserves_own(self, params: Params, by: UserId) -> bool:
        """Whether it is about a reservation of the user's own, or of a share that they administer."""
        owners: list[tuple[object, object]] = []
        owner = params.get("owner")
        if isinstance(owner, dict):
            owners.append((owner.get("share"), owner.get("user")))
        book = self.ledger.reservations.get(ReservationId(str(params.get("reservation", params.get("name")))))
        if book is not None:
            owners.append((book.reservation.share, book.reservation.user))
        return bool(owners) and all(user == by if share is None else self._runs(share, by) for share, user in owners)

    def share(self, params: Params) -> Share:
        name = ShareId(str(params["name"]))
        found = self.ledger.shares.get(name)
        if found is None:
            raise Refusal("UNKNOWN_SHARE", 404, f"UNKNOWN_SHARE: share {name} does not exist")
        return found

    def node(self, params: Params) -> NodeId:
        name = NodeId(str(params["node"]))
        if name not in self.state.nodes:
            raise Refusal("UNKNOWN_NODE", 404, f"node {name} does not exist")
        return name

    def pool(self, params: Params) -> PoolId:
        name = PoolId(str(params["pool"]))
        if name not in self.ledger.pools:
            raise Refusal("UNKNOWN_POOL", 404, f"pool {name} does not exist")
        return name


# ── shares ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _create_share(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    name = str(params["name"])
    if ShareId(name) in desk.ledger.shares:
        raise Refusal("SHARE_EXISTS", 409, f"share {name} exists already")
    share = share_from_keys(name, params.get("share") or {}, None, desk.config())
    _refuse(refuses_size(desk.state, desk.ledger, None, share))
    return _share_change(desk, None, share, by, now_ms, params)


def _set_share(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    old = desk.share(params)
    keys = {key: value for key, value in params.items() if key not in ("name", "base")}
    new = share_from_keys(old.share, keys, old, desk.config())
    _refuse(refuses_change(desk.state, desk.ledger, old, new))
    return _share_change(desk, old, new, by, now_ms, params)


def _stop_share(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    old = desk.share(params)
    return _share_change(desk, old, structs.replace(old, stopped=True), by, now_ms, params)


def _open_share(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    old = desk.share(params)
    return _share_change(desk, old, structs.replace(old, stopped=False), by, now_ms, params)


def _delete_share(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    old = desk.share(params)
    _refuse(refuses_delete(desk.state, old))
    entry = e.ShareDeleted(at_ms=now_ms, share=old.share, by=by, base=params.get("base"))
    return Change(f"share {old.share}", [entry], [], share_to_keys(old), None)


def _share_change(desk: Desk, old: Share | None, new: Share, by: UserId, now_ms: int, params: Params) -> Change:
    entry = e.ShareSet(at_ms=now_ms, share=new, by=by, base=params.get("base"))
    before = None if old is None else share_to_keys(old)
    return Change(f"share {new.share}", [entry], [], before, share_to_keys(new))


def _rollback(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    """A share as it was at a ledger version; an ordinary change with all its checks, and a new version."""
    name, wanted = ShareId(str(params["name"])), params["version"]
    if isinstance(wanted, bool) or not isinstance(wanted, int):
        raise Refusal("BAD_REQUEST", 422, f"version: must be a whole number, got {wanted!r}")
    versions = [entry for version, entry in desk.history(name) if version <= wanted]
    if not versions or isinstance(versions[-1], e.ShareDeleted):
        raise Refusal("UNKNOWN_VERSION", 404, f"share {name} did not exist at version {wanted}")
    old = desk.ledger.shares.get(name)
    # Read anew: what it refers to (weights of others, groups, pools) may have changed meanwhile.
    new = share_from_keys(name, share_to_keys(versions[-1].share), old, desk.config())
    if old is None:
        _refuse(refuses_size(desk.state, desk.ledger, None, new))
    else:
        _refuse(refuses_change(desk.state, desk.ledger, old, new))
    return _share_change(desk, old, new, by, now_ms, params)


def _set_limits(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    keys = {key: value for key, value in params.items() if key not in ("name", "pool", "base")}
    if "pool" in params and "name" not in params:
        pool = desk.ledger.pools[desk.pool(params)]
        changed = pool_with_limits(pool, keys, desk.config())
        before = limits_to_keys(pool.limits) if pool.limits is not None else None
        after = limits_to_keys(changed.limits) if changed.limits is not None else None
        entry = e.PoolSet(at_ms=now_ms, pool=changed, by=by, base=params.get("base"))
        return Change(f"pool {pool.pool}", [entry], [], before, after)
    old = desk.share(params)
    limits_from_keys(keys, old.limits, list(desk.config().groups))
    return _share_change(desk, old, share_with_limits(old, keys, desk.config()), by, now_ms, params)


def _set_group(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    group, members = GroupId(str(params["group"])), params["members"]
    if not isinstance(members, list) or not all(isinstance(member, str) and member for member in members):
        raise Refusal("BAD_REQUEST", 422, "members: must be a list of user names")
    users = tuple(dict.fromkeys(UserId(member) for member in members))
    entry = e.GroupSet(at_ms=now_ms, group=group, members=users, by=by, base=params.get("base"))
    return Change(f"group {group}", [entry], [], list(desk.ledger.groups.get(group, ())), list(users))


# ── reservations, overrides, outside books ────────────────────────────────────────────────────────────────────────


def _reserve(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    keys = {key: value for key, value in params.items() if key != "base"}
    wanted = reservation_from_keys(keys, desk.origin_ms, now_ms)
    if wanted.pool not in desk.ledger.pools:
        raise Refusal("UNKNOWN_POOL", 404, f"pool {wanted.pool} does not exist")
    if wanted.share is not None and wanted.share not in desk.ledger.shares:
        raise Refusal("UNKNOWN_SHARE", 404, f"UNKNOWN_SHARE: share {wanted.share} does not exist")
    old = desk.ledger.reservations.get(wanted.reservation)
    if old is not None and old.state(now_ms) in ("expired", "released"):
        raise Refusal(
            "RESERVATION_OVER", 409, f"reservation {wanted.reservation} is {old.state(now_ms)}: use a new name"
        )
    entry = e.ReservationSet(at_ms=now_ms, reservation=wanted, by=by, base=params.get("base"))
    before = None if old is None else dict(old.reservation.amounts)
    return Change(f"reservation {wanted.reservation}", [entry], [], before, dict(wanted.amounts))


def _release(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    name = ReservationId(str(params["reservation"]))
    book = desk.ledger.reservations.get(name)
    if book is None:
        raise Refusal("UNKNOWN_RESERVATION", 404, f"reservation {name} does not exist")
    if book.released_ms is not None:
        raise Refusal("RESERVATION_OVER", 409, f"reservation {name} was released already")
    entry = e.ReservationReleased(at_ms=now_ms, reservation=name, by=by, base=params.get("base"))
    return Change(f"reservation {name}", [entry], [], dict(book.reservation.amounts), None)


def _override(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    name = f"o{len(desk.ledger.overrides) + 1}"
    made = override_from_keys(params, desk.origin_ms, now_ms, name, desk.ledger.settings.authorities)
    if made.share is not None and made.share not in desk.ledger.shares:
        raise Refusal("UNKNOWN_SHARE", 404, f"UNKNOWN_SHARE: share {made.share} does not exist")
    if made.pool is not None and made.pool not in desk.ledger.pools:
        raise Refusal("UNKNOWN_POOL", 404, f"pool {made.pool} does not exist")
    entry = e.OverrideSet(at_ms=now_ms, override=made, by=by)
    return Change(f"override {made.override}", [entry], [], None, dict(made.amounts))


def _report_reserved(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    pool, told = desk.pool(params), params["amounts"]
    if not isinstance(told, dict):
        raise Refusal("BAD_REQUEST", 422, "amounts: must be amounts per kind")
    amounts = {str(kind): parse_amount(str(kind), given) for kind, given in told.items()}
    entry = e.ReservedReported(at_ms=now_ms, pool=pool, amounts=amounts, by=by)
    return Change(f"pool {pool}", [entry], [], desk.ledger.reported.get(pool), amounts)


def _reconcile(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    pool = desk.pool(params)
    return Change(
        f"pool {pool}", [e.Reconciled(at_ms=now_ms, pool=pool, by=by)], [], desk.ledger.reported.get(pool), None
    )


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _cordon(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    node = desk.node(params)
    event = ev.NodeCordoned(at_ms=now_ms, node=node, by=by, reason=str(params.get("reason") or ""))
    return Change(f"node {node}", [], [event], desk.state.nodes[node].cordoned, event.reason or f"cordoned by {by}")


def _uncordon(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    node = desk.node(params)
    event = ev.NodeUncordoned(at_ms=now_ms, node=node, by=by)
    return Change(f"node {node}", [], [event], desk.state.nodes[node].cordoned, None)


def _remove_node(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    node = desk.node(params)
    return Change(f"node {node}", [], [ev.NodeRemoved(at_ms=now_ms, node=node, by=by)], "present", None)


def _repool_node(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    node, pool = desk.node(params), desk.pool(params)
    jobs = desk.state.nodes[node].jobs
    if jobs and desk.ledger.pools[pool].role == "standby":
        raise Refusal("NODE_IN_USE", 409, f"node {node} holds {len(jobs)} jobs and cannot become a spare")
    event = ev.NodeRepooled(at_ms=now_ms, node=node, pool=pool, by=by)
    return Change(f"node {node}", [], [event], desk.state.nodes[node].pool, pool)


def _repair_task(desk: Desk, params: Params, by: UserId, now_ms: int) -> Change:
    """A repair task of the provider: open it is a FATAL signal, closing it says that the repair is done."""
    node = desk.node(params)
    if params.get("open", True):
        detail = str(params.get("reason") or f"repair task opened by {by}")
        opened = ev.FatalSeen(at_ms=now_ms, node=node, signal="repair_task", detail=detail)
        return Change(f"node {node}", [], [opened], None, "repair task open")
    closed: list[ev.AnyEvent] = [ev.FatalCleared(at_ms=now_ms, node=node, signal="repair_task")]
    if desk.state.nodes[node].health == "failed":
        closed.append(ev.NodeReset(at_ms=now_ms, node=node))
    return Change(f"node {node}", [], closed, "repair task open", None)


def _refuse(why: str | None) -> None:
    if why is not None:
        raise Refusal("REFUSED", 409, why)


ACTIONS: dict[str, Callable[[Desk, Params, UserId, int], Change]] = {
    "create_share": _create_share,
    "set_share": _set_share,
    "stop_share": _stop_share,
    "open_share": _open_share,
    "delete_share": _delete_share,
    "rollback": _rollback,
    "set_limits": _set_limits,
    "set_group": _set_group,
    "reserve": _reserve,
    "release": _release,
    "override": _override,
    "report_reserved": _report_reserved,
    "reconcile": _reconcile,
    "cordon": _cordon,
    "uncordon": _uncordon,
    "remove_node": _remove_node,
    "repool_node": _repool_node,
    "repair_task": _repair_task,
}
SHARE_ADMIN = frozenset({"set_share", "stop_share", "open_share", "delete_share", "set_limits", "rollback"})
# Changes of things that have a version; an edit of one may name the version it was made from.
EDITS = SHARE_ADMIN | {"create_share", "set_group", "reserve", "release"}
