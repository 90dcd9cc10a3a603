"""Before submitting: what would refuse a request, and what it would wait for (semantics 8.1). No side effect.

`submit` uses the same findings, and the same `assess` as the plan: what is allowed here is admitted on the same state
(law 9)."""

from typing import Literal

from msgspec import Struct, field

from raysched.core.accounts import Account
from raysched.core.admission import Assessment, Option, assess
from raysched.core.draft import Draft
from raysched.core.ledger import Ledger
from raysched.core.lines import class_key
from raysched.core.model import JobSpec, NodeSpec, PoolId, Share
from raysched.core.queue import options, priority_of
from raysched.core.record import AdmissionRecord, QuotaRow
from raysched.core.state import Job, State
from raysched.core.units import Amounts, Kind, covers, format_amount

Severity = Literal["block", "wait"]


class Row(Struct, frozen=True):
    """One kind: what is allowed or available, what is asked, by how much it is over."""

    limit: int
    requested: int
    excess: int


class Finding(Struct, frozen=True):
    """One thing that refuses the request (`block`) or that it would wait for (`wait`). `numbers`: counts of nodes and
    bundles. `confirmable`: `confirm=true` would lift it."""

    kind: str
    severity: Severity
    text: str
    rows: dict[Kind, Row] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    confirmable: bool = False


def diagnose(state: State, ledger: Ledger, spec: JobSpec, now_ms: int) -> list[Finding]:
    """All findings on `spec` in the order of semantics 8.1; empty when it would start now."""
    found = blocking(state, ledger, spec, now_ms)
    if _may_not_use(ledger, spec):
        return found
    job = as_job(state, ledger, spec, now_ms)
    choice = options(state, ledger, spec.share, job.class_key())
    return found + _waits(state, ledger, job, choice, now_ms, {finding.kind for finding in found})


def blocking(state: State, ledger: Ledger, spec: JobSpec, now_ms: int) -> list[Finding]:
    """The findings of `diagnose` that can refuse a submission. Looks at no node, so it costs little in any cluster."""
    refused = _may_not_use(ledger, spec)
    if refused:
        return refused
    ledger.advance(now_ms)
    share = ledger.shares[spec.share]
    choice = options(state, ledger, spec.share, class_key(spec, spec.cross_pool))
    return [
        *_over_node(state, ledger, spec, choice),
        *_over_limit(ledger, spec, choice),
        *_over_share(state, ledger, share, spec, choice),
    ]


def refusal(findings: list[Finding], confirm: bool) -> str | None:
    """The message that refuses a submission, naming every blocking finding; None when it may be queued."""
    blocking = [finding for finding in findings if finding.severity == "block"]
    liftable = all(finding.confirmable for finding in blocking)
    if not blocking or (confirm and liftable):
        return None
    text = "; ".join(f"{finding.kind}: {finding.text}" for finding in blocking)
    return f"{text}; NEEDS_CONFIRM: confirm=true queues it all the same" if liftable else text


def as_job(state: State, ledger: Ledger, spec: JobSpec, now_ms: int) -> Job:
    """The job as it would be queued now."""
    priority = priority_of(ledger.shares[spec.share], spec)
    return Job(spec, spec.bundles, spec.share, priority, spec.cross_pool, now_ms, state.submitted + 1)


# ── what may not be used at all ───────────────────────────────────────────────────────────────────────────────────


def _may_not_use(ledger: Ledger, spec: JobSpec) -> list[Finding]:
    share = ledger.shares.get(spec.share)
    if share is None:
        return [Finding("UNKNOWN_SHARE", "block", f"share {spec.share} does not exist")]
    found: list[Finding] = []
    if spec.pool is not None:
        pool = ledger.pools.get(spec.pool)
        if pool is None:
            found.append(Finding("UNKNOWN_POOL", "block", f"pool {spec.pool} does not exist"))
        elif pool.role == "standby":
            found.append(
                Finding("STANDBY_POOL", "block", f"pool {spec.pool} is a standby pool: nothing is placed there")
            )
    if share.stopped:
        found.append(Finding("SHARE_STOPPED", "block", f"share {share.share} is stopped"))
    if spec.workload not in share.workloads:
        allowed = ", ".join(share.workloads) or "none"
        text = f"share {share.share} takes {allowed}, not {spec.workload}"
        found.append(Finding("WORKLOAD_NOT_ALLOWED", "block", text))
    if not linked(share, spec.workspace):
        text = (
            f"share {share.share} is linked to {', '.join(share.workspaces) or 'no workspace'}, not to {spec.workspace}"
        )
        found.append(Finding("WORKSPACE_NOT_LINKED", "block", text))
    return found


