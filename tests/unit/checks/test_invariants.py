"""The checker reports each promise after the test breaks the promise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest

from faust_assigner import Member, Plan, plan
from faust_assigner.checks.invariants import _count_off_target, carried, check
from faust_assigner.checks.optimality import improving_cycle
from faust_assigner.checks.reading import accepted_owners, copies_of, units_of
from faust_assigner.model import NOBODY

MEMBERS = [Member(m, ["s", "s-log", "t"]) for m in "abc"]
PARTITIONS = {"s": 6, "s-log": 6, "t": 4}
CHANGELOGS = {"s-log"}


@dataclass
class Told:
    """A plan by name with mutable answers."""

    active: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    standby: dict[str, dict[str, list[int]]] = field(default_factory=dict)

    @classmethod
    def by(cls, answer: Plan) -> Told:
        """Return the answers of ``answer``."""
        return cls(
            {i: answer.actives(i) for i in answer.member_ids},
            {i: answer.standbys(i) for i in answer.member_ids},
        )

    warm: dict[str, dict[str, list[int]]] = field(default_factory=dict)

    def warmups(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return the member's warm-ups."""
        return self.warm.get(member_id, {})

    def actives(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return the member's actives."""
        return self.active[member_id]

    def standbys(self, member_id: str) -> Mapping[str, Sequence[int]]:
        """Return the member's standbys."""
        return self.standby[member_id]


def told(members: list[Member] = MEMBERS) -> Told:
    """Return a valid answer, to be broken by a test."""
    return Told.by(plan(members, PARTITIONS, replicas=1, changelogs=CHANGELOGS))


def promises(answer: Told, members: list[Member] = MEMBERS) -> set[str]:
    """Return the broken promises."""
    found = check(members, PARTITIONS, answer, replicas=1, changelogs=CHANGELOGS)
    assert all(str(v).startswith(v.promise) for v in found)
    return {v.promise for v in found}


def move(answer: Told, topics: Sequence[str], partition: int, giver: str, taker: str) -> None:
    """Move a task to another member by name."""
    for topic in topics:
        answer.active[giver][topic].remove(partition)
        answer.active[taker].setdefault(topic, []).append(partition)


def test_a_sound_answer_breaks_nothing() -> None:
    """The other cases start from this answer."""
    assert promises(told()) == set()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda a: a.active["a"]["t"].pop(),  # without an owner
        lambda a: a.active["b"]["t"].append(a.active["a"]["t"][0]),  # two owners
        lambda a: a.active["a"]["t"].append(99),  # a missing partition
        lambda a: a.active["a"].__setitem__("ghost", [0]),  # without a subscriber
    ],
)
def test_a1_every_partition_once_and_nothing_else(spoil: object) -> None:
    """A partition is missing, repeated, out of range or unknown."""
    answer = told()
    spoil(answer)  # type: ignore[operator]
    assert "A1" in promises(answer)


def test_a1_a_partition_below_zero_does_not_exist() -> None:
    """As an index, -1 means the last partition, which would then look owned."""
    answer = told()
    last = PARTITIONS["t"] - 1
    owner = next(m for m, topics in answer.active.items() if last in topics.get("t", ()))
    answer.active[owner]["t"].remove(last)
    answer.active[owner]["t"].append(-1)
    assert "A1" in promises(answer)


def test_what_is_carried_is_what_the_plan_gave() -> None:
    """The members get actives, standbys and the next generation; older claims are gone."""
    before = [replace(m, standbys={"s-log": [0, 1]}, generation=4) for m in MEMBERS]
    answer = told()
    for member in carried(before, answer):
        assert member.actives == answer.actives(member.member_id)
        assert member.standbys == answer.standbys(member.member_id)
        assert member.generation == 5


def test_a2_topics_of_a_task_share_an_owner() -> None:
    """Only the changelog moves."""
    answer = told()
    move(answer, ["s-log"], 0, "a", "b")
    assert "A2" in promises(answer)


def test_a2_a_changelog_stays_with_its_source_in_a_deploy() -> None:
    """The follower is on a subscriber other than its source's owner."""
    members = [Member("a", ["s"]), Member("b", ["s", "s-log"]), Member("c", ["s", "s-log"])]
    answer = Told.by(plan(members, PARTITIONS, replicas=1, changelogs=CHANGELOGS))
    mine = answer.active["b"]["s"][0]
    move(answer, ["s-log"], mine, "b", "c")
    assert "A2" in promises(answer, members)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda a: a.standby["a"]["s-log"].pop(),  # too few
        lambda a: a.standby["a"]["s-log"].append(a.active["a"]["s"][0]),  # beside its active
        lambda a: a.standby["a"].__setitem__("t", [0]),  # no state to copy
    ],
)
def test_a3_standbys_are_as_many_as_asked_and_elsewhere(spoil: object) -> None:
    """There are too few standbys, or one is beside its active or without state."""
    answer = told()
    spoil(answer)  # type: ignore[operator]
    assert "A3" in promises(answer)


