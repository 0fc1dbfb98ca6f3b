"""Faust's entry point: the fixup makes the consumer use our assignor wherever possible."""

from __future__ import annotations

import gc
import logging
import weakref
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import faust
import pytest
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from faust.assignor.partition_assignor import PartitionAssignor as StockAssignor

from faust_assigner.app import compose, fixup, settings
from faust_assigner.app.assignor import PartitionAssignor
from faust_assigner.app.fixup import Fixup
from faust_assigner.errors import ConfigError, HostMismatch
from faust_assigner.settings.table import RACK
from tests.support.faust_group import make_app

OURS = "faust_assigner:PartitionAssignor"


def strategies_of(app: Any) -> list[Any]:
    """Return the assignors of the consumer that Faust creates, without connecting."""
    consumer = app.consumer._thread._create_worker_consumer(app.transport)
    try:
        found: list[Any] = consumer._partition_assignment_strategy
        return found
    finally:
        consumer._closed = True


def app_of(assignor: Any, **options: Any) -> faust.App:
    """Return a configured app with an unreachable broker."""
    app = make_app("http://w", assignor=assignor, broker="kafka://127.0.0.1:1", **options)
    app.finalize()
    return app


@pytest.mark.parametrize(("interval", "session"), [(9.0, 6.0), (6.0, 6.0)])
def test_a_heartbeat_that_comes_after_the_session_is_an_error_at_start(
    interval: float, session: float
) -> None:
    """The error names both settings with their values."""
    with pytest.raises(ConfigError) as raised:
        app_of(OURS, broker_heartbeat_interval=interval, broker_session_timeout=session)
    assert f"broker_heartbeat_interval ({interval:g} s)" in str(raised.value)
    assert f"broker_session_timeout ({session:g} s)" in str(raised.value)


def test_a_heartbeat_within_the_session_and_another_assignor_start() -> None:
    """Apps with the stock assignor are not checked."""
    assert app_of(OURS, broker_heartbeat_interval=5.9, broker_session_timeout=6.0).conf
    stock = app_of(StockAssignor, broker_heartbeat_interval=9.0, broker_session_timeout=6.0)
    assert stock.conf.broker_heartbeat_interval == 9.0


def test_faust_finds_the_fixup_by_its_entry_point() -> None:
    """The app needs no line of code for the fixup."""
    (entry,) = [e for e in entry_points(group="faust.fixups") if e.name == "faust_assigner"]
    assert entry.load() is Fixup


def test_an_app_that_nobody_uses_any_more_is_freed() -> None:
    """Faust's signals are shared by all apps of a process and keep strongly connected receivers."""
    app = weakref.ref(app_of(OURS))
    gc.collect()
    assert app() is None
    assert sum(isinstance(f, Fixup) for f in faust.App("x").fixups) == 1


async def test_without_tables_and_standbys_faust_would_take_round_robin() -> None:
    """The fixup exists because of this; if Faust changes it, the fixup can go."""
    assert strategies_of(app_of(StockAssignor, replicas=0)) == [RoundRobinPartitionAssignor]


async def test_without_tables_and_standbys_ours_is_asked() -> None:
    """The consumer joins with the app's assignor."""
    app = app_of(OURS, replicas=0)
    assert strategies_of(app) == [app.assignor]


@pytest.mark.parametrize("tables", [(), ("totals",)])
async def test_with_standbys_or_tables_nothing_changes(tables: tuple[str, ...]) -> None:
    """Faust uses our assignor itself."""
    app = app_of(OURS, replicas=1, tables=tables)
    assert strategies_of(app) == [app.assignor]


async def test_apps_that_chose_another_assignor_are_left_alone() -> None:
    """Faust creates the fixup for every app of the process, including stock apps."""
    app = app_of(StockAssignor, replicas=0)
    assert app.configured
    assert not [name for name in vars(app) if "faust_assigner" in name]
    assert "_new_consumer" not in vars(app)


async def test_a_driver_that_never_asks_is_named_at_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """confluent:// assigns inside librdkafka, regardless of the app's assignor."""
    app = make_app("http://w", assignor=OURS, broker="confluent://127.0.0.1:1")
    app.finalize()
    assert "not used" not in caplog.text
    assert app.consumer is not None
    assert "assignor is not used" in caplog.text
    assert "confluent://127.0.0.1:1" in caplog.text