def linked(share: Share, workspace: str | None) -> bool:
    """Whether the share may be used from a workspace (semantics 3.3)."""
    return "*" in share.workspaces or (workspace is not None and workspace in share.workspaces)


# ── what can never start ──────────────────────────────────────────────────────────────────────────────────────────


def _over_node(state: State, ledger: Ledger, spec: JobSpec, choice: list[Option]) -> list[Finding]:
    """A bundle over the largest node of all pools the job may use; nothing is said if no node ever reported."""
    specs = _counted(state, spec, choice)
    if not specs:
        return []
    confirmable = ledger.quota.limits.on_exceed_confirms(spec.share)
    for number, bundle in enumerate(spec.bundles):
        if any(covers(each.amounts(), bundle.amounts(spec.model)) for each in specs):
            continue
        rows = _over_largest(bundle.amounts(spec.model), specs)
        text = f"bundle {number} fits no node: " + _rows_text(rows, "the largest node has")
        return [Finding("OVER_NODE_MAX", "block", text, rows, {"bundle": number}, confirmable)]
    return []


def _counted(state: State, spec: JobSpec, choice: list[Option]) -> list[NodeSpec]:
    """The different specs among nodes that count as capacity."""
    pools = dict.fromkeys(pool for pool, _ in choice)
    return [
        found
        for pool in pools
        for _, (found, _) in sorted(state.pool_room(pool).specs.items())
        if spec.model in (None, found.gpu_model) or not spec.uses_gpu
    ]


def _over_largest(ask: Amounts, specs: list[NodeSpec]) -> dict[Kind, Row]:
    """Against the node that falls short by the least number of kinds, then by the smallest part."""

    def shortness(spec: NodeSpec) -> tuple[int, float]:
        has = spec.amounts()
        short = [(amount - has.get(kind, 0)) / amount for kind, amount in ask.items() if amount > has.get(kind, 0)]
        return len(short), sum(short)

    has = min(specs, key=shortness).amounts()
    return {k: Row(has.get(k, 0), n, n - has.get(k, 0)) for k, n in ask.items() if n > has.get(k, 0)}


def _over_limit(ledger: Ledger, spec: JobSpec, choice: list[Option]) -> list[Finding]:
    """The whole request over a personal limit (or over the total of a group), wherever it may run; told of the first
    place."""
    over: list[QuotaRow] = []
    for pool, model in choice or [(PoolId(""), spec.model)]:
        rows = ledger.quota.limits.rows(spec.share, spec.user, pool, spec.amounts(model))
        found = [row for row in rows if row.request > row.limit + row.override]
        if not found:
            return []
        over = over or found
    shown = {
        row.kind: Row(row.limit + row.override, row.request, row.request - row.limit - row.override) for row in over
    }
    text = f"{over[0].scope}: " + _rows_text(shown, "the limit is")
    confirmable = ledger.quota.limits.on_exceed_confirms(spec.share)
    return [Finding("OVER_USER_LIMIT", "block", text, shown, {}, confirmable)]


def _over_share(state: State, ledger: Ledger, share: Share, spec: JobSpec, choice: list[Option]) -> list[Finding]:
    """The whole request over what the share could ever be charged, or over the healthy capacity, in every pool."""
    best: dict[Kind, Row] | None = None
    for pool, model in choice:
        ask = spec.amounts(model)
        most = share_most(state, ledger, share, pool, spec.workload)
        rows = {kind: Row(most[kind], n, n - most[kind]) for kind, n in ask.items() if kind in most and n > most[kind]}
        if not rows:
            return []
        best = rows if best is None else best
    if best is None:
        ask = spec.amounts(spec.model)
        best = {kind: Row(0, amount, amount) for kind, amount in ask.items()}
        if not best:
            return []
    text = f"share {share.share}: " + _rows_text(best, "the most it can be charged is")
    return [Finding("OVER_SHARE_MAX", "block", text, best, {}, True)]


def share_most(state: State, ledger: Ledger, share: Share, pool: PoolId, workload: str) -> Amounts:
    """The most a share could ever be charged in a pool, per kind that is bounded: nominal plus what it may borrow of
    what others lend (semantics 4.2), and never more than the pool's healthy capacity, once a node has reported."""
    tree = ledger.quota
    account = tree.account(share.share, pool)
    most: Amounts = {}
    for kind in account.nominal:
        most[kind] = account.owned(kind) + _most_borrowed(state, ledger, account, kind, workload)
    room = state.pool_room(pool)
    if room.reported:
        for kind, amount in room.total.items():
            most[kind] = min(most.get(kind, amount), amount)
        for kind in most:
            most[kind] = min(most[kind], room.total.get(kind, 0))
    return most