def test_a3_standbys_leave_the_rack() -> None:
    """A standby is in its active's rack while another rack has members."""
    members = [
        Member(m, ["s", "s-log", "t"], rack_id=r) for m, r in (("a", "x"), ("b", "x"), ("c", "y"))
    ]
    answer = told(members)
    p = answer.active["a"]["s"][0]
    for m in "bc":
        if p in answer.standby[m].get("s-log", []):
            answer.standby[m]["s-log"].remove(p)
    answer.standby["b"].setdefault("s-log", []).append(p)
    assert "A3" in promises(answer, members)


def test_a4_loads_are_even() -> None:
    """A member gives away a task without a reason."""
    answer = told()
    move(answer, ["t"], answer.active["c"]["t"][0], "c", "a")
    assert "A4" in promises(answer)


def test_a4_standbys_are_even() -> None:
    """All standbys of a member's tasks are on the same peer."""
    answer = told()
    everything = {"a": "b", "b": "c", "c": "b"}
    answer.standby = {m: {"s-log": []} for m in "abc"}
    for owner, peer in everything.items():
        answer.standby[peer]["s-log"] += answer.active[owner]["s"]
    assert "A4" in promises(answer)


def test_a4_standbys_that_nobody_can_pass_on_are_as_even_as_can_be() -> None:
    """A member owns every task, so it can have no standby."""
    answer = told()
    everything = {topic: list(range(count)) for topic, count in PARTITIONS.items()}
    answer.active = {"a": everything, "b": {}, "c": {}}
    answer.standby = {"a": {}, "b": {"s-log": [0, 1, 2]}, "c": {"s-log": [3, 4, 5]}}

    def uneven() -> bool:
        found = check(MEMBERS, PARTITIONS, answer, replicas=1, changelogs=CHANGELOGS)
        return any(v.promise == "A4" and "standbys range from" in str(v) for v in found)

    assert not uneven()
    answer.standby = {"a": {}, "b": {"s-log": [0, 1, 2, 3]}, "c": {"s-log": [4, 5]}}
    assert uneven()


def test_a_warm_up_is_counted_apart_from_standbys() -> None:
    """The plan must name the warm-up; an unplanned warm-up is reported too."""
    answer = told()
    task = answer.active["a"]["s"][0]
    (spare,) = (m for m in "bc" if task not in answer.standby[m]["s-log"])
    answer.standby[spare]["s-log"].append(task)

    def complaints() -> list[str]:
        found = check(MEMBERS, PARTITIONS, answer, replicas=1, changelogs=CHANGELOGS)
        return [str(v) for v in found if v.promise == "A3"]

    assert any("has 2 standbys instead of 1" in line for line in complaints())
    answer.warm = {spare: {"s-log": [task]}}
    (line,) = complaints()
    assert "1 warm-ups without a warm-up policy" in line


def test_what_is_left_to_do_is_counted_in_tasks_and_copies() -> None:
    """The counts are the tasks off target, and those without a copy on the target."""
    rows = SimpleNamespace(
        target=[np.array([0, 1, 2])],
        owner=[np.array([0, 0, 0])],
        standby=[np.array([[1, 2], [1, 2], [1, 1]])],
    )
    assert _count_off_target(rows) == (2, 1)  # type: ignore[arg-type]


def test_a5_no_move_without_need() -> None:
    """Two members swap a task."""
    first = plan(MEMBERS, PARTITIONS, replicas=1, changelogs=CHANGELOGS)
    members = [
        Member(i, ["s", "s-log", "t"], actives=first.actives(i), standbys=first.standbys(i))
        for i in first.member_ids
    ]
    answer = told(members)
    a, b = answer.active["a"]["s"][0], answer.active["b"]["s"][0]
    move(answer, ["s", "s-log"], a, "a", "b")
    move(answer, ["s", "s-log"], b, "b", "a")
    assert "A5" in promises(answer, members)


def test_a5_an_orphan_goes_where_its_state_is() -> None:
    """A member with the state lives, but another member got the task."""
    members = [MEMBERS[0], MEMBERS[1], Member("c", ["s", "s-log", "t"], standbys={"s-log": [0]})]
    answer = told(members)
    move(answer, ["s", "s-log"], 0, "c", "a")
    assert "A5" in promises(answer, members)


