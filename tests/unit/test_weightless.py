"""Weightless topics: they are assigned but add no load."""

from __future__ import annotations

from dataclasses import replace

from faust_assigner import Member, plan
from faust_assigner.checks.invariants import carried, check

LEADER = "shop-__assignor-__leader"


def group(count: int) -> list[Member]:
    """Return ``count`` members subscribed to both topics."""
    return [Member(f"m{i}", ["orders", LEADER]) for i in range(count)]


def test_a_weightless_topic_unbalances_nobody() -> None:
    """The owner of the weightless topic gets as many real tasks as without the topic."""
    counts = {"orders": 6, LEADER: 1}
    for members in (2, 3, 6):
        made = plan(group(members), counts, weightless={LEADER})
        assert {len(made.actives(f"m{i}").get("orders", ())) for i in range(members)} == {
            6 // members
        }
        assert sum(LEADER in made.actives(f"m{i}") for i in range(members)) == 1
        assert made.report()["tasks"] == 6


def test_a_weightless_topic_stays_where_it_is() -> None:
    """The owner keeps the topic after a join; after its departure the lowest member id gets it."""
    counts = {"orders": 6, LEADER: 1}
    first, second, third = group(3)
    members = [first, replace(second, actives={LEADER: [0]}, generation=1), third]
    made = plan(members, counts, weightless={LEADER})
    assert made.actives("m1")[LEADER] == [0]
    members = [m for m in carried(members, made) if m.member_id != "m1"]
    assert plan(members, counts, weightless={LEADER}).actives("m0")[LEADER] == [0]


def test_a_weightless_topic_is_no_work_of_its_counts_group() -> None:
    """The topics with work keep the count's id; the weightless topic follows no group."""
    members = [Member(f"m{i}", ["audit", "audit-log", LEADER]) for i in range(2)]
    counts = {"audit": 1, "audit-log": 1, LEADER: 1}
    made = plan(members, counts, changelogs={"audit-log"}, weightless={LEADER})
    by_topic = {group.topics: group for group in made.groups}
    assert by_topic["audit", "audit-log"].group_id == 1
    assert by_topic[LEADER,].follows is None
    assert not by_topic[LEADER,].adds_load


def test_a_plan_with_a_weightless_topic_keeps_every_promise() -> None:
    """The checker derives the loads without the topic too."""
    counts = {"orders": 7, "orders-log": 7, LEADER: 1}
    members = [Member(f"m{i}", counts) for i in range(3)]
    for turn in range(3):
        made = plan(members, counts, replicas=1, changelogs={"orders-log"}, weightless={LEADER})
        assert (
            check(members, counts, made, replicas=1, changelogs={"orders-log"}, weightless={LEADER})
            == []
        )
        members = [*carried(members, made)[1:], Member(f"n{turn}", counts)]


def test_its_explanation_speaks_of_no_balance() -> None:
    """Another placement would have had the same cost."""
    made = plan(group(2), {"orders": 4, LEADER: 1}, weightless={LEADER})
    assert "adds no load" in str(made.explain(LEADER, 0))
