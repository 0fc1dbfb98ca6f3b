"""Separate parts of the metrics: counts, lags of standbys, exporters, the disk, requests."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.sensors.monitor import Monitor
from faust.types import TP

from faust_assigner.app.metrics import exporters, probes, readings, recent_rounds
from faust_assigner.app.metrics import sensor as sensor_module
from faust_assigner.app.metrics.book import Book, Spread
from faust_assigner.app.metrics.copies import Copies
from faust_assigner.app.metrics.exporters import Exporters, export_to_prometheus
from faust_assigner.app.metrics.figure import PREFIX
from faust_assigner.app.metrics.probes import Restores
from faust_assigner.app.metrics.recent_rounds import RecentRounds
from faust_assigner.app.metrics.sensor import ASK_S, IDLE_ASK_S, WATCHED_S
from faust_assigner.app.rebalance import copy_offsets
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.model import Member
from faust_assigner.planner import plan
from faust_assigner.wire.worker_status import LedgerPage
from tests.unit.app.metrics.test_metrics import Clock
from tests.unit.app.metrics.test_probes import Bench, bench

__all__ = ["bench"]
COPY = TP("shop-totals-changelog", 0)


# -- counts


def test_an_observation_at_a_bound_is_in_the_bucket_of_the_bound_and_sums_add_up() -> None:
    """Prometheus's bounds are inclusive upper bounds."""
    spread = Spread((0, 0, 0)).plus((0.5, 2.0), 2.0).plus((0.5, 2.0), 0.5).plus((0.5, 2.0), 9.0)
    assert (spread.counts, spread.total) == ((1, 1, 1), 11.5)


def test_a_snapshot_keeps_its_values_while_events_are_counted() -> None:
    """A scrape on another thread may read it meanwhile."""
    book = Book()
    book.count("moves", by=2)
    book.count("rounds_led", "join")
    before = book.snapshot({})
    book.count("moves", by=3)
    book.count("rounds_led", "join")
    after = book.snapshot({})
    assert [one.series["moves"][()] for one in (before, after)] == [2, 5]
    assert [one.series["rounds_led"]["join",] for one in (before, after)] == [1, 2]
    book.observe("plan_seconds", 3.0)
    book.observe("round_seconds", 5.0)
    spreads = [one.spreads["plan_seconds"] for one in (before, after, book.snapshot({}))]
    assert [(sum(one.counts), one.total) for one in spreads] == [(0, 0.0), (0, 0.0), (1, 3.0)]


def test_a_count_goes_before_a_reading_of_the_same_figure() -> None:
    """A reading replaces the initial zero."""
    book = Book()
    assert book.snapshot({"moves": {(): 9.0}}).series["moves"] == {(): 9.0}
    book.count("moves", by=2)
    assert book.snapshot({"moves": {(): 9.0}}).series["moves"] == {(): 2.0}


# -- lags of standbys


class Lagging:
    """A worker with one standby, a broker with answers after 5 s, and the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.end, self.read = Clock(), 10, 0
        self.held = {COPY}
        self.recovery = SimpleNamespace(standby_offsets={})
        self.app = SimpleNamespace(
            assignor=SimpleNamespace(assigned_standbys=lambda: self.held),
            _consumer=object(),
            tables=SimpleNamespace(recovery=self.recovery),
        )
        self.copies = Copies(self.app, self.clock)
        monkeypatch.setattr(copy_offsets, "ends_of", self._ends)
        monkeypatch.setattr(copy_offsets, "read_to", self._read_to)

    async def _ends(self, app: Any, tps: list[Any]) -> dict[Any, int]:
        self.clock.now += 5
        return dict.fromkeys(tps, self.end)

    async def _read_to(self, app: Any, ends: dict[Any, int]) -> dict[Any, int]:
        return dict.fromkeys(ends, self.read)

    def look(self) -> None:
        """Send a request to the broker."""
        asyncio.run(self.copies.request_ends())

    def lag(self) -> Any:
        """Return (records, seconds), or None."""
        return self.copies.lags(self.clock.now).get(COPY)


@pytest.fixture
def lagging(monkeypatch: pytest.MonkeyPatch) -> Lagging:
    """The standby is empty, and the changelog has ten records."""
    return Lagging(monkeypatch)


@pytest.mark.parametrize("by", ["the consumer", "the recovery", "the replay"])
def test_the_furthest_known_position_of_a_copy_counts(lagging: Lagging, by: str) -> None:
    """A standby's offset is that of its last record."""
    if by == "the consumer":
        lagging.read = 10
    elif by == "the recovery":
        lagging.recovery.standby_offsets[COPY] = 9
    else:
        lagging.recovery.progress = SimpleNamespace(next_offset={COPY: 10}.__getitem__)
    lagging.look()
    lagging.clock.now += 60
    assert lagging.lag() == (0, 0.0)


