"""The measurements of a recovery: source of its state, records and bytes, and idle recoveries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.ledger import recovery_meter
from faust_assigner.app.ledger.recovery_meter import RecoveryMeter, _add_restore, _Open
from faust_assigner.app.recovery.restore_task import Restored

LOG = TP("log", 0)


class FakeRecovery:
    """The parts of Faust's recovery that the meter wraps."""

    def __init__(self) -> None:
        self.active_tps: set[TP] = set()
        self.standby_tps: set[TP] = set()
        self.active_offsets: dict[TP, int | None] = {}
        self.active_highwaters: dict[TP, int] = {}
        self.restored: dict[TP, Restored] = {}
        self.given: tuple[set[TP], set[TP]] = (set(), set())
        self.on_disk: dict[TP, int] = {}
        self._generation_id = 7

    async def on_rebalance(self, *_: Any) -> None:
        """Take the given partitions; offsets are those on disk."""
        self.active_tps, self.standby_tps = set(self.given[0]), set(self.given[1])
        self.active_offsets = {tp: self.on_disk.get(tp) for tp in self.active_tps}

    async def _build_offsets(self, consumer: Any, tps: Any, destination: Any, title: str) -> None:
        for tp in tps:
            destination[tp] = -1 if destination[tp] is None else destination[tp]

    async def on_recovery_completed(self, generation_id: int = 0) -> None:
        """Do nothing."""


class Bench:
    """A meter on a fake recovery; ``rows`` has its rows."""

    def __init__(self, *, by_partition: bool = False) -> None:
        self.recovery: Any = FakeRecovery()
        if by_partition:
            self.recovery.meter = None
        self.rows: list[dict[str, Any]] = []
        self.table = SimpleNamespace(apply_changelog_batch=lambda batch: None)
        tables: Any = type("Tables", (dict,), {"recovery": self.recovery})(log=self.table)
        app = SimpleNamespace(
            tables=tables,
            assignor=SimpleNamespace(decision_id="7-ab"),
            consumer=None,
            conf=SimpleNamespace(id="shop", canonical_url="http://me"),
        )
        files = SimpleNamespace(put=lambda work: self.rows.extend(row for _, row in work()))
        self.meter = RecoveryMeter(app, files)  # type: ignore[arg-type]
        self.meter.attach()

    async def recover(
        self,
        *,
        end: int,
        replayed: int = 0,
        actives: set[TP] | None = None,
        standbys: set[TP] = frozenset(),
    ) -> None:  # type: ignore[assignment]
        """Run a generation: rebalance, offsets, ``replayed`` records, completion."""
        recovery = self.recovery
        recovery.given = ({LOG} if actives is None else actives, standbys)
        await recovery.on_rebalance()
        recovery.active_highwaters = dict.fromkeys(recovery.active_tps, end)
        await recovery._build_offsets(None, recovery.active_tps, recovery.active_offsets, "active")
        # Faust then reads the offsets of standbys, which are no restores.
        copies = dict.fromkeys(recovery.standby_tps)
        await recovery._build_offsets(None, recovery.standby_tps, copies, "standby")
        first = end - replayed + 1
        events = [
            SimpleNamespace(
                message=SimpleNamespace(
                    tp=LOG, offset=offset, serialized_key_size=2, serialized_value_size=8
                )
            )
            for offset in range(first, end + 1)
        ]
        if events:
            self.table.apply_changelog_batch(events)
            recovery.active_offsets[LOG] = end
        await recovery.on_recovery_completed(7)


@pytest.fixture
def bench() -> Bench:
    """A new bench."""
    return Bench()


async def test_partition_without_state_is_replayed(bench: Bench) -> None:
    """The row covers the whole changelog; records and bytes are those applied."""
    await bench.recover(end=9, replayed=10)
    (row,) = bench.rows
    assert (row["source"], row["start_offset"], row["end_offset"]) == ("replay", -1, 9)
    assert (row["records"], row["bytes"], row["decision_id"], row["member_id"]) == (
        10,
        100,
        "7-ab",
        "http://me",
    )
    assert row["started"] <= row["ended"]


async def test_files_of_an_earlier_life_are_local(bench: Bench) -> None:
    """Only the tail is read; a recovery without a tail has a row, too."""
    bench.recovery.on_disk[LOG] = 5
    await bench.recover(end=9, replayed=4)
    assert [(row["source"], row["start_offset"], row["records"]) for row in bench.rows] == [
        ("local", 5, 4)
    ]


