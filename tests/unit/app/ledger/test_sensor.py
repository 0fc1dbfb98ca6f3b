"""The ledger's samples of a partition that is revoked and assigned again."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.ledger import sensor as module
from faust_assigner.app.ledger.sensor import LedgerSensor

#: A stream that yields single records.
ACKS = SimpleNamespace(enable_acks=True)
SOURCE, LOG = TP("orders", 0), TP("shop-counts-changelog", 0)


class Shop:
    """An app with one table that owns ``owned``; its changelog ends at ``end``."""

    def __init__(self) -> None:
        self.owned, self.end = {SOURCE, LOG}, 100
        #: Standby partitions, which are assigned too.
        self.copies = set[TP]()
        self.rebalancing = self.in_recovery = False
        self.conf = SimpleNamespace(id="shop")
        self.assignor = SimpleNamespace(
            assigned_actives=lambda: set(self.owned), assigned_standbys=lambda: set[TP]()
        )
        self.consumer = SimpleNamespace(
            assignment=lambda: self.owned | self.copies,
            highwaters=self._highwaters,
            _committed_offset={},
            between_generations=False,
        )
        topic = SimpleNamespace(get_topic_name=lambda: LOG.topic)
        self.tables = {"counts": SimpleNamespace(changelog_topic=topic, data={})}

    async def _highwaters(self, *tps: TP) -> dict[TP, int]:
        return dict.fromkeys(tps, self.end)


@pytest.fixture
def shop() -> Shop:
    """The app."""
    return Shop()


@pytest.fixture
def sensor(shop: Shop) -> LedgerSensor:
    """The app's sensor."""
    return LedgerSensor(shop, SimpleNamespace(), config={})  # type: ignore[arg-type]


async def counted(sensor: LedgerSensor) -> dict[str, tuple[int, int]]:
    """Return (records, bytes) in the next sample, by topic."""
    rows: Iterable[Any] = await sensor._sample_rows()
    return {row["topic"]: (row["records_in"], row["bytes_in"]) for _, row in rows}


def arrive(sensor: LedgerSensor) -> None:
    """Count a record of the source and a record for the changelog."""
    size = SimpleNamespace(serialized_key_size=1, serialized_value_size=2)
    sensor.on_message_in(SOURCE, 0, size)
    sensor.on_send_initiated(None, LOG.topic, SimpleNamespace(partition=0), 3, 4)


async def test_what_is_kept_is_counted_through_a_round(sensor: LedgerSensor, shop: Shop) -> None:
    """The count runs from one sample to the next."""
    await counted(sensor)
    arrive(sensor)
    shop.end = 107
    await sensor.forget_others(shop, shop.owned)
    assert await counted(sensor) == {"orders": (1, 3), LOG.topic: (7, 7)}


async def test_what_others_wrote_is_not_counted_when_a_partition_returns(
    sensor: LedgerSensor, shop: Shop
) -> None:
    """Records before the revocation do not count either, with or without a sample meanwhile."""
    await counted(sensor)
    arrive(sensor)
    held, shop.owned = shop.owned, set()
    await sensor.forget_others(shop, set())
    shop.owned, shop.end = held, 500
    await sensor.forget_others(shop, held)
    assert await counted(sensor) == {"orders": (0, 0), LOG.topic: (0, 0)}
    shop.end = 503
    assert (await counted(sensor))[LOG.topic][0] == 3


async def test_a_partition_that_goes_while_the_broker_is_asked_leaves_no_end(
    sensor: LedgerSensor, shop: Shop
) -> None:
    """Its end would be the begin of the next sample after its return; kept counts run on."""
    await counted(sensor)
    arrive(sensor)
    shop.end = 107
    held, asked = shop.owned, shop.consumer.highwaters

    async def revoked_meanwhile(*tps: TP) -> dict[TP, int]:
        ends = await asked(*tps)
        shop.owned = {SOURCE}
        await sensor.forget_others(shop, {SOURCE})
        return ends

    shop.consumer.highwaters = revoked_meanwhile
    await counted(sensor)
    assert await counted(sensor) == {}
    shop.owned, shop.end, shop.consumer.highwaters = held, 500, asked
    await sensor.forget_others(shop, held)
    assert await counted(sensor) == {"orders": (1, 3), LOG.topic: (0, 0)}