def test_on_a_host_that_a_needed_part_does_not_know_the_app_does_not_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each part is checked, except the optional parts."""
    asked: list[set[str]] = []

    def other_host(parts: Any, **_: Any) -> None:
        asked.append(set(parts))
        raise HostMismatch("another Faust")

    monkeypatch.setattr(fixup, "demand", other_host)
    app = make_app("http://w", assignor=OURS, broker="kafka://127.0.0.1:1")
    with pytest.raises(HostMismatch, match="another Faust"):
        assert app.conf.id
    assert asked == [{"assignor", *fixup.PARTS} - {"metrics", "page"}]


def test_a_failing_part_stops_the_app_at_every_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """An app with half of the parts would be worse than an app that does not start."""

    def broken(app: Any) -> None:
        raise ZeroDivisionError("broken on purpose")

    monkeypatch.setitem(compose.INSTALLERS, "router", broken)
    app = make_app("http://w", assignor=OURS, broker="kafka://127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="broken on purpose"):
            assert app.conf.id


async def test_too_late_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """An existing consumer keeps its assignor."""
    app = app_of(OURS, replicas=0)
    assert app.consumer is not None
    compose.ask_our_assignor(app)
    assert "Too late" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"faust_assigner_stale_read": 5}, "faust_assigner_stale_reads_s"),
        ({"env": {"FAUST_ASSIGNER_LEGER": "x"}}, "FAUST_ASSIGNER_LEDGER"),
        (
            {"env": {"SHOP_FAUST_ASSIGNER_RAK": "x"}, "env_prefix": "SHOP"},
            "SHOP_FAUST_ASSIGNER_RACK",
        ),
    ],
)
def test_a_misspelled_setting_keeps_the_app_from_starting(
    options: dict[str, Any], message: str
) -> None:
    """Such a setting used to be ignored silently; an app with a stock assignor may start."""
    app_of(StockAssignor, **options)
    with pytest.raises(ConfigError, match=rf"did you mean {message}\?"):
        app_of(OURS, **options)


def test_settings_of_a_configuration_source_are_read() -> None:
    """Faust drops unknown names of ``config_from_object``; our keywords used to be ignored."""

    class Source:
        faust_assigner_rack = "r7"

    app = make_app("http://w", assignor=OURS, broker="kafka://127.0.0.1:1")
    app.config_from_object(Source)
    app.finalize()
    assert settings.read(app, RACK) == "r7"


def test_misspelled_settings_of_a_configuration_source_are_refused() -> None:
    """Such settings count as keywords."""

    class Source:
        faust_assigner_rak = "r7"

    app = make_app("http://w", assignor=OURS, broker="kafka://127.0.0.1:1")
    app.config_from_object(Source)
    with pytest.raises(ConfigError, match=r"faust_assigner_rak: did you mean faust_assigner_rack"):
        app.finalize()


def test_the_variable_with_fausts_prefix_goes_before_the_bare_one() -> None:
    """Several apps share an environment; a name with a prefix belongs to a single app."""
    environment = {"FAUST_ASSIGNER_RACK": "everyone", "SHOP_FAUST_ASSIGNER_RACK": "shop"}
    app = app_of(OURS, env=environment, env_prefix="SHOP")
    assert settings.read(app, RACK) == "shop"
    assert settings.read(app_of(OURS, env=environment), RACK) == "everyone"
    del environment["SHOP_FAUST_ASSIGNER_RACK"]
    assert settings.read(app_of(OURS, env=environment, env_prefix="SHOP"), RACK) == "everyone"


@pytest.mark.parametrize(
    ("store", "named"), [("memory://", ["totals"]), ("rocksdb://", []), ("rocksdb://rows", [])]
)
async def test_tables_in_memory_are_named_when_the_worker_starts(
    caplog: pytest.LogCaptureFixture, store: str, named: list[str]
) -> None:
    """A single line names the remedy: neither warm-ups nor files apply to such tables."""
    app = make_app(
        "http://w", assignor=OURS, broker="kafka://127.0.0.1:1", store=store, tables=["totals"]
    )
    app.Table("counts", store="rocksdb://here/counts")
    app.finalize()
    assert "in memory" not in caplog.text
    assert app.consumer is not None
    found = [message for message in caplog.messages if "in memory" in message]
    assert [message.partition(".")[0] for message in found] == [
        f"Tables kept in memory: {name}" for name in named
    ]


@pytest.mark.parametrize(
    ("repairs", "misfits", "fits"),
    [
        ("1", set(), set(fixup.PARTS)),
        ("1", {"metrics"}, {*fixup.PARTS} - {"metrics"}),
        ("1", {"metrics", "page"}, {*fixup.PARTS} - {"metrics", "page"}),
        ("0", set(), {*fixup.PARTS} - {"repairs"}),
        (
            "0",
            {"router", "ledger", "page"},
            {*fixup.PARTS} - {"repairs", "router", "ledger", "page"},
        ),
    ],
)
def test_the_parts_that_fit_are_installed_in_their_order(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    repairs: str,
    misfits: set[str],
    fits: set[str],
) -> None:
    """With the repairs the parts are checked together with the versions, else one by one."""
    asked: list[tuple[set[str], bool]] = []

    def demand(parts: Any, **options: Any) -> None:
        asked.append((set(parts), "versions" in options))
        if found := set(parts) & misfits:
            raise HostMismatch(f"no {found.pop()}")

    app = app_of(StockAssignor, faust_assigner_repairs=repairs)
    monkeypatch.setattr(fixup, "demand", demand)
    assert fixup.parts_that_fit(app) == tuple(part for part in fixup.PARTS if part in fits)
    needed = {"assignor", *fixup.PARTS} - {"metrics", "page"}
    together = [(needed, False)] if repairs == "1" else []
    alone = ["metrics", "page"] if repairs == "1" else [p for p in fixup.PARTS if p != "repairs"]
    assert asked == together + [({part}, True) for part in alone]
    assert [
        f"starts without the part {part}: no {part}" in caplog.text for part in sorted(misfits)
    ] == [True] * len(misfits)


def test_an_assignor_that_derives_from_ours_is_ours() -> None:
    """The class or a base of the class decides; any other object does not count."""

    class Own(PartitionAssignor):
        """An app's own assignor."""

    for chosen, is_ours in (
        (PartitionAssignor, True),
        (Own, True),
        (StockAssignor, False),
        ("a name", False),
    ):
        app: Any = SimpleNamespace(conf=SimpleNamespace(PartitionAssignor=chosen))
        assert fixup.chose_our_assignor(app) is is_ours


