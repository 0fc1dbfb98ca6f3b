"""A worker's readings, standstills, lags and events, with several partitions of each kind."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from faust.sensors.monitor import Monitor
from faust.types import TP

from faust_assigner import __version__
from faust_assigner.app.metrics import exporters as exporters_module
from faust_assigner.app.metrics import probes, readings
from faust_assigner.app.metrics import sensor as sensor_module
from faust_assigner.app.metrics.book import Book, Spread, zeros
from faust_assigner.app.metrics.copies import Copies
from faust_assigner.app.metrics.exporters import Exporters
from faust_assigner.app.metrics.figure import HISTOGRAM, PREFIX
from faust_assigner.app.metrics.figures import COUNTED, FIGURES
from faust_assigner.app.metrics.probes import Restores, ready_problems
from faust_assigner.app.metrics.recent_rounds import RecentRounds
from faust_assigner.app.metrics.sensor import BRIDGED_LOOKS, MetricsSensor
from faust_assigner.app.metrics.stalled import RECORD_S, StalledPartition, StalledPartitions
from faust_assigner.app.rebalance import copy_offsets
from faust_assigner.model import NOBODY, Member
from faust_assigner.views.placed import RULES
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.outcome import Outcome
from faust_assigner.wire.worker_status import REASONS, MovedTask, RoundTold

LOG = "shop-log"
ORDERS = [TP("orders", number) for number in range(6)]
LOGS = [TP(LOG, number) for number in range(6)]


class App:
    """A worker that owns orders 0 to 5 and logs 0 and 1, with standbys of logs 2 to 4."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self.assignor = SimpleNamespace(
            assigned_actives=lambda: {*ORDERS, *LOGS[:2]},
            assigned_standbys=lambda: set(LOGS[2:5]),
            awaited=SimpleNamespace(tps={LOGS[4]}),
            counters=self.counters,
            generation=7,
            leaves=False,
        )
        self.recovery = SimpleNamespace(
            in_recovery=False, is_taking_on=False, is_flowing=True, active_offsets={}
        )
        self.tables = SimpleNamespace(_changelogs={LOG: "table"}, recovery=self.recovery)
        self.fetcher = SimpleNamespace(aside=Aside(), refused=Aside())
        self._consumer: Any = SimpleNamespace(
            _paused_partitions=set(),
            _unacked_messages=[],
            leaving=frozenset(),
            between_generations=False,
            fetcher=self.fetcher,
            is_surely_member=lambda: True,
            fence=SimpleNamespace(losses=2, silent_s=lambda: 1.5),
        )
        self.in_recovery = self.rebalancing = self.should_stop = False
        self.client_only = self.producer_only = False
        self.conf = SimpleNamespace(id="shop", broker_rebalance_timeout=120.0)


class Aside:
    """Partitions that were set aside."""

    def __init__(self) -> None:
        self.tps: set[TP] = set()

    def partitions(self) -> set[TP]:
        """Return these partitions."""
        return self.tps


@pytest.fixture
def app() -> App:
    """The worker."""
    return App()


# -- readings


def read(monkeypatch: pytest.MonkeyPatch, app: App, **ages: float) -> dict[str, Any]:
    """Return the worker's readings while waits have these ages."""
    waits = SimpleNamespace(age_s=lambda *kinds: ages.get(kinds[0]))
    monkeypatch.setattr(readings, "waits_of", lambda app: waits)
    monkeypatch.setattr(readings, "corrupt_folders", lambda app: 4)
    unreadable = SimpleNamespace(counts=Counter({LOGS[0]: 3, LOGS[1]: 5}))
    monkeypatch.setattr(readings, "unreadable_of", lambda app: unreadable)
    return readings.worker(app)


def test_a_worker_s_readings_are_these(monkeypatch: pytest.MonkeyPatch, app: App) -> None:
    """Each counter has its own name; labels are topic and partition."""
    for number, key in enumerate(COUNTED):
        app.counters[key] = 100 + number
    app.fetcher.aside.tps = {ORDERS[0], ORDERS[1], LOGS[0]}
    app.recovery.progress = SimpleNamespace(
        total=900, figures=lambda: SimpleNamespace(remaining=70, eta_s=3.5)
    )
    found = read(monkeypatch, app, **{readings.COMMIT: 4.0, readings.REVOCATION: 6.0})
    bare = {
        "owned_partitions": 8,
        "standby_partitions": 3,
        "warmup_partitions": 1,
        "unreadable_partitions": 3,
        "corrupt_folders": 4,
        "unreadable_records": 8,
        "fences": 2,
        "group_silent_seconds": 1.5,
        "commit_age_seconds": 4.0,
        "revocation_age_seconds": 6.0,
        "restore_remaining_records": 70,
        "restored_records": 900,
        "restore_remaining_seconds": 3.5,
        **{figure.name: 100.0 + at for at, figure in enumerate(COUNTED.values())},
    }
    assert found == {
        "info": {(__version__,): 1.0},
        "owned_changelog_partition": {(LOG, "0"): 1.0, (LOG, "1"): 1.0},
        **{name: {(): value} for name, value in bare.items()},
    }