async def test_state_of_a_standby_is_told_apart(bench: Bench) -> None:
    """This worker was a standby in the previous generation."""
    bench.recovery.on_disk[LOG] = 9
    await bench.recover(end=9, actives=set(), standbys={LOG})
    await bench.recover(end=9)
    assert [(row["source"], row["records"]) for row in bench.rows] == [("standby", 0)]


async def test_kept_partition_with_nothing_to_read_is_no_recovery(bench: Bench) -> None:
    """An empty changelog has no row either."""
    bench.recovery.on_disk[LOG] = 9
    await bench.recover(end=9)
    assert len(bench.rows) == 1
    await bench.recover(end=9)
    assert len(bench.rows) == 1
    fresh = Bench()
    await fresh.recover(end=-1)
    assert fresh.rows == []


async def test_snapshot_and_batches_are_counted(bench: Bench) -> None:
    """Snapshot bytes, batched offsets and Faust's tail are all counted."""
    bench.recovery.restored[LOG] = Restored(LOG, "snapshot", 1.0, 2.0, -1, 7, 500, replayed=3)
    await bench.recover(end=9, replayed=2)
    (row,) = bench.rows
    assert (row["source"], row["start_offset"], row["end_offset"]) == ("snapshot", -1, 9)
    assert (row["records"], row["bytes"]) == (5, 520)
    batched = Bench()
    batched.recovery.restored[LOG] = Restored(LOG, "replay", 1.0, 2.0, -1, 9, 0, replayed=10)
    await batched.recover(end=9)
    assert [(row["source"], row["records"], row["ended"]) for row in batched.rows] == [
        ("replay", 10, 2.0)
    ]


