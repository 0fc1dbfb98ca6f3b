"""Measurements of no partition: they are not those of all partitions."""

from __future__ import annotations

from typing import Any

from faust.types import TP

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
    assert [each.start_offset for each in meter._open.values()] == [-1, -1]
    meter.finish(set())
    assert (set(meter._open), bench.rows) == ({LOG, OTHER}, [])
    meter.note_start({OTHER}, {})
    assert {tp: each.start_offset for tp, each in meter._open.items()} == {LOG: -1, OTHER: 6}
    recovery.active_offsets[OTHER] = 9
    meter.finish({OTHER})
    (row,) = bench.rows
    assert (row["partition"], row["start_offset"], row["end_offset"]) == (1, 6, 9)
    assert set(meter._open) == {LOG}
