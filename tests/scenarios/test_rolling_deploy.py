"""Rolling deploys: subscriptions differ for a time; changelogs stay with their sources."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from faust_assigner import Member, Plan, plan
from faust_assigner.checks.invariants import carried, check

OLD = ("orders",)
NEW = ("orders", "totals-log")
PARTITIONS = {"orders": 24, "totals-log": 24}
CHANGELOGS = {"totals-log"}


def answer(members: list[Member], replicas: int = 1) -> Plan:
    """Return the planner's answer."""
    return plan(members, PARTITIONS, replicas=replicas, changelogs=CHANGELOGS)


def loads(now: Plan, topic: str) -> list[int]:
    """Return the partitions of ``topic`` per member."""
    return [len(now.actives(i).get(topic, ())) for i in now.member_ids]


def owners(now: Plan, topic: str) -> dict[int, str]:
    """Return partition -> owner."""
    return {p: i for i in now.member_ids for p in now.actives(i).get(topic, ())}


@pytest.mark.parametrize("size", [3, 5, 8])
def test_adding_a_table_in_place_keeps_sources_even_and_still(size: int) -> None:
    """Members change their subscription in turn and keep their ids: no source partition moves."""
    members = [Member(f"m{i}", OLD) for i in range(size)]
    last = answer(members)
    for upgraded in range(size):
        members = carried(members, last)
        members[upgraded] = replace(members[upgraded], topics=NEW)
        now = answer(members)
        assert check(members, PARTITIONS, now, replicas=1, changelogs=CHANGELOGS) == []
        assert max(loads(now, "orders")) - min(loads(now, "orders")) <= 1
        assert owners(now, "orders") == owners(last, "orders"), "a source moved for a changelog"
        source = owners(now, "orders")
        wanted = {p: m for p, m in source.items() if now.member_ids.index(m) <= upgraded}
        table = owners(now, "totals-log")
        assert all(table[p] == m for p, m in wanted.items()), "a changelog parted from its source"
        last = now
    assert owners(last, "totals-log") == owners(last, "orders")
    assert len(last.groups) == 1


@pytest.mark.parametrize("size", [3, 5, 8])
def test_adding_a_table_by_restarts_keeps_sources_even(size: int) -> None:
    """Each member leaves and a new member joins, in two rebalances, as in a real deploy."""
    members = [Member(f"old{i}", OLD) for i in range(size)]
    last = answer(members)
    for step in range(size):
        members = [m for m in carried(members, last) if m.member_id != f"old{step}"]
        last = answer(members)
        assert check(members, PARTITIONS, last, replicas=1, changelogs=CHANGELOGS) == []
        assert last.moves == last.report()["moves_minimum"]
        assert max(loads(last, "orders")) - min(loads(last, "orders")) <= 1
        members = [*carried(members, last), Member(f"new{step}", NEW)]
        last = answer(members)
        assert check(members, PARTITIONS, last, replicas=1, changelogs=CHANGELOGS) == []
        assert max(loads(last, "orders")) - min(loads(last, "orders")) <= 1
    assert owners(last, "totals-log") == owners(last, "orders")


def test_the_rest_of_a_changelog_is_spread_evenly_over_its_subscribers() -> None:
    """If the source's owner does not subscribe, the changelog partition goes to a subscriber."""
    members = [Member("a", OLD), Member("b", OLD), Member("c", NEW), Member("d", NEW)]
    now = answer(members)
    assert loads(now, "orders") == [6, 6, 6, 6]
    assert loads(now, "totals-log") == [0, 0, 12, 12]


def test_a_follower_adds_no_load() -> None:
    """The only member with the table owns the whole table and its full share of sources."""
    members = [Member("a", OLD), Member("b", OLD), Member("c", NEW)]
    now = answer(members)
    assert loads(now, "orders") == [8, 8, 8]
    assert loads(now, "totals-log") == [0, 0, 24]
    assert now.report()["load_max"] == 8


def test_removing_a_table_moves_no_source() -> None:
    """In the reverse deploy the table loses subscribers and the sources stay."""
    members = [Member(f"m{i}", NEW) for i in range(4)]
    last = answer(members)
    for step in range(4):
        members = carried(members, last)
        members[step] = replace(members[step], topics=OLD)
        now = answer(members)
        assert check(members, PARTITIONS, now, replicas=1, changelogs=CHANGELOGS) == []
        assert owners(now, "orders") == owners(last, "orders")
        last = now
    assert owners(last, "totals-log") == {}


def test_an_orphaned_source_prefers_a_member_that_holds_its_followers_state() -> None:
    """Among equally good places, the member with the changelog's state gets the source."""
    members = [
        Member("a", OLD, actives={"orders": range(0, 8)}),
        Member(
            "b", NEW, actives={"orders": range(8, 12)}, standbys={"totals-log": [20, 21, 22, 23]}
        ),
        Member(
            "c", NEW, actives={"orders": range(12, 16)}, standbys={"totals-log": [16, 17, 18, 19]}
        ),
    ]
    now = answer(members, replicas=0)
    assert now.actives("b")["orders"] == [8, 9, 10, 11, 20, 21, 22, 23]
    assert now.actives("c")["orders"] == [12, 13, 14, 15, 16, 17, 18, 19]


def test_group_ids_last_through_a_deploy() -> None:
    """The source keeps its count as the id; the changelog has another id while separate."""
    before = answer([Member("a", OLD), Member("b", OLD)])
    during = answer([Member("a", OLD), Member("b", NEW)])
    after = answer([Member("a", NEW), Member("b", NEW)])
    assert [g.group_id for g in before.groups] == [24]
    ids = {topic: g.group_id for g in during.groups for topic in g.topics}
    assert ids["orders"] == 24
    assert ids["totals-log"] != 24
    assert [g.group_id for g in after.groups] == [24]
    assert Counter(ids.values()).most_common(1)[0][1] == 1
