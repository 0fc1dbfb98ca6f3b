"""The rule, warmth and figures of hand-made placements, with a case for each rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from faust_assigner import Member, plan
from faust_assigner.assignment import Plan
from faust_assigner.model import NOBODY, Bools, Group, Ints, Layout, Previous, WarmupPlan
from faust_assigner.views.explanation import Explanation, Rejected, explain
from faust_assigner.views.placed import RULES, Placed
from faust_assigner.views.report import report

A, B, C = 0, 1, 2
N = NOBODY
#: Numbers of the table's group, each with the rule of its case.
CASES = (
    "kept",
    "placed",
    "placed warm",
    "moved",
    "moved warm",
    "promoted",
    "returned",
    "waits",
    "placed",
)


def ints(*values: int) -> Ints:
    """Return an array of integers."""
    return np.array(values, dtype=np.int64)


def flags(size: int, *marked: int) -> Bools:
    """Return an array with these places set."""
    found = np.zeros(size, dtype=np.bool_)
    found[list(marked)] = True
    return found


GROUPS = (
    Group(
        group_id=9, topics=("t", "log"), partitions=9, members=ints(A, B, C), changelogs=("log",)
    ),
    Group(group_id=2, topics=("s",), partitions=2, members=ints(A, B, C)),
    Group(
        group_id=7, topics=("f",), partitions=9, members=ints(A, B), changelogs=("f",), follows=0
    ),
)
#: The tasks 0 to 8 are the cases, 9 and 10 are stateless, 11 to 19 follow the tasks 0 to 8.
OWNER = ints(A, B, B, B, B, C, B, A, A, *(B, A), *(A, B, B, B, B, A, B, A, A))
BEFORE = ints(A, N, N, A, A, N, N, A, N, *(A, N), *(A, N, N, A, B, N, N, A, N))
COPIES = ((2, B), (4, B), (5, C), (8, C))


def placed(**more: Any) -> Placed:
    """Return the plan of all cases."""
    layout = Layout(
        member_ids=("a", "b", "c"),
        groups=GROUPS,
        start=ints(0, 9, 11, 20),
        capacity=np.ones(3),
        rack=np.full(3, N),
    )
    nobody = np.full(20, N, dtype=np.int64)
    former = nobody.copy()
    former[[2, 6]] = A, B
    previous = Previous(
        owner=BEFORE,
        former=former,
        home=nobody,
        awaited=nobody,
        copy_task=ints(*(task for task, _ in COPIES)),
        copy_member=ints(*(member for _, member in COPIES)),
        copy_logs=np.ones(len(COPIES), dtype=np.int64),
        copy_was_standby=flags(len(COPIES)),
    )
    target = OWNER.copy()
    target[[5, 7]] = A, B
    base: dict[str, Any] = {
        "layout": layout,
        "previous": previous,
        "flat_target": target,
        "flat_owner": OWNER,
        "flat_standby": np.full((20, 1), N),
        "flat_counted_target": OWNER,
        "promoted": flags(20, 5),
        "partitions": {"t": 9, "log": 9, "s": 2, "f": 9},
        "waiting": flags(20, 7),
    }
    return Placed(**base | more)


def test_each_rule_has_its_case() -> None:
    """A follower on its source's owner follows; on its own previous owner it is kept."""
    found = [[RULES[rule] for rule in rules.tolist()] for rules in placed().rule]
    assert found[0] == list(CASES)
    assert found[1] == ["moved", "placed"]
    follows = "follows"
    assert found[2] == [
        "kept",
        follows,
        follows,
        follows,
        "kept",
        "placed",
        follows,
        "kept",
        follows,
    ]
    assert set(RULES) == {rule for rules in found for rule in rules}


def test_without_warm_ups_no_task_waits() -> None:
    """The owner keeps the task."""
    assert RULES[placed(waiting=None).rule[0][7]] == "kept"


def test_a_task_is_cold_if_its_state_lives_and_the_new_owner_has_none() -> None:
    """A task without any living state, a stateless task and a kept task are not cold."""
    cold = placed().flat_cold
    assert np.flatnonzero(cold).tolist() == [3, 8, 14]