def test_a6_and_a8_are_checked_with_a_planner() -> None:
    """The planner here forgets owners and depends on the order of members."""
    answer = plan(MEMBERS, PARTITIONS)

    def restless(members: Sequence[Member]) -> Plan:
        restless.turn = 1 - getattr(restless, "turn", 0)  # type: ignore[attr-defined]
        names = [m.member_id for m in members]
        swapped = (
            dict(zip(names, names[::-1], strict=True)) if restless.turn else {n: n for n in names}
        )  # type: ignore[attr-defined]
        told_to = {n: answer.actives(swapped[n]) for n in names}
        return Told(told_to, {n: {} for n in names})  # type: ignore[return-value]

    found = {v.promise for v in check(MEMBERS, PARTITIONS, answer, planner=restless)}
    assert found == {"A6", "A8"}
    names = [m.member_id for m in MEMBERS]
    uneven = Told({n: {} for n in names}, {n: {} for n in names})
    found = {v.promise for v in check(MEMBERS, PARTITIONS, uneven, planner=restless)}  # type: ignore[arg-type]
    assert {"A6", "A8"} < found


def test_the_certificate_finds_a_chain_of_three() -> None:
    """A single transfer does not help; the chain m0 -> m1 -> m2 over two groups does."""
    allowed = np.array([[True, True, False], [False, True, True]])
    counts = np.array([[2, 1, 0], [0, 0, 0]])
    zero = np.zeros_like(counts)
    assert improving_cycle(counts, allowed, zero, np.ones(3)) is None
    counts = np.array([[3, 0, 0], [0, 2, 1]])
    assert improving_cycle(counts, allowed, zero, np.ones(3)) == "total balance"


def test_a_changelog_is_led_by_a_unit_that_is_equally_wide() -> None:
    """The source and its changelog have two members each; one member reads both."""
    members = [Member("a", ["s"]), Member("b", ["s", "log"]), Member("c", ["log"])]
    found = units_of(members, {"s": 2, "log": 2}, frozenset({"log"}), frozenset())
    assert [(unit.topics, unit.leader) for unit in found] == [(("log",), 1), (("s",), None)]


def test_an_owner_has_all_changelogs_whatever_it_claims_as_standby() -> None:
    """A standby claim on one of two changelogs does not reduce the owner's copies."""
    topics = ["s", "log1", "log2"]
    member = Member("a", topics, actives={"s": [0]}, standbys={"log1": [0]})
    partitions, logs = dict.fromkeys(topics, 1), frozenset(topics[1:])
    (unit,) = units_of([member], partitions, logs, frozenset())
    assert copies_of(unit, [member]) == [{0: 2}]


def test_a_newer_member_without_a_claim_on_a_number_takes_no_owner_away() -> None:
    """Only the claims on the number itself are compared by their generations."""
    members = [
        Member("a", ["t"], actives={"t": [0, 1]}, generation=1),
        Member("b", ["t"], actives={"t": [1]}, generation=2),
        Member("c", ["t"], generation=9),
    ]
    (unit,) = units_of(members, {"t": 3}, frozenset(), frozenset())
    assert accepted_owners(unit, members, "actives") == [0, 1, NOBODY]


def test_of_one_generation_a_contested_topic_has_no_vote() -> None:
    """The other topics of the number decide, sources before changelogs."""
    topics = ["log", "s", "t"]
    members = [
        Member("a", topics, actives={"s": [0, 1], "log": [1, 2]}, generation=3),
        Member("b", topics, actives={"s": [0], "t": [0, 1], "log": [2]}, generation=3),
    ]
    (unit,) = units_of(members, dict.fromkeys(topics, 3), frozenset({"log"}), frozenset())
    assert accepted_owners(unit, members, "actives") == [1, 0, NOBODY]


@pytest.mark.parametrize(
    ("counts", "had", "term"),
    [
        ([[1, 0], [1, 0]], [[0, 0], [0, 0]], "total balance"),  # the last task of a group moves
        ([[1, 1], [0, 0]], [[1, 1], [0, 0]], None),
        ([[2, 0], [0, 2]], [[0, 0], [0, 0]], "group balance"),
        ([[1, 0], [0, 1]], [[0, 1], [1, 0]], "stickiness"),
        ([[1, 0], [0, 1]], [[1, 0], [0, 0]], None),
    ],
)
def test_the_certificate_names_the_first_term_that_could_be_better(
    counts: list[list[int]], had: list[list[int]], term: str | None
) -> None:
    """Two members share two groups."""
    allowed = np.ones((2, 2), dtype=np.bool_)
    rate = np.ones(2, dtype=np.int64)
    assert improving_cycle(np.array(counts), allowed, np.array(had), rate) == term
