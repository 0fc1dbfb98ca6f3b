"""A worker's document for ``faust-assigner status``: its partitions, its waits and its settings."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from faust_assigner.app.consumer.waits import COMMIT, waits_of
from faust_assigner.app.metrics import document
from faust_assigner.app.metrics.document import FAUSTS
from faust_assigner.app.metrics.install import install
from faust_assigner.app.metrics.sensor import ASK_S, MetricsSensor
from faust_assigner.app.rebalance import copy_offsets
from faust_assigner.errors import MetadataRefused
from faust_assigner.settings.table import SETTINGS
from faust_assigner.wire.worker_status import (
    Standstill,
    WorkerStatus,
    decode_peers,
    decode_status,
    encode_document,
)
from tests.support.assigned import give
from tests.support.faust_group import WireGroup, make_app
from tests.unit.app.metrics.test_metrics import LOG, PARTITIONS, Clock
from tests.unit.app.metrics.test_probes import Bench


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A worker that owns one task, without started services."""
    made = Bench()
    monkeypatch.setattr(type(made.app.tables), "recovery", made.recovery)
    monkeypatch.setattr(document, "live_problems", lambda app: [])
    yield made
    made.app._consumer = None


def two(**options: Any) -> WireGroup:
    """A group of two workers after two rounds: each owns half and replicates the other half."""
    found = WireGroup({"orders": PARTITIONS, LOG: PARTITIONS})
    for name in ("a", "b"):
        app = make_app(f"http://{name}", tables=("totals",), **options)
        app.finalize()
        found.add(name, app, {"orders", LOG})
    found.rebalance("a")
    found.rebalance("a")
    return found


async def told(app: Any, clock: Clock | None = None) -> WorkerStatus:
    """Return its document as a reader decodes it."""
    return decode_status(
        encode_document(await MetricsSensor(app, clock=clock or Clock()).document())
    )


async def test_actives_and_copies_of_all_members_make_up_the_group() -> None:
    """Each partition has an owner and a standby; every document has the leader's outcome."""
    found = two()
    a, b = [await told(app) for app in found.apps.values()]
    assert sorted(a.actives["orders"] + b.actives["orders"]) == list(range(PARTITIONS))
    assert a.actives[LOG] == b.standbys[LOG]
    assert b.actives[LOG] == a.standbys[LOG]
    assert (a.app, a.url, a.generation, a.decision_id) == ("shop", "http://a", 1, b.decision_id)
    assert a.outcome is not None
    assert a.outcome.trigger == "rejoin"
    assert [table.name for table in a.tables] == ["totals"]


async def test_settings_are_named_with_their_values() -> None:
    """Ours under their names in the environment, Faust's under its own; defaults included."""
    found = two(faust_assigner_stale_reads_s=5, broker_session_timeout=30.0)
    settings = (await told(found.apps["a"])).settings
    assert settings["FAUST_ASSIGNER_STALE_READS_S"] == "5"
    assert settings["FAUST_ASSIGNER_MAX_WARMUPS"] == "32"
    assert settings["broker_session_timeout"] == "30"
    assert settings["table_standby_replicas"] == "1"
    assert settings["processing_guarantee"] == "at_least_once"
    ours = {setting.name for setting in SETTINGS if setting.name != "FAUST_ASSIGNER_CACHE"}
    assert settings.keys() == ours | set(FAUSTS), "a machine's cache is no setting of the app"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("s3://key:secret@bucket/snapshots?token=abc#x", "s3://bucket/snapshots"),
        ("http://[broken", "an invalid URL"),
        ("/var/lib/shop", "/var/lib/shop"),
        (None, ""),
        ((0.25, 4.0), "0.25,4"),
        (True, "1"),
        (900.0, "900"),
    ],
)
def test_a_value_is_shown_without_secrets(value: Any, text: str) -> None:
    """A URL's user, password, query and fragment are left out."""
    assert document.setting_text(value) == text


async def test_a_document_has_no_password_of_any_setting() -> None:
    """Tables and members contain no passwords either."""
    app = make_app(
        "http://w",
        tables=("totals",),
        broker="kafka://u:pw-broker@127.0.0.1:1",
        faust_assigner_snapshots="s3://u:pw-snap@bucket",
        faust_assigner_weights="kafka://u:pw-weights@h:1/topic",
    )
    app.finalize()
    assert "pw-" not in encode_document(await MetricsSensor(app, clock=Clock()).document()).decode()


