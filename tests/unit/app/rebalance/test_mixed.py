"""A group of stock and our members over metadata bytes: either leads, rolled forward and back."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.faust_group import PartitionAssignor, StockAssignor, WireGroup, make_app

LOG = "shop-totals-changelog"
TOPICS = {"orders": 12, LOG: 12, "clicks": 5, "shop-__assignor-__leader": 1}
GLOBAL = "shop-rates-changelog"


def add(
    found: WireGroup,
    member: str,
    assignor: Any,
    *,
    tables: tuple[str, ...] = ("totals",),
    topics: Any = None,
    **options: Any,
) -> None:
    """Add a worker with this assignor."""
    app = make_app(f"http://{member}:6066", assignor=assignor, tables=tables, **options)
    found.add(member, app, topics or found.partitions)


def check(found: WireGroup, *topics: str) -> None:
    """Check the owners, the co-partitioned topics, and a standby of each changelog partition."""
    for topic in topics or ("orders", LOG, "clicks"):
        assert sorted(found.actives(topic)) == list(range(found.partitions[topic])), topic
    assert found.actives("orders") == found.actives(LOG)
    if len(found.apps) > 1:
        owners = found.actives(LOG)
        for partition, members in found.standbys(LOG).items():
            assert len(members) == 1, partition
            assert owners[partition] not in members


def stock_accepts(found: WireGroup) -> None:
    """Check that stock's on_assignment accepted its assignment."""
    for m, app in found.apps.items():
        if type(app.assignor) is StockAssignor:
            assert app.assignor._assignment.actives, m


@pytest.mark.parametrize("leader", ["new0", "old0"])
def test_either_kind_leads_a_mixed_group(leader: str) -> None:
    """Every member gets a valid assignment and the same directory."""
    found = WireGroup(TOPICS)
    for i in range(3):
        add(found, f"new{i}", PartitionAssignor)
        add(found, f"old{i}", StockAssignor)
    found.rebalance(leader)
    check(found)
    stock_accepts(found)
    maps = [app.assignor.tables_metadata() for app in found.apps.values()]
    owned = {url: set(numbers) for url, topics in maps[0].items() for numbers in topics.values()}
    for other in maps[1:]:
        assert {u: set(n) for u, t in other.items() for n in t.values()} == owned
    ids = {
        tuple(app.assignor.group_for_topic(t) for t in sorted(TOPICS))
        for app in found.apps.values()
    }
    assert len(ids) == 1


def test_partitions_stay_when_the_lead_changes_kind() -> None:
    """Stock leaders read our claims and our leaders read stock claims, so no partition moves."""
    found = WireGroup(TOPICS)
    for i in range(3):
        add(found, f"new{i}", PartitionAssignor)
        add(found, f"old{i}", StockAssignor)
    found.rebalance("new0")
    before = found.actives("orders")
    for leader in ("old0", "new1", "old2", "new0"):
        found.rebalance(leader)
        check(found)
        assert found.actives("orders") == before, leader


def test_our_leader_moves_as_little_as_can_be_from_stocks_assignment() -> None:
    """A fourth worker with our assignor leads: exactly three partitions move, all to it."""
    found = WireGroup(TOPICS)
    for i in range(3):
        add(found, f"old{i}", StockAssignor)
    found.rebalance("old0")
    before = found.actives("orders")
    add(found, "new", PartitionAssignor)
    found.rebalance("new")
    check(found)
    after = found.actives("orders")
    assert [after[p] for p in before if after[p] != before[p]] == ["new"] * 3


@pytest.mark.parametrize("seed", range(6))
def test_a_group_rolls_forward_and_back(seed: int) -> None:
    """Workers are replaced in turn under any leader; no step fails or leaves a partition out."""
    rng = random.Random(seed)
    found = WireGroup(TOPICS)
    for i in range(5):
        add(found, f"w{i}", StockAssignor)
    found.rebalance()
    for kind in (PartitionAssignor, StockAssignor):
        for i in rng.sample(range(5), 5):
            found.remove(f"w{i}")
            found.rebalance(rng.choice(sorted(found.apps)))
            check(found)
            add(found, f"w{i}", kind)
            found.rebalance(rng.choice(sorted(found.apps)))
            check(found)
            stock_accepts(found)


