"""A worker's document with every field set, and the members of a round."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest
from faust.tables.sets import SetTable
from faust.types import TP

from faust_assigner import __version__
from faust_assigner.app.metrics import document
from faust_assigner.app.metrics.document import peers_of, status_of
from faust_assigner.app.metrics.stalled import StalledPartition
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.outcome import Outcome
from faust_assigner.wire.worker_status import (
    CORRUPT_FOLDERS,
    CopyLag,
    Peer,
    Peers,
    Standstill,
    TableStatus,
    WaitUnderWay,
    WorkerStatus,
)

LOG, SUMS = "shop-log", "shop-sums"


class Table(SimpleNamespace):
    """A table with the app's store or its own."""

    _store: Any = None
    is_global, use_partitioner, window = False, False, None


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker whose parts all give different answers."""
    for name, answer in (
        ("kafka_member_id", "m-1"),
        ("live_problems", ["dead"]),
        ("corrupt_folders", 6),
        ("settings_of", {"A": "1"}),
        ("facts_of", SimpleNamespace(globals_={"z-log", "a-log"})),
        ("_version", None),
    ):
        monkeypatch.setattr(document, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(document, "_version", lambda name: f"version of {name}")
    monkeypatch.setattr(document.settings, "or_default", lambda read, app, default: "shop-7")
    monkeypatch.setattr(document.socket, "gethostname", lambda: "host")
    monkeypatch.setattr(document.os, "getpid", lambda: 4242)
    monkeypatch.setattr(document.platform, "python_version", lambda: "3.99")
    waits = [SimpleNamespace(what="commit", step="answer", total_s=3.14)]
    monkeypatch.setattr(document, "waits_of", lambda app: SimpleNamespace(under_way=lambda: waits))
    outcome = Outcome(trigger="join")
    answer = SimpleNamespace(outcome=outcome, promised={"orders": ["1-3", "7"]})
    orders = [TP("orders", number) for number in (3, 1)]
    return SimpleNamespace(
        conf=SimpleNamespace(id="shop", canonical_url="http://w1", version=9, store="rocksdb://"),
        assignor=SimpleNamespace(
            _memory=SimpleNamespace(answer=answer),
            generation=12,
            decision_id="12-ab",
            cooperative=True,
            leaves=False,
            assigned_actives=lambda: {*orders, TP(LOG, 1)},
            assigned_standbys=lambda: {TP(LOG, 2)},
            awaited=SimpleNamespace(tps={TP(LOG, 5), TP(LOG, 4)}),
            counters={"zeros": 0, "fallbacks": 3},
        ),
        tables=SimpleNamespace(
            _changelogs={
                SUMS: Table(name="sums", is_global=True, _store="memory://"),
                LOG: Table(name="log", window=SimpleNamespace(expires=90)),
            },
            recovery=SimpleNamespace(
                progress=SimpleNamespace(figures=lambda: SimpleNamespace(remaining=70, eta_s=3.5))
            ),
        ),
        rebalancing=False,
        should_stop=False,
    )


def status(app: Any, **more: Any) -> WorkerStatus:
    """Return its status at 100 s."""
    given: dict[str, Any] = {
        "now": 100.0,
        "still": [StalledPartition(TP("orders", 3), "paused", 87.66)],
        "lags": {TP(LOG, 2): (6, 1.26), TP(LOG, 1): (0, 0.0), TP(LOG, 4): (5, 0.0)},
        "not_ready": ["late"],
        "is_leader": True,
        "round_age_s": 8.5,
        "disk": (30, 90),
        "sizes": {TP(LOG, 10): 5, TP(LOG, 2): 7, TP(SUMS, 1): 9, TP("orders", 1): 1},
    }
    return status_of(app, **{**given, **more})


def test_a_document_has_every_field(app: Any) -> None:
    """Each field has its own source; partitions, tables and counters are sorted."""
    assert status(app) == WorkerStatus(
        app="shop",
        member_id="m-1",
        url="http://w1",
        instance_id="shop-7",
        host="host",
        pid=4242,
        software=__version__,
        faust="version of faust-streaming",
        aiokafka="version of aiokafka",
        python="3.99",
        app_version="9",
        generation=12,
        decision_id="12-ab",
        outcome=Outcome(trigger="join"),
        is_leader=True,
        is_cooperative=True,
        is_rebalancing=False,
        is_leaving=False,
        round_age_s=8.5,
        not_ready=("late",),
        not_live=("dead",),
        actives={"orders": (1, 3), LOG: (1,)},
        standbys={LOG: (2,)},
        awaited={LOG: (4, 5)},
        promised={"orders": ("1-3", "7")},
        global_changelogs=("a-log", "z-log"),
        standing=(Standstill(topic="orders", partition=3, reason="paused", seconds=12.3),),
        copies=(
            CopyLag(topic=LOG, partition=1, records=0, seconds=0.0),
            CopyLag(topic=LOG, partition=2, records=6, seconds=1.3),
            CopyLag(topic=LOG, partition=4, records=5, seconds=None),
        ),
        waits=(WaitUnderWay(what="commit", step="answer", seconds=3.1),),
        restore_remaining_records=70,
        restore_remaining_s=3.5,
        disk_free_bytes=30,
        disk_size_bytes=90,
        tables=(
            TableStatus(
                name="log",
                changelog=LOG,
                store="rocksdb",
                is_windowed=True,
                expires_s=90.0,
                bytes={"2": 7, "10": 5},
            ),
            TableStatus(
                name="sums", changelog=SUMS, store="memory", is_global=True, bytes={"1": 9}
            ),
        ),
        settings={"A": "1"},
        counters={CORRUPT_FOLDERS: 6, "fallbacks": 3, "zeros": 0},
    )
    assert list(status(app).tables[0].bytes) == ["2", "10"], "by number, not by text"
    assert list(status(app).counters) == sorted([CORRUPT_FOLDERS, "fallbacks", "zeros"])


def test_a_document_names_the_tables_of_sets(app: Any) -> None:
    """The doctor checks the changelog of such a table by other rules."""
    made = app.tables._changelogs[SUMS] = object.__new__(SetTable)
    vars(made).update(name="sums", window=None, is_global=False, use_partitioner=False, _store=None)
    assert [table.is_set for table in status(app).tables] == [False, True]


def test_a_document_of_a_new_worker_has_gaps(app: Any) -> None:
    """Answer, disk and progress may be missing, as may a window's end and a restore's end."""
    app.assignor._memory.answer, app.tables._changelogs[LOG].window.expires = None, None
    recovery = app.tables.recovery
    recovery.progress.figures = lambda: SimpleNamespace(remaining=5, eta_s=None)
    found = status(app, disk=None, is_leader=False, round_age_s=None)
    assert (found.outcome, found.promised, found.is_leader) == (None, {}, False)
    assert (found.disk_free_bytes, found.disk_size_bytes, found.round_age_s) == (None,) * 3
    assert (found.restore_remaining_records, found.restore_remaining_s) == (5, None)
    assert (found.tables[0].is_windowed, found.tables[0].expires_s) == (True, None)
    recovery.progress.figures = lambda: SimpleNamespace(remaining=0, eta_s=9.0)
    found = status(app)
    assert (found.restore_remaining_records, found.restore_remaining_s) == (0, None)
    del recovery.progress
    found = status(app)
    assert (found.restore_remaining_records, found.restore_remaining_s) == (0, None)


@pytest.mark.parametrize("flag", ["rebalancing", "should_stop", "leaves"])
def test_a_worker_that_leaves_or_rebalances_says_so(app: Any, flag: str) -> None:
    """Each flag has its own effect."""
    setattr(app.assignor if flag == "leaves" else app, flag, True)
    found = status(app)
    assert (found.is_rebalancing, found.is_leaving) == (
        flag == "rebalancing",
        flag != "rebalancing",
    )


def test_peers_have_their_names_and_what_they_own() -> None:
    """Peers are sorted by URL; members without partitions count, a nameless entry does not."""
    directory = Directory(("http://b", "http://a", "http://idle"), {}, ("", "shop-a", "shop-i"))
    assignor = SimpleNamespace(
        _memory=SimpleNamespace(directory=directory),
        generation=5,
        changelog_distribution={
            "http://a": {"z-log": [2, 0], "a-log": []},
            "http://late": {"z-log": [3]},
            "": {"z-log": [4]},
        },
        external_topic_distribution={"http://a": {"orders": [1]}, "http://b": {"orders": [0]}},
    )
    app = SimpleNamespace(assignor=assignor, conf=SimpleNamespace(id="shop"))
    found = peers_of(app)
    assert found == Peers(
        app="shop",
        generation=5,
        peers=(
            Peer(url="http://a", instance_id="shop-a", actives={"orders": (1,), "z-log": (2, 0)}),
            Peer(url="http://b", actives={"orders": (0,)}),
            Peer(url="http://idle", instance_id="shop-i"),
            Peer(url="http://late", actives={"z-log": (3,)}),
        ),
    )
    assert list(found.peers[0].actives) == ["orders", "z-log"]


class Mode(Enum):
    """A setting of an enum type."""

    FAST = "fast"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((), ""),
        ("", ""),
        (False, "0"),
        (0, "0"),
        (0.5, "0.5"),
        (1e6, "1e+06"),
        (Mode.FAST, "fast"),
        (("a", None, True, 2.0), "a,,1,2"),
        ("user@host", "user@host"),
        ("kafka://u:p@h:9/topic?x=1#y", "kafka://h:9/topic"),
    ],
)
def test_values_of_every_kind_are_shown_as_text(value: Any, text: str) -> None:
    """Each item of a tuple is converted separately."""
    assert document.setting_text(value) == text
