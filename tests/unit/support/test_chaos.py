"""The faults drawn for a chaos run, and the checks of its sink, without any process."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.soak.chaos.book import Book, Written
from tests.soak.chaos.schedule import CONSUMERS, ETCD, INSTANCES, rounds


def _written(name: str, number: int, epoch: int, *, received: float, age: float = 0.0) -> Written:
    return Written(name, number, 0, epoch, received - age, received)


def _book(*said: Written) -> Book:
    book = Book([0])
    for one in said:
        book.write(one)
    return book


def test_a_late_write_under_a_lower_epoch_is_refused_and_is_no_fault() -> None:
    """The process was paused between check and write, while the next process became the owner."""
    book = _book(
        _written("a", 1, 5, received=1.0),
        _written("b", 1, 7, received=20.0),
        _written("a", 1, 5, received=21.0, age=15.0),
    )
    assert (book.taken, book.late, book.faults) == (2, 1, [])


def test_a_write_that_is_refused_right_after_its_check_is_two_owners_at_a_time() -> None:
    """In strict mode the process still believed in its lease while the next owner already wrote."""
    book = _book(_written("b", 1, 7, received=20.0), _written("a", 1, 5, received=20.5, age=0.1))
    assert [fault.partition(":")[0] for fault in book.faults] == ["two owners at a time"]


@pytest.mark.parametrize("other", [("a", 2), ("b", 1)])
def test_two_processes_in_one_epoch_are_found(other: tuple[str, int]) -> None:
    """With equal epochs the sink accepts both writes, of one consumer name or of two."""
    book = _book(_written("a", 1, 5, received=1.0), _written(*other, 5, received=2.0))
    assert [fault.partition(":")[0] for fault in book.faults] == ["two processes in one epoch"]


def test_a_process_that_writes_after_its_successor_is_found_whatever_its_epoch() -> None:
    """The epochs allow the write, but a replaced process must not be granted a partition again."""
    book = _book(
        _written("a", 1, 5, received=1.0),
        _written("a", 2, 6, received=2.0),
        _written("a", 1, 9, received=3.0),
    )
    assert [fault.partition(":")[0] for fault in book.faults] == ["an old process is not fenced"]


def test_an_owner_that_goes_on_under_a_new_epoch_is_no_fault() -> None:
    """The process may be granted the same partition again."""
    assert _book(_written("a", 1, 5, received=1.0), _written("a", 1, 8, received=2.0)).faults == []


def test_a_partition_counts_as_owned_when_it_was_written_to_lately_and_after_the_fault() -> None:
    """The last write must follow the fault, and be recent."""
    book = _book(_written("a", 1, 5, received=10.0))
    assert book.silent(9.0, 10.5) == []
    assert book.silent(10.0, 10.5) == [0]
    assert book.silent(9.0, 12.0) == [0]


def test_a_seed_plays_the_same_faults_each_time_and_a_run_has_all_kinds() -> None:
    """Each round has a consumer fault, and its consumer faults hit different consumers."""
    played = list(islice(rounds(3, 7), 200))
    assert played == list(islice(rounds(3, 7), 200))
    assert played != list(islice(rounds(4, 7), 200))
    assert {fault.kind for faults in played for fault in faults} == {*CONSUMERS, *INSTANCES, *ETCD}
    for faults in played:
        chosen = [fault.number for fault in faults if fault.kind in CONSUMERS]
        assert len(set(chosen)) == len(chosen) > 0