def test_what_a_worker_does_not_have_is_not_read(monkeypatch: pytest.MonkeyPatch, app: App) -> None:
    """Faust's own recovery has no progress; silence counts only after an assignment."""
    names = {"fences", "group_silent_seconds", "restored_records", "restore_remaining_records"}
    assert names & read(monkeypatch, app).keys() == {"fences", "group_silent_seconds"}
    app.assignor.generation = 0
    assert "group_silent_seconds" in read(monkeypatch, app)
    app.assignor.generation = -1
    app.recovery.progress = SimpleNamespace(
        total=0, figures=lambda: SimpleNamespace(remaining=5, eta_s=None)
    )
    found = read(monkeypatch, app, **{readings.COMMIT: 0.0})
    assert found["commit_age_seconds"] == {(): 0.0}
    assert found["restored_records"] == {(): 0}
    assert not {"group_silent_seconds", "restore_remaining_seconds"} & found.keys()
    assert found["fences"] == {(): 2}
    app.recovery.progress.figures = lambda: SimpleNamespace(remaining=0, eta_s=0.0)
    found = read(monkeypatch, app)
    assert found["restore_remaining_seconds"] == {(): 0.0}, "nothing remains, which is known"
    app._consumer = None
    found = read(monkeypatch, app)
    assert "fences" not in found
    assert found["unreadable_partitions"] == {(): 0}


def test_standstills_and_lags_are_read_by_partition() -> None:
    """Reasons are counted over all partitions; records and seconds stay separate."""
    still = [
        StalledPartition(ORDERS[0], "paused", 90.0),
        StalledPartition(ORDERS[3], "round", 95.0),
        StalledPartition(TP("clicks", 3), "paused", 70.0),
    ]
    assert readings.standing(still, 100.0) == {
        "standing_partitions": {("paused",): 2, ("round",): 1},
        "standing_seconds": {
            ("orders", "0", "paused"): 10.0,
            ("orders", "3", "round"): 5.0,
            ("clicks", "3", "paused"): 30.0,
        },
    }
    assert readings.copies({LOGS[0]: (7, 1.5), LOGS[2]: (0, 0.0)}) == {
        "standby_lag_records": {(LOG, "0"): 7, (LOG, "2"): 0},
        "standby_lag_seconds": {(LOG, "0"): 1.5, (LOG, "2"): 0.0},
    }
    assert readings.disk_figures(3, 9) == {"disk_free_bytes": {(): 3}, "disk_size_bytes": {(): 9}}


def test_the_disk_of_the_nearest_folder_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An existing folder is read itself; the last parent is the root."""
    asked: list[Path] = []

    def usage(folder: Path) -> Any:
        asked.append(folder)
        return SimpleNamespace(free=3, used=1, total=9)

    monkeypatch.setattr(readings.shutil, "disk_usage", usage)
    assert readings.disk(tmp_path) == readings.disk(tmp_path / "a" / "b") == (3, 9)
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert readings.disk(tmp_path) == (3, 9)
    assert asked == [tmp_path, tmp_path, Path("/")]


def test_a_decision_s_figures_count_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each figure has its own array."""
    monkeypatch.setattr(readings, "uncovered", lambda inputs, plan: 5)
    plan: Any = SimpleNamespace(
        layout=SimpleNamespace(per_task=lambda _: np.array([True] * 5 + [False])),
        flat_owner=np.array([0, 1, 2, 0, 1, NOBODY]),
        flat_target=np.array([0, 2, 2, 1, 0, NOBODY]),
        flat_warmup=np.array([NOBODY, 0, NOBODY, 1, NOBODY, NOBODY]),
    )
    inputs: Any = SimpleNamespace(members=("a", "b", "c", "d"))
    assert readings.decision(inputs, plan) == {
        "members": {(): 4},
        "tasks": {(): 5},
        "off_target_tasks": {(): 3},
        "warming_tasks": {(): 2},
        "uncovered_tasks": {(): 5},
    }


# -- standstills


