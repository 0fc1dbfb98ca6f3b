"""All that an installation changes in an app, and the apps in which it changes nothing."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from faust.transport.consumer import TransactionManager
from faust.transport.drivers import aiokafka as driver

from faust_assigner.app import compose
from faust_assigner.app.consumer import delivery
from faust_assigner.app.host.mixing import parts_of
from faust_assigner.app.membership import leave
from faust_assigner.app.queries.router import KeyRouter
from faust_assigner.app.sensors import SensorsByHook
from faust_assigner.errors import ConfigError, HostMismatch

ELSEWHERE = "confluent://b:1"


def app_in(folder: Path, **options: Any) -> Any:
    """Return a stock Faust app, not started."""
    return faust.App(
        "plain",
        web_enabled=False,
        datadir=str(folder),
        **{"broker": "kafka://127.0.0.1:1", **options},
    )


def conf_of(app: Any) -> list[str]:
    """Return the names of the classes that the settings name, without marking them as used."""
    names = ("Stream", "TableManager", "Router")
    return [object.__getattribute__(app.conf, name).__qualname__ for name in names]


def state_of(app: Any) -> Any:
    """Return all that the repairs may change."""
    hooks = {name: made for name, made in vars(app).items() if name in HOOKS}
    return conf_of(app), hooks, set(parts_of(app))


HOOKS = ("flow_control", "FlowControlQueue", "_new_consumer", "_stop_consumer", leave.MARK)


def test_the_repairs_replace_each_of_their_classes_and_hooks(tmp_path: Path) -> None:
    """The consumer, the queues and the stop are wrapped once, over Faust's own."""
    app = app_in(tmp_path)
    create, stop, queue = app._new_consumer, app._stop_consumer, app.FlowControlQueue
    compose.repair(app)
    classes, hooks, parts = state_of(app)
    assert classes == ["Stream[BatchingStream]", "TableManager[RepairedTables]", "Router"]
    assert parts == {"repairs"}
    assert set(hooks) == set(HOOKS)
    assert type(hooks["flow_control"]) is compose.FlowControl
    wrapped = [hooks[name] for name in ("_new_consumer", "_stop_consumer", "FlowControlQueue")]
    assert [(one.func, one.args) for one in wrapped] == [
        (compose._new_consumer, (app, create)),
        (leave.stop, (app, stop)),
        (delivery._make_fair_queue, (queue, None)),
    ]


def test_a_host_that_does_not_fit_is_refused_before_anything_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check covers the names of the repairs."""
    asked: list[Any] = []

    def demand(parts: Any) -> None:
        asked.append(parts)
        raise HostMismatch("another Faust")

    monkeypatch.setattr(compose, "demand", demand)
    app = app_in(tmp_path)
    before = state_of(app)
    with pytest.raises(HostMismatch, match="another Faust"):
        compose.repair(app)
    assert (asked, state_of(app)) == ([{"repairs"}], before)


@pytest.mark.parametrize(
    "broker", [ELSEWHERE, [ELSEWHERE, "kafka://127.0.0.1:1"]], ids=["one", "the first of two"]
)
def test_an_app_of_a_different_driver_stays_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broker: Any
) -> None:
    """All its URLs are logged."""
    app = app_in(tmp_path, broker_consumer=broker)
    before = state_of(app)
    compose.repair(app)
    assert state_of(app) == before
    (said,) = [one for one in caplog.messages if "the repairs need" in one]
    assert said == (
        "Records may be lost or repeated at a rebalance, and rebalances stop all partitions: the "
        "repairs need Faust's aiokafka driver, and the app uses the driver of "
        + (broker if isinstance(broker, str) else ", ".join(broker))
    )


def test_an_app_with_a_consumer_is_neither_repaired_nor_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each warning states the consequence."""
    app = app_in(tmp_path)
    app._consumer = "a consumer"
    create, classes = app._new_consumer, conf_of(app)
    compose.install(app, ("repairs", "driver_assignor"))
    assert parts_of(app) == {"repairs came late"}
    assert (app._new_consumer, conf_of(app)) == (create, classes)
    assert [one.partition(":")[0] for one in caplog.messages] == [
        "Records may be lost or repeated at a rebalance",
        "Too late to install the app's assignor",
    ]
    assert isinstance(app.sensors, SensorsByHook), "sensors are called by hook in any case"