async def test_a_copy_counts_as_gone(sensor: LedgerSensor, shop: Shop) -> None:
    """It is assigned, but another worker writes it."""
    await counted(sensor)
    shop.owned, shop.copies = {SOURCE}, {LOG}
    await sensor.forget_others(shop, {SOURCE, LOG})
    shop.owned, shop.copies, shop.end = {SOURCE, LOG}, set(), 900
    assert (await counted(sensor))[LOG.topic] == (0, 0)


@pytest.mark.parametrize("between", [False, True])
async def test_samples_are_taken_while_a_cooperative_round_is_under_way(
    sensor: LedgerSensor, shop: Shop, between: bool
) -> None:
    """Kept partitions flow on; in an eager round no partition flows."""
    shop.rebalancing, shop.consumer.between_generations = True, between
    assert bool(await counted(sensor)) is not between


async def test_rounds_are_listened_to_from_the_start(sensor: LedgerSensor, shop: Shop) -> None:
    """The sensor connects to the signal of assigned partitions."""
    heard: list[Any] = []
    shop.on_partitions_assigned = SimpleNamespace(connect=heard.append)  # type: ignore[attr-defined]
    sensor.meter = SimpleNamespace(attach=lambda: None)  # type: ignore[assignment]
    await sensor.on_start()
    assert heard == [sensor.forget_others]


async def test_what_was_sent_before_a_partition_was_owned_is_not_counted(
    sensor: LedgerSensor, shop: Shop
) -> None:
    """Such records went to another worker's partition; each sample resets their count."""
    shop.owned = {SOURCE}
    sensor.on_send_initiated(None, LOG.topic, SimpleNamespace(partition=0), 3, 4)
    await counted(sensor)
    shop.owned = {SOURCE, LOG}
    assert (await counted(sensor))[LOG.topic] == (0, 0)


async def row_of(sensor: LedgerSensor, tp: TP) -> dict[str, Any]:
    """Return the partition's next sample."""
    rows: Iterable[Any] = await sensor._sample_rows()
    return next(row for _, row in rows if row["topic"] == tp.topic)


async def test_each_sample_counts_what_came_since_the_one_before(
    sensor: LedgerSensor, shop: Shop
) -> None:
    """A changelog's records follow from its end offset."""
    for end, records in ((100, 0), (107, 7), (110, 3), (110, 0)):
        shop.end = end
        assert (await row_of(sensor, LOG))["records_in"] == records


@pytest.mark.parametrize(("committed", "sampled"), [(None, -1), (0, 0), (5, 5)])
async def test_an_offset_of_zero_is_committed(
    sensor: LedgerSensor, shop: Shop, committed: int | None, sampled: int
) -> None:
    """A partition without a commit has the offset -1."""
    shop.consumer._committed_offset[SOURCE] = committed
    assert (await row_of(sensor, SOURCE))["committed_offset"] == sampled


async def test_a_partition_that_is_owned_and_followed_is_sampled(
    sensor: LedgerSensor, shop: Shop
) -> None:
    """A global table's partition is both; a standby alone is not sampled."""
    shop.assignor.assigned_standbys = lambda: {LOG, TP("copies", 0)}
    shop.copies = {TP("copies", 0)}
    assert set(await counted(sensor)) == {SOURCE.topic, LOG.topic}


def hold(sensor: LedgerSensor, tp: TP) -> None:
    """Pass a record to an agent."""
    sensor.on_message_in(tp, 0, SimpleNamespace(serialized_key_size=1, serialized_value_size=2))