def test_each_partition_stands_still_for_the_first_of_its_reasons(app: App) -> None:
    """Partitions come in order; changelogs and partitions without a reason are left out."""
    still, now = StalledPartitions(app), 200.0
    consumer = app._consumer
    consumer._unacked_messages = [record(ORDERS[4], 9), record(ORDERS[4], 7), record(ORDERS[1], 3)]
    assert still.state_at(now) == ()
    consumer.leaving = frozenset({ORDERS[0]})
    consumer._paused_partitions = {ORDERS[0], ORDERS[1], LOGS[0]}
    app.fetcher.aside.tps = {ORDERS[1], ORDERS[2]}
    app.fetcher.refused.tps = {ORDERS[2], ORDERS[3]}
    now += RECORD_S
    found = [
        StalledPartition(ORDERS[0], "hand_over", 230.0),
        StalledPartition(ORDERS[1], "paused", 230.0),
        StalledPartition(ORDERS[2], "unreadable", 230.0),
        StalledPartition(ORDERS[3], "refused", 230.0),
        StalledPartition(ORDERS[4], "record", 200.0),
    ]
    assert still.state_at(now) == tuple(found)
    app.recovery.is_taking_on = True
    found[1] = StalledPartition(ORDERS[1], "restoring", 240.0)
    assert still.state_at(240.0) == tuple(found)
    consumer.between_generations = True
    assert {one.reason for one in still.state_at(250.0)} == {"round"}
    assert [one.since for one in still.state_at(260.0)] == [250.0] * 6
    consumer.is_surely_member = lambda: False
    assert {(one.reason, one.since) for one in still.state_at(270.0)} == {("group", 270.0)}
    app._consumer = None
    assert still.state_at(280.0) == ()


def record(tp: TP, offset: int) -> Any:
    """Return a record in progress."""
    return SimpleNamespace(tp=tp, offset=offset, acked=False)


def test_the_oldest_record_of_each_partition_is_timed_by_itself(app: App) -> None:
    """The next record's time starts after it; a moment less is no standstill."""
    still, consumer = StalledPartitions(app), app._consumer
    consumer._unacked_messages = [record(ORDERS[0], 5), record(ORDERS[1], 5)]
    still.state_at(100.0)
    consumer._unacked_messages = [record(ORDERS[0], 6), record(ORDERS[0], 5), record(ORDERS[1], 6)]
    still.state_at(110.0)
    assert still.state_at(100.0 + RECORD_S - 0.1) == ()
    assert still.state_at(100.0 + RECORD_S) == (StalledPartition(ORDERS[0], "record", 100.0),)
    assert still.state_at(110.0 + RECORD_S) == (
        StalledPartition(ORDERS[0], "record", 100.0),
        StalledPartition(ORDERS[1], "record", 110.0),
    )
    consumer._unacked_messages = []
    assert still.state_at(150.0) == ()
    consumer._unacked_messages = [record(ORDERS[0], 5)]
    still.state_at(160.0)
    assert still.state_at(160.0 + RECORD_S)[0].since == 160.0
    consumer._unacked_messages[0].acked = True  # Faust forgets it only at the next commit
    assert still.state_at(170.0 + RECORD_S) == ()


@pytest.mark.parametrize("flag", ["app", "recovery"])
def test_a_recovery_that_lets_the_rest_flow_stops_its_own_partitions_alone(
    app: App, flag: str
) -> None:
    """Faust's own recovery stops all partitions."""
    (app if flag == "app" else app.recovery).in_recovery = True
    still = StalledPartitions(app)
    assert still.state_at(1.0) == ()
    app.recovery.is_flowing = False
    assert [one.reason for one in still.state_at(2.0)] == ["restoring"] * 6
    del app.recovery.is_flowing, app._consumer.is_surely_member
    del app._consumer.between_generations, app._consumer.leaving
    assert [(one.reason, one.since) for one in still.state_at(3.0)] == [("restoring", 2.0)] * 6


# -- probes


def problems(app: Any, *still: StalledPartition, now: float, stalled_s: float = 0.0) -> list[str]:
    """Return the reasons why the worker is not ready."""
    return ready_problems(app, still, now=now, stalled_s=stalled_s)


def test_the_reasons_of_a_worker_that_is_not_ready_are_counted(app: App) -> None:
    """Reasons come in a fixed order with separate limits; a restore's limit needs its progress."""
    still = [
        StalledPartition(ORDERS[0], "paused", 40.0),
        StalledPartition(ORDERS[1], "paused", 40.1),
        StalledPartition(ORDERS[2], "refused", 90.0),
        StalledPartition(ORDERS[3], "refused", 85.0),
        StalledPartition(ORDERS[4], "round", -20.0),
        StalledPartition(ORDERS[5], "hand_over", -19.9),
        StalledPartition(TP("clicks", 0), "restoring", 0.0),
        StalledPartition(TP("clicks", 1), "restoring", 99.0),
        StalledPartition(TP("clicks", 2), "group", 100.0),
    ]
    counts = {"group": 1, "paused": 1, "refused": 2, "round": 1}
    named = [
        f"{'1 partition stands' if counts[reason] == 1 else '2 partitions stand'} still: {why}"
        for reason, why in REASONS.items()
        if reason in counts
    ]
    limit = probes.STALLED_S
    assert problems(app, *still, now=100.0, stalled_s=limit - 0.1) == named
    restore = "2 partitions stand still: the restore of their tables has made no progress for 60 s"
    assert problems(app, *still, now=100.0, stalled_s=limit) == [*named, restore]
    assert problems(app, now=100.0, stalled_s=limit) == []


