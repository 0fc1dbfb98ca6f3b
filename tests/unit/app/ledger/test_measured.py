"""Every figure of a ledger's recoveries, decisions and samples, for several partitions at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.ledger import recovery_meter
from faust_assigner.app.ledger import sensor as sensor_module
from faust_assigner.app.ledger.recovery_meter import RecoveryMeter, _member_id
from faust_assigner.app.ledger.sensor import LedgerSensor
from faust_assigner.app.recovery.restore_task import Restored

A, B, C, D = (TP("log", number) for number in range(4))


class Recovery:
    """The parts of a recovery that the meter reads."""

    def __init__(self) -> None:
        self.meter: Any = None
        self.active_offsets: dict[TP, int | None] = {}
        self.active_highwaters: dict[TP, int] = {}
        self._generation_id = 12


class Bench:
    """A meter with a clock; ``batches`` has the rows of each write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(recovery_meter.time, "time", lambda: self.now)
        self.recovery = Recovery()
        self.batches: list[list[Any]] = []
        self.table = SimpleNamespace(apply_changelog_batch=lambda batch, *_, **__: "applied")
        self.app = SimpleNamespace(
            tables=Tables(log=self.table),
            assignor=SimpleNamespace(decision_id="12-ab"),
            consumer=None,
            conf=SimpleNamespace(id="shop", canonical_url="http://me"),
        )
        self.app.tables.recovery = self.recovery
        writer: Any = SimpleNamespace(put=lambda work: self.batches.append(list(work())))
        self.meter = RecoveryMeter(self.app, writer)
        self.meter.attach()

    def apply(self, *records: tuple[TP, int]) -> None:
        """Apply records with keys of 3 bytes and values of 10 bytes."""
        self.table.apply_changelog_batch(
            [
                SimpleNamespace(
                    message=SimpleNamespace(
                        tp=tp, offset=offset, serialized_key_size=3, serialized_value_size=10
                    )
                )
                for tp, offset in records
            ]
        )


class Tables(dict[str, Any]):
    """A stub of the table manager."""

    recovery: Any


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench with a recovery by partition."""
    return Bench(monkeypatch)


def row(tp: TP, source: str, **figures: Any) -> tuple[str, dict[str, Any]]:
    """Return a row of the current decision."""
    return "recovery", {
        "group_id": "shop",
        "decision_id": "12-ab",
        "topic": tp.topic,
        "partition": tp.partition,
        "member_id": "http://me",
        "source": source,
        **figures,
    }


def test_a_recovery_s_row_has_all_of_its_own_figures(bench: Bench) -> None:
    """Each partition has its own figures; rows come in order, in a batch per restored chunk."""
    recovery, meter = bench.recovery, bench.meter
    recovery.active_offsets = {A: 4, B: None, C: 0, D: 7}
    recovery.active_highwaters = {A: 9, B: 5, C: 30, D: 7}
    meter.begin([D, C, B, A], {D}, {A})
    bench.now = 1010.0
    snapshot = Restored(C, "snapshot", 990.0, 1005.0, -1, 20, 500, replayed=6, replayed_bytes=70)
    meter.note_start([A, B, C, D], {C: snapshot})
    bench.now = 1020.0
    bench.apply((A, 5), (B, 0), (A, 9), (B, 3), (TP("other", 0), 99))
    bench.now = 1030.0
    bench.apply((B, 5), (C, 25))
    bench.now = 1040.0
    recovery.active_offsets |= {A: 9, B: 5, C: 30}
    meter.finish([C, A])
    bench.now = 1050.0
    meter.finish([B, D])
    meter.finish([A, B, C, D])
    assert bench.batches == [
        [
            row(
                A,
                "standby",
                started=1000.0,
                ended=1020.0,
                start_offset=4,
                end_offset=9,
                records=2,
                bytes=26,
            ),
            row(
                C,
                "snapshot",
                started=990.0,
                ended=1005.0,
                start_offset=-1,
                end_offset=30,
                records=7,
                bytes=583,
            ),
        ],
        [
            row(
                B,
                "replay",
                started=1000.0,
                ended=1030.0,
                start_offset=-1,
                end_offset=5,
                records=3,
                bytes=39,
            )
        ],
    ]


def test_a_record_below_the_offset_and_one_of_another_partition_count_for_nothing(
    bench: Bench,
) -> None:
    """A chunk does not affect other partitions; without a chunk no record is counted."""
    recovery, meter = bench.recovery, bench.meter
    recovery.active_offsets, recovery.active_highwaters = {A: 4, B: 4}, {A: 9, B: 9}
    meter.begin([A, B], (), ())
    bench.now = 1010.0
    meter.note_start([A], {})
    bench.apply((A, 4), (A, 6), (A, 5), (C, 7))
    bench.now = 1020.0
    recovery.active_offsets[A] = 6
    meter.finish([A])
    ((_, found),) = bench.batches[0]
    assert (found["records"], found["bytes"], found["end_offset"], found["ended"]) == (
        1,
        13,
        6,
        1020.0,
    ), "it did not reach its end"
    assert bench.table.apply_changelog_batch([]) == "applied"
    meter.note_start([B], {})
    recovery.active_offsets[B] = 9
    meter.finish([B])
    assert bench.batches[1][0][1]["source"] == "local"
    bench.apply((B, 10))
    assert len(bench.batches) == 2


@pytest.mark.parametrize(
    ("kept", "offset", "end", "is_row"),
    [
        (True, 9, 9, False),
        (True, 8, 9, True),
        (False, 9, 9, True),
        (False, None, -1, False),
        (False, None, 0, True),
        (True, None, -1, False),
    ],
)
def test_an_idle_restore_is_a_row_where_state_came_from_elsewhere(
    bench: Bench, kept: bool, offset: int | None, end: int, is_row: bool
) -> None:
    """A kept partition without missing records has no row, and neither has an empty changelog."""
    bench.recovery.active_offsets, bench.recovery.active_highwaters = {A: offset}, {A: end}
    bench.meter.begin([A], {A} if kept else {B}, set())
    bench.meter.note_start([A], {})
    bench.recovery.active_offsets[A] = end
    bench.meter.finish([A])
    assert bool(bench.batches) == is_row


def test_a_chunk_without_partitions_changes_nothing(bench: Bench) -> None:
    """Neither its start nor its end reaches other partitions; kept files are no standby's files."""
    bench.recovery.active_offsets, bench.recovery.active_highwaters = {A: 9, B: 3}, {A: 9, B: 8}
    bench.meter.begin([A, B], [B], [])
    for bench.now, tps in ((1010.0, []), (1020.0, [A, B])):
        bench.meter.note_start(tps, {})
        bench.meter.finish([])
    assert bench.batches == []
    bench.now, bench.recovery.active_offsets[B] = 1030.0, 8
    bench.meter.finish([A, B])
    assert bench.batches == [
        [
            row(
                tp,
                "local",
                started=1000.0,
                ended=ended,
                start_offset=start,
                end_offset=end,
                records=0,
                bytes=0,
            )
            for tp, start, end, ended in ((A, 9, 9, 1020.0), (B, 3, 8, 1030.0))
        ]
    ]