def test_the_age_of_a_lag_is_counted_from_the_request_that_the_copy_has_reached(
    lagging: Lagging,
) -> None:
    """A record may be written before the broker's answer arrives."""
    lagging.read = 10
    lagging.look()  # requested at 100 s
    assert lagging.lag() == (0, 0.0)
    lagging.end = 14
    lagging.clock.now = 120
    lagging.look()
    assert lagging.lag() == (4, 25.0)
    lagging.end = 15
    lagging.look()
    assert lagging.lag() == (5, 30.0)


def test_a_copy_that_left_at_a_request_is_forgotten_at_once(lagging: Lagging) -> None:
    """This also holds if it returns before the next reading."""
    lagging.look()
    lagging.held = set()
    lagging.look()
    lagging.held = {COPY}
    assert lagging.lag() is None
    lagging.clock.now = 500
    lagging.look()
    assert lagging.lag() == (10, 5.0)


# -- rounds


def decided(*members: Member) -> RecentRounds:
    """Return a round of these members over four stateful tasks and a weightless topic."""
    counts = {"orders": 4, COPY.topic: 4, "lead": 1}
    recent = RecentRounds()
    made = plan(members, counts, changelogs={COPY.topic}, weightless={"lead"})
    recent.decided(DecisionInputs("shop", 1, members, counts, 0, frozenset({COPY.topic})), made)
    return recent


def test_a_promoted_task_of_a_departed_owner_has_no_source_and_an_idle_topic_is_no_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The number of recorded moves is limited."""
    topics = ("orders", COPY.topic, "lead")
    held = {"orders": (0, 1), COPY.topic: (0, 1)}
    members = (
        Member("a", topics, actives={**held, "lead": (0,)}, generation=1),
        Member("b", topics, standbys={COPY.topic: (2, 3)}, generation=1),
    )
    (told,) = decided(*members).rounds()
    assert [(move.partition, move.source, move.target) for move in told.moves] == [
        (2, "", "b"),
        (3, "", "b"),
    ]
    left = Member("a", topics[:2], actives={**held, "lead": (0,)}, generation=1)
    assert decided(left, Member("c", ("lead",))).rounds()[0].moves == ()
    monkeypatch.setattr(recent_rounds, "MOST_MOVES", 1)
    (told,) = decided(*members).rounds()
    assert len(told.moves) == 1


# -- standstills


@pytest.mark.parametrize("of_app", [True, False])
def test_a_recovery_stops_all_partitions_unless_the_worker_processes_the_rest(
    bench: Bench, *, of_app: bool
) -> None:
    """Both flags count: the app's and that of Faust's recovery."""
    where = bench.app if of_app else bench.recovery
    before = where.in_recovery
    assert bench.standing() == []
    where.in_recovery = True
    try:
        assert bench.standing() == []
        bench.recovery.is_flowing = False
        assert [reason for _, reason in bench.standing()] == ["restoring"]
    finally:
        where.in_recovery = before


def test_a_slow_record_stands_still_since_it_became_the_oldest(bench: Bench) -> None:
    """It counts after 30 s, with the time of its begin."""
    message = SimpleNamespace(tp=TP("orders", 3), offset=7, acked=False)
    bench.consumer._unacked_messages.append(message)
    look = bench.sensor._still.state_at
    assert look(100.0) == look(129.9) == ()
    assert [(one.reason, one.since) for one in look(130.0)] == [("record", 100.0)]
    message.offset = 8
    assert look(140.0) == ()


# -- probes


def test_a_restored_record_counts_as_progress_of_a_restore(bench: Bench) -> None:
    """Our recovery counts it, or the offsets of Faust's recovery show it."""
    restores = Restores(bench.app)
    assert restores.stalled_s(100.0) == 0
    assert restores.stalled_s(107.0) == 7
    bench.recovery.progress = SimpleNamespace(total=1, blocks=0)
    assert restores.stalled_s(110.0) == 0
    bench.recovery.progress.total = 2
    assert restores.stalled_s(113.0) == 0
    bench.recovery.active_offsets[COPY] = 5
    assert restores.stalled_s(117.0) == 0
    assert restores.stalled_s(118.5) == 1.5
    bench.recovery.progress.total = 0  # a new recovery
    assert (restores.stalled_s(120.0), restores.stalled_s(124.0)) == (0, 4)
    bench.recovery.progress = None
    bench.recovery.active_offsets[COPY] = 3
    assert (restores.stalled_s(125.0), restores.stalled_s(126.0)) == (0, 1)


def test_the_first_generation_is_an_assignment(bench: Bench) -> None:
    """A new group's generation may be 0."""
    bench.app.assignor._memory = type(bench.app.assignor._memory)(generation=0)
    assert bench.sensor.not_ready() == []


