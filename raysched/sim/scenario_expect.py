"""Expectations against what is: each value that an `expect` names becomes one check with what was found."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from raysched.config.sections import Keys
from raysched.core.model import LOWEST_PRIORITY
from raysched.core.units import GPU, format_amount
from raysched.runtime.service import Service
from raysched.sim.scenario_expected import NUMBERS, Expected, Holding, JobExpected, RecordExpected, signed_amount

UNDER_REPAIR: Final = ("validating", "quarantined")  # told as `failed` too: until validated, a node has failed
Row = dict[str, Any]


class Check(Struct, frozen=True):
    """One value: where it stands below `expect`, what was wanted, what is there; both as people write them."""

    path: str
    expected: Any
    found: Any
    ok: bool


def checks(expected: Expected, service: Service, findings: list[Row]) -> list[Check]:
    """Every check of one `expect`, in the order of its keys. `findings` are those of the last diagnose."""
    found: list[Check] = []
    for key in type(expected).model_fields:
        if key in expected.model_fields_set:
            found += LOOKS[key](getattr(expected, key), service, findings)
    return found


def _check(path: str, expected: Any, found: Any, ok: bool | None = None) -> Check:
    return Check(path, expected, found, expected == found if ok is None else ok)


def _given(keys: Keys) -> Iterable[tuple[str, Any]]:
    """The values a mapping names."""
    return ((name, getattr(keys, name)) for name in type(keys).model_fields if name in keys.model_fields_set)


def _amounts(path: str, expected: Mapping[str, int], found: Mapping[str, int]) -> list[Check]:
    """Amounts kind by kind; a kind that is not there is 0."""
    return [_amount(f"{path}.{kind}", kind, amount, found.get(kind, 0)) for kind, amount in expected.items()]


def _amount(path: str, kind: str, expected: int | None, found: int | None) -> Check:
    return Check(path, _written(kind, expected), _written(kind, found), expected == found)


def _written(kind: str, amount: int | None) -> str | None:
    return None if amount is None else format_amount(kind, amount)


def _missing(path: str, what: str, expected: Any) -> Check:
    return Check(path, expected, f"no such {what}", False)


# ── jobs and use ──────────────────────────────────────────────────────────────────────────────────────────────────


def _jobs(expected: Mapping[str, Keys], service: Service, _: list[Row]) -> list[Check]:
    found: list[Check] = []
    for name, keys in expected.items():
        view = _job_view(service, name)
        if view is None:
            found.append(_missing(f"jobs.{name}", "job", dict(_given(keys))))
            continue
        for field, value in _given(keys):
            found.append(_check(f"jobs.{name}.{field}", _job_word(field, value), _job_word(field, view[field])))
    return found


def _job_view(service: Service, name: str) -> Row | None:
    """The job; of a refused submission, which leaves none, what its record says."""
    view: Row = service.job(name)
    if "error" not in view:
        return view
    record = next((record for job, record in service.ledger.records.items() if job == name), None)
    if record is None or record.admission_state != "REJECTED":
        return None
    told = {"state": "rejected", "admission": "REJECTED", "contention": record.contention_state}
    return {**dict.fromkeys(JobExpected.model_fields), "share": str(record.share), **told}


def _job_word(field: str, value: Any) -> Any:
    return f"P{value}" if field == "priority" and value in range(LOWEST_PRIORITY + 1) else value


def _usage(expected: Any, service: Service, _: list[Row]) -> list[Check]:
    now = service.usage()
    found: list[Check] = []
    for share, amounts in expected.shares.items():
        if share not in now["shares"] and share not in service.ledger.shares:
            found.append(_missing(f"usage.shares.{share}", "share", dict(amounts)))
        else:
            found += _amounts(f"usage.shares.{share}", amounts, now["shares"].get(share, {}))
    for user, holding in expected.users.items():
        places = now["users"].get(user, {})
        held = _held(places, holding)
        found += _amounts(f"usage.users.{user}", holding.amounts, held)
    return found


def _held(places: Mapping[str, Mapping[str, int]], holding: Holding) -> dict[str, int]:
    share = holding.names.get("share")
    counted = [amounts for place, amounts in places.items() if share in (None, place)]
    return {kind: sum(amounts.get(kind, 0) for amounts in counted) for kind in holding.amounts}


def _loans(expected: list[Holding], service: Service, _: list[Row]) -> list[Check]:
    """Exactly these: summed per borrower, lender, pool (where one is named) and kind."""
    kinds = {kind for holding in expected for kind in holding.amounts} or {GPU}
    wanted: dict[tuple[str, str, str, str], int] = {}
    for holding in expected:
        for kind, amount in holding.amounts.items():
            names = holding.names
            key = (names["borrower"], names["lender"], names.get("pool", ""), kind)
            wanted[key] = wanted.get(key, 0) + amount
    there: dict[tuple[str, str, str, str], int] = {}
    for loan in service.loans():
        if loan["kind"] in kinds:
            exact = (loan["borrower"], loan["lender"], loan["pool"], loan["kind"])
            key = exact if exact in wanted else (exact[0], exact[1], "", exact[3])
            if key not in wanted:
                key = exact
            there[key] = there.get(key, 0) + loan["amount"]
    wanted = {key: amount for key, amount in wanted.items() if amount}
    return [Check("loans", _loan_texts(wanted), _loan_texts(there), wanted == there)]


def _loan_texts(loans: Mapping[tuple[str, str, str, str], int]) -> list[str]:
    return [
        f"{borrower} from {lender}{f' in {pool}' if pool else ''}: {format_amount(kind, amount)} {kind}"
        for (borrower, lender, pool, kind), amount in sorted(loans.items())
    ]


# ── nodes, pools, shares ──────────────────────────────────────────────────────────────────────────────────────────


def _nodes(expected: Mapping[str, Keys], service: Service, _: list[Row]) -> list[Check]:
    found: list[Check] = []
    nodes = {str(name): node for name, node in service.state.nodes.items()}
    for name, keys in expected.items():
        node = nodes.get(name)
        if node is None:
            found.append(_missing(f"nodes.{name}", "node", dict(_given(keys))))
            continue
        for field, value in _given(keys):
            there = getattr(node, field)
            if field == "health" and value == "failed" and there in UNDER_REPAIR:
                there = "failed"
            found.append(_check(f"nodes.{name}.{field}", value, there))
    return found


def _pools(expected: Mapping[str, Keys], service: Service, _: list[Row]) -> list[Check]:
    return _of_views("pools", "pool", expected, {view["pool"]: view for view in service.pools()})


def _shares(expected: Mapping[str, Keys], service: Service, _: list[Row]) -> list[Check]:
    return _of_views("shares", "share", expected, {view["share"]: view for view in service.shares()})


def _reservations(expected: Mapping[str, Keys], service: Service, _: list[Row]) -> list[Check]:
    views = {view["reservation"]: view for view in service.reservations()}
    return _of_views("reservations", "reservation", expected, views)


def _of_views(part: str, what: str, expected: Mapping[str, Keys], views: Mapping[str, Row]) -> list[Check]:
    found: list[Check] = []
    for name, keys in expected.items():
        view = views.get(name)
        if view is None:
            found.append(_missing(f"{part}.{name}", what, dict(_given(keys))))
            continue
        for field, value in _given(keys):
            path = f"{part}.{name}.{field}"
            if isinstance(value, dict):
                found += _amounts(path, value, view[field])
            else:
                found.append(_check(path, value, view[field]))
    return found


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _admission(expected: Mapping[str, RecordExpected], service: Service, _: list[Row]) -> list[Check]:
    found: list[Check] = []
    records = {str(job): record for job, record in service.ledger.records.items()}
    for name, keys in expected.items():
        record = records.get(name)
        if record is None:
            found.append(_missing(f"admission.{name}", "record", dict(_given(keys))))
            continue
        numbers = _numbers(record, keys.kind)
        for field, value in _given(keys):
            path = f"admission.{name}.{field}"
            if field in NUMBERS:
                found.append(_amount(path, keys.kind, signed_amount(keys.kind, value), numbers.get(field)))
            elif field == "refused":
                found.append(_check(path, value, list(record.refused)))
            elif field != "kind":
                found.append(_check(path, value, getattr(record, field)))
    return found


def _numbers(record: Any, kind: str) -> dict[str, int | None]:
    """The headline numbers if they are of `kind`; else those of its rows: the first that blocks, or the tightest."""
    if record.kind == kind:
        return {name: getattr(record, name) for name in NUMBERS}
    rows = [row for row in record.quota_rows if row.kind == kind]
    blocking = [row for row in rows if row.request > row.remaining + row.override]
    row = blocking[0] if blocking else min(rows, key=lambda r: r.remaining + r.override, default=None)
    facts = next((row for row in record.capacity_rows if row.kind == kind), None)
    found: dict[str, int | None] = {}
    if facts is not None:
        found |= {"capacity_allocatable": facts.allocatable, "reserved_by_others": facts.reserved_by_others}
        found["request_quantity"] = facts.request
    if row is not None:
        found |= {"quota_limit": row.limit, "quota_used": row.used, "quota_remaining": row.remaining}
    return found


def _findings(expected: list[Any], service: Service, findings: list[Row]) -> list[Check]:
    """Those named are among those found; none named = none found."""
    if not expected:
        kinds = [finding["kind"] for finding in findings]
        return [_check("findings", [], kinds)]
    found: list[Check] = []
    for number, keys in enumerate(expected):
        same = [finding for finding in findings if finding["kind"] == keys.kind]
        path = f"findings[{number}]"
        if not same:
            found.append(_check(path, keys.kind, [finding["kind"] for finding in findings], False))
            continue
        found.append(_check(f"{path}.kind", keys.kind, same[0]["kind"]))
        if "severity" in keys.model_fields_set:
            found.append(_check(f"{path}.severity", keys.severity, same[0]["severity"]))
        for kind, row in keys.rows.items():
            found += _kind_rows(f"{path}.rows.{kind}", kind, row, same[0]["rows"].get(kind, {}))
        for name, number_wanted in keys.numbers.items():
            found.append(_check(f"{path}.numbers.{name}", number_wanted, same[0]["numbers"].get(name)))
    return found


def _kind_rows(path: str, kind: str, wanted: Keys, there: Mapping[str, int | None]) -> list[Check]:
    return [
        _amount(f"{path}.{name}", kind, signed_amount(kind, value), there.get(name)) for name, value in _given(wanted)
    ]


def _quota(expected: Mapping[str, Any], service: Service, _: list[Row]) -> list[Check]:
    found: list[Check] = []
    for user, keys in expected.items():
        views = service.quota(user, keys.share)
        if isinstance(views, dict):
            found.append(_missing(f"quota.{user}", "share", keys.share))
            continue
        for kind, row in keys.kinds.items():
            found += _kind_rows(f"quota.{user}.{kind}", kind, row, views[0]["kinds"].get(kind, {}))
    return found


def _alerts(expected: list[Any], service: Service, _: list[Row]) -> list[Check]:
    there = service.alerts()
    texts = [f"{alert['alert']} {alert['subject']}: {alert['text']}" for alert in there]
    if not expected:
        return [_check("alerts", [], texts)]
    found: list[Check] = []
    for number, keys in enumerate(expected):
        fits = [
            alert
            for alert in there
            if alert["alert"] == keys.alert
            and keys.subject in (None, alert["subject"])
            and (keys.contains or "") in alert["text"]
        ]
        found.append(_check(f"alerts[{number}]", dict(_given(keys)), texts, bool(fits)))
    return found


LOOKS: Final[dict[str, Callable[[Any, Service, list[Row]], list[Check]]]] = {
    "jobs": _jobs,
    "usage": _usage,
    "loans": _loans,
    "nodes": _nodes,
    "pools": _pools,
    "admission": _admission,
    "reservations": _reservations,
    "findings": _findings,
    "shares": _shares,
    "quota": _quota,
    "alerts": _alerts,
}
