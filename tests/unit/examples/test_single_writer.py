"""The reader of the single writers' topic: whose turn is over is not read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from examples.single_writer.reader import Turns


def record(value: str, generation: int | None, partition: int = 0) -> Any:
    """As a consumer gets it."""
    headers = () if generation is None else (("generation", str(generation).encode()),)
    return SimpleNamespace(value=value, headers=headers, partition=partition)


def taken(*records: Any) -> list[str]:
    """What the reader passes on."""
    return [one.value for one in Turns().passed(records)]


def test_a_record_of_an_earlier_generation_is_late() -> None:
    """Behind the first of the next writer; before it, it was in time."""
    assert taken(record("a", 9), record("b", 10), record("late", 9), record("c", 10)) == [
        "a",
        "b",
        "c",
    ]


def test_each_partition_has_turns_of_its_own() -> None:
    """Order means something within a partition only."""
    assert taken(record("a", 2, 0), record("b", 1, 1), record("late", 1, 0)) == ["a", "b"]


def test_records_without_a_generation_all_pass() -> None:
    """Those that a transaction fences."""
    assert taken(record("a", 3), record("b", None), record("c", None)) == ["a", "b", "c"]