@pytest.mark.parametrize("stops", ["app", "assignor"])
def test_a_worker_that_stops_says_so_before_all_else(app: App, stops: str) -> None:
    """This also holds before its first assignment; a process without partitions is ready."""
    app.assignor.generation = -1
    assert problems(app, now=1.0) == ["the group has not given this worker an assignment yet"]
    if stops == "app":
        app.should_stop = True
    else:
        app.assignor.leaves = True
    stalled = StalledPartition(ORDERS[0], "group", 0.0)
    assert problems(app, stalled, now=1.0) == ["the worker stops and hands its partitions over"]
    app.client_only = True
    assert problems(app, stalled, now=1.0) == []


def test_progress_of_a_restore_is_any_of_four_numbers(app: App) -> None:
    """The numbers are generation, total, blocks and the sum of offsets; an empty table has -1."""
    restores = Restores(app)
    assert restores.stalled_s(10.0) == 0.0
    app.recovery.active_offsets = {LOGS[0]: 3, LOGS[1]: None}
    assert restores.stalled_s(20.0) == 0.0
    app.recovery.active_offsets = {LOGS[0]: 2, LOGS[1]: 0}
    assert restores.stalled_s(25.0) == 5.0
    app.recovery.active_offsets[LOGS[1]] = 1
    assert restores.stalled_s(30.0) == 0.0
    app.recovery.progress = SimpleNamespace(total=0, blocks=0)
    assert restores.stalled_s(32.0) == 2.0
    app.recovery.progress.total = 4
    assert restores.stalled_s(40.0) == 0.0
    app.recovery.progress.blocks = 1
    assert restores.stalled_s(45.0) == 0.0
    app.assignor.generation = 8
    assert restores.stalled_s(50.0) == 0.0
    assert restores.stalled_s(51.5) == 1.5


# -- lags of several standbys


async def test_each_copy_has_its_own_lag(monkeypatch: pytest.MonkeyPatch, app: App) -> None:
    """A single request covers all; a removed standby is forgotten, the others keep their times."""
    now, asked = 100.0, list[Any]()
    ends = {LOGS[2]: 50, LOGS[3]: 60, LOGS[4]: 70}
    at = {LOGS[2]: 50, LOGS[3]: 20, LOGS[4]: 0}
    held = {LOGS[2], LOGS[3], LOGS[4]}
    app.assignor.assigned_standbys = lambda: held

    async def ends_of(given: Any, tps: Any) -> dict[TP, int]:
        assert given is app
        asked.append(tps)
        return {tp: ends[tp] for tp in tps}

    async def read_to(given: Any, found: Any) -> dict[TP, int]:
        assert (given, found.keys()) == (app, held)
        return {tp: at[tp] for tp in found}

    monkeypatch.setattr(copy_offsets, "ends_of", ends_of)
    monkeypatch.setattr(copy_offsets, "read_to", read_to)
    app.recovery.standby_offsets = {LOGS[3]: 39, LOGS[4]: None}
    app.recovery.progress = SimpleNamespace(
        next_offset=lambda tp: {LOGS[4]: 5, LOGS[3]: 1}.get(tp, 0)
    )
    copies = Copies(app, lambda: now)
    await copies.request_ends()
    assert asked == [[LOGS[2], LOGS[3], LOGS[4]]]
    assert copies.lags(110.0) == {LOGS[2]: (0, 0.0), LOGS[3]: (20, 10.0), LOGS[4]: (65, 10.0)}
    now, ends[LOGS[2]], at[LOGS[3]] = 120.0, 55, 60
    await copies.request_ends()
    assert copies.lags(125.0) == {LOGS[2]: (5, 25.0), LOGS[3]: (0, 0.0), LOGS[4]: (65, 25.0)}
    held = {LOGS[2], LOGS[3]}
    assert copies.lags(130.0).keys() == held
    held = {LOGS[2], LOGS[3], LOGS[4]}
    assert LOGS[4] not in copies.lags(131.0)
    held = set()
    await copies.request_ends()
    assert (copies.lags(140.0), len(asked)) == ({}, 2)
    app._consumer, held = None, {LOGS[2]}
    await copies.request_ends()
    assert len(asked) == 2


# -- counts and exporters


def test_a_histogram_has_a_bucket_for_each_bound_and_one_beyond() -> None:
    """An observation is in the first bucket whose bound it does not exceed."""
    spread = Spread((0, 0, 0))
    for value in (0.5, 0.4, 2.0, 2.1, 0.6, 9.9):
        spread = spread.plus((0.5, 2.0), value)
    assert spread.counts == (2, 2, 2)
    assert spread.total == pytest.approx(15.5)