def test_a_copy_counts_for_the_member_that_owns_the_task_now() -> None:
    """The copy of task 8 is on another member than the owner."""
    assert np.flatnonzero(placed().flat_hit).tolist() == [2, 4, 5]


def test_a_promoted_task_has_moved_and_a_placed_task_has_not() -> None:
    """The number of moves counts only tasks with a living previous owner."""
    found = placed()
    assert np.flatnonzero(found.flat_moved).tolist() == [3, 4, 5, 9, 14]
    assert found.moves == 4
    assert [one.tolist().count(True) for one in found.moved] == [3, 1, 1]


def test_a_stateless_group_has_no_column_of_standbys() -> None:
    """The other groups have a column for each replica."""
    assert [rows.shape for rows in placed().standby] == [(9, 1), (2, 0), (9, 1)]


def test_without_warm_ups_no_member_is_awaited() -> None:
    """With warm-ups the next rounds are split by group."""
    bare = placed()
    assert (bare.wanted, bare.flat_warmup.tolist()) == (None, [N] * 20)
    assert bare.flat_awaited.tolist() == [N] * 20
    warmup, awaited = OWNER.copy(), OWNER[::-1].copy()
    warmup_plan = WarmupPlan(OWNER, warmup, awaited, {})
    found = placed(warmup_plan=warmup_plan)
    assert found.wanted is not None
    assert [one.size for one in found.wanted] == [9, 2, 9]
    assert found.flat_warmup is warmup
    assert found.flat_awaited is awaited


def test_the_figures_of_the_cases() -> None:
    """Followers add no load; the minimum of moves ignores the weights."""
    counted = OWNER.copy()
    counted[3] = A
    found = report(placed(flat_counted_target=counted))
    assert (found["members"], found["tasks"], found["idle_members"]) == (3, 11, 0)
    assert (found["load_min"], found["load_max"]) == (1, 6)
    assert (found["moves"], found["moves_minimum"]) == (4, 3)
    assert (found["cold_moves"], found["promoted"], found["off_target"]) == (3, 1, 2)
    assert (found["waiting"], found["warmups"]) == (1, 0)
    assert [(row["min"], row["max"]) for row in found["groups"]] == [(1, 5), (0, 1), (4, 5)]
    assert found["group_spread"] == 4
    without = report(placed(waiting=None))
    assert (without["waiting"], without["warmups"], without["standby_min"]) == (None, None, None)


def test_a_member_without_a_subscription_is_not_idle() -> None:
    """The member does not count in the least load either."""
    members = [Member("a", ["t"]), Member("b", ["t"]), Member("c", []), Member("d", ["t"])]
    found = plan(members, {"t": 2}).report()
    assert (found["members"], found["idle_members"], found["load_min"]) == (4, 1, 0)
    assert plan(members[:3], {"t": 2}).report()["load_min"] == 1


def test_an_explanation_names_the_previous_owner_and_the_standbys_of_the_changelog() -> None:
    """The source topic has no standbys."""
    standby = np.full((20, 1), N)
    standby[3] = C
    made = placed(flat_standby=standby)
    log, source = explain(made, "log", 3), explain(made, "t", 3)
    assert (log.member_id, log.previous, log.rule) == ("b", "a", "moved")
    assert (log.standbys, source.standbys) == (("c",), ())
    assert explain(made, "t", 1).previous is None
    assert len(explain(made, "t", 3, most=1).beaten) == 1


@pytest.mark.parametrize(
    ("topic", "number", "terms"),
    [
        ("f", 1, ["its source being on another member"]),
        ("f", 5, ["the even spread of followers without a leader"]),
        ("t", 5, ["less of the state", "less of the state"]),
    ],
)
def test_the_term_of_a_rejected_member_fits_the_rule(
    topic: str, number: int, terms: list[str]
) -> None:
    """Balance does not decide the place of followers and promoted tasks."""
    assert [one.term for one in explain(placed(), topic, number).beaten] == terms


def test_a_waiting_task_names_its_target_first() -> None:
    """The target is too far behind; the other members lose by the balance."""
    beaten = explain(placed(), "t", 7).beaten
    assert (beaten[0].member_id, beaten[0].term) == ("b", "being too far behind")
    assert [one.member_id for one in beaten].count("b") == 1