async def test_measuring_never_hurts_a_recovery(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The error is logged, and the recovery continues."""
    bench.recovery.restored = None  # type: ignore[assignment]
    await bench.recover(end=9, replayed=1)
    assert bench.recovery.active_offsets[LOG] == 9
    assert "Could not measure a recovery" in caplog.text


async def test_a_partition_that_left_and_came_back_is_a_recovery_again(bench: Bench) -> None:
    """An earlier rebalance's kept partitions do not count for this rebalance."""
    bench.recovery.on_disk[LOG] = 9
    await bench.recover(end=9)
    await bench.recover(end=9)
    assert len(bench.rows) == 1
    await bench.recover(end=9, actives=set())
    await bench.recover(end=9)
    assert [row["source"] for row in bench.rows] == ["local", "local"]


async def test_an_interrupted_recovery_leaves_no_row_to_the_next_one(bench: Bench) -> None:
    """Its partition was revoked before its end."""
    recovery, other = bench.recovery, TP("log", 1)
    recovery.on_disk = {LOG: 5, other: 5}
    recovery.given = {LOG}, set()
    await recovery.on_rebalance()
    await bench.recover(end=9, actives={other})
    assert [row["partition"] for row in bench.rows] == [1]


def test_a_restore_begins_with_its_recovery_not_with_its_own_work() -> None:
    """The wait for earlier partitions is included."""
    measured = _Open("local", started=10.0)
    _add_restore(measured, Restored(LOG, "snapshot", 60.0, 70.0, 0, 99, 1))
    assert (measured.started, measured.ended) == (10.0, 70.0)


def test_a_restore_is_added_to_the_records_that_were_applied_before_it() -> None:
    """A snapshot and its tail are one restore; batches alone do not change the source."""
    measured = _Open("standby", 50.0, 3, 5, records=2, bytes=40)
    _add_restore(
        measured, Restored(LOG, "replay", 20.0, 60.0, 5, 9, 0, replayed=4, replayed_bytes=70)
    )
    assert measured == _Open("standby", 20.0, 5, 9, 6, 110, 60.0)
    _add_restore(measured, Restored(LOG, "snapshot", 30.0, 80.0, 1, 20, 500, 11, 90))
    assert measured == _Open("snapshot", 20.0, 1, 20, 17, 700, 80.0)


async def test_a_record_that_was_applied_counts_once(bench: Bench) -> None:
    """After a failed flush the batch is applied again."""
    applied = bench.table.apply_changelog_batch
    bench.recovery.given = ({LOG}, set())
    await bench.recovery.on_rebalance()
    bench.recovery.active_highwaters = {LOG: 9}
    await bench.recovery._build_offsets(None, {LOG}, bench.recovery.active_offsets, "active")
    message = SimpleNamespace(tp=LOG, offset=9, serialized_key_size=2, serialized_value_size=8)
    for _ in range(2):
        applied([SimpleNamespace(message=message)])
    await bench.recovery.on_recovery_completed(7)
    assert [(row["records"], row["bytes"]) for row in bench.rows] == [(1, 10)]


async def test_a_recovery_ends_when_its_last_record_was_applied(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end does not wait for other partitions; a partition without records ends at once."""
    now = 100.0
    monkeypatch.setattr(recovery_meter.time, "time", lambda: now)
    completed = bench.recovery.on_recovery_completed

    async def late(*args: Any) -> None:
        nonlocal now
        now = 160.0
        await completed(*args)

    bench.recovery.on_recovery_completed = late  # type: ignore[method-assign]
    bench.recovery.on_disk[LOG] = 9
    await bench.recover(end=9)
    assert [(row["started"], row["ended"]) for row in bench.rows] == [(100.0, 100.0)]


async def test_a_clock_that_is_set_back_ends_no_recovery_before_its_beginning(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers compute the duration."""
    times = iter([100.0, *[40.0] * 20])
    monkeypatch.setattr(recovery_meter.time, "time", lambda: next(times))
    await bench.recover(end=9, replayed=10)
    assert [(row["started"], row["ended"]) for row in bench.rows] == [(100.0, 100.0)]


async def test_a_recovery_is_written_once(bench: Bench) -> None:
    """A repeated report of its end adds no row."""
    await bench.recover(end=9, replayed=10)
    await bench.recovery.on_recovery_completed(7)
    assert len(bench.rows) == 1


async def test_parts_of_a_recovery_are_measured_and_written_by_themselves() -> None:
    """The recovery by partition reports former owners, former standbys and start offsets."""
    parts = [TP("log", number) for number in range(3)]
    bench = Bench()
    recovery, app = bench.recovery, bench.meter.app
    recovery.active_offsets = {parts[0]: 4, parts[1]: None, parts[2]: 9}
    recovery.active_highwaters = dict.fromkeys(parts, 9)
    coordinator = SimpleNamespace(member_id="m-1")
    app._consumer = SimpleNamespace(
        _thread=SimpleNamespace(_consumer=SimpleNamespace(_coordinator=coordinator))
    )
    app.assignor.decision_id = ""
    meter = bench.meter
    meter.begin(parts, {parts[2]}, {parts[0]})
    restored = Restored(parts[1], "snapshot", 1.0, 2.0, -1, 9, 500)
    meter.note_start({parts[1]}, {parts[1]: restored})
    meter.finish({parts[1]})
    assert [(row["partition"], row["source"], row["bytes"]) for row in bench.rows] == [
        (1, "snapshot", 500)
    ]
    meter.note_start({parts[0], parts[2]}, {})
    bench.table.apply_changelog_batch(
        [
            SimpleNamespace(
                message=SimpleNamespace(
                    tp=parts[0], offset=offset, serialized_key_size=2, serialized_value_size=8
                )
            )
            for offset in (5, 7)
        ]
    )
    recovery.active_offsets[parts[0]] = 9
    meter.finish({parts[0], parts[2]})
    meter.finish(parts)
    assert len(bench.rows) == 2, "a kept part without records is no recovery"
    row = bench.rows[1]
    assert (row["group_id"], row["topic"], row["partition"]) == ("shop", "log", 0)
    assert (row["source"], row["start_offset"], row["end_offset"]) == ("standby", 4, 9)
    assert (row["records"], row["bytes"]) == (2, 20)
    assert (row["decision_id"], row["member_id"]) == ("7-unknown", "m-1")


def test_a_recovery_by_partition_gets_the_meter_and_is_not_wrapped() -> None:
    """It calls the meter itself: a wrapper would measure each partition twice."""
    bench = Bench(by_partition=True)
    assert bench.recovery.meter is bench.meter
    assert "on_rebalance" not in vars(bench.recovery)
    assert "_build_offsets" not in vars(bench.recovery)


def test_a_part_that_was_brought_up_early_is_counted_when_its_turn_comes() -> None:
    """Batches of several partitions end in any order, but tables are notified one by one."""
    bench, parts = Bench(), [TP("log", 0), TP("log", 1)]
    recovery = bench.recovery
    recovery.active_offsets = recovery.active_highwaters = dict.fromkeys(parts, 9)
    restored = {tp: Restored(tp, "replay", 1.0, 2.0, 6, 9, 0, replayed=3) for tp in parts}
    bench.meter.begin(parts, set(), set())
    for tp in parts:
        bench.meter.note_start({tp}, restored)
        bench.meter.finish({tp})
    assert [(row["partition"], row["records"]) for row in bench.rows] == [(0, 3), (1, 3)]