@pytest.mark.parametrize(
    ("parts", "warns"),
    [({"repairs"}, False), ({"driver_assignor"}, True), ({"repairs", "driver_assignor"}, True)],
)
def test_a_consumer_of_fausts_driver_gets_our_classes_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: set[str], warns: bool
) -> None:
    """The producer's topics follow the consumer; tables in memory matter to the assignor alone."""
    acts: list[Any] = []
    monkeypatch.setattr(compose, "warn_of_memory", lambda app: acts.append("warn"))
    monkeypatch.setattr(compose.produced_topics, "install", lambda one: acts.append(one))
    app: Any = SimpleNamespace(
        producer="producer",
        transport=SimpleNamespace(Consumer=driver.Consumer, TransactionManager=TransactionManager),
    )
    parts_of(app).update(parts)

    def create() -> str:
        acts.append("create")
        return "a consumer"

    for _ in range(2):
        assert compose._new_consumer(app, create) == "a consumer"
    repaired = "repairs" in parts
    assert acts == ["warn"] * warns + ["create", *["producer"] * repaired] + ["warn"] * warns + [
        "create",
        *["producer"] * repaired,
    ]
    ours = "RepairedConsumer" if repaired else "AssigningConsumer"
    assert app.transport.Consumer.__qualname__ == f"Consumer[{ours}]"
    manager = "TransactionManager[PartitionTransactions]" if repaired else "TransactionManager"
    assert app.transport.TransactionManager.__qualname__ == manager


def test_a_consumer_of_a_different_driver_is_refused_after_the_repairs() -> None:
    """Without the repairs its consumer logs that the assignor is not used."""
    app: Any = SimpleNamespace(transport=SimpleNamespace(Consumer=dict, url="confluent://nowhere"))
    parts_of(app).add("repairs")
    with pytest.raises(ConfigError) as raised:
        compose._new_consumer(app, lambda: "never")
    assert str(raised.value) == (
        "the app got the driver of confluent://nowhere after its configuration: name the driver in the "
        "setting broker, or set FAUST_ASSIGNER_REPAIRS=0"
    )
    assert app.transport.Consumer is dict
    parts_of(app).clear()
    assert compose._new_consumer(app, lambda: "a consumer") == "a consumer"
    assert issubclass(app.transport.Consumer, compose.IgnoresAppAssignor)


def test_requests_are_answered_by_one_router_and_one_status(tmp_path: Path) -> None:
    """A second installation changes nothing, also with a bound that allows copies."""
    app = app_in(tmp_path, faust_assigner_stale_reads_s=7.5)
    route = app.table_route
    compose.install(app, ("repairs", "reads", "router"))
    status, router, made = getattr(app, compose.STANDING), app.conf.Router, app.table_route
    assert (status.bound_s, status.app) == (7.5, app)
    assert (made.func, made.args) == (compose.table_route, (route,))
    assert issubclass(router, KeyRouter)
    compose.answer_requests(app)
    assert getattr(app, compose.STANDING) is status
    assert (app.conf.Router, app.table_route) == (router, made)
    assert app._extra_services == [status]


def test_eager_rounds_are_logged_as_a_choice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Cooperative rounds have no line."""
    with caplog.at_level(logging.INFO):
        compose.repair(app_in(tmp_path))
        assert "Rebalances are eager" not in caplog.text
        compose.repair(app_in(tmp_path, faust_assigner_cooperative=False))
    assert "Rebalances are eager and stop all partitions: FAUST_ASSIGNER_COOPERATIVE is off" in (
        caplog.messages
    )


@pytest.mark.parametrize(
    "parts", [(), ("page",), ("metrics", "repairs"), ("reads", "ledger", "weights", "router")]
)
def test_the_named_parts_alone_are_installed_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: tuple[str, ...]
) -> None:
    """The order is that of the table; sensors come before all parts."""
    app, acts = app_in(tmp_path), list[Any]()
    monkeypatch.setattr(compose.sensors, "install", lambda one: acts.append(("sensors", one)))
    for part in compose.INSTALLERS:
        monkeypatch.setitem(
            compose.INSTALLERS, part, lambda one, part=part: acts.append((part, one))
        )
    compose.install(app, parts)
    expected = [part for part in compose.INSTALLERS if part in parts]
    assert acts == [("sensors", app), *((part, app) for part in expected)]


def test_a_driver_that_cannot_be_imported_is_not_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The app itself raises the error when it starts."""

    def missing(url: Any) -> Any:
        raise ModuleNotFoundError(f"no driver of {url}")

    monkeypatch.setattr(compose, "by_url", missing)
    app = app_in(tmp_path)
    before = state_of(app)
    compose.repair(app)
    assert state_of(app) == before
    assert "the app uses the driver of kafka://127.0.0.1:1" in caplog.text
