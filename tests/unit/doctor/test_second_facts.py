"""Facts of an app and findings of a group that show only with a second value."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.doctor import group_facts
from faust_assigner.doctor.app_checks import Deployment, _times
from faust_assigner.doctor.app_facts import _free_bytes, load
from faust_assigner.doctor.codes import NOTE
from faust_assigner.doctor.facts import AppFacts
from faust_assigner.doctor.group_checks import _check_differences, _check_racks, _check_versions
from faust_assigner.doctor.group_facts import _config_values
from faust_assigner.doctor.table_checks import (
    _check_disks,
    _check_idle_members,
    _tables_by_changelog,
)

APP = """
import faust
app = faust.App(
    "second", broker="kafka://writer-1:9092", broker_consumer="kafka://reader-1:9092;kafka://reader-2:1",
    broker_producer="kafka://writer-2:9092", datadir={folder!r}, store="rocksdb://",
    PartitionAssignor="faust_assigner:PartitionAssignor", consumer_group_instance_id="",
    broker_max_poll_interval={poll}, faust_assigner_repairs={repairs!r},
    faust_assigner_cooperative={cooperative!r},
)
"""


@pytest.mark.parametrize(
    ("poll", "poll_s", "repairs", "cooperative"),
    [("0.0", 0.0, "0", "1"), ("1100.0", 1100.0, "1", "0")],
)
def test_an_app_is_read_with_its_readers_brokers_and_without_an_empty_instance_id(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    poll: str,
    poll_s: float,
    repairs: str,
    cooperative: str,
) -> None:
    """A poll interval of 0 is one; only the tables' own files count."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"second_{repairs}"
    text = APP.format(
        folder=str(tmp_path / "data"), poll=poll, repairs=repairs, cooperative=cooperative
    )
    (tmp_path / f"{name}.py").write_text(text)
    folder = tmp_path / "data" / "v1" / "tables"
    for file, size in (("orders-1.db", 300), ("orders-10.db", 200), ("other.db", 999)):
        (folder / file).mkdir(parents=True)
        (folder / file / "file").write_bytes(b"x" * size)
    facts = load(name)
    assert facts.brokers == ("reader-1", "reader-2")
    assert (facts.instance_id, facts.poll_s) == (None, poll_s)
    assert (facts.has_repairs, facts.is_cooperative) == (repairs == "1", cooperative == "1")
    assert len(facts.stores_bytes) == 2
    assert facts.stores_bytes == tuple(sorted(facts.stores_bytes))
    assert max(facts.stores_bytes) < 999
    assert facts.sources == {}


def test_the_modules_that_an_app_discovers_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their agents and tables belong to the app."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "found_shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "app.py").write_text(
        "import faust\napp = faust.App('found', broker='kafka://k:1', store='rocksdb://', "
        f"autodiscover=['found_shop.agents'], datadir={str(tmp_path / 'data')!r})\n"
    )
    (package / "agents.py").write_text(
        "from found_shop.app import app\n\n@app.agent(app.topic('orders', partitions=3))\n"
        "async def add(stream):\n    async for one in stream:\n        pass\n"
    )
    assert load("found_shop.app").sources == {"orders": 3}