def test_a_returned_task_that_is_at_its_target_is_explained_by_the_balance() -> None:
    """Off its target, the task is explained as a promotion."""
    terms = {one.term for one in explain(placed(), "t", 6).beaten}
    assert "less of the state" not in terms
    assert explain(_even(), "t", 0).beaten == (Rejected("b", "not having owned it before", 1.0),)


def _even() -> Placed:
    """Return two members with equal loads; task 0 returned to a, off its target."""
    layout = Layout(
        member_ids=("a", "b"),
        groups=(
            Group(
                group_id=1,
                topics=("t", "log"),
                partitions=3,
                members=ints(A, B),
                changelogs=("log",),
            ),
        ),
        start=ints(0, 3),
        capacity=np.ones(2),
        rack=np.full(2, N),
    )
    nobody = np.full(3, N, dtype=np.int64)
    former = ints(A, N, N)
    previous = Previous(
        owner=nobody,
        former=former,
        home=nobody,
        awaited=nobody,
        copy_task=ints(0, 0),
        copy_member=ints(A, B),
        copy_logs=ints(1, 1),
        copy_was_standby=flags(2),
    )
    return replace(
        placed(),
        layout=layout,
        previous=previous,
        flat_owner=ints(A, B, A),
        flat_target=ints(B, B, A),
        flat_counted_target=ints(B, B, A),
        flat_standby=np.full((3, 1), N),
        promoted=flags(3),
        waiting=None,
    )


def test_an_unknown_topic_or_partition_is_an_error() -> None:
    """The error names the topic and its partitions."""
    made = placed()
    with pytest.raises(KeyError, match="no member subscribes to topic 'x'"):
        explain(made, "x", 0)
    for number in (-1, 2):
        with pytest.raises(IndexError, match=rf"'s' has partitions 0\.\.1, not {number}"):
            explain(made, "s", number)


def test_a_plan_by_names_leaves_out_empty_topics_and_counts_warm_ups_as_standbys() -> None:
    """The partitions ascend; a member outside the plan is an error."""
    standby = np.full((20, 1), N)
    standby[[0, 3, 12]] = [[B], [A], [A]]
    warmup = np.full(20, N, dtype=np.int64)
    warmup[[1, 7]] = A, B
    awaited = np.full(20, N, dtype=np.int64)
    awaited[7] = B
    warmup_plan = WarmupPlan(OWNER, warmup, awaited, {})
    base = placed(flat_standby=standby, warmup_plan=warmup_plan)
    made = Plan(**{name: getattr(base, name) for name in base.__dataclass_fields__})
    assert made.actives("c") == {"log": [5], "t": [5]}
    assert made.actives("a")["t"] == [0, 7, 8]
    assert list(made.actives("a")) == ["f", "log", "s", "t"]
    assert made.standbys("a") == {"f": [1], "log": [1, 3]}
    assert made.standbys("b") == {"log": [0, 7]}
    assert made.warmups("b") == {"log": [7]}
    assert made.awaited("b") == {"log": [7]}
    assert made.awaited("a") == made.standbys("c") == {}
    with pytest.raises(KeyError, match="no member 'x' in this plan"):
        made.actives("x")


def test_an_explanation_names_the_rejected_members_and_the_standbys() -> None:
    """Each rejected member has a line, best first, and all standbys share a line."""
    rejected = (Rejected("b", "load", 2.0), Rejected("c", "rack", 0))
    made = Explanation(
        topic="t",
        partition=3,
        member_id="a",
        previous="b",
        rule="moved",
        beaten=rejected,
        standbys=("c", "b"),
    )
    assert str(made).splitlines() == [
        "t-3 on a: moves away from b, for the balance.",
        "  b loses by load (2)",
        "  c loses by rack",
        "  standbys: c, b",
    ]


def test_a_plan_without_topics_has_figures_too() -> None:
    """Nobody has a task, and no group is uneven."""
    found = plan([Member("a", ()), Member("b", ())], {"t": 2}).report()
    wanted = {"members": 2, "tasks": 0, "load_min": 0, "load_max": 0, "group_spread": 0}
    assert {name: found[name] for name in wanted} == wanted
    assert (found["groups"], found["idle_members"], found["moves"]) == ([], 0, 0)