def test_listeners_of_a_histogram_get_its_observations_alone() -> None:
    """Each listener is called once; counts start at 0 and are kept by label."""
    book, heard = Book(), list[Any]()
    book.listen("round_seconds", lambda value: heard.append(("one", value)))
    book.listen("round_seconds", lambda value: heard.append(("two", value)))
    book.listen("plan_seconds", lambda value: heard.append(("plan", value)))
    book.observe("round_seconds", 3.0)
    assert heard == [("one", 3.0), ("two", 3.0)]
    book.count("rounds_led", "join")
    book.count("rounds_led", "leave", by=2)
    book.count("rounds_led", "join", by=0.5)
    taken = book.snapshot({"rounds_led": {("join",): 9.0, ("first",): 4.0}})
    assert {k: v for k, v in taken.series["rounds_led"].items() if v} == {
        ("join",): 1.5,
        ("leave",): 2.0,
        ("first",): 4.0,
    }
    assert taken.spreads["round_seconds"].total == 3.0
    assert taken.spreads["plan_seconds"].total == 0.0
    assert {f.name for f in FIGURES if f.kind == HISTOGRAM} == set(taken.spreads)
    assert taken.series.keys() == zeros().keys()


class Source:
    """An app's figures: two without labels, one with labels."""

    app_id, book = "shop", Book()

    def __init__(self, *sensors: Any) -> None:
        self.app = SimpleNamespace(sensors=list(sensors))

    def snapshot(self) -> Any:
        """Return the figures."""
        return SimpleNamespace(
            series={
                "rounds": {(): 3.0},
                "commit_age_seconds": {},
                "standing_seconds": {("a.b", "1", "round"): 7.0, ("c d", "2", "paused"): 8.0},
            }
        )


class Client:
    """A client that records gauges."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def gauge(self, name: str, value: float, **more: Any) -> None:
        """Record the gauge."""
        self.sent.append((name, value, *more.values()))


class StatsdMonitor(Monitor):
    """A monitor found by its class name."""

    client: Any = None


class DatadogMonitor(Monitor):
    """A monitor found by its class name."""

    client: Any = None


class OwnDatadogMonitor(DatadogMonitor):
    """An app's own monitor."""


@pytest.mark.parametrize("kind", [DatadogMonitor, OwnDatadogMonitor])
def test_monitors_get_figures_in_their_own_form(kind: type[DatadogMonitor]) -> None:
    """StatsD's names contain cleaned labels; a figure without a value is removed."""
    statsd, datadog, plain = StatsdMonitor(), kind(), Monitor()
    statsd.client, datadog.client = Client(), Client()
    for one in (statsd, datadog, plain):
        one.metric_counts[f"{PREFIX}commit_age_seconds"] = 4
        one.metric_counts[f"{PREFIX}other"] = 5
    exporters = Exporters(Source(statsd, "no monitor", datadog, plain))
    exporters.push()
    base = f"{PREFIX}standing_seconds"
    assert statsd.client.sent == [
        (f"{PREFIX}rounds_total", 3.0),
        (f"{base}.a_b.1.round", 7.0),
        (f"{base}.c_d.2.paused", 8.0),
    ]
    assert datadog.client.sent == [
        (f"{PREFIX}rounds_total", 3.0, {}),
        (base, 7.0, {"topic": "a.b", "partition": "1", "reason": "round"}),
        (base, 8.0, {"topic": "c d", "partition": "2", "reason": "paused"}),
    ]
    for one in (statsd, datadog, plain):
        assert dict(one.metric_counts) == {f"{PREFIX}rounds_total": 3.0, f"{PREFIX}other": 5}
    assert exporters.is_measured


@pytest.mark.parametrize("is_own", [False, True])
def test_a_new_monitor_is_found_at_the_next_push(
    monkeypatch: pytest.MonkeyPatch, is_own: bool
) -> None:
    """Without monitors no snapshot is taken; each exporter starts once and is closed once.

    An app may have its own subclass of a monitor.
    """
    acts: list[Any] = []
    kinds: list[Any] = [
        type("PrometheusMonitor", (Monitor,), {}),
        type("OpenTelemetryMonitor", (Monitor,), {"meter": "meter"}),
    ]
    prometheus, otel = (type("Own", (kind,), {})() if is_own else kind() for kind in kinds)

    def begin(name: str) -> Any:
        def beginning(*given: Any) -> Any:
            acts.append((name, *given))
            return lambda: acts.append(f"{name} ends")

        return beginning

    monkeypatch.setattr(exporters_module, "export_to_prometheus", begin("prometheus"))
    monkeypatch.setattr(exporters_module, "export_to_otel", begin("otel"))
    source = Source()
    source.snapshot = lambda: acts.append("snapshot") or SimpleNamespace(series={})  # type: ignore[method-assign]
    exporters = Exporters(source)
    exporters.push()
    assert acts == []
    source.app.sensors += [prometheus, otel]
    exporters.push()
    exporters.push()
    begun = [("prometheus", source), ("otel", source, "meter")]
    assert acts == [*begun, "snapshot", "snapshot"]
    acts.clear()
    exporters.close()
    exporters.close()
    assert sorted(acts) == ["otel ends", "prometheus ends"]


# -- rounds


