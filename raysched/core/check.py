"""`check(state, ledger)`: every invariant in full, as a list of what is broken (empty = the books balance).

Run in tests after every step, at recovery and by `raysched check`. What is an index is rebuilt and compared."""

from raysched.core.free_index import FreeIndex
from raysched.core.ledger import Ledger
from raysched.core.model import ACTIVE, Share
from raysched.core.pools import PoolRoom
from raysched.core.quota import QuotaTree
from raysched.core.room import Room
from raysched.core.state import Job, State
from raysched.core.stock import Stock
from raysched.core.units import MILLI, Amounts, add_into


def check(state: State, ledger: Ledger) -> list[str]:
    """What does not hold, in words with numbers."""
    return [*_jobs(state, ledger), *_nodes(state), *_pools(state), *_sums(ledger), *_devices(state)]


def _jobs(state: State, ledger: Ledger) -> list[str]:
    found: list[str] = []
    pending = {order[-1] for order in state.pending.orders()}
    for name, job in state.jobs.items():
        if (job.state == "queued") != (name in pending):
            found.append(f"job {name} is {job.state}, in a queue: {name in pending}")
        if (job.state in ACTIVE) != (name in state.active):
            found.append(f"job {name} is {job.state}, active: {name in state.active}")
        found += _claim(job, ledger)
    for name in ledger.claims:
        if name not in state.jobs or state.jobs[name].state not in ACTIVE:
            found.append(f"the ledger has a claim of job {name}, which is not active")
    return found


def _claim(job: Job, ledger: Ledger) -> list[str]:
    claim = ledger.claims.get(job.job)
    if job.state not in ACTIVE:
        return []
    if claim is None:
        return [f"job {job.job} is {job.state} without a claim"]
    if claim.attempt != job.attempt or claim.share != job.share:
        there = f"attempt {claim.attempt} of share {claim.share}"
        return [f"job {job.job} runs attempt {job.attempt} of share {job.share}, the claim is of {there}"]
    return []


def _nodes(state: State) -> list[str]:
    """Law 1: claims on a node never exceed what it has; the room left is what the holds leave."""
    found: list[str] = []
    for name, node in state.nodes.items():
        room = Room.of(node.spec)
        left: Amounts = room.free(node.spec.gpu_model)
        held = [job for job in state.jobs.values() if job.state in ACTIVE]
        for job in held:
            for placed in job.placement:
                if placed.node == name:
                    bundle = job.bundles[placed.bundle]
                    add_into(left, bundle.amounts(node.spec.gpu_model), -placed.count)
        if any(amount < 0 for amount in left.values()):
            found.append(f"node {name} is overbooked: {left}")
        if left != {kind: n for kind, n in node.room.free(node.spec.gpu_model).items() if n}:
            found.append(f"node {name} counts {node.room.free(node.spec.gpu_model)} free, its jobs leave {left}")
        if sum(node.room.devices) != node.room.gpu_milli or node.room.whole != node.room.devices.count(MILLI):
            found.append(f"node {name}: devices {node.room.devices}, sums {node.room.gpu_milli} and {node.room.whole}")
    return found


def _devices(state: State) -> list[str]:
    """No reported GPU is held twice; fractions on one add up to at most 1."""
    found: list[str] = []
    for name, node in state.nodes.items():
        used: dict[int, int] = {}
        for hold in node.room.holds:
            for index in hold.devices if hold.reported else ():
                used[index] = used.get(index, 0) + hold.milli
        found += [f"GPU {index} of node {name} is held {n} thousandths" for index, n in used.items() if n > MILLI]
    return found


def _pools(state: State) -> list[str]:
    """Indexes of free room against a fresh count."""
    found: list[str] = []
    for pool, room in state.pools.items():
        fresh = PoolRoom()
        other = State()
        other.pools[pool] = fresh
        for _, node in sorted(room.nodes.items()):
            if node.pool == pool:
                other.index(node)
        if room.by_cores is not None:
            fresh.cores()
        for model in room.stocks:
            fresh.stock(model)
        for what in (
            "free",
            "total",
            "specs",
            "models",
            "by_whole",
            "by_part",
            "by_cores",
            "stocks",
            "dubious",
            "reported",
        ):
            was, now = _lean(getattr(room, what)), _lean(getattr(fresh, what))
            if was != now:
                found.append(f"pool {pool}: {what} is {was}, a fresh count says {now}")
    placed = {name for room in state.pools.values() for name in room.nodes}
    found += [f"node {name} is in no pool's index" for name in state.nodes if name not in placed]
    return found


def _lean(value: object) -> object:
    """Without empty parts, which mean nothing; an index as what stands in it."""
    if isinstance(value, FreeIndex | Stock):
        return value.standing()
    if isinstance(value, dict):
        return {key: _lean(inner) for key, inner in value.items() if _lean(inner)}
    return value


def _sums(ledger: Ledger) -> list[str]:
    """Kept sums of the quota tree against a recount of all claims."""
    fresh = QuotaTree()
    fresh.limits.set_groups(ledger.groups)
    shares: dict[str, Share] = {str(name): share for name, share in ledger.shares.items()}
    fresh.set_shares(dict(ledger.shares), ledger.pool_order())
    fresh.set_overrides(ledger.active_overrides(ledger.now_ms))
    found: list[str] = []
    for claim in ledger.claims.values():
        if claim.share in shares:
            fresh.charge(claim.ask(), check=False)
        else:
            found.append(f"job {claim.job} is charged to share {claim.share}, which does not exist")
    for key, account in ledger.quota.accounts.items():
        was = {kind: amount for kind, amount in account.used.items() if amount}
        now = {kind: amount for kind, amount in fresh.account(*key).used.items() if amount}
        if was != now:
            found.append(f"share {key[0]} in pool {key[1]} counts {was}, its claims sum to {now}")
    for cohort, common in ledger.quota.commons.items():
        other = fresh.commons.get(cohort)
        if other is not None and (common.taken, common.lendable) != (other.taken, other.lendable):
            found.append(f"cohort {cohort} counts {common.taken} taken of {common.lendable}, a recount {other.taken}")
    if ledger.quota.limits.used != fresh.limits.used:
        found.append(f"users hold {ledger.quota.limits.used}, a recount says {fresh.limits.used}")
    for name, book in ledger.reservations.items():
        drawn: Amounts = {}
        for claim in ledger.claims.values():
            if claim.reservation == name:
                add_into(drawn, claim.draws)
        if drawn != {kind: amount for kind, amount in book.drawn.items() if amount}:
            found.append(f"reservation {name} counts {book.drawn} drawn, its claims sum to {drawn}")
    return found
