"""The public API of plan() and Plan."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from faust_assigner import Member, plan
from faust_assigner.errors import FaustAssignerError, PlanInputError
from faust_assigner.model import NOBODY
from faust_assigner.views.placed import RULES
from faust_assigner.warmup import WarmupPolicy


def test_importing_the_package_imports_neither_faust_nor_spark() -> None:
    """The planner runs without the packages of the extras."""
    code = (
        "import sys, faust_assigner\n"
        "from faust_assigner import Member, plan\n"
        "plan([Member('a', ['t'])], {'t': 1}, changelogs=['t'], replicas=1).report()\n"
        "bad = {'faust', 'mode', 'aiokafka', 'pyspark', 'rocksdict', 'ortools'} & set(sys.modules)\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_plan_prints_in_one_line() -> None:
    """A log or a debugger shows no arrays."""
    assert repr(plan([Member("a", ["t"])], {"t": 3})) == "<Plan: 3 tasks on 1 members, 0 moves>"


def test_a_fresh_plan_gives_whole_runs() -> None:
    """Each member has contiguous partitions, whose text is short."""
    answer = plan([Member("a", ["t"]), Member("b", ["t"]), Member("c", ["t"])], {"t": 8})
    assert [answer.actives(m)["t"] for m in "abc"] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_names_come_sorted_and_empty_topics_are_left_out() -> None:
    """A topic without partitions for the member is absent from the answer."""
    answer = plan([Member("a", ["z", "b"]), Member("c", ["z", "b"])], {"z": 3, "b": 1})
    assert list(answer.actives("a")) == ["b", "z"]
    assert "b" not in answer.actives("c")
    assert plan([Member("idle", [])], {"t": 3}).actives("idle") == {}


def test_lists_are_plain_and_fresh() -> None:
    """The numbers are Python ints, and changing an answer does not change the next answer."""
    answer = plan([Member("a", ["t", "u"])], {"t": 2, "u": 2})
    first = answer.actives("a")
    assert all(type(p) is int for p in first["t"])
    first["t"].append(99)
    assert answer.actives("a")["t"] == answer.actives("a")["u"] == [0, 1]


def test_standbys_are_given_for_changelogs_alone() -> None:
    """The source of a table needs no copy."""
    answer = plan(
        [Member(m, ["s", "s-log"]) for m in "ab"],
        {"s": 2, "s-log": 2},
        replicas=1,
        changelogs=["s-log"],
    )
    assert answer.standbys("a") == {"s-log": answer.actives("b")["s-log"]}


def test_replicas_without_changelogs_give_no_standbys() -> None:
    """Tasks without changelogs have no state to copy."""
    assert plan([Member(m, ["s"]) for m in "ab"], {"s": 2}, replicas=1).standbys("a") == {}


def test_a_member_the_plan_does_not_know_is_a_key_error() -> None:
    """The error has the member's name."""
    with pytest.raises(KeyError, match="nobody"):
        plan([Member("a", ["t"])], {"t": 1}).actives("nobody")


def test_no_members_no_topics_no_partitions_are_fine() -> None:
    """The empty cases are plans too."""
    assert plan([], {"t": 3}).moves == 0
    assert plan([Member("a", ["t"])], {}).actives("a") == {}
    assert plan([Member("a", ["t"])], {"t": 0}).actives("a") == {}
    assert str(plan([], {}).report())