def test_a_restore_at_its_end_at_the_start_has_ended_then(bench: Bench) -> None:
    """A file beyond the end counts too; a later check keeps the end time, a replay sets it."""
    recovery = bench.recovery
    recovery.active_offsets = {A: 9, B: 12, C: 8}
    recovery.active_highwaters = dict.fromkeys((A, B, C), 9)
    bench.meter.begin([A, B, C], (), (A, B, C))
    for bench.now in (1010.0, 1020.0):
        bench.meter.note_start([A, B, C], {})
    bench.now = 1030.0
    bench.apply((C, 9))
    bench.now = 1040.0
    bench.meter.finish([A, B, C])
    (rows,) = bench.batches
    assert [(one["ended"], one["source"]) for _, one in rows] == [
        (1010.0, "standby"),
        (1010.0, "standby"),
        (1030.0, "standby"),
    ]


def test_without_a_decision_the_generation_names_the_row(bench: Bench) -> None:
    """The worker may not know the decision yet."""
    bench.app.assignor.decision_id = None
    bench.recovery.active_offsets = {A: 3}
    bench.meter.begin([A], (), ())
    bench.meter.finish([A])
    assert bench.batches[0][0][1]["decision_id"] == "12-unknown"


def test_the_member_id_is_the_group_s_or_the_worker_s_url() -> None:
    """Each object on the way to the member id may be missing."""
    conf = SimpleNamespace(canonical_url="http://me")
    for consumer, found in (
        (None, "http://me"),
        (SimpleNamespace(), "http://me"),
        (SimpleNamespace(_thread=None), "http://me"),
        (SimpleNamespace(_thread=SimpleNamespace(_consumer=None)), "http://me"),
        (SimpleNamespace(_thread=SimpleNamespace(_consumer=SimpleNamespace())), "http://me"),
        (coordinated(None), "http://me"),
        (coordinated(SimpleNamespace(member_id="")), "http://me"),
        (coordinated(SimpleNamespace(member_id="m-7")), "m-7"),
    ):
        assert _member_id(SimpleNamespace(_consumer=consumer, conf=conf)) == found


def coordinated(coordinator: Any) -> Any:
    """Return a consumer with this coordinator."""
    return SimpleNamespace(
        _thread=SimpleNamespace(_consumer=SimpleNamespace(_coordinator=coordinator))
    )


# -- samples of several partitions

ORDERS, CLICKS, LOG, OWN = TP("orders", 1), TP("clicks", 0), TP("shop-log", 2), TP("own", 3)
SIZE = SimpleNamespace(serialized_key_size=3, serialized_value_size=40)


