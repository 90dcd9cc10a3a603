"""Who lent what to whom, derived from the charges: the lender with the lowest weight first (semantics 4.3).

A share's loan is max(0, charged − owned); nothing about it is stored, so idle quota that comes back re-writes loans
without stopping anything. Which job is on which loan is derived here too, for reports and reclaim."""

from msgspec import Struct

from raysched.core.accounts import Account
from raysched.core.books import Claim
from raysched.core.ledger import Ledger
from raysched.core.model import JobId, PoolId, ShareId
from raysched.core.units import Amounts, Kind, add_into

LAST_WEIGHT = 1_000  # shares without a weight lend after all that have one (1–100)


class Loan(Struct, frozen=True, order=True):
    """What `borrower` uses of `lender`'s idle quota in one pool and kind; since its earliest job on loan."""

    pool: PoolId
    kind: Kind
    borrower: ShareId
    lender: ShareId
    amount: int
    since_ms: int
    jobs: tuple[JobId, ...] = ()


def loans(ledger: Ledger) -> list[Loan]:
    """Every loan that stands, in order of pool, kind, borrower and lender."""
    found: list[Loan] = []
    for (_, pool), common in sorted(ledger.quota.commons.items(), key=lambda item: item[0]):
        kinds = sorted({kind for account in common.accounts for kind in account.nominal})
        for kind in kinds:
            found += _of_kind(ledger, pool, kind, common.accounts)
    return sorted(found)


def _of_kind(ledger: Ledger, pool: PoolId, kind: Kind, accounts: list[Account]) -> list[Loan]:
    borrowers = [account for account in accounts if account.borrowed(kind)]
    if not borrowers:
        return []
    lenders = sorted((a for a in accounts if a.lends and a.idle_lendable(kind)), key=lambda a: _weight(ledger, a))
    idle = {account.share: account.idle_lendable(kind) for account in lenders}
    found: list[Loan] = []
    needs: list[tuple[Account, str, int, list[Claim]]] = []
    for account in sorted(borrowers, key=lambda a: (-(_weight(ledger, a)[0]), a.share)):
        for workload, (amount, claims) in on_loan(ledger, account, kind).items():
            needs.append((account, workload, amount, claims))
    # A kind of work that few lenders accept chooses first: otherwise others could take the only quota it may use.
    needs.sort(key=lambda need: sum(1 for lender in lenders if _accepts(lender, need[1])))
    given: dict[tuple[ShareId, ShareId], tuple[int, int, tuple[JobId, ...]]] = {}
    for account, workload, amount, claims in needs:
        since = min((claim.admitted_ms for claim in claims), default=0)
        for lender in lenders:
            if amount and lender.share != account.share and _accepts(lender, workload):
                part = min(amount, idle[lender.share])
                if part:
                    idle[lender.share] -= part
                    amount -= part
                    key = (account.share, lender.share)
                    old = given.get(key, (0, since, ()))
                    jobs = tuple(dict.fromkeys([*old[2], *(claim.job for claim in claims)]))
                    given[key] = (old[0] + part, min(old[1], since), jobs)
    for (borrower, lender_id), (amount, since, jobs) in given.items():
        found.append(Loan(pool, kind, borrower, lender_id, amount, since, jobs))
    return found


def on_loan(ledger: Ledger, account: Account, kind: Kind) -> dict[str, tuple[int, list[Claim]]]:
    """What of a share's jobs is on loan, by workload kind: (amount, jobs). Jobs fill the own quota in order of priority
    and admission; those of a kind that no lender accepts go first; a job may be partly on loan."""
    lenders = [a for a in account.common.accounts if a.lends and a.share != account.share and kind in a.nominal]
    claims = [c for c in ledger.claims.values() if c.share == account.share and c.pool == account.pool]
    claims = [claim for claim in claims if claim.amounts.get(kind)]
    nobody = {claim.job: not any(_accepts(lender, claim.workload) for lender in lenders) for claim in claims}
    claims.sort(key=lambda c: (not nobody[c.job], c.priority, c.admitted_ms, c.job))
    own, found = account.owned(kind), dict[str, tuple[int, list[Claim]]]()
    for claim in claims:
        amount = claim.amounts[kind]
        covered = min(own, amount)
        own -= covered
        if amount > covered:
            before = found.get(claim.workload, (0, []))
            found[claim.workload] = (before[0] + amount - covered, [*before[1], claim])
    return found


def lent(ledger: Ledger) -> dict[tuple[ShareId, PoolId], Amounts]:
    """What each share has lent, per pool."""
    found: dict[tuple[ShareId, PoolId], Amounts] = {}
    for loan in loans(ledger):
        add_into(found.setdefault((loan.lender, loan.pool), {}), {loan.kind: loan.amount})
    return found


def _accepts(lender: Account, workload: str) -> bool:
    return lender.accepts is None or workload in lender.accepts


def _weight(ledger: Ledger, account: Account) -> tuple[int, ShareId]:
    weight = ledger.shares[account.share].weight
    return (LAST_WEIGHT if weight is None else weight, account.share)
