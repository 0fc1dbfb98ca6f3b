"""Plans, answers and steps of a round by member and topic, and the columns of the directory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from faust_assigner import Member, plan
from faust_assigner.app.rebalance import next_round
from faust_assigner.app.rebalance.member import Memory, read_answer
from faust_assigner.app.rebalance.placement import Placement, directory_of, placement_of_plan
from faust_assigner.app.rebalance.two_phase import step
from faust_assigner.model import NOBODY
from faust_assigner.wire.join import STOCK
from tests.unit.app.rebalance.test_whole_claims import PLACED, same
from tests.unit.app.rebalance.test_whole_claims import member as claiming

COUNTS = {"orders": 4, "log": 4, "clicks": 3, "rates": 2}


def test_a_plan_becomes_a_placement_by_member_and_topic() -> None:
    """Sources have no standbys, a member without partitions is included, and groups keep ids."""
    owned = {"b": [0, 3], "a": [1, 2]}
    spare = {"b": [1], "a": [0, 3], "c": [2]}
    members = [
        Member(
            name,
            ["orders", "log", *(["clicks"] if name == "a" else ["rates"])],
            actives={"orders": owned.get(name, []), "log": owned.get(name, [])},
            standbys={"log": spare[name]},
            generation=3,
        )
        for name in "bac"
    ]
    made = plan(
        members,
        COUNTS,
        replicas=1,
        changelogs={"log", "rates"},
        previous_ids={"orders": 7, "log": 7, "rates": 4, "clicks": 9},
    )
    found = placement_of_plan(made)
    assert found.member_ids == made.member_ids == ("a", "b", "c")
    assert found.actives == {m: made.actives(m) for m in "abc"}
    assert found.standbys == {m: made.standbys(m) for m in "abc"}
    assert list(found.actives) == list(found.standbys) == ["a", "b", "c"]
    assert {t for topics in found.standbys.values() for t in topics} == {"log", "rates"}
    assert found.actives["a"]["clicks"] == [0, 1, 2]
    for topics in found.actives.values():
        assert topics.get("orders") is topics.get("log"), "topics of a group share their lists"
    assert found.group_ids == {"orders": 7, "log": 7, "rates": 4, "clicks": 9}
    assert found.owners.keys() == COUNTS.keys()
    for topic, owner in found.owners.items():
        assert owner.size == COUNTS[topic]
        for partition, m in enumerate(owner.tolist()):
            assert partition in found.actives[found.member_ids[m]][topic]
    assert found.owners["orders"] is found.owners["log"]


def test_copies_fill_the_first_free_column_of_their_partition() -> None:
    """Each column names at most one copy of a partition, and none is longer than needed."""
    standbys = {
        "a": {"log": [0, 1], "rates": [1]},
        "b": {"log": [0]},
        "c": {"log": [1, 3], "rates": [0]},
        "d": {"log": [0, 1, 3]},
        "e": {},
    }
    owner = np.array([4, 4, NOBODY, 4])
    placement = Placement(
        tuple("abcde"),
        {m: {} for m in "abcde"},
        standbys,
        {"log": owner, "rates": np.array([4, 4])},
        {"log": 0, "rates": 1},
    )
    urls = {m: f"http://{m}" for m in "abcde"}
    logs = frozenset({"log", "rates"})
    found = directory_of(placement, urls, {}, logs, {"rates", "gone"}, with_standbys=True)
    assert found.urls == ("http://e", "http://a", "http://b", "http://c", "http://d")
    assert {t: [c.tolist() for c in columns] for t, columns in found.standbys.items()} == {
        "log": [[1, 1, NOBODY, 3], [2, 3, NOBODY, 4], [4, 4, NOBODY, NOBODY]],
        "rates": [[3, 1]],
    }
    assert (found.changelogs, found.globals_) == (logs, {"rates"})
    assert {t: owner.tolist() for t, owner in found.owners.items()} == {
        "log": [0, 0, NOBODY, 0],
        "rates": [0, 0],
    }


def test_with_a_stock_member_an_owner_has_no_copy_of_any_partition_that_it_keeps() -> None:
    """Several blocked partitions stay with it; copies of other partitions stay too."""
    found = step(
        PLACED,
        [
            claiming("a", actives=same(("orders", "log"), 0, 1, 3, 4), generation=7, holds=True),
            claiming("b", generation=7),
            claiming("c", version=STOCK, generation=7),
        ],
    )
    assert (found.follows, found.promised) == (True, {})
    assert found.placement.actives == {
        "a": {"log": [0, 1, 3, 4], "orders": [0, 1, 3, 4]},
        "b": {"log": [2], "orders": [2], "bills": [0]},
        "c": {"log": [], "orders": [], "bills": [1]},
    }
    assert found.placement.standbys == {"a": {"log": []}, "b": {"log": [0]}, "c": {"log": [3]}}
    assert PLACED.standbys["a"] == {"log": [1, 4]}, "the plan stays as it is"


def test_tasks_of_several_groups_are_named_by_their_own_member() -> None:
    """Each changelog of a task is named; a group without a changelog is left out."""
    counts = {"orders": 3, "log": 3, "sums": 3, "clicks": 2, "rates": 4}
    members = [Member(name, list(counts)) for name in "abc"]
    made = plan(members, counts, replicas=1, changelogs={"log", "sums", "rates"})
    who = np.arange(made.layout.tasks) % 3
    tasks = np.ones(made.layout.tasks, dtype=np.bool_)
    expected: dict[str, dict[str, list[int]]] = {}
    for group, start in zip(made.groups, made.layout.start, strict=False):
        for number in range(group.partitions):
            for topic in group.changelogs:
                of = expected.setdefault("abc"[(int(start) + number) % 3], {})
                of.setdefault(topic, []).append(number)
    assert {t for topics in expected.values() for t in topics} == {"log", "sums", "rates"}
    assert next_round._tasks_by_member(made, who, tasks) == expected
    tasks[:] = False
    assert next_round._tasks_by_member(made, who, tasks) == {}


def test_an_assignment_may_name_a_topic_in_several_parts() -> None:
    """Without a readable answer all of its partitions are active, in the generation after the last."""
    assignment: Any = SimpleNamespace(
        assignment=[("orders", [3, 0]), ("log", [1]), ("orders", [5])], user_data=b"noise"
    )
    before = Memory(generation=6, group_ids={"gone": 2})
    answer, memory, error = read_answer(assignment, kafkas=-1, before=before)
    assert error is not None
    claims = {"orders": [0, 3, 5], "log": [1]}
    assert {t: sorted(numbers) for t, numbers in answer.actives.items()} == claims
    assert {t: sorted(numbers) for t, numbers in memory.actives.items()} == claims
    assert (memory.standbys, memory.generation, memory.group_ids) == ({}, 7, {"gone": 2})
    assignment.assignment = None
    answer, memory, error = read_answer(assignment, kafkas=9, before=memory)
    assert (answer.actives, memory.actives, memory.generation) == ({}, {}, 9)