async def test_waits_and_standstills_are_told(worker: Bench) -> None:
    """The document has a waiting commit and a partition refused by its broker."""
    worker.fetcher.refused = SimpleNamespace(partitions=lambda: {TP("orders", 3)})
    with waits_of(worker.app).during(COMMIT, "the group's answer", 60.0):
        found = await worker.sensor.document()
    assert [(wait.what, wait.step) for wait in found.waits] == [(COMMIT, "the group's answer")]
    assert found.standing == (
        Standstill(topic="orders", partition=3, reason="refused", seconds=0.0),
    )


async def test_a_copy_s_lag_is_asked_for_when_the_document_is(
    monkeypatch: pytest.MonkeyPatch, worker: Bench
) -> None:
    """A monitor is not needed; the duration of a lag is known from the second request on."""
    asked = []

    async def ends(app: Any, tps: Any) -> dict[Any, int]:
        asked.append(tps)
        return dict.fromkeys(tps, 10)

    async def read(app: Any, found: Any) -> dict[Any, int]:
        return dict.fromkeys(found, 4)

    monkeypatch.setattr(copy_offsets, "ends_of", ends)
    monkeypatch.setattr(copy_offsets, "read_to", read)
    give(worker.app, standbys={TP("shop-totals-changelog", 5)})
    worker.recovery.standby_offsets = {}
    (copy,) = (await worker.sensor.document()).copies
    assert (copy.topic, copy.partition, copy.records, copy.seconds) == (
        "shop-totals-changelog",
        5,
        6,
        None,
    )
    await worker.sensor.document()
    assert len(asked) == 1
    worker.clock.now += ASK_S + 1
    (copy,) = (await worker.sensor.document()).copies
    assert len(asked) == 2
    assert copy.seconds == ASK_S + 1


async def test_a_broker_that_does_not_answer_does_not_hold_up_the_document(
    monkeypatch: pytest.MonkeyPatch, worker: Bench
) -> None:
    """The document then has no lags."""

    async def never(app: Any, tps: Any) -> dict[Any, int]:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(copy_offsets, "ends_of", never)
    monkeypatch.setattr("faust_assigner.app.metrics.sensor.DOCUMENT_ASK_S", 0.01)
    give(worker.app, standbys={TP("shop-totals-changelog", 5)})
    assert (await worker.sensor.document()).copies == ()


async def test_peers_are_the_members_of_the_last_round() -> None:
    """Peers are listed by URL with their partitions; before an assignment there are none."""
    found = two()
    sensor = install(found.apps["a"])
    peers = decode_peers(encode_document(sensor.peers()))
    assert [peer.url for peer in peers.peers] == ["http://a", "http://b"]
    assert peers.generation == 1
    owned = [n for peer in peers.peers for n in peer.actives["orders"]]
    assert sorted(owned) == list(range(PARTITIONS))
    new = make_app("http://new", tables=("totals",))
    new.finalize()
    assert install(new).peers().peers == ()


@pytest.mark.parametrize(
    "bad",
    [
        b"[]",
        b"{}",
        b'{"app": 3}',
        b'{"app": "x", "actives": {"orders": ["1"]}}',
        b'{"app": "x", "standing": [{"topic": "orders"}]}',
        b'{"app": "x", "generation": true}',
        b'{"app": "x", "round_age_s": NaN}',
        b"\xff",
    ],
)
def test_a_document_of_another_shape_is_refused(bad: bytes) -> None:
    """Any server may answer at a URL."""
    with pytest.raises(MetadataRefused):
        decode_status(bad)


def test_a_reader_passes_over_what_it_does_not_know_and_hides_control_characters() -> None:
    """Later workers may send more fields; control characters would affect the terminal."""
    found = decode_status(json.dumps({"app": "a\x1b[2Jb", "later": {"x": 1}}).encode())
    assert found == WorkerStatus(app="a?[2Jb")


async def test_the_bytes_of_each_partition_on_disk_are_told(tmp_path: Path) -> None:
    """Owned and standby partitions count; each request of a document counts again."""
    found = two(datadir=str(tmp_path), store="rocksdb://")
    clock, app = Clock(), found.apps["a"]
    sensor, store = MetricsSensor(app, clock=clock), app.tables["totals"].data
    wanted = {}
    for size in (10, 300):
        wanted = {str(p): size + p for p in range(PARTITIONS)}
        for partition in range(PARTITIONS):
            folder = Path(store.partition_path(partition))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "a.sst").write_bytes(b"x" * (size + partition))
        clock.now += ASK_S + 1
        (table,) = decode_status(encode_document(await sensor.document())).tables
    assert table.bytes == wanted
