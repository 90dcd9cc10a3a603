"""The Journal port: memory, SQLite and PostgreSQL keep the same promises."""

import pytest

from raysched.runtime.ports import StoreFailed
from tests.store.backends import Backend
from tests.store.samples import alert, alerts


def test_events_come_back_in_order_with_contiguous_numbers(backend: Backend) -> None:
    journal = backend.journal()

    assert journal.append(alerts(3)) == 3
    assert journal.append(alerts(2, first=4)) == 5

    assert list(journal.read()) == list(enumerate(alerts(5), 1))


def test_reading_starts_after_a_number(backend: Backend) -> None:
    journal = backend.journal()
    journal.append(alerts(5))

    assert list(journal.read(after=3)) == [(4, alert("4")), (5, alert("5"))]
    assert list(journal.read(after=5)) == []


def test_an_empty_batch_changes_nothing(backend: Backend) -> None:
    journal = backend.journal()
    assert journal.append([]) == 0
    journal.append(alerts(2))
    assert journal.append([]) == 2
    assert len(list(journal.read())) == 2


def test_a_restart_goes_on_after_the_last_number(backend: Backend) -> None:
    backend.journal().append(alerts(2))

    after_restart = backend.journal()

    assert list(after_restart.read()) == list(enumerate(alerts(2), 1))
    assert after_restart.append(alerts(1, first=3)) == 3


def test_the_second_writer_takes_over_and_the_first_is_fenced(backend: Backend) -> None:
    first = backend.journal()
    first.append(alerts(1))
    second = backend.journal()

    with pytest.raises(StoreFailed, match="fenced"):
        first.append(alerts(5, first=100))
    assert second.append(alerts(1, first=2)) == 2
    with pytest.raises(StoreFailed, match="fenced"):
        first.append(alerts(5, first=100))

    assert list(second.read()) == list(enumerate(alerts(2), 1))


@pytest.mark.parametrize(
    "text", ["作业 🚀 é", "nul \x00 inside", 'quote " and \\ and \n', "\u202ertl", "x" * 1_000_000, ""]
)
def test_any_text_comes_back_unchanged(backend: Backend, text: str) -> None:
    journal = backend.journal()
    journal.append([alert(text)])
    assert list(journal.read()) == [(1, alert(text))]


def test_a_hundred_thousand_events_are_read_back_in_order(backend: Backend) -> None:
    journal = backend.journal()
    for first in range(1, 100_001, 10_000):
        journal.append(alerts(10_000, first=first))

    count = 0
    for seq, event in journal.read():
        count += 1
        assert (seq, event.text) == (count, str(count))  # type: ignore[union-attr]
    assert count == 100_000


def test_a_blob_is_found_by_its_sha256(backend: Backend) -> None:
    journal = backend.journal()
    digest = journal.put_blob(b"abc")
    assert digest == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert journal.get_blob(digest) == b"abc"


def test_the_same_blob_is_kept_once_and_survives_a_restart(backend: Backend) -> None:
    data = bytes(range(256)) * 1000
    digest = backend.journal().put_blob(data)
    after_restart = backend.journal()
    assert after_restart.put_blob(data) == digest
    assert after_restart.get_blob(digest) == data


def test_an_unknown_blob_is_none_and_an_empty_one_is_not(backend: Backend) -> None:
    journal = backend.journal()
    assert journal.get_blob("0" * 64) is None
    assert journal.get_blob(journal.put_blob(b"")) == b""
