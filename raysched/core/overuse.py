"""Who is charged beyond a ceiling: nobody is stopped when a quota or limit is lowered (semantics 2.8, 3.8)."""

from collections.abc import Iterator

from msgspec import Struct

from raysched.core.accounts import Account, uncovered
from raysched.core.books import Claim
from raysched.core.ledger import Ledger
from raysched.core.loans import on_loan
from raysched.core.model import JobId, PoolId
from raysched.core.units import Kind


class Overuse(Struct, frozen=True):
    """`over`: by how much; `jobs`: those that count there. `pool` None: a ceiling over all pools."""

    scope: str
    pool: PoolId | None
    kind: Kind
    over: int
    jobs: tuple[JobId, ...]


def overuse(ledger: Ledger) -> list[Overuse]:
    """Shares beyond what they own and may borrow, then users and groups beyond their limits; overrides are counted."""
    return [*_shares(ledger), *_limits(ledger)]


def _shares(ledger: Ledger) -> Iterator[Overuse]:
    for (share, pool), account in sorted(ledger.quota.accounts.items()):
        for kind in account.nominal:
            over = _over(ledger, account, kind)
            if over > 0:
                claims = [claim for _, some in on_loan(ledger, account, kind).values() for claim in some]
                jobs = tuple(sorted(claim.job for claim in claims))
                yield Overuse(f"share {share}", pool, kind, over, jobs)


def _over(ledger: Ledger, account: Account, kind: Kind) -> int:
    """What a share borrows and may not, or what it borrows and nobody lends any more."""
    borrowed = account.borrowed(kind)
    if not borrowed or not account.borrows:
        return borrowed
    unlent = min(borrowed, uncovered(account.common.accounts, kind))
    limit = account.borrow_limit.get(kind)
    if limit is None:
        return unlent
    mine = [other for key, other in ledger.quota.accounts.items() if key[0] == account.share]
    return max(unlent, min(borrowed, sum(other.borrowed(kind) for other in mine) - limit))


def _limits(ledger: Ledger) -> Iterator[Overuse]:
    seen: dict[tuple[str, Kind], tuple[int, list[Claim]]] = {}
    for _, claim in sorted(ledger.claims.items()):
        nothing = dict.fromkeys(claim.amounts, 0)
        for row in ledger.quota.limits.rows(claim.share, claim.user, claim.pool, nothing):
            over = row.used - row.limit - row.override
            if over > 0:
                seen.setdefault((row.scope, row.kind), (over, []))[1].append(claim)
    for (scope, kind), (over, claims) in sorted(seen.items()):
        yield Overuse(scope, None, kind, over, tuple(claim.job for claim in claims))