def test_moves_are_named_with_their_rules_and_members() -> None:
    """Names are instance ids, else member ids; weightless groups and unowned tasks are left out."""
    groups = (
        SimpleNamespace(weightless=True, topics=("leader",)),
        SimpleNamespace(weightless=False, topics=("orders", "log")),
        SimpleNamespace(weightless=False, topics=("clicks",)),
    )
    plan: Any = SimpleNamespace(
        member_ids=("a", "b", "c"),
        groups=groups,
        moved=(np.array([True]), np.array([True, False, True, True]), np.array([False, True])),
        owner=(np.array([0]), np.array([1, 0, NOBODY, 2]), np.array([0, 0])),
        previous_owner=(np.array([1]), np.array([0, 0, 1, NOBODY]), np.array([0, 2])),
        rule=(np.array([3]), np.array([3, 0, 3, 5]), np.array([0, 4])),
        cold=(np.array([True]), np.array([True, False, False, False]), np.array([False, False])),
    )
    inputs: Any = SimpleNamespace(
        generation=4, members=[Member("a", (), instance_id="ia"), Member("b", ())]
    )
    recent = RecentRounds()
    recent.decided(inputs, plan)
    recent.answered(3, None, at=5.0)
    recent.ended(5, seconds=2.345)
    moves = (
        MovedTask(
            topic="orders", partition=0, source="ia", target="b", rule=RULES[3], is_cold=True
        ),
        MovedTask(topic="orders", partition=3, source="", target="c", rule=RULES[5], is_cold=False),
        MovedTask(
            topic="clicks", partition=1, source="c", target="ia", rule=RULES[4], is_cold=False
        ),
    )
    assert recent.rounds() == (
        RoundTold(generation=3, at=5.0),
        RoundTold(generation=4, moves=moves),
        RoundTold(generation=5, seconds=2.35),
    )
    recent.answered(0, Outcome(), at=1.0)
    assert [one.generation for one in recent.rounds()] == [0, 3, 4, 5]


# -- the sensor


class Sensing:
    """A sensor with stubbed readings and parts; the clock starts at 500."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, app: App) -> None:
        self.app, self.now = app, 500.0
        self.sensor = MetricsSensor(app, clock=lambda: self.now, wall=lambda: 1e9)
        self.still = (StalledPartition(ORDERS[0], "round", 490.0),)
        self.problems: list[str] = []
        monkeypatch.setattr(self.sensor._still, "state_at", lambda now: self.still)
        monkeypatch.setattr(self.sensor._copies, "lags", lambda now: {LOGS[2]: (6, now)})
        monkeypatch.setattr(self.sensor._restores, "stalled_s", lambda now: now + 1)
        self.asked: list[Any] = []
        monkeypatch.setattr(sensor_module, "ready_problems", self._ready)
        monkeypatch.setattr(readings, "worker", lambda app: {"fences": {(): 2}})

    def _ready(self, *given: Any, **how: Any) -> list[str]:
        self.asked.append((given, how))
        return self.problems


@pytest.fixture
def sensing(monkeypatch: pytest.MonkeyPatch, app: App) -> Sensing:
    """A sensing fixture."""
    return Sensing(monkeypatch, app)


def test_a_look_reads_all_figures_of_this_moment(sensing: Sensing) -> None:
    """Disk and round figures are optional; a leader's figures end with the next generation."""
    sensor, app = sensing.sensor, sensing.app
    sensor.read_figures()
    base: dict[str, Any] = {
        "fences": {(): 2},
        "standing_partitions": {("round",): 1},
        "standing_seconds": {("orders", "0", "round"): 10.0},
        "standby_lag_records": {(LOG, "2"): 6},
        "standby_lag_seconds": {(LOG, "2"): 500.0},
        "ready": {(): 1.0},
    }
    assert sensor._read == base
    assert sensing.asked == [((app, sensing.still), {"now": 500.0, "stalled_s": 501.0})]
    sensing.problems, sensor._disk = ["late"], (3, 9)
    sensor._round_began, app.rebalancing = 480.0, True
    sensor._led = 7, {"members": {(): 2}}
    sensor.read_figures()
    assert sensor._read == base | {
        "ready": {(): 0.0},
        "disk_free_bytes": {(): 3},
        "disk_size_bytes": {(): 9},
        "round_age_seconds": {(): 20.0},
        "members": {(): 2},
        "leads": {(): 1.0},
    }
    app.assignor.generation, app.rebalancing = 8, False
    sensor.read_figures()
    assert not {"members", "leads", "round_age_seconds"} & sensor._read.keys()