@pytest.mark.parametrize(("level", "kept"), [(0, "info"), (logging.WARNING, "warning")])
def test_lines_are_kept_in_order_until_the_app_makes_its_consumer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, level: int, kept: str
) -> None:
    """The package's log level counts and stays; each line is logged once."""
    app: Any = SimpleNamespace(_new_consumer=lambda: "a consumer")
    before = fixup.PACKAGE.level, list(fixup.PACKAGE.handlers)
    monkeypatch.setattr(fixup.PACKAGE, "hasHandlers", lambda: False)
    monkeypatch.setattr(fixup.PACKAGE, "propagate", False)
    fixup.PACKAGE.setLevel(level)
    log = logging.getLogger("faust_assigner.made_up")
    try:
        with fixup.kept_until_start(app):
            for call in (log.debug, log.info, log.warning):
                call(call.__name__)
        assert fixup.PACKAGE.level == level
    finally:
        fixup.PACKAGE.setLevel(before[0])
    assert fixup.PACKAGE.handlers == before[1]
    monkeypatch.setattr(fixup.PACKAGE, "propagate", True)
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        assert [app._new_consumer(), app._new_consumer()] == ["a consumer"] * 2
    assert caplog.messages == (["info", "warning"] if kept == "info" else ["warning"])


def test_without_a_line_to_keep_the_app_makes_its_consumer_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The consumer factory stays; an error in the block is raised, and its lines are dropped."""
    create = object()
    app: Any = SimpleNamespace(_new_consumer=create)
    monkeypatch.setattr(fixup.PACKAGE, "hasHandlers", lambda: False)
    with fixup.kept_until_start(app):
        pass
    assert app._new_consumer is create
    handlers = list(fixup.PACKAGE.handlers)
    with pytest.raises(ZeroDivisionError), fixup.kept_until_start(app):
        raise ZeroDivisionError
    assert fixup.PACKAGE.handlers == handlers