@pytest.mark.parametrize(
    "flags", [{}, {"use_partitioner": True}, {"synchronize_all_active_partitions": True}]
)
@pytest.mark.parametrize("leader", ["new0", "old0"])
def test_global_tables_in_a_mixed_group(flags: dict[str, bool], leader: str) -> None:
    """Every member has the whole table; synthetic actives move no partition under our leader."""
    found = WireGroup({**TOPICS, GLOBAL: 12})
    for i in range(2):
        add(found, f"new{i}", PartitionAssignor, global_tables={"rates": flags})
        add(found, f"old{i}", StockAssignor, global_tables={"rates": flags})
    found.rebalance(leader)
    for app in found.apps.values():
        held = {tp.partition for tp in app.assignor.assigned_actives() if tp.topic == GLOBAL}
        assert held == set(range(12))
    found.rebalance("new0")
    before = found.actives("orders")
    for _ in range(2):
        found.rebalance("new1")
        assert found.actives("orders") == before


def test_a_rolling_deploy_that_adds_a_table_under_our_old_leader() -> None:
    """A stock leader makes new stock members fail an assertion here; our leader does not."""
    new_log = "shop-fresh-changelog"
    found = WireGroup({**TOPICS, new_log: 12})
    add(found, "a", PartitionAssignor, topics=TOPICS)
    add(found, "b", StockAssignor, topics=TOPICS)
    add(found, "c", StockAssignor, tables=("totals", "fresh"))
    add(found, "d", PartitionAssignor, tables=("totals", "fresh"))
    found.rebalance("a")
    check(found)
    stock_accepts(found)
    assert set(found.actives(new_log).values()) <= {"c", "d"}
    assert sorted(found.actives(new_log)) == list(range(12))
    owners = found.actives("orders")
    assert all(owners[p] == m for p, m in found.actives(new_log).items() if owners[p] in "cd")


def test_group_ids_of_a_stock_group_are_kept() -> None:
    """An exactly-once app keeps its transactional ids after the switch to our assignor."""
    found = WireGroup(TOPICS)
    for i in range(3):
        add(found, f"old{i}", StockAssignor)
    found.rebalance()
    before = {t: found.apps["old0"].assignor.group_for_topic(t) for t in TOPICS}
    for i in range(3):
        found.remove(f"old{i}")
        add(found, f"new{i}", PartitionAssignor)
        found.rebalance(f"new{i}")
    assert {t: found.apps["new2"].assignor.group_for_topic(t) for t in TOPICS} == before


def test_a_static_member_comes_back_with_stock_faust() -> None:
    """Within its session the broker returns the former answer, and stock accepts it."""
    from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

    found = WireGroup(TOPICS)
    for i in range(2):
        add(found, f"w{i}", PartitionAssignor, consumer_group_instance_id=f"w{i}")
    found.rebalance()
    stock = make_app("http://w1:6066", assignor=StockAssignor, tables=("totals",))
    stock.assignor.on_assignment(ConsumerProtocolMemberAssignment.decode(found.synced["w1"]))
    assert stock.assignor.assigned_actives() == found.apps["w1"].assignor.assigned_actives()


def test_all_ours_is_told_to_everybody() -> None:
    """Features that need our assignor on every member start only then."""
    found = WireGroup(TOPICS)
    add(found, "a", PartitionAssignor)
    add(found, "b", StockAssignor)
    found.rebalance("a")
    assert found.apps["a"].assignor.is_uniform is False
    found.remove("b")
    add(found, "b", PartitionAssignor)
    found.rebalance("a")
    assert all(app.assignor.is_uniform for app in found.apps.values())
