"""Warm-ups over the wire: real apps, metadata as bytes, table files on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from faust.types import TP

from faust_assigner.app.rebalance.leader import decide
from faust_assigner.app.rebalance.leader_round import LeaderView
from faust_assigner.app.rebalance.table_facts import TableFacts
from faust_assigner.app.rebalance.warming import policy_of
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.join import JoinData, decode_join, encode_join
from tests.support.faust_group import StockAssignor, WireGroup, make_app

LOG = "shop-totals-changelog"
TOPICS = {"orders": 12, LOG: 12}
LONG = 500_000


def worker(folder: Path, name: str, **options: Any) -> Any:
    """Return a worker with a RocksDB table."""
    return make_app(
        f"http://{name}:6066",
        tables=["totals"],
        datadir=str(folder / name),
        store="rocksdb://",
        **options,
    )


def restored(app: Any) -> None:
    """Mark the worker's actives and standbys as read to their ends."""
    recovery = app.tables.recovery
    for tp in app.assignor.assigned_actives() | app.assignor.assigned_standbys():
        if tp.topic == LOG:
            offsets = (
                recovery.active_offsets if app.assignor.is_active(tp) else recovery.standby_offsets
            )
            offsets[tp] = LONG - 1


def settled(folder: Path, **options: Any) -> WireGroup:
    """Return three workers with a complete assignment."""
    found = WireGroup(TOPICS)
    for name in "abc":
        found.add(name, worker(folder, name, **options), TOPICS)
    for _ in range(2):
        found.rebalance()
        for app in found.apps.values():
            restored(app)
    return found


def owned(found: WireGroup, name: str) -> set[int]:
    """Return the partitions that a worker processes."""
    return {p for p, m in found.actives("orders").items() if m == name}


def test_a_joins_partitions_come_when_their_state_is_there(tmp_path: Path) -> None:
    """First come three extra warm-ups; after they catch up, a round moves their tasks."""
    found = settled(tmp_path)
    before = found.actives("orders")
    found.add("d", worker(tmp_path, "d"), TOPICS)
    found.rebalance("a")
    assert found.actives("orders") == before
    waits = found.apps["d"].assignor.awaited.tps
    assert len(waits) == 3
    assert waits <= found.apps["d"].assignor.assigned_standbys()
    assert sum(map(len, found.standbys(LOG).values())) == 15
    restored(found.apps["d"])
    found.rebalance("b")
    assert owned(found, "d") == {tp.partition for tp in waits}
    made = found.apps["b"].assignor.last_round.plan
    assert (made.moves, made.report()["cold_moves"]) == (3, 0)
    assert {len(members) for members in found.standbys(LOG).values()} == {1}
    assert not any(app.assignor.awaited.tps for app in found.apps.values())


def test_a_warm_up_that_is_not_done_goes_on(tmp_path: Path) -> None:
    """A round of a different cause keeps the replicas and the owners."""
    found = settled(tmp_path)
    found.add("d", worker(tmp_path, "d"), TOPICS)
    found.rebalance("a")
    waits = found.apps["d"].assignor.awaited.tps
    for tp in waits:
        found.apps["d"].tables.recovery.standby_offsets[tp] = LONG // 2
    found.rebalance("b")
    assert found.apps["d"].assignor.awaited.tps == waits
    assert not owned(found, "d")


def test_files_of_a_worker_that_was_away_for_long_have_to_catch_up(tmp_path: Path) -> None:
    """The standbys' positions show the lag: an old file is a start and no complete copy."""
    found = settled(tmp_path)
    found.remove("c")
    found.rebalance("a")
    for app in found.apps.values():
        restored(app)
    before = found.actives("orders")
    back = worker(tmp_path, "c2")
    store = back.tables["totals"].data
    for partition in range(12):
        store.set_persisted_offset(TP(LOG, partition), LONG - (20_000 if partition % 2 else 5_000))
        path = store.partition_path(partition)
        assert path.exists()
        store.close_partition(partition)
    found.add("c2", back, TOPICS)
    found.rebalance("a")
    took = {p for p, m in found.actives("orders").items() if m != before[p]}
    assert len(took) == 4
    assert {p % 2 for p in took} == {0}