async def test_processor_time_is_shared_by_how_long_records_were_held(
    sensor: LedgerSensor, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sample covers the time since the previous sample; a revoked partition gets no share."""
    spent, now = 0.0, 0.0
    monkeypatch.setattr(module.time, "thread_time", lambda: spent)
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    gone = TP("gone", 0)

    async def sample(**held: float) -> dict[str, float]:
        nonlocal now
        for topic, seconds in held.items():
            tp = SOURCE if topic == "orders" else gone if topic == "gone" else LOG
            hold(sensor, tp)
            now += seconds
            sensor.on_stream_event_out(tp, 0, ACKS, None)
        await sensor.forget_others(shop)
        rows: Iterable[Any] = await sensor._sample_rows()
        return {row["topic"]: row["cpu_ms"] for _, row in rows}

    spent = 1.0
    assert await sample(orders=3.0, log=1.0, gone=9.0) == {SOURCE.topic: 750.0, LOG.topic: 250.0}
    spent = 1.5
    assert await sample(orders=2.0) == {SOURCE.topic: 500.0, LOG.topic: 0.0}
    assert await sample() == {SOURCE.topic: 0.0, LOG.topic: 0.0}


class Written:
    """A writer that runs its work at once."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.closed = 0

    def put(self, work: Any) -> None:
        """Run the work."""
        self.rows.extend(work())

    def close(self) -> None:
        """Count the close."""
        self.closed += 1


async def test_a_sample_is_a_row_of_each_owned_partition_with_all_its_figures(
    sensor: LedgerSensor, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source has the arrived records and bytes; a changelog also has the size of its files."""
    monkeypatch.setattr(module.time, "time", lambda: 1_000.5)
    monkeypatch.setattr(module, "state_sizes", lambda tps, tables: {LOG: 77} if LOG in tps else {})
    writer = sensor.writer = Written()  # type: ignore[assignment]
    await counted(sensor)
    arrive(sensor)
    sensor.on_send_initiated(None, "out", SimpleNamespace(partition=None), 100, 100)
    shop.end, shop.consumer._committed_offset[SOURCE] = 103, 90
    await sensor._sample()
    base = {"group_id": "shop", "ts": 1_000.5, "partition": 0, "end_offset": 103, "cpu_ms": 0.0}
    assert writer.rows == [
        (
            "partition_sample",
            {**base, "topic": "orders", "committed_offset": 90, "bytes_in": 3, "records_in": 1}
            | {"state_bytes": 0},
        ),
        (
            "partition_sample",
            {**base, "topic": LOG.topic, "committed_offset": -1, "bytes_in": 7, "records_in": 3}
            | {"state_bytes": 77},
        ),
    ]


@pytest.mark.parametrize("reason", ["recovery", "nothing", "silent"])
async def test_no_sample_is_written_of_what_does_not_flow_or_cannot_be_asked(
    sensor: LedgerSensor, shop: Shop, reason: str
) -> None:
    """The next sample includes the missing counts."""
    writer = sensor.writer = Written()  # type: ignore[assignment]
    await counted(sensor)
    arrive(sensor)
    held, asked = shop.owned, shop.consumer.highwaters
    if reason == "recovery":
        shop.in_recovery = True
    elif reason == "nothing":
        shop.owned = set()
    else:

        async def silent(*_: TP) -> dict[TP, int]:
            raise OSError("no broker")

        shop.consumer.highwaters = silent
    await sensor._sample()
    assert writer.rows == []
    shop.in_recovery, shop.owned, shop.consumer.highwaters = False, held, asked
    assert (await counted(sensor))["orders"] == (1, 3)


async def test_samples_come_at_their_interval_and_none_after_the_stop(sensor: LedgerSensor) -> None:
    """The app's tables are closed by then; waiting rows are written at the stop."""
    slept, sampled = list[float](), list[int]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            sensor._stopped.set()

    async def sample() -> None:
        sampled.append(len(slept))

    sensor._sample_s, sensor.sleep, sensor._sample = 11.0, sleep, sample  # type: ignore[method-assign]
    await LedgerSensor._sample_regularly.fun(sensor)
    assert (slept, sampled) == ([11.0] * 3, [1, 2])
    writer = sensor.writer = Written()  # type: ignore[assignment]
    await sensor.on_stop()
    assert writer.closed == 1


def test_a_decision_is_written_with_its_time_and_the_apps_setup(
    sensor: LedgerSensor, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the decision's time, not the time of the ledger's thread."""
    now = 5.0
    works: list[Any] = []
    monkeypatch.setattr(module.time, "time", lambda: now)
    monkeypatch.setattr(module, "decision_rows", lambda *of, **how: (of, how))
    shop.conf.broker_session_timeout = 60.0
    sensor.writer = SimpleNamespace(put=works.append)  # type: ignore[assignment]
    sensor._config = {"deploy": "v1"}
    sensor.on_decision("inputs", "plan")  # type: ignore[arg-type]
    now = 9.0
    assert works[0]() == (
        ("inputs", "plan"),
        {"at": 5.0, "config": {"deploy": "v1"}, "session_timeout_s": 60.0},
    )


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Monotonic time, and a second of processor time for each sample."""
    clock = SimpleNamespace(now=100.0, spent=0.0)
    monkeypatch.setattr(module.time, "thread_time", lambda: clock.spent)
    monkeypatch.setattr(module.time, "monotonic", lambda: clock.now)
    return clock


OTHER = TP("payments", 0)


async def shares(sensor: LedgerSensor, clock: SimpleNamespace) -> dict[str, float]:
    """Return the milliseconds of the next sample, which covers a second."""
    clock.spent += 1.0
    rows: Iterable[Any] = await sensor._sample_rows()
    return {row["topic"]: row["cpu_ms"] for _, row in rows if row["topic"] != LOG.topic}


async def test_the_time_of_two_agents_with_one_record_is_counted_once(
    sensor: LedgerSensor, shop: Shop, clock: SimpleNamespace
) -> None:
    """The time runs from the record's arrival to the end of the last agent."""
    shop.owned = {SOURCE, OTHER, LOG}
    hold(sensor, SOURCE)
    for _ in range(2):
        clock.now += 1.0
        sensor.on_stream_event_out(SOURCE, 0, ACKS, None)
    hold(sensor, OTHER)
    clock.now += 2.0
    sensor.on_stream_event_out(OTHER, 0, ACKS, None)
    assert await shares(sensor, clock) == {SOURCE.topic: 500.0, OTHER.topic: 500.0}


async def test_a_record_that_an_agent_holds_through_a_sample_counts_in_the_next(
    sensor: LedgerSensor, shop: Shop, clock: SimpleNamespace
) -> None:
    """Otherwise an agent slower than the samples would have no processor time."""
    shop.owned = {SOURCE, OTHER, LOG}
    hold(sensor, SOURCE)
    clock.now += 3.0
    assert await shares(sensor, clock) == {SOURCE.topic: 0.0, OTHER.topic: 0.0}
    hold(sensor, OTHER)
    clock.now += 1.0
    for tp in (SOURCE, OTHER):
        sensor.on_stream_event_out(tp, 0, ACKS, None)
    assert await shares(sensor, clock) == {SOURCE.topic: 800.0, OTHER.topic: 200.0}


async def test_the_wait_of_a_batch_is_no_processor_time(
    sensor: LedgerSensor, shop: Shop, clock: SimpleNamespace
) -> None:
    """``take()`` acknowledges collected records later; a record without acks has no arrival."""
    shop.owned = {SOURCE, OTHER, LOG}
    hold(sensor, SOURCE)
    clock.now += 9.0
    sensor.on_stream_event_out(SOURCE, 0, SimpleNamespace(enable_acks=False), None)
    sensor.on_stream_event_out(OTHER, 0, ACKS, None)
    assert await shares(sensor, clock) == {SOURCE.topic: 0.0, OTHER.topic: 0.0}
