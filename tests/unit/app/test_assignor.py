"""PartitionAssignor fulfils Faust's contract, method by method."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock, PropertyMock, patch

import faust
import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.types import TP

import faust_assigner
from faust_assigner.wire.join import decode_join
from tests.support.faust_group import WireGroup, make_app
from tests.support.shop import LOG, TOPICS, assignor_of, group, said


def test_faust_finds_the_class_by_its_name() -> None:
    """The setting is the only line that an app needs."""
    app = faust.App(
        "x", PartitionAssignor="faust_assigner:PartitionAssignor", table_standby_replicas=2
    )
    assert isinstance(app.assignor, faust_assigner.PartitionAssignor)
    assert (app.assignor.name, app.assignor.version, app.assignor.replicas) == ("faust", 4, 2)


def test_roles_as_tables_and_producers_ask_for_them() -> None:
    """Actives and standbys are disjoint sets of TP, and the single checks agree."""
    found = group()
    for app in found.apps.values():
        actives, standbys = app.assignor.assigned_actives(), app.assignor.assigned_standbys()
        assert all(isinstance(tp, TP) for tp in actives | standbys)
        assert not actives & standbys
        assert {tp.topic for tp in standbys} == {LOG}
        assert all(app.assignor.is_active(tp) and not app.assignor.is_standby(tp) for tp in actives)
        assert all(
            app.assignor.is_standby(tp) and not app.assignor.is_active(tp) for tp in standbys
        )
    assert found.actives("orders") == found.actives(LOG)
    assert all(len(members) == 1 for members in found.standbys(LOG).values())


def test_the_leader_topic_is_an_ordinary_topic() -> None:
    """Exactly one member runs the leader's timers."""
    assert len(group().actives("shop-__assignor-__leader")) == 1


def test_nobody_asks_before_the_first_assignment() -> None:
    """A new assignor has no partitions, no groups and no owners."""
    assignor = make_app("http://w", tables=["totals"]).assignor
    assert assignor.assigned_actives() == assignor.assigned_standbys() == set()
    assert assignor.tables_metadata() == assignor.external_topics_metadata() == {}
    with pytest.raises(KeyError):
        assignor.group_for_topic("orders")


def test_how_far_copies_were_read_is_said_until_the_next_assignment() -> None:
    """A join may be repeated."""
    found = group()
    assignor = assignor_of(found, "m0")
    assignor.read_to = {TP(LOG, 0): 5}
    assignor.metadata(TOPICS)
    assert assignor.read_to == {TP(LOG, 0): 5}
    found.rebalance()
    assert assignor.read_to == {}


def test_an_assignment_names_the_round_and_the_tasks_of_what_is_awaited() -> None:
    """An ordinary assignment requests no second round."""
    found = group()
    assignor = assignor_of(found, "m0")
    assert assignor.awaited.generation == assignor.generation == 0
    assert assignor.awaited.group_ids[LOG] == assignor.group_for_topic("orders")
    assert not assignor.is_followed(ConsumerProtocolMemberAssignment.decode(found.synced["m0"]))
    assert not assignor.stops_nobody
    found.rebalance()
    assert assignor.leading._view().last_generation == assignor.generation == 1


def test_the_partitions_of_the_last_answer_are_known_also_of_missing_topics() -> None:
    """Without an answer, or without its directory, no count is known."""
    found = group()
    assignor = assignor_of(found, "m0")
    assert assignor.planned_counts() == TOPICS
    assignor.metadata([*TOPICS, "later"])
    assert assignor.planned_counts() == TOPICS | {"later": 0}
    alone = make_app("http://w").assignor
    alone.metadata(["orders"])
    assert alone.planned_counts() == {}


def test_who_leaves_or_holds_says_so() -> None:
    """Each flag is independent."""
    assignor = assignor_of(group(), "m0")
    for holds, leaves in ((True, False), (False, True)):
        assignor.holds, assignor.leaves = holds, leaves
        data = decode_join(assignor.metadata(TOPICS).user_data, sorted(TOPICS))
        assert (data.holds, data.leaves) == (holds, leaves)