async def test_a_document_gets_what_the_worker_knows_now(
    sensing: Sensing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer within its age limit is reused."""
    sensor, app = sensing.sensor, sensing.app
    monkeypatch.setattr(sensor_module, "status_of", lambda app, **of: (app, of))
    asks: list[float] = []

    async def ask() -> None:
        asks.append(sensing.now)
        sensing.now += 2.0
        sensor._asked_at = sensing.now

    monkeypatch.setattr(sensor, "_ask", ask)
    sensor._disk, sensor._sizes = (3, 9), {LOGS[0]: 8}
    sensor._round_began, app.rebalancing, sensor._led = 490.0, True, (7, {})
    found: Any = await sensor.document()
    assert found == (
        app,
        {
            "now": 502.0,
            "still": sensing.still,
            "lags": {LOGS[2]: (6, 502.0)},
            "not_ready": [],
            "is_leader": True,
            "round_age_s": 12.0,
            "disk": (3, 9),
            "sizes": {LOGS[0]: 8},
        },
    )
    assert sensor._watched_until == 500.0 + sensor_module.WATCHED_S
    sensor._round_began, sensor._led = None, (6, {})
    sensing.now = 502.0 + sensor_module.ASK_S
    found = await sensor.document()
    assert (found[1]["round_age_s"], found[1]["is_leader"], asks) == (None, False, [500.0])


def test_a_decision_is_counted_as_a_whole(
    sensing: Sensing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold moves are summed; a second decision adds to the counters and replaces the gauges."""
    sensor = sensing.sensor
    decided: list[Any] = []
    monkeypatch.setattr(sensor_module, "moved_tasks", lambda plan: plan.moves)
    monkeypatch.setattr(readings, "decision", lambda inputs, plan: {"tasks": {(): plan.moves}})
    monkeypatch.setattr(sensor.recent_rounds, "decided", lambda *given: decided.append(given))
    rounds: list[Any] = []
    for trigger, moves, cold in (("join", 4, [1, 1]), ("join+leave", 5, [0, 1])):
        plan = SimpleNamespace(moves=moves, flat_cold=np.array(cold, dtype=bool))
        inputs = SimpleNamespace(trigger=trigger, solve_ms=250.0, generation=moves)
        rounds.append((inputs, plan))
        sensor.on_decision(inputs, plan)  # type: ignore[arg-type]
    taken = sensor.snapshot()
    assert {k: v for k, v in taken.series["rounds_led"].items() if v} == {
        ("join",): 1.0,
        ("several",): 1.0,
    }
    assert (taken.series["moves"], taken.series["cold_moves"]) == ({(): 9.0}, {(): 3.0})
    assert taken.spreads["plan_seconds"].total == 0.5
    assert sensor._led == (5, {"tasks": {(): 5}})
    assert decided == rounds


def test_a_round_is_noted_from_its_begin_to_its_end(sensing: Sensing) -> None:
    """The answer has the wall time, the end its seconds; a round may lack an answer."""
    sensor, app = sensing.sensor, sensing.app
    outcome = Outcome(trigger="join")
    app.assignor._memory = SimpleNamespace(answer=SimpleNamespace(outcome=outcome))
    state = sensor.on_rebalance_start(app)
    assert state == sensor._round_began == 500.0
    sensing.now = 503.0
    sensor.on_rebalance_return(app, state)
    sensing.now = 510.0
    sensor.on_rebalance_end(app, state)
    assert sensor._round_began is None
    app.assignor._memory.answer, app.assignor.generation = None, 8
    sensor.on_rebalance_return(app, sensor.on_rebalance_start(app))
    taken = sensor.snapshot()
    assert taken.series["rounds"] == {(): 2.0}
    assert taken.spreads["round_answer_seconds"].total == 3.0
    assert taken.spreads["round_seconds"].total == 10.0
    assert sensor.recent_rounds.rounds() == (
        RoundTold(generation=7, outcome=outcome, at=1e9, seconds=10.0),
        RoundTold(generation=8, at=1e9),
    )


def test_gauges_are_dropped_after_five_failed_looks(sensing: Sensing) -> None:
    """Counters stay and are pushed; a successful reading restarts the count of failures."""
    sensor, pushed = sensing.sensor, list[Any]()
    sensor._exporters.push = lambda: pushed.append(dict(sensor._read))  # type: ignore[method-assign]
    sensor.read_figures = lambda: None  # type: ignore[method-assign]
    good: dict[str, Any] = {"fences": {(): 2}, "ready": {(): 1.0}}
    sensor._read = good
    sensor._look_once()

    def fails() -> None:
        raise RuntimeError("a bug")

    sensor.read_figures = fails  # type: ignore[method-assign]
    for _ in range(BRIDGED_LOOKS):
        sensor._look_once()
    assert pushed == [good] * (BRIDGED_LOOKS + 1)
    sensor._look_once()
    assert pushed[-1] == {"fences": {(): 2}}
    sensor.read_figures = lambda: None  # type: ignore[method-assign]
    sensor._look_once()
    assert sensor._failed_looks == 0


async def test_the_disk_and_the_sizes_of_held_partitions_are_read_while_a_tool_looks(
    sensing: Sensing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owned and standby partitions are measured; the broker is asked after the disk."""
    sensor, app = sensing.sensor, sensing.app
    app.conf.tabledir = "tables"
    acts: list[Any] = []
    monkeypatch.setattr(readings, "disk", lambda folder: acts.append(folder) or (3, 9))
    monkeypatch.setattr(
        sensor_module, "state_sizes", lambda *given: acts.append(given) or {LOGS[0]: 5}
    )

    async def look() -> None:
        acts.append("look")
        sensing.now += 1

    monkeypatch.setattr(sensor._copies, "request_ends", look)
    await sensor._ask()
    assert (acts, sensor._disk, sensor._sizes) == ([Path("tables"), "look"], (3, 9), {})
    assert (sensor._asked_at, sensor._is_asking) == (501.0, False)
    acts.clear()
    sensor._watched_until = sensing.now + 1
    await sensor._ask()
    held = {*ORDERS, *LOGS[:5]}
    assert acts == [Path("tables"), (held, {LOG: "table"}), "look"]
    assert sensor._sizes == {LOGS[0]: 5}


async def test_looks_and_requests_come_at_their_intervals(sensing: Sensing) -> None:
    """A request is sent only when it is due."""
    sensor, acts = sensing.sensor, list[Any]()

    async def sleep(seconds: float) -> None:
        acts.append(seconds)
        if len(acts) > 6:
            sensor._stopped.set()

    async def ask() -> None:
        acts.append("ask")

    due = iter([True, False, True, False, False, False])
    sensor.sleep, sensor._ask = sleep, ask  # type: ignore[method-assign]
    sensor._is_due = lambda: next(due)  # type: ignore[method-assign]
    sensor._look_once = lambda: acts.append("look")  # type: ignore[method-assign]
    await MetricsSensor._ask_regularly.fun(sensor)  # type: ignore[attr-defined]
    every = sensor_module.ASK_S
    assert acts == [every, "ask", every, every, "ask", every, every]
    acts.clear()
    sensor._stopped.clear()
    await MetricsSensor._look_regularly.fun(sensor)  # type: ignore[attr-defined]
    assert acts == [sensor_module.LOOK_S, "look"] * 4


async def test_a_sensor_begins_with_a_look_and_ends_with_its_series(sensing: Sensing) -> None:
    """It subscribes to the decisions of an assignor that offers them."""
    sensor, acts = sensing.sensor, list[Any]()
    sensor._look_once = lambda: acts.append("look")  # type: ignore[method-assign]
    sensor._exporters.close = lambda: acts.append("close")  # type: ignore[method-assign]
    await sensor.on_start()
    sensing.app.assignor.on_decision = acts.append
    await sensor.on_start()
    await sensor.on_stop()
    assert acts == ["look", sensor.on_decision, "look", "close"]


def test_requests_without_a_user_are_rare_to_the_moment(sensing: Sensing) -> None:
    """A request is due from the thirtieth second on."""
    sensor = sensing.sensor
    sensor._asked_at = 500.0 - sensor_module.IDLE_ASK_S
    assert sensor._is_due()
    sensor._asked_at += 0.1
    assert not sensor._is_due()
    sensor._watched_until = 500.0
    assert not sensor._is_due()
    sensor._watched_until = 500.1
    assert sensor._is_due()


def test_stateful_tasks_are_covered_by_kept_copies_that_have_caught_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A warm-up counts as a copy; dropped or lagging copies do not, nor do stateless tasks."""
    asked: list[Any] = []

    class Near:
        def __init__(self, *given: Any) -> None:
            asked.append(given)

        def caught_up(self, group: int, numbers: Any, members: Any) -> Any:
            asked.append((group, numbers.tolist(), members.tolist()))
            return np.array([[True, False, True, True, False], [True, False]][group - 1])

    monkeypatch.setattr(readings, "Progress", Near)
    groups = [SimpleNamespace(is_stateful=is_stateful) for is_stateful in (False, True, True)]
    plan: Any = SimpleNamespace(
        member_ids=("a", "b"),
        layout=SimpleNamespace(
            tasks=8,
            start=np.array([0, 2, 6, 8]),
            groups=groups,
            per_task=lambda of: np.repeat([of(group) for group in groups], (2, 4, 2)),
        ),
        previous=SimpleNamespace(
            copy_task=np.array([2, 3, 3, 4, 5, 6, 7]), copy_member=np.array([1, 0, 1, 0, 1, 0, 1])
        ),
        flat_standby=np.array([[NOBODY], [NOBODY], [1], [0], [1], [1], [0], [1]]),
        flat_warmup=np.array([NOBODY, NOBODY, NOBODY, 1, *[NOBODY] * 4]),
    )
    members = [Member("b", ()), Member("a", ())]
    for policy in (WarmupPolicy(max_per_member=9), None):
        inputs: Any = SimpleNamespace(members=members, warmups=policy)
        assert readings.uncovered(inputs, plan) == 3
    order = members[::-1]
    numbers = ((1, [0, 1, 1, 2, 3], [1, 0, 1, 0, 1]), (2, [0, 1], [0, 1]))
    assert asked == [
        (plan.layout, order, plan.previous, WarmupPolicy(max_per_member=9)),
        *numbers,
        (plan.layout, order, plan.previous, WarmupPolicy()),
        *numbers,
    ]