def test_files_of_another_log_are_disbelieved_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic was recreated meanwhile: the worker gets no task before its copy is complete."""
    found = settled(tmp_path)
    back = worker(tmp_path, "d")
    store = back.tables["totals"].data
    for partition in range(12):
        store.set_persisted_offset(TP(LOG, partition), 9 * LONG)
        store.close_partition(partition)
    found.add("d", back, TOPICS)
    found.rebalance("a")
    assert not owned(found, "d")
    assert len(found.apps["d"].assignor.awaited.tps) == 3
    assert found.apps["a"].assignor.counters["disbelieved_positions"] == 12
    assert f"{LOG} (12)" in caplog.text


def test_without_warm_ups_all_move_at_once(tmp_path: Path) -> None:
    """The leader's setting counts; without follow-up rounds no task waits either."""
    off: list[tuple[str, dict[str, Any]]] = [
        ("off", {"faust_assigner_warmups": "no"}),
        ("alone", {"faust_assigner_follow_up_s": 0}),
    ]
    for name, options in off:
        found = settled(tmp_path / name, **options)
        found.add("d", worker(tmp_path / name, "d"), TOPICS)
        found.rebalance("a")
        assert len(owned(found, "d")) == 3


@pytest.mark.parametrize(
    "options", [{"faust_assigner_follow_up_s": 0}, {"faust_assigner_warmups": "no"}]
)
def test_a_worker_that_asks_for_no_round_is_not_waited_for(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    """Else its leader, with a different setting, would never give the worker a task."""
    found = settled(tmp_path)
    found.add("d", worker(tmp_path, "d", **options), TOPICS)
    found.rebalance("a")
    assert len(owned(found, "d")) == 3


def test_a_stock_worker_is_not_waited_for(tmp_path: Path) -> None:
    """A stock worker reports no positions and never requests the round."""
    found = settled(tmp_path)
    found.add("d", worker(tmp_path, "d", assignor=StockAssignor), TOPICS)
    found.rebalance("a")
    assert len(owned(found, "d")) == 3


def test_what_was_given_up_is_said_in_the_next_round(tmp_path: Path) -> None:
    """The leader then awaits different partitions."""
    found = settled(tmp_path)
    found.add("d", worker(tmp_path, "d"), TOPICS)
    found.rebalance("a")
    newcomer = found.apps["d"].assignor
    newcomer.overdue = waits = newcomer.awaited.tps
    said = decode_join(newcomer.metadata(TOPICS).user_data, sorted(TOPICS))
    assert (
        list(said.overdue[LOG]) == list(said.awaited[LOG]) == sorted(tp.partition for tp in waits)
    )
    found.rebalance("a")
    assert newcomer.awaited.tps
    assert not newcomer.awaited.tps & waits


def test_the_leader_says_who_waits_and_what_warms_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader's line of the round has both."""
    found = settled(tmp_path)
    found.add("d", worker(tmp_path, "d"), TOPICS)
    caplog.set_level("INFO")
    found.rebalance("a")
    line = next(r.getMessage() for r in caplog.records if "(join)" in r.getMessage())
    assert "0 moved, 0 cold, 3 off target, " in line
    assert " warming up; 9 kept, 3 waits" in line


def test_the_policy_is_as_the_app_is_set() -> None:
    """Keywords count; a wrong value is logged and replaced by the default."""
    assert policy_of(make_app("http://w"), False) == WarmupPolicy()
    app = make_app(
        "http://w",
        faust_assigner_acceptable_recovery_lag="5",
        faust_assigner_max_warmups=3,
        faust_assigner_max_group_warmups=0,
    )
    assert policy_of(app, False) == WarmupPolicy(
        acceptable_recovery_lag=5, acceptable_from_nothing=5, max_per_member=3
    )
    app = make_app("http://w", faust_assigner_max_group_warmups=9)
    assert policy_of(app, False) == WarmupPolicy(max_per_group=9)


@pytest.mark.parametrize(
    ("said", "cooperative", "eager"),
    [
        ({}, 100, 10_000),
        ({"faust_assigner_acceptable_from_nothing": "7"}, 7, 7),
        ({"faust_assigner_acceptable_from_nothing": "0"}, 0, 0),
    ],
)
def test_newcomers_wait_for_short_tables_where_the_next_round_is_near(
    said: dict[str, str], cooperative: int, eager: int
) -> None:
    """The defaults differ; a setting counts in both kinds of rounds."""
    app = make_app("http://w", **said)
    found = [policy_of(app, is_cooperative) for is_cooperative in (True, False)]
    assert found == [
        WarmupPolicy(acceptable_from_nothing=records) for records in (cooperative, eager)
    ]


@pytest.mark.parametrize(("others", "expected"), [(True, True), (False, False)])
def test_a_round_is_cooperative_where_all_offer_it(others: bool, expected: bool) -> None:
    """The leader's own metadata is not enough."""
    asked: list[bool] = []
    said = {
        name: ConsumerProtocolMemberMetadata(
            4,
            ["orders"],
            encode_join(JoinData(f"http://{name}", {}, cooperative=offers), ("orders",)),
        )
        for name, offers in (("a", True), ("b", others))
    }
    decide(LeaderView("shop", TableFacts(), 1, 1, warmups=asked.append), lambda _: range(4), said)
    assert asked == [expected]
