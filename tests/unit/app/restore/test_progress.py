"""How far restores are: figures and lines by a clock that the test moves, and where they are shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.sensors.monitor import Monitor

from faust_assigner.app.restore.metrics import ETA, PREFIX, RATE, REMAINING, Gauges
from faust_assigner.app.restore.progress import BETWEEN_S, SILENT_S, Figures, Progress


class Clock:
    """Seconds that pass when told."""

    now = 100.0

    def __call__(self) -> float:
        """The time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """At some time."""
    return Clock()


@pytest.fixture
def progress(clock: Clock) -> Progress:
    """Two partitions: 1,000 records, and 500 of which 100 are here."""
    made = Progress(clock)
    made.begin({"a": (0, 1000), "b": (100, 500), "complete": (7, 7)})
    return made


def test_remaining_rate_and_end_are_of_all_partitions(progress: Progress, clock: Clock) -> None:
    """400 of 1,400 records in 2 s: 5 s more."""
    clock.now += 2
    progress.move("a", 300)
    progress.move("b", 200)
    assert progress.figures() == Figures(2, 1000, 200.0, 5.0)


def test_the_rate_is_that_of_the_last_seconds(progress: Progress, clock: Clock) -> None:
    """A restore that slows down says so."""
    for at in range(0, 800, 80):
        progress.move("a", at + 80)
        clock.now += 1
        progress.figures()
    fast = progress.figures().records_per_s
    for _ in range(20):
        clock.now += 1
        progress.figures()
    assert fast == pytest.approx(80)
    assert progress.figures().records_per_s == 0.0
    assert progress.figures().eta_s is None


def test_offsets_never_go_back_nor_beyond_the_end(progress: Progress, clock: Clock) -> None:
    """Two who tell of one partition, or a changelog that grows."""
    clock.now += 1
    for at in (400, 300, 5000):
        progress.move("b", at)
    progress.move("unknown", 9)
    assert progress.figures().remaining == 1000
    assert progress.passed == 400


def test_short_restores_are_silent(progress: Progress, clock: Clock) -> None:
    """Nobody reads a line of what took a second."""
    clock.now += SILENT_S - 0.1
    assert progress.line() is None
    for tp in ("a", "b"):
        progress.move(tp, 1000)
        progress.finish(tp)
    assert progress.is_idle
    assert progress.end() is None


def test_a_line_comes_every_few_seconds_and_one_at_the_end(
    progress: Progress, clock: Clock
) -> None:
    """Asked every half second, as the worker does."""
    lines = {}
    for tick in range(1, 31):
        clock.now += 0.5
        progress.move("a", tick * 20)
        if line := progress.line():
            lines[tick * 0.5] = line
    assert sorted(lines) == [SILENT_S, SILENT_S + BETWEEN_S, SILENT_S + 2 * BETWEEN_S]
    assert lines[SILENT_S] == (
        "Restoring 2 partitions: 1,320 records remain, 40 records/s, the end is in about 33 s"
    )
    progress.finish("a")
    progress.finish("b")
    assert progress.end() == "Restored 600 records in 15.0 s, 40 records/s"


def test_what_stands_still_has_no_end_to_be_foreseen(progress: Progress, clock: Clock) -> None:
    """A broker that does not answer."""
    clock.now += 3
    assert progress.line() == (
        "Restoring 2 partitions: 1,400 records remain, 0 records/s, the end is not to be foreseen"
    )


def test_a_second_restore_begins_anew(progress: Progress, clock: Clock) -> None:
    """With its own time and its own records."""
    clock.now += 60
    progress.move("a", 1000)
    progress.finish("a")
    progress.finish("b")
    progress.end()
    assert progress.figures() == Figures()
    progress.begin({"c": (0, 100)})
    clock.now += 1
    progress.move("c", 50)
    assert progress.figures() == Figures(1, 50, 50.0, 1.0)


@pytest.fixture
async def app() -> Any:
    """An app that is not started."""
    return faust.App("shop", broker="kafka://127.0.0.1:1", store="memory://", web_enabled=False)


async def test_the_monitor_shows_the_figures(app: Any) -> None:
    """And with it Faust's page of statistics."""
    monitor = Monitor()
    app.sensors.add(monitor)
    Gauges(app).set(Figures(2, 1000, 199.6, None))
    assert monitor.asdict()["metric_counts"] == {
        PREFIX + REMAINING: 1000,
        PREFIX + RATE: 200,
        PREFIX + ETA: -1,
    }


async def test_statsd_and_datadog_get_gauges(app: Any) -> None:
    """Both have a client with such a call; one that fails is said and harms nobody."""
    told: list[tuple[str, int]] = []

    class Sending(Monitor):
        """As Faust's monitors for them."""

        client = SimpleNamespace(gauge=lambda name, value: told.append((name, value)))

    class Broken(Monitor):
        """A daemon that is not there."""

        client = SimpleNamespace(gauge=lambda name, value: 1 / 0)

    for sensor in (Broken(), Sending()):
        app.sensors.add(sensor)
    Gauges(app).set(Figures(1, 10, 5.0, 2.0))
    assert dict(told) == {PREFIX + REMAINING: 10, PREFIX + RATE: 5, PREFIX + ETA: 2}


async def test_prometheus_shows_the_figures_of_each_app(app: Any) -> None:
    """In the default registry, which Faust's own page shows."""
    prometheus_client = pytest.importorskip("prometheus_client")
    from faust.sensors.prometheus import FaustMetrics, PrometheusMonitor

    metrics = FaustMetrics.create(prometheus_client.CollectorRegistry(), "shop")
    app.sensors.add(PrometheusMonitor(metrics=metrics))
    Gauges(app).set(Figures(1, 10, 5.0, 2.0))
    Gauges(app).set(Figures(1, 8, 5.0, 2.0))  # made once
    text = prometheus_client.generate_latest().decode()
    assert f'{PREFIX}{REMAINING}{{app="shop"}} 8.0' in text