@pytest.mark.parametrize(
    ("members", "partitions", "settings", "culprit"),
    [
        ([Member("a", ["t"]), Member("a", ["t"])], {"t": 1}, {}, "'a'"),
        ([Member("a", "topic")], {"t": 1}, {}, "'topic'"),
        ([Member(7, ["t"])], {"t": 1}, {}, "7"),  # type: ignore[arg-type]
        ([Member("a", ["t"])], {"t": -1}, {}, "-1"),
        ([Member("a", ["t"])], {"t": 1.5}, {}, "1.5"),
        ([Member("a", ["t"])], {"t": 1}, {"replicas": -1}, "-1"),
        ([Member("a", ["t"])], {"t": 1}, {"replicas": "1"}, "'1'"),
        ([Member("a", None)], {"t": 1}, {}, "None"),  # type: ignore[arg-type]
        ([Member("a", ["t"])], {"t": 1}, {"changelogs": "t"}, "'t'"),
        ([Member("a", b"topic")], {"t": 1}, {}, "b'topic'"),  # type: ignore[arg-type]
        ([Member("a", ["t"], capacity="1")], {"t": 1}, {}, "'1'"),  # type: ignore[arg-type]
        ([Member("a", ["t"], capacity=0)], {"t": 1}, {}, "0"),
        ([Member("a", ["t"], capacity=-2.0)], {"t": 1}, {}, "-2"),
        ([Member("a", ["t"], capacity=math.nan)], {"t": 1}, {}, "nan"),
        ([Member("a", ["t"], capacity=math.inf)], {"t": 1}, {}, "inf"),
    ],
)
def test_the_callers_contradictions_are_named(
    members: list[Member], partitions: dict[str, Any], settings: dict[str, Any], culprit: str
) -> None:
    """The error names the value and is both a FaustAssignerError and a ValueError."""
    with pytest.raises(PlanInputError, match=culprit) as caught:
        plan(members, partitions, **settings)
    assert isinstance(caught.value, FaustAssignerError)
    assert isinstance(caught.value, ValueError)


def test_numbers_of_numpy_are_numbers() -> None:
    """Counts, replicas and capacities may be numpy numbers; names and ids stay plain."""
    answer = plan(
        [Member("a", ["t"], capacity=np.float32(1)), Member("b", ["t"], capacity=np.int64(1))],
        {"t": np.int64(4)},
        replicas=np.int64(1),
        changelogs=["t"],
    )  # type: ignore[dict-item]
    assert answer.actives("a") == {"t": [0, 1]}
    assert all(type(g.group_id) is int for g in answer.groups)
    assert {topic: type(count) for topic, count in answer.partitions.items()} == {"t": int}


def test_the_target_of_a_task_without_load_is_its_owner() -> None:
    """Member c reads the source only; the changelog of its partition and a weightless topic follow."""
    both = ["s", "s-log", "idle"]
    made = plan(
        [Member("a", both), Member("b", both), Member("c", ["s"])],
        {"s": 3, "s-log": 3, "idle": 2},
        changelogs=["s-log"],
        weightless=["idle"],
    )
    assert made.flat_target.tolist() == made.flat_owner.tolist()
    assert NOBODY not in made.flat_target


def test_more_replicas_than_members_are_as_many_as_there_are() -> None:
    """A much too high setting uses no memory."""
    answer = plan([Member(m, ["t"]) for m in "abc"], {"t": 3}, replicas=10**9, changelogs=["t"])
    assert all(len(answer.standbys(m)["t"]) == 2 for m in "abc")


def test_capacities_weigh_loads() -> None:
    """A member with three threads carries three times the load of a member with a single thread."""
    answer = plan([Member("big", ["t"], capacity=3), Member("small", ["t"])], {"t": 8})
    assert len(answer.actives("big")["t"]) == 6


def test_fractions_of_a_capacity_count_too() -> None:
    """The capacity 0.1 is an exact tenth, not the nearest float."""
    answer = plan([Member("a", ["t"], capacity=0.1), Member("b", ["t"], capacity=0.3)], {"t": 40})
    assert [len(answer.actives(m)["t"]) for m in "ab"] == [10, 30]


def test_arrays_tell_the_same_as_names() -> None:
    """The arrays are owner, standby, previous_owner, target and rule by group, over member_ids."""
    members = [
        Member("a", ["s", "s-log"], actives={"s": [0, 1, 2, 3]}),
        Member("b", ["s", "s-log"], standbys={"s-log": [2, 3]}),
    ]
    answer = plan(members, {"s": 4, "s-log": 4}, replicas=1, changelogs=["s-log"])
    (owner,), (standby,), (before,) = answer.owner, answer.standby, answer.previous_owner
    for m, name in enumerate(answer.member_ids):
        assert answer.actives(name).get("s", []) == np.flatnonzero(owner == m).tolist()
        assert (
            answer.standbys(name).get("s-log", [])
            == np.flatnonzero((standby == m).any(axis=1)).tolist()
        )
    assert before.tolist() == [0, 0, 0, 0]
    assert [RULES[r] for r in answer.rule[0]] == ["kept", "kept", "moved warm", "moved warm"]
    assert answer.cold[0].tolist() == [False] * 4
    assert answer.standby_hit[0].tolist() == [False, False, True, True]
    assert answer.moves == 2


