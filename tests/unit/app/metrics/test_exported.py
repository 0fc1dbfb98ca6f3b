"""The samples of each exporter for two apps and three figures, and the installation of metrics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.app.metrics import exporters, install
from faust_assigner.app.metrics.book import Book, Snapshot, Spread
from faust_assigner.app.metrics.exporters import export_to_otel, export_to_prometheus
from faust_assigner.app.metrics.figure import COUNTER, GAUGE, HISTOGRAM, Figure

FIGURES = (
    Figure(name="moves", kind=COUNTER, unit="", meaning="tasks that moved", leader_only=True),
    Figure(
        name="lag_seconds",
        kind=GAUGE,
        unit="seconds",
        meaning="age of a copy",
        labels=("topic", "partition"),
        starts=(),
    ),
    Figure(name="size_bytes", kind=HISTOGRAM, unit="bytes", meaning="sizes", buckets=(0.5, 2.0)),
)


class Source:
    """An app's figures: its moves, its lags, its sizes."""

    def __init__(self, app_id: str, moves: float, counts: tuple[int, ...], total: float) -> None:
        self.app_id, self.book, self.app = app_id, Book(), None
        self.moves, self.spread = moves, Spread(counts, total)

    def snapshot(self) -> Snapshot:
        """Return the figures."""
        lags = {("t", "1"): 2 * self.moves, ("s", "0"): 3 * self.moves}
        return Snapshot(
            {"moves": {(): self.moves}, "lag_seconds": lags}, {"size_bytes": self.spread}
        )


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> tuple[Source, Source]:
    """Two apps."""
    monkeypatch.setattr(exporters, "FIGURES", FIGURES)
    return Source("bank", 5.0, (1, 0, 2), 9.5), Source("shop", 7.0, (0, 3, 0), 4.0)


class Registry:
    """A registry that records its collectors."""

    def __init__(self) -> None:
        self.collectors: list[Any] = []

    def register(self, collector: Any) -> None:
        """Record the collector."""
        self.collectors.append(collector)


def test_prometheus_gets_every_series_of_every_app(sources: tuple[Source, Source]) -> None:
    """Samples come by figure, app and labels; a histogram's buckets are cumulative."""
    registry = Registry()
    closes = [export_to_prometheus(source, registry) for source in sources]
    (collector,) = registry.collectors
    families = list(collector.collect())
    assert [(family.name, family.type, family.documentation) for family in families] == [
        ("faust_assigner_moves", "counter", "Tasks that moved (leader only)"),
        ("faust_assigner_lag_seconds", "gauge", "Age of a copy"),
        ("faust_assigner_size_bytes", "histogram", "Sizes"),
    ]
    found = [
        (sample.name.removeprefix("faust_assigner_"), *sample.labels.values(), sample.value)
        for family in families
        for sample in family.samples
    ]
    assert found == [
        ("moves_total", "bank", 5.0),
        ("moves_total", "shop", 7.0),
        ("lag_seconds", "bank", "s", "0", 15.0),
        ("lag_seconds", "bank", "t", "1", 10.0),
        ("lag_seconds", "shop", "s", "0", 21.0),
        ("lag_seconds", "shop", "t", "1", 14.0),
        ("size_bytes_bucket", "bank", "0.5", 1.0),
        ("size_bytes_bucket", "bank", "2.0", 1.0),
        ("size_bytes_bucket", "bank", "+Inf", 3.0),
        ("size_bytes_count", "bank", 3.0),
        ("size_bytes_sum", "bank", 9.5),
        ("size_bytes_bucket", "shop", "0.5", 0.0),
        ("size_bytes_bucket", "shop", "2.0", 3.0),
        ("size_bytes_bucket", "shop", "+Inf", 3.0),
        ("size_bytes_count", "shop", 3.0),
        ("size_bytes_sum", "shop", 4.0),
    ]
    names = [family.name for family in collector.describe()]
    assert names == [family.name for family in families]
    closes[0]()
    assert collector.sources == [sources[1]]
    closes[0]()
    again = export_to_prometheus(sources[0], registry)
    assert (registry.collectors, collector.sources) == ([collector], [sources[1], sources[0]])
    again(), closes[1]()
    assert [sample for family in collector.collect() for sample in family.samples] == []


class Meter:
    """A meter that records its instruments and the values of its histograms."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.records: list[Any] = []

    def _make(self, kind: str, name: str, callbacks: Any = (), **about: Any) -> Any:
        self.made.append((kind, name, about, *callbacks))
        return SimpleNamespace(
            record=lambda value, attributes: self.records.append((name, value, attributes))
        )

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **how: self._make(name, *given, **how)


def test_opentelemetry_gets_an_instrument_for_each_figure(sources: tuple[Source, Source]) -> None:
    """Each has its unit; observations carry app and labels, and end with the app."""
    meter, source = Meter(), sources[1]
    close = export_to_otel(source, meter)
    assert [made[:3] for made in meter.made] == [
        (
            "create_observable_counter",
            "faust_assigner_moves",
            {"unit": "1", "description": "Tasks that moved (leader only)"},
        ),
        (
            "create_observable_gauge",
            "faust_assigner_lag_seconds",
            {"unit": "s", "description": "Age of a copy"},
        ),
        (
            "create_histogram",
            "faust_assigner_size_bytes",
            {
                "unit": "By",
                "description": "Sizes",
                "explicit_bucket_boundaries_advisory": (0.5, 2.0),
            },
        ),
    ]
    moves, lags = (made[3] for made in meter.made[:2])
    app = {"app": "shop"}
    assert [(one.value, one.attributes) for one in moves(None)] == [(7.0, app)]
    assert [(one.value, one.attributes) for one in lags(None)] == [
        (14.0, {**app, "topic": "t", "partition": "1"}),
        (21.0, {**app, "topic": "s", "partition": "0"}),
    ]
    for listener in source.book._listeners["size_bytes"]:
        listener(3.5)
    assert meter.records == [("faust_assigner_size_bytes", 3.5, app)]
    close()
    assert list(moves(None)) == list(lags(None)) == []


def test_the_metrics_are_installed_once_with_their_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faust's pages come first; a server with our pages gets no second set."""
    acts: list[Any] = []
    monkeypatch.setattr(install, "MetricsSensor", lambda app: ("sensor", app.name))
    monkeypatch.setattr(
        install.blueprint, "register", lambda app, url_prefix: acts.append((app.name, url_prefix))
    )
    app = SimpleNamespace(
        name="shop",
        sensors=SimpleNamespace(add=acts.append),
        on_webserver_init=lambda server: acts.append(("faust", server.name)),
    )
    sensor = install.install(app)
    assert sensor == ("sensor", "shop")
    assert install.install(app) is sensor
    install.add_pages(app, lambda server: acts.append(("more", server.name)))
    fresh = SimpleNamespace(name="one", views={"/assignors/x": 1}, app=app)
    ours = SimpleNamespace(name="two", views={"/assignor/live": 1}, app=app)
    app.on_webserver_init(fresh)
    app.on_webserver_init(ours)
    assert acts == [
        ("sensor", "shop"),
        ("faust", "one"),
        ("shop", "/assignor"),
        ("more", "one"),
        ("faust", "two"),
    ]
