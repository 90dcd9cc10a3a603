"""Events and entries for tests: a few by hand, and a hypothesis strategy for every type of a union."""

from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from raysched.core.entries import Claimed, Committed, Released
from raysched.core.events import AlertRaised
from raysched.core.model import JobId, NodeId, PlacedBundle, PoolId, ShareId, UserId
from raysched.core.record import AdmissionRecord


def alert(text: str) -> AlertRaised:
    """The smallest event that carries a text."""
    return AlertRaised(at_ms=1, alert="test", subject="store", text=text)


def alerts(count: int, first: int = 1) -> list[AlertRaised]:
    """Events told apart by their numbers."""
    return [alert(str(number)) for number in range(first, first + count)]


def claimed(job: str, user: str = "ann", share: str = "vision", gpus: int = 8) -> Claimed:
    """An admission with its record."""
    record = AdmissionRecord(
        job=JobId(job),
        attempt=1,
        user=UserId(user),
        share=ShareId(share),
        pool=PoolId("train"),
        model="H100",
        scope=f"share {share}",
        kind="gpu",
        quota_limit=64_000,
        quota_used=8_000,
        quota_remaining=56_000,
        capacity_allocatable=32_000,
        reserved_by_others=0,
        request_quantity=gpus * 1000,
        reservation_lifecycle="none",
        contention_state="NORMAL",
        admission_state="ADMITTED",
        decided_at_ms=5,
        evidence="VALID",
        evidence_ref="4 nodes",
        bundles_asked=1,
        bundles_fit=1,
        bundles_fit_unreserved=1,
    )
    return Claimed(
        at_ms=5,
        job=record.job,
        attempt=1,
        user=record.user,
        share=record.share,
        pool=PoolId("train"),
        model="H100",
        workload="training",
        priority=5,
        amounts={"gpu": gpus * 1000},
        placement=(PlacedBundle(NodeId("n0"), 0, 1, tuple(range(gpus)), 1000),),
        record=record,
    )


def committed(job: str, attempt: int = 1) -> Committed:
    """The group of `job` is ready."""
    return Committed(at_ms=6, job=JobId(job), attempt=attempt)


def released(job: str, why: str = "ended") -> Released:
    """The job holds nothing any more."""
    return Released(at_ms=7, job=JobId(job), attempt=1, why=why)


def any_of(union: Any) -> st.SearchStrategy[Any]:
    """Every value of every type in `union`, from the types themselves: a new event or entry is covered at once."""
    return _strategy(inspect.type_info(union))


def _strategy(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.StructType():
            # Deferred: Limits are part of Pool and Share, the tree of types is walked only where it is drawn from.
            return st.deferred(lambda: _struct(info))
        case inspect.UnionType():
            return st.one_of([_strategy(member) for member in info.types])
        case inspect.VarTupleType():
            return st.lists(_strategy(info.item_type), max_size=3).map(tuple)
        case inspect.DictType():
            return st.dictionaries(_strategy(info.key_type), _strategy(info.value_type), max_size=3)
        case inspect.LiteralType():
            return st.sampled_from(info.values)
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(-(2**62), 2**62)
        case inspect.StrType():
            return st.text(max_size=8)
        case _:
            raise AssertionError(f"no strategy for {info}")


def _struct(info: inspect.StructType) -> st.SearchStrategy[msgspec.Struct]:
    return st.builds(info.cls, **{part.name: _strategy(part.type) for part in info.fields})