def test_what_moves_is_what_is_warm_elsewhere() -> None:
    """Among the movable tasks, those with a copy on the receiver move."""
    members = [
        Member("a", ["s"], actives={"s": range(6)}),
        Member("b", ["s"], standbys={"s": [0, 4, 5]}),
    ]
    assert plan(members, {"s": 6}, changelogs=["s"]).actives("b") == {"s": [0, 4, 5]}


def test_previous_ids_are_carried_over() -> None:
    """The remembered group ids are returned unchanged."""
    answer = plan([Member("a", ["t"])], {"t": 4}, previous_ids={"t": 77})
    assert [g.group_id for g in answer.groups] == [77]


def test_explain_names_the_rule_and_what_it_beat() -> None:
    """The explanation of a placement has prose and fields."""
    members = [Member("a", ["t"], actives={"t": [0, 1, 2]}), Member("b", ["t"])]
    answer = plan(members, {"t": 3})
    kept, moved = answer.explain("t", 0), answer.explain("t", 2)
    assert (kept.rule, kept.member_id, kept.beaten[0].term) == ("kept", "a", "stickiness")
    assert (moved.rule, moved.member_id, moved.previous) == ("moved", "b", "a")
    assert (moved.beaten[0].member_id, moved.beaten[0].term) == ("a", "total balance")
    assert "t-2 on b" in str(moved)


def test_explain_tells_a_promotion_from_a_placement() -> None:
    """The orphaned task moves to its standby; the other members have less of the state."""
    members = [Member(m, ["s"]) for m in "abc"]
    members[1] = Member("b", ["s"], standbys={"s": [0]})
    found = plan(members, {"s": 3}, changelogs=["s"]).explain("s", 0)
    assert (found.rule, found.member_id) == ("promoted", "b")
    assert {place.term for place in found.beaten} == {"less of the state"}


def test_explain_refuses_what_does_not_exist() -> None:
    """An unknown topic or partition is the caller's mistake."""
    answer = plan([Member("a", ["t"])], {"t": 3})
    with pytest.raises(KeyError, match="nosuch"):
        answer.explain("nosuch", 0)
    with pytest.raises(IndexError, match=r"0\.\.2"):
        answer.explain("t", 3)


def test_the_report_counts_what_a_person_compares() -> None:
    """The report has loads, spread, moves and their minimum, cold moves, standbys and deaths."""
    members = [
        Member("a", ["s", "t"], actives={"s": [0, 1, 2, 3], "t": [0, 1]}),
        Member("b", ["s", "t"]),
        Member("c", ["s", "t"]),
    ]
    report = plan(members, {"s": 4, "t": 2}, replicas=1, changelogs=["s"]).report()
    assert (report["load_min"], report["load_max"], report["group_spread"]) == (2, 2, 1)
    assert report["moves"] == report["moves_minimum"] == 4
    assert report["cold_moves"] == 2
    assert report["standby_spread"] <= 1
    assert report["worst_after_member_death"] <= report["ideal_after_member_death"]
    assert report["worst_after_rack_death"] is None
    assert "load_max" in str(report)


def test_the_spread_of_groups_is_that_of_the_worst_one() -> None:
    """The second group is the worst here: the first has a partition for each member."""
    made = plan([Member("x", ["a", "b"]), Member("y", ["a", "b"])], {"a": 2, "b": 3})
    rows = made.report()["groups"]
    assert [row["max"] - row["min"] for row in rows] == [0, 1]
    assert made.report()["group_spread"] == 1


@pytest.mark.parametrize(
    ("told", "disbelieved"), [({}, {}), ({"log": {0: 5}}, {"log": 1})], ids=["no end", "an end"]
)
def test_a_position_is_disbelieved_only_beside_an_end_that_was_told(
    told: dict[str, dict[int, int]], disbelieved: dict[str, int]
) -> None:
    """A new owner does not know the end offset yet, although its copies may be far advanced."""
    topics = {"t": 1, "log": 1}
    owner = Member("a", list(topics), actives={"t": [0], "log": [0]}, generation=3, positions=told)
    copy = Member(
        "b", list(topics), standbys={"log": [0]}, generation=3, positions={"log": {0: 900_000}}
    )
    made = plan([owner, copy], topics, changelogs=("log",), replicas=1, warmups=WarmupPolicy())
    assert made.warmup_plan is not None
    assert made.warmup_plan.disbelieved == disbelieved