@pytest.mark.parametrize(
    ("reasons", "status", "word"), [([], 200, "ready"), (["stops"], 503, "not ready")]
)
def test_a_probe_fails_with_its_reasons(reasons: list[str], status: int, word: str) -> None:
    """Kubernetes reads only the status."""
    view = SimpleNamespace(json=lambda said, status: (said, status))
    assert probes._probe_response(view, "ready", reasons) == (
        {"status": word, "reasons": reasons},
        status,
    )


async def test_a_page_of_the_ledger_is_asked_for_with_a_short_cursor(bench: Bench) -> None:
    """Python refuses an integer of thousands of digits with its own error."""
    asked: list[Any] = []

    def page(group_id: str, cursor: str) -> Any:
        asked.append((group_id, cursor))
        return LedgerPage(app="shop")

    ledger = SimpleNamespace(writer=SimpleNamespace(page=page))
    app: Any = SimpleNamespace(conf=bench.app.conf, **{probes.LEDGER_MARK: ledger})
    assert await probes.ledger_page(app, "9" * 5000) is not None
    assert asked == [("shop", "9" * probes.CURSOR_CHARS)]
    assert await probes.ledger_page(SimpleNamespace(conf=bench.app.conf), "") is None


# -- exporters


class Named(Monitor):
    """A monitor with another class name than Faust's own."""


class Broken(Monitor):
    """A monitor that fails."""

    is_broken = True

    @property
    def metric_counts(self) -> Any:
        """Raise the error."""
        if self.is_broken:
            raise RuntimeError("no connection")
        return {}

    @metric_counts.setter
    def metric_counts(self, value: Any) -> None:
        pass


class Shown:
    """An app's figures with settable series."""

    app_id = "shop"

    def __init__(self, *sensors: Any) -> None:
        self.book = Book()
        self.app = SimpleNamespace(sensors=list(sensors))
        self.read: dict[str, Any] = {}

    def snapshot(self) -> Any:
        """Return all figures."""
        return self.book.snapshot(self.read)


def test_a_monitor_is_found_once_and_one_other_than_fausts_own_means_measured() -> None:
    """The number of pushes and the order of the monitors do not matter."""
    shown = Shown(Named(), Monitor())
    exporters = Exporters(shown)
    for _ in range(2):
        exporters.push()
    assert len(exporters._pushed) == 2
    assert exporters.is_measured
    plain = Exporters(Shown(Monitor()))
    plain.push()
    assert not plain.is_measured


def test_a_figure_without_a_value_leaves_the_monitor() -> None:
    """Its last value would otherwise stay forever."""
    monitor = Monitor()
    shown = Shown(monitor)
    exporters = Exporters(shown)
    shown.read = {"restore_remaining_seconds": {(): 7.0}}
    exporters.push()
    name = f"{PREFIX}restore_remaining_seconds"
    found = [key for key in monitor.metric_counts if key.endswith("restore_remaining_seconds")]
    assert [monitor.metric_counts[key] for key in found] == [7.0], name
    shown.read = {}
    exporters.push()
    assert not any(key.endswith("restore_remaining_seconds") for key in monitor.metric_counts)


def test_a_monitor_that_fails_is_logged_once_and_the_others_get_the_figures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Pushes come every second."""
    monitor = Monitor()
    exporters = Exporters(Shown(Broken(), monitor))
    for _ in range(3):
        exporters.push()
    assert sum("Could not send the metrics" in one.message for one in caplog.records) == 1
    assert monitor.metric_counts


def test_a_closed_source_leaves_the_registry_and_the_others_stay() -> None:
    """Two apps of a process share a collector; a second close has no effect."""
    from prometheus_client import CollectorRegistry

    registry = CollectorRegistry()
    first, second = Shown(), Shown()
    second.app_id = "second"
    close = export_to_prometheus(first, registry)
    export_to_prometheus(second, registry)

    def apps() -> set[str]:
        return {s.labels["app"] for family in registry.collect() for s in family.samples}

    assert apps() == {"shop", "second"}
    close()
    close()
    assert apps() == {"second"}


def test_each_exporter_of_a_source_ends_with_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An app may have monitors for both Prometheus and OpenTelemetry."""
    ended: list[str] = []

    class PrometheusMonitor(Monitor):
        """A monitor found by its class name."""

    class OpenTelemetryMonitor(Monitor):
        """A monitor found by its class name."""

        meter = None

    for name in ("prometheus", "otel"):
        monkeypatch.setattr(
            exporters, f"export_to_{name}", lambda *_, name=name: lambda: ended.append(name)
        )
    for sensor in (PrometheusMonitor(), OpenTelemetryMonitor()):
        bench.app.sensors.add(sensor)
    shown = Exporters(bench.sensor)
    shown.push()
    shown.close()
    assert sorted(ended) == ["otel", "prometheus"]


