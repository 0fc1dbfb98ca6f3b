"""Measurements of no partition: they are not those of all partitions."""

from __future__ import annotations

from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.ledger import recovery_meter
from faust_assigner.app.recovery.restore_task import Restored
from tests.unit.app.ledger.test_recovery_meter import LOG, Bench

OTHER = TP("log", 1)


def test_a_step_of_no_partition_changes_no_measurement() -> None:
    """A cooperative round may restore nothing, and a chunk may be empty."""
    bench = Bench(by_partition=True)
    recovery: Any = bench.recovery
    meter = recovery.meter
    recovery.active_tps = {LOG, OTHER}
    recovery.active_offsets = {LOG: 4, OTHER: 6}
    recovery.active_highwaters = {LOG: 9, OTHER: 9}
    meter.begin(set(), {LOG}, set())
    assert meter._open == {}
    meter.begin({LOG, OTHER}, {LOG}, {OTHER})
    assert {tp: each.source for tp, each in meter._open.items()} == {LOG: "local", OTHER: "standby"}
    meter.note_start(set(), {})
    assert {tp: each.start_offset for tp, each in meter._open.items()} == {LOG: 4, OTHER: 6}
    meter.finish(set())
    assert (set(meter._open), bench.rows) == ({LOG, OTHER}, [])
    recovery.active_offsets = {LOG: 5, OTHER: 7}
    meter.note_start({OTHER}, {})
    assert {tp: each.start_offset for tp, each in meter._open.items()} == {LOG: 4, OTHER: 7}
    recovery.active_offsets[OTHER] = 9
    meter.finish({OTHER})
    (row,) = bench.rows
    assert (row["partition"], row["start_offset"], row["end_offset"]) == (1, 7, 9)
    assert set(meter._open) == {LOG}


@pytest.mark.parametrize("batched", [False, True])
def test_a_restore_that_a_round_interrupts_is_one_recovery(
    monkeypatch: pytest.MonkeyPatch, batched: bool
) -> None:
    """Its time and its records begin with the partition's assignment, and so does its source."""
    bench = Bench(by_partition=True)
    recovery: Any = bench.recovery
    meter, now = recovery.meter, [100.0]
    monkeypatch.setattr(recovery_meter.time, "time", lambda: now[0])
    recovery.active_tps = {LOG, OTHER}
    recovery.active_offsets = {LOG: None, OTHER: None}
    recovery.active_highwaters = {LOG: 99, OTHER: -1}
    meter.begin({LOG, OTHER}, set(), set())
    now[0], recovery.active_offsets = 190.0, {LOG: 79, OTHER: None}
    meter.begin({LOG, OTHER}, {LOG}, set())
    tail = Restored(LOG, "local", 190.0, 195.0, 79, 99, 0, replayed=20)
    meter.note_start({LOG, OTHER}, {LOG: tail} if batched else {})
    now[0], recovery.active_offsets[LOG] = 200.0, 99
    meter.finish({LOG, OTHER})
    (row,) = bench.rows
    assert (row["started"], row["ended"], row["source"]) == (
        100.0,
        195.0 if batched else 200.0,
        "replay",
    )
    assert (row["start_offset"], row["end_offset"]) == (-1, 99)
    assert row["records"] == (100 if batched else 80)


@pytest.mark.parametrize(("owned", "rows"), [(set(), 1), ({LOG}, 0)])
def test_a_complete_table_has_a_row_after_an_interruption_if_it_had_one_before(
    owned: set[TP], rows: int
) -> None:
    """The partition was new to the worker in the interrupted round, or it was not."""
    bench = Bench(by_partition=True)
    recovery: Any = bench.recovery
    recovery.active_tps, recovery.active_offsets = {LOG}, {LOG: 9}
    recovery.active_highwaters = {LOG: 9}
    recovery.meter.begin({LOG}, owned, set())
    recovery.meter.begin({LOG}, {LOG}, set())
    recovery.meter.note_start({LOG}, {})
    recovery.meter.finish({LOG})
    assert [row["source"] for row in bench.rows] == ["local"] * rows
