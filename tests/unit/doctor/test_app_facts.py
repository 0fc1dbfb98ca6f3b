"""The doctor reads a real app's facts: it imports the app's module and connects to no broker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from yarl import URL

from faust_assigner.app.fixup import Fixup
from faust_assigner.doctor import app_facts
from faust_assigner.doctor.app_checks import Deployment, check_app
from faust_assigner.doctor.app_facts import (
    AppNotLoaded,
    facts_of,
    load,
    naming_values,
    without_parts,
)
from faust_assigner.doctor.facts import AppFacts
from faust_assigner.errors import ConfigError, HostMismatch
from tests.support.faust_group import StockAssignor, make_app

OURS = "faust_assigner:PartitionAssignor"

APP = """
import faust
print("a module may print")
app = faust.App("shop", broker="kafka://kafka-1:9092", PartitionAssignor="faust_assigner:PartitionAssignor",
                topic_partitions=6, datadir={folder!r}, {more})
orders = app.topic("orders", partitions=6)
totals = app.Table("totals", partitions=6)
recent = app.Table("recent", partitions=6).tumbling(10.0, expires=3600.0)
rates = app.GlobalTable("rates")
seen = app.SetTable("seen", partitions=6)
pages = app.Table("pages", partitions=3, use_partitioner=True)

@app.agent(orders)
async def add(stream):
    async for order in stream:
        pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """Return a function that writes an app module with given keywords and returns its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(more: str = 'store="rocksdb://"') -> str:
        name = f"shop_{abs(hash((request.node.name, more)))}"
        text = APP.format(folder=str(tmp_path / "data"), more=more)
        (tmp_path / f"{name}.py").write_text(text)
        return name

    return write


def found(facts: AppFacts) -> list[str]:
    """Return the codes of the findings."""
    return [one.code for one in check_app(facts, Deployment())]


def test_an_app_is_read_as_it_is_set_up(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Facts name tables by kind, sources and times; the module's prints do not go to stdout."""
    facts = load(module())
    assert (facts.app_id, facts.is_ours, facts.has_fixup, facts.is_our_driver) == (
        "shop",
        True,
        True,
        True,
    )
    assert facts.brokers == ("kafka-1",)
    assert dict(facts.sources) == {"orders": 6}
    kinds = {t.name: (t.is_windowed, t.expires_s, t.is_global, t.partitions) for t in facts.tables}
    assert kinds == {
        "totals": (False, None, False, 6),
        "recent": (True, 3600.0, False, 6),
        "rates": (False, None, True, None),
        "seen": (False, None, False, 6),
        "pages": (False, None, False, 3),
    }
    assert [table.name for table in facts.tables if table.uses_partitioner] == ["pages"]
    assert [table.name for table in facts.tables if table.is_set] == ["seen"]
    assert (facts.heartbeat_s, facts.session_s, facts.rebalance_s) == (3.0, 60.0, 60.0)
    assert facts.misfits == facts.wrong_settings == ()
    assert facts.disk_free_bytes
    assert found(facts) == []
    assert capsys.readouterr().out == ""


def test_a_data_folder_of_another_user_does_not_end_the_doctor(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the checks of the disk are left out."""
    name = module()

    def denied(self: Path, *_: object) -> Any:
        raise PermissionError(13, "Permission denied", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", denied)
        patched.setattr(Path, "glob", denied)
        facts = load(name)
    assert (facts.disk_free_bytes, facts.stores_bytes, found(facts)) == (None, (), [])


def test_an_app_that_would_not_start_is_read_all_the_same(module: Any) -> None:
    """Misspelled settings and late heartbeats are reported together with all other findings."""
    facts = load(
        module(
            "faust_assigner_rak=1, faust_assigner_capacity=-1, broker_heartbeat_interval=70.0, "
            'store="memory://"'
        )
    )
    assert found(facts) == ["FA005", "FA006", "FA006", "FA007"]
    assert "did you mean faust_assigner_rack?" in facts.wrong_settings[0]
    assert "FAUST_ASSIGNER_CAPACITY must be" in facts.wrong_settings[1]


def test_a_short_value_names_a_worker_only_by_its_variable(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SHLVL=1 occurs in the fixed id shop-1 by chance; a pod's ordinal does not."""
    for name, value in (
        ("SHLVL", "87"),
        ("DEBUG", "86"),
        ("SLOT", "853"),
        ("POD_INDEX", "84"),
        ("worker_id", "83"),
        ("VALID", "82"),
    ):
        monkeypatch.setenv(name, value)
    environment = load(module()).environment
    assert [v for v in ("87", "86", "853", "84", "83", "82") if v in environment] == [
        "853",
        "84",
        "83",
    ]


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        *((name, True) for name in ("STATEFULSET_ORDINAL", "POD_INDEX", "pod", "INSTANCE_NUM")),
        *((name, True) for name in ("WORKER", "REPLICA", "NODE", "SHORT_NAME", "HOSTNO")),
        *((name, True) for name in ("NUMBER", "ID", "id", "JOB_ID", "ID_OF_JOB", "A_ID_B")),
        *((name, False) for name in ("SHLVL", "VALID", "IDLE", "A_IDLE", "GRID_B", "LEVEL")),
    ],
)
def test_each_word_for_a_worker_makes_a_short_value_count(name: str, counts: bool) -> None:
    """A number of one digit is common, so only the variable's name shows what it means."""
    assert naming_values({name: "4"}) == (("4",) if counts else ())