def test_what_could_not_be_said_is_not_taken_for_warm(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader knew no claims of the member."""
    found = group()
    found.rebalance()
    caplog.set_level("INFO")
    monkeypatch.setattr(
        "faust_assigner.app.assignor.collect_join_data", Mock(side_effect=ZeroDivisionError)
    )
    found.rebalance()
    lines = [r.getMessage() for r in caplog.records if "of the active changelogs" in r.getMessage()]
    assert len(lines) == len(found.apps)
    assert all("changelogs 0 warm" in line for line in lines)


def test_the_router_finds_every_owner() -> None:
    """Changelogs find tables, and topics find themselves, on every member alike."""
    found = group()
    urls = {m: f"http://w{m[1:]}:6066" for m in found.apps}
    for m, app in found.apps.items():
        assignor = app.assignor
        tables, topics = assignor.tables_metadata(), assignor.external_topics_metadata()
        for owner, url in urls.items():
            held = found.apps[owner].assignor.assigned_actives()
            assert tables[url][LOG] == sorted(tp.partition for tp in held if tp.topic == LOG)
            assert topics[url]["orders"] == sorted(
                tp.partition for tp in held if tp.topic == "orders"
            )
        assert assignor.table_metadata(LOG) == tables
        for partition, owner in found.actives(LOG).items():
            app.producer = Mock(key_partition=lambda topic, key, p=partition: TP(topic, p))
            assert str(assignor.key_store(LOG, b"k")) == urls[owner], m
            assert str(assignor.external_key_store("orders", b"k")) == urls[owner]
            with pytest.raises(KeyError):
                assignor.key_store("orders", b"k")
            with pytest.raises(KeyError):
                assignor.external_key_store(LOG, b"k")


def test_fausts_own_router_works_on_it() -> None:
    """app.router looks up table names and topics, as web views do."""
    found = group()
    app = found.apps["m1"]
    app.producer = Mock(key_partition=lambda topic, key: TP(topic, 2))
    assert str(app.router.key_store("totals", "key")) == f"http://w{found.actives(LOG)[2][1:]}:6066"
    assert app.router.tables_metadata() == app.assignor.tables_metadata()
    assert app.router.external_topics_metadata() == app.assignor.external_topics_metadata()


def torn_by_a_round(found: WireGroup, *, transactions: bool = True) -> dict[str, frozenset[TP]]:
    """Play a round; return the partitions each member must revoke and take again."""
    torn = dict[str, frozenset[TP]]()
    with patch.object(
        faust.App, "in_transaction", new_callable=PropertyMock, return_value=transactions
    ):
        for m, app in found.apps.items():
            take = app.assignor.on_assignment

            def noted(answer: Any, m: str = m, app: Any = app, take: Any = take) -> None:
                torn[m] = app.assignor.partitions_to_restart(answer)
                take(answer)

            app.assignor.on_assignment = noted
        found.rebalance("m0")
    return torn


@pytest.mark.parametrize("transactions", [True, False])
def test_only_transactions_are_torn_where_groups_merge(transactions: bool) -> None:
    """A topic of some members becomes a topic of all: its partitions get a different id."""
    found = group()
    found.partitions["returns"] = found.partitions["orders"]
    found.topics["m0"].add("returns")
    found.rebalance("m0")
    narrow = assignor_of(found, "m0").group_for_topic("returns")
    for m in found.topics:
        found.topics[m].add("returns")
    before = {m: app.assignor.assigned_actives() for m, app in found.apps.items()}
    torn = torn_by_a_round(found, transactions=transactions)
    assert assignor_of(found, "m0").group_for_topic("returns") != narrow
    kept = before["m0"] & assignor_of(found, "m0").assigned_actives()
    expected = {tp for tp in kept if tp.topic == "returns"}
    assert expected
    assert torn == {"m0": expected if transactions else set(), "m1": set(), "m2": set()}


@pytest.mark.parametrize("flags", [{}, {"synchronize_all_active_partitions": True}])
def test_a_global_table_is_never_torn(flags: dict[str, bool]) -> None:
    """Streams read the table on although its source's partition is revoked or gets a new id."""
    found = WireGroup({"orders": 8, "shop-rates-changelog": 8})
    for i in range(3):
        app = make_app(f"http://w{i}", global_tables={"rates": flags})
        found.add(f"m{i}", app, found.partitions)
        if i:
            assert torn_by_a_round(found) == dict.fromkeys(found.apps, frozenset())
        else:
            found.rebalance()
    log = "shop-rates-changelog"
    before = assignor_of(found, "m0").group_for_topic(log)
    found.topics["m2"].discard("orders")
    assert torn_by_a_round(found) == dict.fromkeys(found.apps, frozenset())
    assert assignor_of(found, "m0").group_for_topic(log) != before, "the case asks nothing"


def test_group_ids_outlive_their_topics_and_unreadable_answers() -> None:
    """A producer ends the transactions of revoked partitions after the new assignment."""
    found = group()
    clicks = {m: app.assignor.group_for_topic("orders") for m, app in found.apps.items()}
    for m in found.topics:
        found.topics[m] = {LOG}
    found.rebalance()
    assert {m: app.assignor.group_for_topic("orders") for m, app in found.apps.items()} == clicks
    assignor_of(found).on_assignment(Mock(assignment=[(LOG, [0])], user_data=b"noise"))
    assert assignor_of(found).group_for_topic(LOG) == clicks["m0"]
    found.topics["m0"] = set(TOPICS)
    found.rebalance("m0")
    assert said(found, "m0").group_ids["orders"] == clicks["m0"]


@pytest.mark.slow
def test_the_same_bytes_for_any_hash_seed_and_member_order() -> None:
    """Three hash seeds and two orders of members give the same digest."""
    script = """
import hashlib, sys, time
from tests.support.faust_group import WireGroup, make_app
parts = {"orders": 30, "shop-a-changelog": 30, "shop-b-changelog": 7, "rates": 7, "shop-g-changelog": 5}
found = WireGroup(parts)
names = [f"m{i}" for i in range(9)]
for i in names if sys.argv[1] == "up" else reversed(names):
    found.add(i, make_app(f"http://{i}", tables=["a", "b"], global_tables={"g": {}}), set(parts))
digest = hashlib.sha256()
time.time = lambda: 1e9
for leave in (None, "m3", "m7"):
    if leave:
        found.remove(leave)
    found.rebalance("m5")
    for m in sorted(found.joined):
        digest.update(found.joined[m] + found.synced[m])
print(digest.hexdigest())
"""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", script, order],
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONHASHSEED": str(seed), "PATH": "/usr/bin:/bin"},
            cwd=Path.cwd(),
        )
        for seed, order in ((0, "up"), (1, "down"), (4242, "up"))
    ]
    digests = {run.communicate(timeout=240)[0] for run in runs}
    assert len(digests) == 1
    assert len(digests.pop()) == 65


def test_a_global_table_is_everywhere() -> None:
    """Every member restores the whole table; its standbys are the other members' partitions."""
    for flags, full in (
        ({}, False),
        ({"use_partitioner": True}, True),
        ({"synchronize_all_active_partitions": True}, True),
    ):
        found = WireGroup({"orders": 4, "shop-rates-changelog": 4})
        for i in range(2):
            found.add(
                f"m{i}", make_app(f"http://w{i}", global_tables={"rates": flags}), found.partitions
            )
        found.rebalance()
        everything = {TP("shop-rates-changelog", p) for p in range(4)}
        for m, app in found.apps.items():
            own = {tp for tp in app.assignor.assigned_actives() if tp.topic == "orders"}
            mine = {TP("shop-rates-changelog", tp.partition) for tp in own}
            assert app.assignor.assigned_actives() - own == everything, m
            assert app.assignor.assigned_standbys() == (everything if full else everything - mine)