class Shop:
    """An app with one table; ``ends`` are the end offsets of its partitions."""

    def __init__(self) -> None:
        self.ends: dict[TP, int | None] = {ORDERS: 70, CLICKS: None, LOG: 100}
        self.owned = set(self.ends)
        self.in_recovery = self.rebalancing = False
        self.conf = SimpleNamespace(id="shop")
        self.assignor = SimpleNamespace(
            assigned_actives=lambda: self.owned, assigned_standbys=lambda: {OWN, LOG}
        )
        self.asked: list[Any] = []
        self.consumer = SimpleNamespace(
            assignment=lambda: self.owned | {OWN},
            highwaters=self._highwaters,
            _committed_offset={ORDERS: 60, CLICKS: 0},
        )
        topic = SimpleNamespace(get_topic_name=lambda: LOG.topic)
        self.tables = {"counts": SimpleNamespace(changelog_topic=topic, data={})}

    async def _highwaters(self, *tps: TP) -> dict[TP, int | None]:
        self.asked.append(tps)
        return dict(self.ends)


async def test_samples_of_several_partitions_have_each_its_own_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counts restart with each sample; a changelog's records follow from its highest end."""
    shop, now, spent = Shop(), 50.0, 7.0
    monkeypatch.setattr(sensor_module.time, "time", lambda: 1234.5)
    monkeypatch.setattr(sensor_module.time, "monotonic", lambda: now)
    monkeypatch.setattr(sensor_module.time, "thread_time", lambda: spent)
    monkeypatch.setattr(sensor_module, "state_sizes", lambda tps, tables: {LOG: 700})
    sensor = LedgerSensor(shop, SimpleNamespace(), config={}, sample_s=3.0)  # type: ignore[arg-type]
    sensor._cpu_at = 4.9995049
    acks = SimpleNamespace(enable_acks=True)
    for tp, held_s in ((ORDERS, 3.0), (CLICKS, 1.0), (ORDERS, 0.0)):
        sensor.on_message_in(tp, 7, SIZE)
        now += held_s
        sensor.on_stream_event_out(tp, 7, acks, None)
    sensor.on_send_initiated(None, LOG.topic, SimpleNamespace(partition=2), 5, 6)
    sensor.on_send_initiated(None, LOG.topic, SimpleNamespace(partition=0), 500, 600)

    def sample(tp: TP, end: int, committed: int, arrived: int, records: int, cpu: float) -> Any:
        return "partition_sample", {
            "group_id": "shop",
            "ts": 1234.5,
            "topic": tp.topic,
            "partition": tp.partition,
            "end_offset": end,
            "committed_offset": committed,
            "bytes_in": arrived,
            "records_in": records,
            "cpu_ms": cpu,
            "state_bytes": 700 if tp == LOG else 0,
        }

    assert await sensor._sample_rows() == [
        sample(CLICKS, 0, 0, 43, 1, 500.124),
        sample(ORDERS, 70, 60, 86, 2, 1500.371),
        sample(LOG, 100, -1, 11, 0, 0.0),
    ]
    assert shop.asked == [(CLICKS, ORDERS, LOG)]
    shop.ends[LOG], spent = 90, 8.0
    sensor.on_message_in(ORDERS, 8, SIZE)
    assert await sensor._sample_rows() == [
        sample(CLICKS, 0, 0, 0, 0, 0.0),
        sample(ORDERS, 70, 60, 43, 1, 0.0),
        sample(LOG, 90, -1, 0, 0, 0.0),
    ]
    shop.ends[LOG] = 95
    assert [one["records_in"] for _, one in await sensor._sample_rows()] == [0, 0, 5]
    shop.rebalancing = True
    assert await sensor._sample_rows() == []


async def test_counts_of_lost_partitions_are_forgotten_in_both_books() -> None:
    """Owned partitions keep their counts."""
    shop = Shop()
    sensor = LedgerSensor(shop, SimpleNamespace(), config={})  # type: ignore[arg-type]
    sensor._changelog_ends = {LOG: 5, TP("shop-log", 0): 6}
    for tp in (ORDERS, TP("gone", 0), TP("orders", 0)):
        sensor.on_message_in(tp, 7, SIZE)
    await sensor.forget_others(shop, "assigned", more=1)
    assert sensor._changelog_ends == {LOG: 5}
    assert set(sensor._inputs) == {ORDERS}
    assert sensor._inputs[ORDERS].records == 1


async def test_a_sensor_listens_to_decisions_rounds_and_recoveries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An assignor without decisions is skipped; processor time counts from the start."""
    acts: list[Any] = []
    monkeypatch.setattr(sensor_module.time, "thread_time", lambda: 3.5)
    app = SimpleNamespace(
        assignor=SimpleNamespace(on_decision=lambda heard: acts.append(("decision", heard))),
        on_partitions_assigned=SimpleNamespace(connect=lambda heard: acts.append(("round", heard))),
    )
    sensor = LedgerSensor(app, SimpleNamespace(), config={"a": "b"})  # type: ignore[arg-type]
    sensor.meter = SimpleNamespace(attach=lambda: acts.append("meter"))  # type: ignore[assignment]
    await sensor.on_start()
    assert acts == [("decision", sensor.on_decision), ("round", sensor.forget_others), "meter"]
    assert sensor._cpu_at == 3.5
    app.assignor = SimpleNamespace()
    acts.clear()
    await sensor.on_start()
    assert acts == [("round", sensor.forget_others), "meter"]