def test_the_environment_counts(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor reads the variables that a worker of the app reads."""
    monkeypatch.setenv("FAUST_ASSIGNER_COOPERATIVE", "0")
    monkeypatch.setenv("FAUST_ASSIGNER_LEDGER", "off")
    monkeypatch.setenv("FAUST_ASSIGNER_RAK", "1")
    assert found(load(module())) == ["FA006", "FA014", "FA017"]


@pytest.mark.parametrize(
    ("said", "ledger"), [("topic:shop-ledger", "topic:shop-ledger"), ("off", None)]
)
def test_a_ledger_in_a_topic_is_no_ledger_that_is_off(
    module: Any, said: str, ledger: str | None
) -> None:
    """The fact is the text of the setting."""
    facts = load(module(f'store="rocksdb://", faust_assigner_ledger={said!r}'))
    assert facts.ledger == ledger
    assert found(facts) == ([] if ledger else ["FA017"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import nonsense_that_is_not_there", "ModuleNotFoundError"),
        ("x = 1", "AttributeError"),
        ("import sys; sys.exit('no broker configured')", "no broker configured"),
        ("app = 3", "AttributeError"),
    ],
)
def test_a_module_without_an_app_is_an_error_of_its_own(
    text: str, reason: str, module: Any, tmp_path: Path
) -> None:
    """The exit code is 2: the doctor checked no app."""
    name = module()
    (tmp_path / f"{name}.py").write_text(text)
    with pytest.raises(AppNotLoaded) as raised:
        load(name)
    assert reason in str(raised.value)
    assert raised.value.exit_code == 2


def test_an_app_with_stocks_assignor_is_told_apart() -> None:
    """The doctor looks at the app's assignor, not at the package's presence."""
    with without_parts():
        app = make_app("http://w", assignor=StockAssignor, broker="kafka://h")
        app.finalize()
        facts = facts_of(app)
    assert not facts.is_ours
    assert "FA001" in found(facts)


def test_a_driver_that_asks_no_assignor_is_found() -> None:
    """The driver behind confluent:// uses no assignor."""
    with without_parts():
        app = make_app("http://w", assignor=OURS, broker="confluent://h")
        app.finalize()
        assert not facts_of(app).is_our_driver


def test_looking_installs_nothing_and_leaves_the_fixup_as_it_was() -> None:
    """An app configured after the check gets all parts."""
    before = Fixup._when_configured
    with without_parts():
        looked = make_app("http://w", assignor=OURS, broker="kafka://h")
        looked.finalize()
    assert Fixup._when_configured is before
    assert not hasattr(looked, "_faust_assigner_parts")
    after = make_app("http://w", assignor=OURS, broker="kafka://h")
    after.finalize()
    assert hasattr(after, "_faust_assigner_parts")


def test_sizes_of_table_files_are_read(tmp_path: Path) -> None:
    """The files are in the app's own folder of tables."""
    with without_parts():
        app = make_app("http://w", assignor=OURS, broker="kafka://h", datadir=str(tmp_path))
        app.finalize()
        folder = Path(app.conf.tabledir) / "totals-3.db"
        folder.mkdir(parents=True)
        (folder / "000001.sst").write_bytes(b"x" * 1000)
        assert facts_of(app).stores_bytes == (1000,)


@pytest.mark.parametrize(
    ("url", "is_ours"),
    [("aiokafka://a:1", True), ("confluent://a:1", False), ("nowhere://a:1", False)],
)
def test_a_driver_that_cannot_be_imported_is_another_one(url: str, is_ours: bool) -> None:
    """The doctor reports the driver instead of a traceback; the consumer's first address counts."""
    conf: Any = SimpleNamespace(broker_consumer=[URL(url), URL("aiokafka://b:2")])
    assert app_facts._is_our_driver(conf) is is_ours


def test_every_wrong_setting_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each misspelled name, wrong keyword and wrong instance id gets its own report."""
    names = [setting.name for setting in app_facts.SETTINGS if setting.is_keyword]

    def wrong(*given: Any) -> None:
        raise ConfigError(f"wrong {getattr(given[-1], 'name', 'other')}")

    for name in ("check_names", "read", "instance_id"):
        monkeypatch.setattr(app_facts.settings, name, wrong)
    found = list(app_facts._wrong_settings(SimpleNamespace()))
    assert found == ["wrong other", *(f"wrong {name}" for name in names), "wrong other"]


def test_a_host_that_does_not_fit_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor checks Faust for all parts and for the assignor."""
    asked: list[Any] = []

    def demand(parts: Any) -> None:
        asked.append(parts)
        raise HostMismatch("another Faust")

    monkeypatch.setattr(app_facts, "demand", demand)
    assert list(app_facts._host_mismatches()) == ["another Faust"]
    assert asked == [{"assignor", *app_facts.PARTS}]


def test_the_room_of_a_folder_that_is_not_made_yet_is_its_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The free space of a disk that does not answer is unknown."""
    asked: list[Path] = []

    def usage(folder: Path) -> Any:
        asked.append(folder)
        if len(asked) > 1:
            raise OSError("silent")
        return SimpleNamespace(free=5, total=9)

    monkeypatch.setattr(app_facts.shutil, "disk_usage", usage)
    assert app_facts._free_bytes(tmp_path / "a" / "b") == 5
    assert app_facts._free_bytes(tmp_path) is None
    assert asked == [tmp_path, tmp_path]
