"""A worker's figures: at the start, over rounds, with and without a value, and in each exporter."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from faust.sensors.datadog import DatadogMonitor
from faust.sensors.monitor import Monitor
from faust.sensors.prometheus import FaustMetrics, PrometheusMonitor
from faust.types import TP
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from faust_assigner.app.consumer.waits import COMMIT, HAND_OVER, REVOCATION, waits_of
from faust_assigner.app.metrics import exporters
from faust_assigner.app.metrics import sensor as sensor_module
from faust_assigner.app.metrics.figure import COUNTER, GAUGE, PREFIX
from faust_assigner.app.metrics.figures import COUNTED, FIGURES, SEVERAL, TRIGGERS
from faust_assigner.app.metrics.install import install
from faust_assigner.app.metrics.sensor import MetricsSensor
from faust_assigner.app.rebalance import copy_offsets
from faust_assigner.model import NOBODY, Member
from faust_assigner.wire.worker_status import REASONS
from tests.support.assigned import give
from tests.support.faust_group import WireGroup, make_app

PARTITIONS = 6
LOG = "shop-totals-changelog"


class Clock:
    """A clock that the test moves."""

    now = 100.0

    def __call__(self) -> float:
        """Return the current time."""
        return self.now


class Scraped:
    """An app's sensor in its own registry."""

    is_frozen = False

    def __init__(self, app: Any) -> None:
        self.app, self.clock = app, Clock()
        self.sensor = MetricsSensor(app, clock=self.clock)
        app.assignor.on_decision(self.sensor.on_decision)
        self.registry = CollectorRegistry()
        exporters.export_to_prometheus(self.sensor, self.registry)

    def series(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """Return (name, labels) -> value, by prometheus-client's parser; empty if frozen."""
        if self.is_frozen:
            return {}
        self.app.assignor.decisions.join()
        self.sensor.read_figures()
        text = generate_latest(self.registry).decode()
        samples = [s for family in text_string_to_metric_families(text) for s in family.samples]
        found = {(s.name, frozenset(s.labels.items())): s.value for s in samples}
        assert len(found) == len(samples)
        return found

    def __call__(self) -> dict[tuple[str, tuple[str, ...]], float]:
        """Return (name, label values without ``app``, by label) -> value."""
        found = {}
        for (name, labels), value in self.series().items():
            known = dict(labels)
            assert known.pop("app") == "shop"
            values = tuple(known[label] for label in sorted(known))
            found[name.removeprefix(PREFIX), values] = value
        return found

    def of(self, name: str) -> dict[tuple[str, ...], float]:
        """Return the series of a metric."""
        return {labels: value for (found, labels), value in self().items() if found == name}


class Shop(WireGroup):
    """Members of an app with a table and one standby."""

    def __init__(self) -> None:
        super().__init__({"orders": PARTITIONS, LOG: PARTITIONS})
        self.scraped: dict[str, Scraped] = {}

    def start(self, name: str) -> Scraped:
        """Return a member that joins with the next rebalance."""
        app = make_app(f"http://{name}", tables=("totals",), broker="kafka://127.0.0.1:1")
        app.finalize()
        self.add(name, app, {"orders", LOG})
        self.scraped[name] = Scraped(app)
        return self.scraped[name]


@pytest.fixture
async def shop() -> Shop:
    """An empty group."""
    return Shop()


def test_names_follow_the_conventions() -> None:
    """Units are base units, names are unique without ``_total``, and each has a meaning."""
    assert len({figure.name for figure in FIGURES}) == len(FIGURES) > 40
    for figure in FIGURES:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", figure.name)
        assert not figure.name.endswith("_total")
        assert figure.meaning
        assert figure.unit not in ("ms", "minutes", "kilobytes")
        if figure.unit in ("seconds", "bytes"):
            assert figure.name.endswith("_" + figure.unit)


def test_each_thing_that_findings_count_has_a_figure() -> None:
    """The log lines of a round use these counters; ``assignments`` are led rounds."""
    from faust_assigner.app.rebalance import findings

    listed = re.findall(r"``(\w+)``", str(findings.__doc__))
    assert set(listed) - {"assignments"} == set(COUNTED)


async def test_every_counter_and_known_label_is_there_with_zero_from_the_start(shop: Shop) -> None:
    """The series exist before the first assignment: rates would miss the first increase."""
    found = shop.start("a")()
    for figure in FIGURES:
        name = figure.exported.removeprefix(PREFIX)
        for labels in figure.starts if figure.kind in (COUNTER, GAUGE) else ():
            assert found[name, labels] == 0.0, name
    assert {labels for name, labels in found if name == "rounds_led_total"} == {
        (t,) for t in TRIGGERS
    }
    assert {labels for name, labels in found if name == "standing_partitions"} == {
        (r,) for r in REASONS
    }
    assert found["round_seconds_count", ()] == found["plan_seconds_count", ()] == 0.0


async def test_what_has_no_value_is_absent(shop: Shop) -> None:
    """There is no -1 and no NaN for a worker that leads no group or has no waits."""
    found = shop.start("a")()
    names = {name for name, _ in found}
    absent = {f.name for f in FIGURES if f.kind == GAUGE and not f.starts} - {"info"}
    assert {"commit_age_seconds", "members", "standby_lag_seconds", "disk_free_bytes"} <= absent
    assert not absent & names - {"restore_remaining_seconds"}
    assert all(value >= 0 for value in found.values())


async def test_roles_are_counted_after_a_round(shop: Shop) -> None:
    """With two members and one standby, each partition has one active and one standby."""
    a, b = shop.start("a"), shop.start("b")
    shop.rebalance()
    assert a.of("owned_partitions")[()] + b.of("owned_partitions")[()] == 2 * PARTITIONS
    assert a.of("standby_partitions")[()] + b.of("standby_partitions")[()] == PARTITIONS
    owned = a.of("owned_changelog_partition") | b.of("owned_changelog_partition")
    assert owned == {(str(p), LOG): 1.0 for p in range(PARTITIONS)}


async def test_only_the_leader_of_the_last_round_has_leader_gauges(shop: Shop) -> None:
    """A former leader keeps its counters, but no old gauges."""
    a, b = shop.start("a"), shop.start("b")
    shop.rebalance()
    leader, other = (a, b) if shop.leader == "a" else (b, a)
    assert leader.of("members") == {(): 2.0}
    assert leader.of("leads") == {(): 1.0}
    assert other.of("members") == {}
    assert other.of("leads") == {(): 0.0}
    shop.rebalance(leader="b" if leader is a else "a")
    assert leader.of("members") == {}
    assert leader.of("leads") == {(): 0.0}
    assert sum(leader.of("rounds_led_total").values()) == 1.0
    assert other.of("members") == {(): 2.0}


async def test_rounds_are_counted_by_their_trigger(shop: Shop) -> None:
    """The first round, a join and its moves are counted."""
    a = shop.start("a")
    shop.rebalance()
    assert a.of("rounds_led_total")["first",] == 1.0
    shop.start("b")
    shop.rebalance()
    shop.rebalance()
    assert a.of("rounds_led_total")["join",] == 1.0
    assert a.of("plan_seconds_count") == {(): 3.0}
    assert a.of("tasks")[()] == PARTITIONS
    shown = a.sensor.rounds()
    url = str(a.app.conf.canonical_url)
    assert shown.app == "shop"
    assert shown.rounds == tuple(replace(one, url=url) for one in a.sensor.recent_rounds.rounds())
    assert [one.url for one in shown.rounds] == [url] * 3


async def test_tasks_without_a_copy_elsewhere_are_counted(shop: Shop) -> None:
    """With a single member all tasks count; none counts after the other reported its standbys."""
    a = shop.start("a")
    shop.rebalance()
    assert a.of("uncovered_tasks") == {(): PARTITIONS}
    shop.start("b")
    for _ in range(3):
        shop.rebalance()
    assert a.of("uncovered_tasks") == {(): 0.0}


async def test_ten_rebalances_leave_no_label_of_a_partition_that_went(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each round the labels are exactly those of the assignment."""

    async def ends_of(app: Any, tps: list[TP]) -> dict[TP, int]:
        return dict.fromkeys(tps, 50)

    async def read_to(app: Any, ends: dict[TP, int]) -> dict[TP, int]:
        return dict.fromkeys(ends, 20)

    monkeypatch.setattr(copy_offsets, "ends_of", ends_of)
    monkeypatch.setattr(copy_offsets, "read_to", read_to)
    a = shop.start("a")
    a.app._consumer = consumer()
    seen = set()
    for turn in range(11):
        if turn % 2:
            shop.remove(f"b{turn - 1}")
        else:
            shop.start(f"b{turn}")
        shop.rebalance()
        await a.sensor._copies.request_ends()
        owned = {_place(tp) for tp in a.app.assignor.assigned_actives() if tp.topic == LOG}
        copies = {_place(tp) for tp in a.app.assignor.assigned_standbys()}
        assert a.of("owned_changelog_partition").keys() == owned
        assert a.of("standby_lag_records") == dict.fromkeys(copies, 30.0)
        assert a.of("standby_lag_seconds").keys() == copies
        seen.add(frozenset(owned))
    assert len(seen) > 1, "partitions went and came"
    # A standby that is removed between two requests is missing at the next scrape.
    give(a.app, standbys=())
    assert a.of("standby_lag_records") == {}


async def test_a_lag_in_seconds_is_since_the_copy_had_everything(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lag grows while the standby stands still; after catching up it is 0."""
    ends, at = [100], [100]

    async def ends_of(app: Any, tps: list[TP]) -> dict[TP, int]:
        return dict.fromkeys(tps, ends[0])

    async def read_to(app: Any, of: dict[TP, int]) -> dict[TP, int]:
        return dict.fromkeys(of, at[0])

    monkeypatch.setattr(copy_offsets, "ends_of", ends_of)
    monkeypatch.setattr(copy_offsets, "read_to", read_to)
    a = shop.start("a")
    a.app._consumer = consumer()
    tp = TP(LOG, 0)
    give(a.app, standbys={tp})
    await a.sensor._copies.request_ends()
    assert a.of("standby_lag_seconds") == {_place(tp): 0.0}
    for _ in range(2):
        a.clock.now += 5
        ends[0] += 40
        await a.sensor._copies.request_ends()
    assert a.of("standby_lag_records") == {_place(tp): 80.0}
    assert a.of("standby_lag_seconds") == {_place(tp): 10.0}
    a.app._consumer = None  # a stopping worker sends no further request
    ends[0] += 1_000
    await a.sensor._copies.request_ends()
    assert a.of("standby_lag_records") == {_place(tp): 80.0}
    a.app._consumer = consumer()
    at[0] = ends[0]
    await a.sensor._copies.request_ends()
    a.clock.now += 5
    assert a.of("standby_lag_seconds") == {_place(tp): 0.0}, "a complete copy has no age"


async def test_the_ends_of_changelogs_are_asked_for_before_anybody_looks(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a request every 30 s, the first scrape already knows the duration of a lag."""
    asked: list[float] = []

    async def ends_of(app: Any, tps: list[TP]) -> dict[TP, int]:
        asked.append(a.clock.now)
        return dict.fromkeys(tps, len(asked) * 40)

    async def read_to(app: Any, of: dict[TP, int]) -> dict[TP, int]:
        return {tp: end - 10 for tp, end in of.items()}

    monkeypatch.setattr(copy_offsets, "ends_of", ends_of)
    monkeypatch.setattr(copy_offsets, "read_to", read_to)
    a = shop.start("a")
    a.app._consumer = consumer()
    give(a.app, standbys={TP(LOG, 0)})
    for _ in range(121):
        if a.sensor._is_due():
            await a.sensor._ask()
        a.clock.now += sensor_module.ASK_S
    assert [after - before for before, after in pairwise(asked)] == [30.0] * 20
    a.clock.now += 25.0
    (seconds,) = a.of("standby_lag_seconds").values()
    assert seconds <= 2 * sensor_module.IDLE_ASK_S, "the copy is always 10 records behind"
    await a.sensor._ask()
    a.clock.now += 5.0
    assert not a.sensor._is_due()
    a.sensor._watched_until = a.clock.now + 1.0
    assert a.sensor._is_due(), "a tool looks"


async def test_the_lag_in_seconds_of_a_copy_that_comes_back_begins_anew(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time restarts at its first request; the former standby's time does not count."""
    ends = [100]

    async def ends_of(app: Any, tps: list[TP]) -> dict[TP, int]:
        return dict.fromkeys(tps, ends[0])

    async def read_to(app: Any, of: dict[TP, int]) -> dict[TP, int]:
        return dict.fromkeys(of, 100)

    monkeypatch.setattr(copy_offsets, "ends_of", ends_of)
    monkeypatch.setattr(copy_offsets, "read_to", read_to)
    a = shop.start("a")
    a.app._consumer = consumer()
    tp = TP(LOG, 0)
    give(a.app, standbys={tp})
    await a.sensor._copies.request_ends()
    give(a.app, standbys=())
    assert a.of("standby_lag_seconds") == {}
    a.clock.now += 600
    ends[0] = 140
    give(a.app, standbys={tp})
    await a.sensor._copies.request_ends()
    assert a.of("standby_lag_records") == {_place(tp): 40.0}
    assert a.of("standby_lag_seconds") == {_place(tp): 0.0}
    a.clock.now += 5
    assert a.of("standby_lag_seconds") == {_place(tp): 5.0}


async def test_a_round_between_two_scrapes_is_counted_and_one_under_way_has_an_age(
    shop: Shop,
) -> None:
    """The first round took 2 s to its answer and 3 s in all; the second is 7 s old."""
    a = shop.start("a")
    state = a.sensor.on_rebalance_start(a.app)
    a.clock.now += 2
    a.sensor.on_rebalance_return(a.app, state)
    a.clock.now += 1
    a.sensor.on_rebalance_end(a.app, state)
    a.sensor.on_rebalance_start(a.app)
    a.app.rebalancing = True
    a.clock.now += 7
    found = a()
    assert found["rounds_total", ()] == 2.0
    assert found["round_answer_seconds_sum", ()] == 2.0
    assert found["round_seconds_sum", ()] == 3.0
    assert found["round_seconds_bucket", ("2.5",)] == 0.0
    assert found["round_seconds_bucket", ("5.0",)] == found["round_seconds_bucket", ("+Inf",)] == 1
    assert found["round_age_seconds", ()] == 7.0
    a.app.rebalancing = False
    assert ("round_age_seconds", ()) not in a()


async def test_a_commit_under_way_has_an_age(shop: Shop) -> None:
    """The age exists only during the commit."""
    a = shop.start("a")
    with waits_of(a.app).during(COMMIT, "the group", 60.0):
        waits_of(a.app).advance(4.0, group_answers=True)
        assert a.of("commit_age_seconds") == {(): 4.0}
        assert a.of("revocation_age_seconds") == {}
    assert a.of("commit_age_seconds") == {}


def consumer(**parts: Any) -> Any:
    """Return a stub of a consumer; no partition stands still."""
    return SimpleNamespace(
        **{"_paused_partitions": set(), "_unacked_messages": set(), "_closed": False, **parts}
    )


def _place(tp: TP) -> tuple[str, str]:
    return str(tp.partition), tp.topic


# -- exporters


@pytest.fixture
def monitored(shop: Shop) -> Scraped:
    """A member."""
    return shop.start("a")


async def test_every_monitor_has_the_figures_without_labels(monitored: Scraped) -> None:
    """Faust's statistics page has them too; a figure without a value is removed."""
    monitor = Monitor()
    monitored.app.sensors.add(monitor)
    with waits_of(monitored.app).during(COMMIT, "the group", 60.0):
        waits_of(monitored.app).advance(4.0, group_answers=True)
        monitored.sensor._look_once()
        assert monitor.asdict()["metric_counts"][PREFIX + "commit_age_seconds"] == 4.0
    monitored.sensor._look_once()
    counts = monitor.asdict()["metric_counts"]
    assert PREFIX + "commit_age_seconds" not in counts
    assert counts[PREFIX + "rounds_total"] == 0.0


async def test_readings_that_fail_repeatedly_are_dropped(
    monitored: Scraped, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The last reading must not look healthy forever; a single failure is bridged."""
    sensor, monitor = monitored.sensor, Monitor()
    monitored.app.sensors.add(monitor)
    monkeypatch.setattr(sensor_module.MetricsSensor, "not_ready", lambda self: [])
    monitored.app.assignor.counters["refused_members"] = 3

    def ready() -> float:
        sensor._look_once()
        shown: float = monitor.asdict()["metric_counts"][PREFIX + "ready"]
        return shown

    assert ready() == 1.0
    with monkeypatch.context() as patch:
        patch.setattr(sensor_module.readings, "worker", lambda app: 1 / 0)
        assert [ready() for _ in range(6)] == [1.0] * 5 + [0.0]
        counts = monitor.asdict()["metric_counts"]
        assert counts[PREFIX + "refused_members_total"] == 3.0, "a counter does not go back"
    assert ready() == 1.0
    with monkeypatch.context() as patch:
        patch.setattr(sensor_module.readings, "worker", lambda app: 1 / 0)
        assert ready() == 1.0, "the failures are counted from the last good reading"
    assert caplog.text.count("Could not read the metrics") == 1


async def test_statsd_and_datadog_get_gauges(
    monitored: Scraped, caplog: pytest.LogCaptureFixture
) -> None:
    """Labels are tags in Datadog and parts of the name in StatsD; a failure is logged once."""
    sent: dict[str, list[Any]] = {"statsd": [], "datadog": []}

    class StatsD(Monitor):
        """A stub of Faust's monitor."""

        client = SimpleNamespace(gauge=lambda name, value: sent["statsd"].append((name, value)))

    class Broken(Monitor):
        """A monitor without a daemon."""

        client = SimpleNamespace(gauge=lambda name, value: 1 / 0)

    datadog = DatadogMonitor.__new__(DatadogMonitor)
    Monitor.__init__(datadog)
    datadog.__dict__["client"] = SimpleNamespace(
        gauge=lambda name, value, labels=None: sent["datadog"].append((name, value, labels))
    )
    for sensor in (Broken(), StatsD(), datadog):
        monitored.app.sensors.add(sensor)
    for _ in range(2):
        monitored.sensor._look_once()
    assert (PREFIX + "standing_partitions.group", 0.0) in sent["statsd"]
    assert (PREFIX + "standing_partitions", 0.0, {"reason": "group"}) in sent["datadog"]
    assert caplog.text.count("Could not send the metrics") == 1


async def test_faust_s_prometheus_monitor_brings_the_figures_to_its_page(shop: Shop) -> None:
    """The series are in the default registry, and are removed with the app."""
    a = shop.start("a")
    a.app.sensors.add(PrometheusMonitor(metrics=FaustMetrics.create(CollectorRegistry(), "shop")))
    a.sensor._look_once()
    assert f'{PREFIX}rounds_total{{app="shop"}} 0.0' in generate_latest().decode()
    await a.sensor.on_stop()
    assert f'{PREFIX}rounds_total{{app="shop"}}' not in generate_latest().decode()


async def test_apps_of_one_process_share_a_registry() -> None:
    """The label ``app`` distinguishes them."""
    registry = CollectorRegistry()
    for name in ("shop", "bank"):
        app = make_app("http://w", app_id=name, broker="kafka://127.0.0.1:1")
        app.finalize()
        exporters.export_to_prometheus(MetricsSensor(app), registry)
    text = generate_latest(registry).decode()
    assert f'{PREFIX}fences_total{{app="shop"}} 0.0' in text
    assert f'{PREFIX}fences_total{{app="bank"}} 0.0' in text
    assert text.count(f"# TYPE {PREFIX}fences_total counter") == 1


async def test_opentelemetry_has_an_instrument_for_each_figure(monitored: Scraped) -> None:
    """OpenTelemetry's SDK reads them; histograms count from the monitor's start."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    exporters.export_to_otel(monitored.sensor, provider.get_meter("test"))
    monitored.sensor.book.observe("round_seconds", 3.0)
    monitored.sensor.book.count("rounds")
    monitored.sensor.read_figures()
    (resource,) = reader.get_metrics_data().resource_metrics  # type: ignore[union-attr]
    found = {m.name.removeprefix(PREFIX): m for m in resource.scope_metrics[0].metrics}
    assert found["rounds"].data.data_points[0].value == 1.0
    assert found["round_seconds"].data.data_points[0].sum == 3.0
    reasons = {p.attributes["reason"] for p in found["standing_partitions"].data.data_points}
    assert reasons == set(REASONS)
    valueless = {f.name for f in FIGURES if not f.starts} | {"round_answer_seconds", "plan_seconds"}
    assert set(found) >= {f.name for f in FIGURES} - valueless
    provider.shutdown()


async def test_it_is_installed_once_with_each_app_that_chose_the_assignor() -> None:
    """The fixup installs it; a second call has no effect."""
    app = make_app("http://w", assignor="faust_assigner:PartitionAssignor", broker="kafka://x")
    app.finalize()
    (sensor,) = [s for s in app.sensors if isinstance(s, MetricsSensor)]
    assert install(app) is sensor
    assert len([s for s in app.sensors if isinstance(s, MetricsSensor)]) == 1


async def test_a_decision_is_counted_by_what_it_moves_and_takes(shop: Shop) -> None:
    """Cold moves have no copy, tasks off target wait for a copy, and times are in seconds."""
    a = shop.start("a")
    shop.rebalance()
    first = a.of("moves_total")[()]
    plan = SimpleNamespace(
        flat_cold=np.array([True, False, False]),
        flat_owner=np.array([0, 0, 1]),
        flat_target=np.array([0, 1, 1]),
        flat_warmup=np.array([NOBODY, 1, NOBODY]),
        layout=SimpleNamespace(per_task=lambda _: np.array([True, True, True])),
        groups=(),
        member_ids=("a", "b"),
    )
    members = [Member("a", ()), Member("b", ())]
    inputs = SimpleNamespace(trigger="join+weights", solve_ms=250.0, generation=9, members=members)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sensor_module, "moved_tasks", lambda plan: 2)
        patch.setattr(sensor_module.readings, "uncovered", lambda *_: 1)
        a.sensor.on_decision(inputs, plan)  # type: ignore[arg-type]
    assert a.of("moves_total")[()] == first + 2
    assert a.of("cold_moves_total")[()] == 1.0
    assert a.of("rounds_led_total")[SEVERAL,] == 1.0
    assert a.of("plan_seconds_sum")[()] == pytest.approx(0.25, abs=0.2)
    found = a()
    assert (found["off_target_tasks", ()], found["warming_tasks", ()]) == (1.0, 1.0)
    assert (found["uncovered_tasks", ()], found["members", ()]) == (1.0, 2.0)


async def test_figures_that_cannot_be_read_are_logged_once(shop: Shop, caplog: Any) -> None:
    """A line each second would fill the log."""
    a = shop.start("a")

    def broken() -> None:
        raise RuntimeError("a bug")

    a.sensor.read_figures = broken  # type: ignore[method-assign]
    for _ in range(3):
        a.sensor._look_once()
    assert len(caplog.records) == 1


async def test_a_hand_over_and_a_revocation_have_an_age(shop: Shop) -> None:
    """The gauge has the age of the oldest wait."""
    a = shop.start("a")
    waits = waits_of(a.app)
    with waits.during(f"{HAND_OVER} of 2 partitions", "records", 60.0):
        waits.advance(5.0, group_answers=True)
        assert a.of("revocation_age_seconds") == {(): 5.0}
        assert a.of("commit_age_seconds") == {}
    with waits.during(f"{REVOCATION} of 2 partitions", "records", 60.0):
        waits.advance(3.0, group_answers=True)
        assert a.of("revocation_age_seconds") == {(): 3.0}
