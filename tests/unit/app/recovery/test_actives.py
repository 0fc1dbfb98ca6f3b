"""The order of restores, and the sources that may flow meanwhile."""

from __future__ import annotations

import pytest
from faust.types import TP

from faust_assigner.app.recovery.actives import FEW_RECORDS, chunks, ready_sources

LOGS, OTHER, SHARED = "log", "other-log", "shared-log"


def test_what_lacks_nothing_comes_first_then_little_then_each_number_alone() -> None:
    """Both changelogs of a partition number are in the same chunk."""
    left = {
        TP(LOGS, 0): 0,
        TP(OTHER, 0): 0,
        TP(LOGS, 1): 5,
        TP(LOGS, 2): FEW_RECORDS + 9,
        TP(OTHER, 2): 3,
        TP(LOGS, 3): FEW_RECORDS + 1,
        TP(LOGS, 4): 7,
        TP(LOGS, 5): -1,
    }
    assert list(chunks(left)) == [
        {TP(LOGS, 0), TP(OTHER, 0), TP(LOGS, 5)},
        {TP(LOGS, 1), TP(LOGS, 4)},
        {TP(LOGS, 3)},
        {TP(LOGS, 2), TP(OTHER, 2)},
    ]


def test_tables_that_every_stream_reads_come_before_all() -> None:
    """Their length does not matter."""
    left = {TP(SHARED, 0): 10 * FEW_RECORDS, TP(SHARED, 1): 0, TP(LOGS, 0): 0}
    assert list(chunks(left, {SHARED})) == [{TP(SHARED, 0), TP(SHARED, 1)}, {TP(LOGS, 0)}]


def test_nothing_to_restore_is_no_chunk() -> None:
    """A round without new partitions has no chunks."""
    assert list(chunks({})) == []


def test_a_source_waits_for_the_tables_of_its_number_only() -> None:
    """A source also waits for every partition of a shared table."""
    sources = {TP("orders", 0), TP("orders", 1), TP("clicks", 1)}
    assert ready_sources(sources, set()) == sources
    assert ready_sources(sources, {TP(LOGS, 1)}) == {TP("orders", 0)}
    assert ready_sources(sources, {TP(SHARED, 5)}, {SHARED}) == set()


@pytest.mark.parametrize("records", [0, 1, FEW_RECORDS - 1, FEW_RECORDS, FEW_RECORDS + 1])
def test_every_partition_is_in_one_chunk_whatever_it_lacks(records: int) -> None:
    """A partition outside all chunks would never be restored."""
    tps = {TP("log", number) for number in (0, 1)}
    found = list(chunks({tp: records * tp.partition for tp in tps}))
    assert sorted(tp for chunk in found for tp in chunk) == sorted(tps)
    found = list(chunks(dict.fromkeys(tps, -5)))
    assert found == [frozenset(tps)], "a file beyond the end lacks nothing"


def test_few_records_are_those_of_the_whole_number() -> None:
    """A file beyond its end does not offset another's gap; equal gaps come in number order."""
    left = {
        TP(LOGS, 1): FEW_RECORDS - 1,
        TP(OTHER, 1): 2,
        TP(LOGS, 2): FEW_RECORDS + 1,
        TP(OTHER, 2): -5,
        TP(LOGS, 0): FEW_RECORDS + 1,
        TP(LOGS, 3): FEW_RECORDS,
        TP(SHARED, 7): -1,
    }
    assert list(chunks(left, ["no-log", SHARED])) == [
        {TP(SHARED, 7)},
        {TP(LOGS, 3)},
        {TP(LOGS, 0)},
        {TP(LOGS, 1), TP(OTHER, 1)},
        {TP(LOGS, 2), TP(OTHER, 2)},
    ]


def test_any_pending_part_of_a_shared_table_holds_all_sources() -> None:
    """A pending partition of another table changes nothing; a restored table holds no sources."""
    sources = {TP("orders", 0), TP("orders", 1)}
    assert ready_sources(sources, {TP(LOGS, 0), TP(SHARED, 5)}, {SHARED}) == set()
    assert ready_sources(sources, {TP(LOGS, 0)}, {SHARED}) == {TP("orders", 1)}
