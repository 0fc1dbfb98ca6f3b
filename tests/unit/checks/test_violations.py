"""The whole list of violations of small plans, which are written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from faust_assigner import Member, plan
from faust_assigner.checks.invariants import carried, check
from faust_assigner.checks.reading import accepted_owners, units_of
from faust_assigner.checks.waiting import WarmupRule
from faust_assigner.warmup import WarmupPolicy
from tests.unit.checks.test_invariants import Told

BOTH = ["s", "s-log"]
#: Each of three members owns two of six tasks.
OWNED = {"a": [0, 1], "b": [2, 3], "c": [4, 5]}


def members_of(racks: str = "", names: str = "abc") -> list[Member]:
    """Return members that subscribe to the table's topics, each in the rack with its letter."""
    return [
        Member(name, BOTH, rack_id=rack)
        for name, rack in zip(names, racks or [None] * len(names), strict=True)
    ]


def said(
    members: Sequence[Member],
    owned: dict[str, list[int]],
    standbys: dict[str, list[int]],
    replicas: int = 1,
) -> list[str]:
    """Return the violations of a plan for a table with as many partitions as are owned."""
    count = sum(map(len, owned.values()))
    answer = Told(
        {m.member_id: dict.fromkeys(BOTH, owned.get(m.member_id, [])) for m in members},
        {m.member_id: {"s-log": standbys.get(m.member_id, [])} for m in members},
    )
    found = check(
        members, dict.fromkeys(BOTH, count), answer, replicas=replicas, changelogs={"s-log"}
    )
    return [str(one) for one in found]


def test_a_member_with_two_copies_of_a_task_is_reported() -> None:
    """The task has two members beside its owner, as wanted, but one member counts twice."""
    owned = {"a": [0], "b": [1], "c": [2]}
    assert said(members_of(), owned, {"a": [1, 2], "b": [0, 2], "c": [0, 1]}, 2) == []
    assert said(members_of(), owned, {"a": [1, 2], "b": [0, 2, 2], "c": [0, 1]}, 2) == [
        "A3: s-log-2 has 2 standbys instead of 2"
    ]


def test_a_standby_below_zero_has_no_state() -> None:
    """As an index, -1 means the last partition."""
    owned = {"a": [0], "b": [1], "c": [2]}
    assert said(members_of(), owned, {"a": [1], "b": [-1], "c": [0]}) == [
        "A3: b has a standby of s-log--1, which has no state",
        "A3: s-log-2 has 0 standbys instead of 1",
        "A3: s-log-2 has 0 standbys outside the active's rack; 2 are possible",
    ]


def test_as_many_standbys_as_possible_are_outside_the_rack() -> None:
    """Of two standbys of member a's task, both could be in other racks."""
    members = members_of("xxyz", "abcd")
    owned = {"a": [0], "b": [1], "c": [2], "d": [3]}
    good = {"a": [2, 3], "b": [2, 3], "c": [0, 1], "d": [0, 1]}
    assert said(members, owned, good, 2) == []
    bad = {"a": [2, 3], "b": [0, 2, 3], "c": [0, 1], "d": [1]}
    assert said(members, owned, bad, 2) == [
        "A3: s-log-0 has 1 standbys outside the active's rack; 2 are possible"
    ]


@pytest.mark.parametrize("racks", ["", "xxx", "xyz"])
def test_standbys_that_differ_by_two_are_uneven_with_any_plain_racks(racks: str) -> None:
    """Member a has three standbys, and one of them may go to member c."""
    found = said(members_of(racks), OWNED, {"a": [2, 3, 4], "b": [0, 5], "c": [1]})
    out = ["A4: standbys range from 1 to 3 per member, and a could pass a standby on"]
    assert [one for one in found if one.startswith("A4")] == out
    assert said(members_of(), OWNED, {"a": [2, 4], "b": [0, 5], "c": [1, 3]}) == []


def test_a_topic_without_state_and_with_fewer_readers_does_not_hide_uneven_standbys() -> None:
    """Member a alone reads the topic."""
    members = [Member(name, [*BOTH, "t"] if name == "a" else BOTH) for name in "abc"]
    answer = Told(
        {name: dict.fromkeys(BOTH, numbers) for name, numbers in OWNED.items()},
        {"a": {"s-log": [2, 3, 4]}, "b": {"s-log": [0, 5]}, "c": {"s-log": [1]}},
    )
    answer.active["a"]["t"] = [0]
    partitions = {"s": 6, "s-log": 6, "t": 1}
    found = check(members, partitions, answer, replicas=1, changelogs={"s-log"})
    assert "A4: standbys range from 1 to 3" in " ".join(map(str, found))


def test_an_owner_must_subscribe_and_every_topic_of_a_task_goes_with_the_first() -> None:
    """The violations are sorted, and each is reported once."""
    members = [Member("a", ["s", "t", "u"]), Member("b", ["s", "t", "u"]), Member("c", ["v"])]
    answer = Told(
        {
            "a": {"s": [0], "t": [0], "u": [1]},
            "b": {"s": [1], "t": [1], "u": [0]},
            "c": {"v": [0], "s": [1]},
        },
        {name: {} for name in "abc"},
    )
    found = check(members, {"s": 2, "t": 2, "u": 2, "v": 1}, answer)
    assert [str(one) for one in found] == [
        "A1: c owns s without a subscription",
        "A2: u is separated from s",
    ]


