"""Every fact about an app at once: no setting of the app has its default, and no two facts are equal."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from faust_assigner.doctor.app_facts import _free_bytes, load
from faust_assigner.doctor.facts import AppFacts, Table

APP = """
import faust
app = faust.App(
    "shop", broker="kafka://kafka-1:9092;kafka://kafka-2:9092", datadir={folder!r}, topic_partitions=7,
    PartitionAssignor="faust_assigner:PartitionAssignor", store="rocksdb://",
    canonical_url="http://pod-7:6067", consumer_group_instance_id="shop-7",
    broker_heartbeat_interval=2.0, broker_session_timeout=61.0, broker_max_poll_interval=1100.0,
    broker_rebalance_timeout=62.0, table_standby_replicas=2, faust_assigner_leave_s=9.5,
    faust_assigner_rack="r7", faust_assigner_cooperative="0", faust_assigner_repairs="0",
    faust_assigner_ledger={ledger!r},
)
orders = app.topic("orders", "refunds", partitions=6)
news = app.topic("news")
zones = app.Table("zones", partitions=5)
days = app.Table("days", partitions=4).tumbling(10.0, expires=3600.0)
ages = app.Table("ages", partitions=3).tumbling(10.0)
rates = app.GlobalTable("rates", partitions=1)
hot = app.Table("hot", partitions=2)
hot._store = "memory://"

@app.agent(orders)
async def add(stream):
    async for order in stream:
        pass

@app.agent(news)
async def read(stream):
    async for one in stream:
        pass

@app.agent()
async def inner(stream):
    async for one in stream:
        pass
"""


def test_an_app_is_read_with_every_fact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The facts have tables by changelog, files by size, both brokers and each agent's topics."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("POD_NAME", "shop-7-pod")
    ledger = str(tmp_path / "ledger")
    (tmp_path / "shop_in_full.py").write_text(
        APP.format(folder=str(tmp_path / "data"), ledger=ledger)
    )
    folder = tmp_path / "data" / "v1" / "tables"
    for name, size in (("zones-1.db", 300), ("days-0.db", 500), ("hot-2.db", 40), ("other", 999)):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_bytes(b"x" * size)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=len(str(path))))
    facts = load("shop_in_full")
    assert "shop-7-pod" in facts.environment
    inner = {name: count for name, count in facts.sources.items() if name.startswith("shop-")}
    assert len(inner) == 1
    assert replace(facts, environment=(), stores_bytes=()) == AppFacts(
        app_id="shop",
        assignor="faust_assigner.app.assignor:PartitionAssignor",
        brokers=("kafka-1", "kafka-2"),
        url="http://pod-7:6067",
        instance_id="shop-7",
        host=os.uname().nodename,
        tables=(
            Table(
                name="ages", changelog="shop-ages-changelog", is_windowed=True, partitions=3
            ),
            Table(
                name="days", changelog="shop-days-changelog", is_windowed=True, expires_s=3600.0,
                partitions=4,
            ),
            Table(name="hot", changelog="shop-hot-changelog", partitions=2, in_memory=True),
            Table(name="rates", changelog="shop-rates-changelog", is_global=True, partitions=1),
            Table(name="zones", changelog="shop-zones-changelog", partitions=5),
        ),
        sources={"orders": 6, "refunds": 6, "news": None, **inner},
        default_partitions=7,
        heartbeat_s=2.0,
        session_s=61.0,
        poll_s=1100.0,
        rebalance_s=62.0,
        leave_s=9.5,
        replicas=2,
        rack="r7",
        is_cooperative=False,
        has_repairs=False,
        ledger=ledger,
        disk_free_bytes=len(str(folder)),
    )  # fmt: skip
    small, middle, large = facts.stores_bytes
    assert small < middle < large
    assert large - middle >= 100


def test_the_room_of_a_folder_that_is_not_made_yet_is_its_parents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nearest existing folder is used; a disk that fails has unknown free space."""
    asked: list[Path] = []

    def usage(path: Path) -> SimpleNamespace:
        asked.append(path)
        if len(asked) == 2:
            raise OSError("no such device")
        return SimpleNamespace(free=5)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert _free_bytes(tmp_path / "a" / "b" / "c") == 5
    assert _free_bytes(Path("relative") / "never" / "made") is None
    assert asked == [tmp_path, Path()]
