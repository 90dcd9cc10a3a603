"""Every event and entry survives its stored form; what does not is refused by name."""

import msgspec
import pytest
from hypothesis import given

from raysched.core.entries import AnyEntry
from raysched.core.events import AnyEvent
from raysched.store.codec import decode_entry, decode_event, encode
from raysched.store.errors import CorruptStore, StoreFailed
from raysched.store.ledger_rows import columns
from raysched.store.schema import ledger
from tests.store.samples import alert, any_of, claimed, released


@given(any_of(AnyEvent))
def test_every_event_comes_back_equal(event: AnyEvent) -> None:
    assert decode_event(1, encode(event)) == event


@given(any_of(AnyEntry))
def test_every_entry_comes_back_equal(entry: AnyEntry) -> None:
    assert decode_entry(1, encode(entry)) == entry


@given(any_of(AnyEntry))
def test_the_columns_of_every_entry_are_columns_of_the_table(entry: AnyEntry) -> None:
    said = columns(entry)
    assert set(said) | {"version", "epoch", "payload", "digest"} == set(ledger.c.keys())
    assert said["entry"] == type(entry).__name__


def test_an_admission_can_be_filtered_by_what_its_record_says() -> None:
    assert columns(claimed("a", user="ann", share="vision", gpus=4)) == {
        "at_ms": 5,
        "entry": "Claimed",
        "job": "a",
        "attempt": 1,
        "share": "vision",
        "user_id": "ann",
        "pool": "train",
        "admission_state": "ADMITTED",
        "reason": None,
        "kind": "gpu",
        "request_quantity": 4000,
        "acted_by": None,
    }


def test_a_payload_is_plain_json() -> None:
    assert msgspec.json.decode(encode(released("a"))) == {
        "type": "Released",
        "at_ms": 7,
        "job": "a",
        "attempt": 1,
        "why": "ended",
    }


@pytest.mark.parametrize(
    "payload", ['{"type":"Exploded","at_ms":1}', "{", "", "[]", '{"type":"AlertRaised"}', "\udcff"]
)
def test_what_cannot_be_an_event_is_named_with_its_row(payload: str) -> None:
    with pytest.raises(CorruptStore, match="journal row 17:") as caught:
        decode_event(17, payload)
    assert (caught.value.table, caught.value.row) == ("journal", 17)


def test_what_cannot_be_an_entry_is_named_with_its_row() -> None:
    with pytest.raises(CorruptStore, match="ledger row 3: Invalid value 'AlertRaised'"):
        decode_entry(3, encode(alert("an event is no entry")))


def test_text_that_is_not_unicode_is_refused_before_anything_is_written() -> None:
    with pytest.raises(StoreFailed, match="AlertRaised cannot be stored"):
        encode(alert("\udcff"))