def _most_borrowed(state: State, ledger: Ledger, account: Account, kind: Kind, workload: str) -> int:
    if not account.borrows:
        return 0
    tree = ledger.quota
    if account.common.restricted:
        others = [other for other in account.common.accounts if other is not account and other.lends]
        others = [other for other in others if other.accepts is None or workload in other.accepts]
        lent = sum(max(0, other.owned(kind) - other.local.get(kind, 0)) for other in others)
    else:
        lent = account.common.lendable.get(kind, 0) - (account.owned(kind) - account.local.get(kind, 0))
    limit = account.borrow_limit.get(kind)
    most = lent if limit is None else min(lent, limit)
    room = state.pool_room(account.pool)
    if room.reported:
        total = room.total.get(kind, 0)
        unassigned = max(0, total - tree.nominal_in_pool(account.pool).get(kind, 0))
        most = min(most, max(0, total - unassigned - account.nominal.get(kind, 0)))
    return most


# ── what it would wait for ────────────────────────────────────────────────────────────────────────────────────────


def _waits(
    state: State, ledger: Ledger, job: Job, choice: list[Option], now_ms: int, blocking: set[str]
) -> list[Finding]:
    """Nothing when some option would admit the job now; else what its first option waits for."""
    draft = Draft(state, ledger)
    first: Assessment | None = None
    for option in choice:
        found = assess(draft, job, option, now_ms)
        if found.placement is not None:
            return []
        first = found if first is None else first
    if first is None or first.record.reason is None:
        return []
    record = first.record
    findings = [*_waiting_rows(state, job, record, blocking)]
    if not findings and not blocking:
        findings.append(_waiting_room(state, job, record))
    return findings


def _waiting_rows(state: State, job: Job, record: AdmissionRecord, blocking: set[str]) -> list[Finding]:
    found: dict[str, Finding] = {}
    for row in record.quota_rows:
        over = row.request - row.remaining - row.override
        if over <= 0 or ("OVER_USER_LIMIT" in blocking and row.reason in ("USER_LIMIT", "GROUP_LIMIT")):
            continue
        if "OVER_SHARE_MAX" in blocking and row.scope.startswith("share "):
            continue
        shown = {row.kind: Row(max(0, row.remaining + row.override), row.request, over)}
        before = found.get(row.reason)
        rows = {**before.rows, **shown} if before is not None else shown
        text = f"{row.scope}: " + _rows_text(rows, "idle is")
        found[row.reason] = Finding(row.reason, "wait", text, rows, _node_numbers(state, job, record))
    return list(found.values())


def _waiting_room(state: State, job: Job, record: AdmissionRecord) -> Finding:
    rows = {
        row.kind: Row(row.allocatable or 0, row.request, max(0, row.request - (row.allocatable or 0)))
        for row in record.capacity_rows
    }
    numbers = _node_numbers(state, job, record)
    text = f"{record.bundles_fit} of {record.bundles_asked} bundles can be placed now"
    if record.evidence_ref:
        text += f" ({record.evidence_ref})"
    return Finding(str(record.reason), "wait", text, rows, numbers)


def _node_numbers(state: State, job: Job, record: AdmissionRecord) -> dict[str, int]:
    """How many nodes fit the largest bundle's spec, have room for it now, and how many bundles are missing."""
    if record.pool is None:
        return {}
    nodes = [node for node in state.pool_room(record.pool).nodes.values() if node.usable]
    bundle = max(job.bundles, key=lambda b: (b.gpu_milli, b.cpu_milli, b.memory_bytes))
    ask = bundle.amounts(record.model if bundle.gpu_milli else None)
    return {
        "nodes_fit_spec": sum(1 for node in nodes if covers(node.spec.amounts(), ask)),
        "nodes_fit_now": sum(1 for node in nodes if covers(node.spec.amounts(), ask) and node.room.fits(bundle)),
        "bundles_fit": record.bundles_fit,
        "bundles_missing": record.bundles_asked - record.bundles_fit,
    }


def _rows_text(rows: dict[Kind, Row], what: str) -> str:
    return "; ".join(
        f"{kind}: {what} {format_amount(kind, row.limit)}, asked {format_amount(kind, row.requested)}, "
        f"over by {format_amount(kind, row.excess)}"
        for kind, row in rows.items()
    )