def test_the_room_of_a_disk_without_any_of_the_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The root is the last folder that is tried; an error leaves the room unknown."""
    asked: list[Path] = []

    def usage(folder: Path) -> Any:
        asked.append(folder)
        if len(asked) > 1:
            raise OSError
        return SimpleNamespace(total=9, used=4, free=5)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    monkeypatch.setattr(Path, "exists", lambda self: False)
    assert [_free_bytes(Path("/no/such/folder")) for _ in range(2)] == [5, None]
    assert asked == [Path("/"), Path("/")]


@pytest.mark.parametrize(
    ("more", "is_enough"),
    [
        ({}, False),
        ({"is_cooperative": False}, True),
        ({"has_repairs": False}, True),
        ({"instance_id": "shop-1"}, True),
    ],
)
def test_only_a_worker_that_hands_over_needs_the_time_for_it(
    more: dict[str, Any], is_enough: bool
) -> None:
    """Fifteen seconds are enough for any other stop."""
    facts = AppFacts(app_id="shop", leave_s=30.0, **more)
    found = list(_times(facts, Deployment(grace_s=15.0)))
    assert (found == []) is is_enough


# -- a group --------------------------------------------------------------------------------------


def view(name: str, *tables: Any, **more: Any) -> Any:
    """Return a view of a worker."""
    told: dict[str, Any] = {
        "status": SimpleNamespace(faust="0.11.0", aiokafka="0.12.0", disk_free_bytes=None),
        "settings": {},
        "member": SimpleNamespace(said=None),
    }
    return SimpleNamespace(name=name, tables=tables, **{**told, **more})


def stored(changelog: str, *sizes: int, **more: Any) -> Any:
    """Return a table with these sizes of partitions."""
    sizes_ = {str(number): size for number, size in enumerate(sizes)}
    return SimpleNamespace(changelog=changelog, bytes=sizes_, **more)


def test_the_first_report_of_a_table_counts() -> None:
    """A later worker may run another release."""
    first, second = stored("log", 1, name="a"), stored("log", 2, name="b")
    other = stored("other", name="c")
    assert _tables_by_changelog([view("w0", first), view("w1", second, other)]) == {
        "log": first,
        "other": other,
    }


@pytest.mark.parametrize(("free", "is_short"), [(599, True), (600, False)])
def test_a_disk_has_room_for_the_share_of_the_fullest_worker(free: int, is_short: bool) -> None:
    """The other workers share it; the largest partition has to fit in any case."""
    status = SimpleNamespace(disk_free_bytes=free)
    views = [
        view("w0", stored("log", 500, 400), stored("other", 300)),
        view("w1", stored("log", 100), status=status),
        view("w2", stored("log", 10)),
    ]
    assert [one.subject for one in _check_disks(views)] == ["w1"] * is_short
    large = [view("w0", stored("log", 700)), *views[1:]]
    assert [one.subject for one in _check_disks(large)] == ["w1"]
    assert list(_check_disks(views[:1])) == []


def test_members_without_a_task_are_counted() -> None:
    """As many members as tasks are fine, and so is a group without any topic."""
    assert [one.text for one in _check_idle_members(5, tasks=3)] == [
        "5 members for 3 tasks: 2 own no task"
    ]
    assert [list(_check_idle_members(count, tasks=tasks)) for count, tasks in ((3, 3), (2, 0))] == [
        [],
        [],
    ]


def difference(name: str, **values: tuple[str, ...]) -> Any:
    """Return a difference between workers."""
    return SimpleNamespace(name=name, values=values)


def test_differences_name_the_missing_value_and_all_workers_of_a_version() -> None:
    """Versions are findings of their own."""
    report: Any = SimpleNamespace(
        differences=[
            SimpleNamespace(name="rack", values={"r1": ("w1", "w2"), "": ("w0",)}),
            SimpleNamespace(
                name="version of faust-assigner", values={"2.0": ("w1",), "1.0": ("w0", "w2")}
            ),
        ]
    )
    assert [(one.subject, one.text) for one in _check_differences(report)] == [
        ("rack", "not set on w0; r1 on w1, w2")
    ]
    old = SimpleNamespace(faust="0.1.0", aiokafka="0.1.0")
    found = list(_check_versions([view("w0", status=old), view("w1", status=old)], report))
    assert [(one.subject, one.level == NOTE) for one in found] == [
        ("w0, w1", False),
        ("w0, w1", False),
        ("faust-assigner", True),
    ]
    assert found[2].text == "versions differ: 2.0 on w1; 1.0 on w0, w2"
    assert [one.text.partition(":")[0] for one in found[:2]] == [
        "aiokafka 0.1.0",
        "faust-streaming 0.1.0",
    ]


def test_a_rack_is_missing_only_from_our_own_workers() -> None:
    """Racks are compared with the copies of each table."""

    def of(name: str, rack: str | None, *, is_ours: bool = True, replicas: str = "2") -> Any:
        said = SimpleNamespace(rack_id=rack, is_ours=is_ours)
        return view(
            name, member=SimpleNamespace(said=said), settings={"table_standby_replicas": replicas}
        )

    views = [of("w0", "r0"), of("w1", "r1"), of("w2", None), of("w3", None, is_ours=False)]
    assert [one.text for one in _check_racks(views)] == [
        "no rack: w2; the other workers have a rack",
        "2 racks for 3 copies of each table",
    ]
    assert list(_check_racks([of("w0", "r0", replicas="1"), of("w1", "r1", replicas="x")])) == []
    assert list(_check_racks([of("w0", None)])) == []


# -- the brokers' settings ------------------------------------------------------------------------


def test_an_empty_setting_is_a_value_and_a_hidden_one_is_none() -> None:
    """A broker hides passwords."""
    configs = [
        SimpleNamespace(name=name, value=value)
        for name, value in (("a", ""), ("b", None), ("c", "0"))
    ]
    assert list(_config_values(SimpleNamespace(configs=configs))) == [("a", ""), ("c", "0")]


@pytest.mark.parametrize(("node", "asked_node"), [(0, 0), (3, 3), (None, 7)])
async def test_the_settings_are_asked_of_the_given_broker_or_the_first(
    node: int | None, asked_node: int
) -> None:
    """A broker may have the number 0; refused resources are left out."""
    asked: list[Any] = []
    result = [
        SimpleNamespace(
            resource_type=2, resource_name=name, error_code=code,
            configs=[SimpleNamespace(name="x", value=name)],
        )
        for name, code in (("t", 0), ("u", 29))
    ]  # fmt: skip

    async def send(to: int, request: Any) -> Any:
        asked.append(to)
        return SimpleNamespace(results=result)

    brokers = [SimpleNamespace(nodeId=number) for number in (7, 8)]
    client: Any = SimpleNamespace(send=send, cluster=SimpleNamespace(brokers=lambda: brokers))
    wanted = [(2, "t"), (2, "u")]
    found = await group_facts._read_configs(client, wanted, node=node)
    assert (found, asked) == ({(2, "t"): {"x": "t"}}, [asked_node])
    assert await group_facts._read_configs(client, [], node=node) == {}
    assert len(asked) == 1