# -- the disk


def test_the_disk_of_a_folder_that_is_not_made_yet_is_that_of_its_parent(tmp_path: Path) -> None:
    """The free bytes never exceed the size."""
    free, size = readings.disk(tmp_path / "tables" / "v1") or (0, 0)
    assert size == shutil.disk_usage(tmp_path).total
    assert 0 < free < size


def test_a_disk_that_does_not_answer_has_no_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system may be unavailable."""

    def fails(folder: Path) -> Any:
        raise OSError("stale handle")

    monkeypatch.setattr(shutil, "disk_usage", fails)
    assert readings.disk(tmp_path) is None


# -- requests of the sensor


class Asks:
    """Counts a sensor's requests for lags."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, self.error = 0, None
        self.sensor, self.clock = bench.sensor, bench.clock
        self.gate: asyncio.Event | None = None
        monkeypatch.setattr(self.sensor._copies, "request_ends", self._look)
        monkeypatch.setattr(self.sensor, "_look_at_disk", self._disk)
        monkeypatch.setattr(sensor_module, "status_of", lambda app, **of: SimpleNamespace(**of))

    async def _disk(self) -> None:
        pass

    async def _look(self) -> None:
        self.count += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error


@pytest.fixture
def asks(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Asks:
    """A sensor with counted requests."""
    return Asks(bench, monkeypatch)


async def test_a_document_asks_the_brokers_again_once_the_answer_is_old(asks: Asks) -> None:
    """Otherwise it would show outdated lags."""
    await asks.sensor.document()
    asks.clock.now += ASK_S
    await asks.sensor.document()
    assert asks.count == 1
    asks.clock.now += 0.1
    await asks.sensor.document()
    assert asks.count == 2


async def test_requests_are_rare_unless_a_tool_or_a_monitor_uses_the_answers(asks: Asks) -> None:
    """A document makes them frequent for a minute."""
    sensor = asks.sensor
    assert sensor._is_due()
    await sensor._ask()
    assert not sensor._is_due()
    asks.clock.now += IDLE_ASK_S
    assert sensor._is_due()
    await sensor.document()
    assert sensor._is_due()
    asks.clock.now += WATCHED_S - 0.1
    assert sensor._is_due()
    await sensor._ask()
    asks.clock.now += 0.1
    assert not sensor._is_due()
    sensor._exporters.is_measured = True
    assert sensor._is_due()


async def test_table_files_are_measured_only_while_a_tool_asks(
    asks: Asks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No metric has their sizes, and a measurement reads each partition's folder."""
    measured: list[float] = []
    monkeypatch.setattr(
        sensor_module, "state_sizes", lambda *_: measured.append(asks.clock.now) or {}
    )
    sensor = asks.sensor
    look_at_disk = type(sensor)._look_at_disk
    await look_at_disk(sensor)
    assert not measured
    await sensor.document()
    asks.clock.now += WATCHED_S - 0.1
    await look_at_disk(sensor)
    assert measured == [asks.clock.now]
    asks.clock.now += 0.1
    await look_at_disk(sensor)
    assert len(measured) == 1


async def test_a_request_is_not_made_twice_at_a_time_and_a_failed_one_is_made_again(
    asks: Asks,
) -> None:
    """A document and the regular request may coincide."""
    asks.gate = asyncio.Event()
    first = asyncio.create_task(asks.sensor._ask())
    await asyncio.sleep(0)
    while not asks.count:
        await asyncio.sleep(0)
    await asks.sensor._ask()
    assert asks.count == 1
    asks.error = RuntimeError("no broker")
    asks.gate.set()
    await first
    assert asks.sensor._asked_at is None
    asks.error = None
    await asks.sensor._ask()
    assert (asks.count, asks.sensor._asked_at) == (2, asks.clock.now)


async def test_a_round_has_an_age_only_while_it_is_under_way(asks: Asks) -> None:
    """This holds for the document and for the figures."""
    sensor, app = asks.sensor, asks.sensor.app
    sensor.on_rebalance_start(app)
    asks.clock.now += 7
    app.rebalancing = True
    try:
        assert (await sensor.document()).round_age_s == 7
        assert sensor.on_rebalance_start(app) == asks.clock.now, "the former round did not end"
        asks.clock.now += 3
        assert (await sensor.document()).round_age_s == 3
        app.rebalancing = False
        assert (await sensor.document()).round_age_s is None
    finally:
        app.rebalancing = False


def test_a_worker_that_never_led_is_no_leader_before_its_first_assignment(bench: Bench) -> None:
    """Both generations are -1 then."""
    bench.app.assignor._memory = type(bench.app.assignor._memory)()
    assert bench.app.assignor.generation == -1
    assert not bench.sensor._leads()