@pytest.mark.parametrize(
    ("members", "how"),
    [
        ([Member("a", ["s"]), Member("b", BOTH), Member("c", BOTH)], {}),
        (
            [
                Member("a", ["s"], actives={"s": [0]}, generation=1),
                Member("b", BOTH, actives={"s": [1]}, generation=1),
                Member("c", BOTH, actives={"s": [2]}, standbys={"s-log": [1]}, generation=1),
            ],
            {},
        ),
        ([Member(name, [*BOTH, "idle"]) for name in "abc"], {"weightless": ["idle"]}),
    ],
    ids=["the source's owner reads no changelog", "a changelog is no orphan", "no load"],
)
def test_a_plan_of_the_planner_breaks_no_promise(
    members: list[Member], how: dict[str, Any]
) -> None:
    """A changelog follows its source only to subscribers, and whoever holds its state."""
    partitions = {"s": 3, "s-log": 3, "idle": 4}
    how = {"changelogs": ["s-log"], **how}
    assert check(members, partitions, plan(members, partitions, **how), **how) == []


@dataclass
class Waits(Told):
    """A plan in which members await copies."""

    def awaited(self, member_id: str) -> dict[str, list[int]]:
        """Return another partition for each member."""
        return {"s-log": [ord(member_id)]}


def test_a_promise_is_carried_into_the_next_generation() -> None:
    """The newest claim of any member dates all claims."""
    members = [Member("a", BOTH, generation=3), Member("b", BOTH, generation=7)]
    found = carried(members, Waits({"a": {}, "b": {}}, {"a": {}, "b": {}}))
    assert [(m.generation, m.awaited) for m in found] == [
        (8, {"s-log": [97]}),
        (8, {"s-log": [98]}),
    ]


def test_of_two_members_with_one_topic_each_the_owner_of_the_source_counts() -> None:
    """The order of the members has no effect."""
    members = [
        Member("a", BOTH, actives={"s-log": [0]}, generation=2),
        Member("b", BOTH, actives={"s": [0]}, generation=2),
    ]
    (unit,) = units_of(members, {"s": 1, "s-log": 1}, frozenset({"s-log"}), frozenset())
    assert accepted_owners(unit, members, "actives") == [1]


def test_a_changelog_follows_no_unit_without_load() -> None:
    """The only wider topic of its count is weightless."""
    members = [Member("a", BOTH), Member("b", BOTH), Member("c", ["s"])]
    found = units_of(members, {"s": 2, "s-log": 2}, frozenset({"s-log"}), frozenset({"s"}))
    assert [(unit.topics, unit.leader) for unit in found] == [(("s",), None), (("s-log",), None)]


@pytest.mark.parametrize(("behind", "is_far"), [(50, False), (51, True)])
def test_the_records_to_read_of_all_logs_are_added(behind: int, is_far: bool) -> None:
    """At most 100 records in both logs together are acceptable."""
    topics = ["s", "x-log", "y-log"]
    members = [
        Member("a", topics, positions={"x-log": {0: 500}, "y-log": {0: 500}}),
        Member("b", topics, positions={"x-log": {0: 450}, "y-log": {0: 500 - behind}}),
    ]
    units = units_of(members, dict.fromkeys(topics, 1), frozenset(topics[1:]), frozenset())
    rule = WarmupRule(units, members, [[0]], WarmupPolicy(acceptable_recovery_lag=100))
    assert rule.is_far(0, 0, 1, 0) is is_far


@pytest.mark.parametrize(("owner", "is_best"), [("a", False), ("b", True)])
def test_an_orphan_goes_to_the_member_with_most_of_its_changelogs(
    owner: str, is_best: bool
) -> None:
    """Member a has a copy of one changelog, member b of both."""
    topics = ["s", "x-log", "y-log"]
    members = [
        Member("a", topics, standbys={"x-log": [0]}, generation=1),
        Member("b", topics, standbys={"x-log": [0], "y-log": [0]}, generation=1),
    ]
    answer = Told({name: {} for name in "ab"}, {name: {} for name in "ab"})
    answer.active[owner] = {topic: [0] for topic in topics}
    partitions = dict.fromkeys(topics, 1)
    found = [str(one) for one in check(members, partitions, answer, changelogs=topics[1:])]
    out = "A5: orphan s-0 went to a, but another living member holds more of its state"
    assert found == ([] if is_best else [out])


def test_standbys_that_a_chain_of_two_members_could_pass_on_are_uneven() -> None:
    """Member a passes only to b, because c owns both tasks, and b passes to c."""
    found = said(members_of(), {"a": [2], "b": [], "c": [0, 1]}, {"a": [0, 1], "b": [2]})
    assert found == [
        "A4: standbys range from 0 to 2 per member, and a could pass a standby on",
        "A4: total balance could be better",
    ]


def test_former_owners_are_dated_by_their_last_stop() -> None:
    """The newer date counts for former claims, the newer generation for claims; zero is a date."""
    claims = {"s": [0, 1], "s-log": [0]}
    a = Member("a", BOTH, generation=9, former_generation=0, former_actives=claims, actives=claims)
    b = Member("b", BOTH, generation=4, former_generation=3, former_actives=claims, actives=claims)
    c = Member("c", BOTH, generation=3, former_actives={"s": [1, 2]}, actives={"s": [2]})
    (unit,) = units_of([a, b, c], dict.fromkeys(BOTH, 3), frozenset(["s-log"]), frozenset())
    assert accepted_owners(unit, [a, b, c], "former_actives") == [1, -1, 2]
    assert accepted_owners(unit, [a, b, c], "actives") == [0, 0, 2]