def test_who_belongs_and_is_too_far_behind_is_named_once() -> None:
    """Otherwise the target would also appear as a rejected member at no cost."""
    topics = {"t": 6, "log": 6}
    everything = {topic: list(range(6)) for topic in topics}
    ends = {"log": dict.fromkeys(range(6), 900_000)}
    owner = Member("a", list(topics), actives=everything, generation=3, positions=ends)
    copies = {"log": list(range(6))}
    behind = {"log": dict.fromkeys(range(6), 0)}
    copy = Member("b", list(topics), standbys=copies, generation=3, positions=behind)
    members = [owner, copy, Member("c", list(topics), generation=3)]
    made = plan(members, topics, changelogs=("log",), replicas=1, warmups=WarmupPolicy())
    found = made.explain("t", 0)
    assert (found.member_id, found.rule) == ("a", "waits")
    assert [(place.member_id, place.term) for place in found.beaten] == [
        ("b", "being too far behind"),
        ("c", "total balance"),
    ]


def test_an_empty_rack_id_is_a_rack() -> None:
    """The standby of a task in rack "" goes to another rack."""
    racks = {"a": "", "b": "", "c": "far"}
    members = [Member(m, ["t"], rack_id=rack) for m, rack in racks.items()]
    answer = plan(members, {"t": 6}, replicas=1, changelogs=["t"])
    here = {m: set(answer.actives(m)["t"]) for m in "ab"}
    assert not any(
        set(answer.standbys(one).get("t", [])) & here[other] for one, other in ("ab", "ba")
    )


def both(*numbers: int) -> dict[str, list[int]]:
    """Return these partitions of two changelogs."""
    return {"log1": list(numbers), "log2": list(numbers)}


def test_every_member_gets_its_tasks_copies_and_warm_ups_by_name() -> None:
    """Member a owned all tasks; member b is near in two copies; the third member has no state."""
    topics = {"t": 6, "log2": 6, "log1": 6, "s": 3, "u": 2, "u-log": 2}
    logs = ("log1", "log2", "u-log")
    ends = {log: dict.fromkeys(range(6), 900_000) for log in logs}
    everything = {topic: list(range(count)) for topic, count in topics.items()}
    copies = {log: {0: 899_990, 1: 5, 2: 899_998} for log in logs[:2]}
    members = [
        Member("a", list(topics), actives=everything, generation=3, positions=ends),
        Member(
            "b",
            list(topics),
            standbys={log: list(numbers) for log, numbers in copies.items()},
            generation=3,
            positions=copies,
        ),
        Member("c", list(topics), generation=3, positions={}),
    ]
    made = plan(
        members, topics, changelogs=logs, replicas=1, warmups=WarmupPolicy(max_per_member=2)
    )
    found = [
        (made.actives(m), made.standbys(m), made.warmups(m), made.awaited(m))
        for m in made.member_ids
    ]
    assert found == [
        (
            {"t": [1, 3, 4, 5], **both(1, 3, 4, 5), "s": [0], "u": [0, 1], "u-log": [0, 1]},
            both(0, 2),
            {},
            {},
        ),
        (
            {"t": [0, 2], **both(0, 2), "s": [1]},
            {**both(1, 4), "u-log": [0, 1]},
            {"u-log": [1]},
            {"u-log": [1]},
        ),
        ({"s": [2]}, {**both(3, 4, 5), "u-log": [1]}, both(4), both(4, 5)),
    ]
    assert [list(names) for names, *_ in found] == [
        ["log1", "log2", "s", "t", "u", "u-log"],
        ["log1", "log2", "s", "t"],
        ["s"],
    ]
    report = made.report()
    lines = [" ".join(line.split()) for line in str(report).splitlines()]
    assert lines[:4] == [
        "members 3 members",
        "idle_members 0 subscribed members without a task",
        "tasks 11 tasks, followers' tasks excluded",
        "load_min 1 fewest active tasks on a subscribed member",
    ]
    assert lines[-3:] == ["group 2 0..2 u, u-log", "group 3 1..1 s", "group 6 0..4 t, log1, log2"]
    figures = [report[name] for name in ("moves", "moves_minimum", "off_target", "waiting")]
    assert (figures, report["warmups"], report["standby_fresh"]) == ([4, 7, 3, 3], 2, 5)
