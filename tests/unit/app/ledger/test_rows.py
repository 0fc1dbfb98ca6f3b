"""A plan as ledger rows: every placement once, with its rule and its restore."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from faust_assigner import Member, plan
from faust_assigner.app.ledger.rows import decision_rows
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.app.rebalance.outcome import trigger
from faust_assigner.ledger import Row, decision_id, encode, parse
from faust_assigner.planner import Plan
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.plan_input import decode_plan_input

TOPICS = {"orders": 6, "shop-orders-changelog": 6, "audit": 3}
CHANGELOGS = frozenset({"shop-orders-changelog"})


def decide(members: list[Member], generation: int = 7, **more: Any) -> tuple[DecisionInputs, Plan]:
    """Return a decision of the planner and its inputs."""
    inputs = DecisionInputs("shop", generation, tuple(members), TOPICS, 1, CHANGELOGS, **more)
    return inputs, plan(members, TOPICS, replicas=1, changelogs=CHANGELOGS)


def rows_of(inputs: DecisionInputs, found: Plan) -> list[tuple[str, Mapping[str, Any]]]:
    """Return its rows; check that each is a valid line of its table."""
    rows = list(decision_rows(inputs, found, at=1795232422.5, config={"deploy": "v1"}))
    for table, row in rows:
        parsed = parse(encode(table, row))
        assert isinstance(parsed, Row), parsed
        assert parsed.table == table
    return rows


def members(*names: str, **claims: Mapping[str, Any]) -> list[Member]:
    """Return members that subscribe to every topic, with their claims."""
    return [
        Member(name, list(TOPICS), generation=6, rack_id="r", **claims.get(name, {}))
        for name in names
    ]


EVERYTHING = {"actives": {"orders": range(6), "shop-orders-changelog": range(6), "audit": range(3)}}


def test_rows_are_the_plan() -> None:
    """Rows and plan have the same actives and standbys of each topic."""
    inputs, found = decide(members("a", "b", a=EVERYTHING))
    rows = rows_of(inputs, found)
    assert [table for table, _ in rows].count("decision") == 1
    for name in ("a", "b"):
        for role, wanted in (("active", found.actives(name)), ("standby", found.standbys(name))):
            said = Counter(
                (row["topic"], row["partition"])
                for table, row in rows
                if table == "assignment" and row["role"] == role and row["member_id"] == name
            )
            assert said == Counter((topic, p) for topic, numbers in wanted.items() for p in numbers)


def test_moves_are_those_the_plan_counts_and_cold_without_a_copy() -> None:
    """A joining member takes tasks from a living owner: moved, named, cold if stateful."""
    inputs, found = decide(members("a", "b", a=EVERYTHING))
    rows = [
        row
        for table, row in rows_of(inputs, found)
        if table == "assignment" and row["role"] == "active"
    ]
    moved = [row for row in rows if row["moved"]]
    assert {(row["topic"], row["partition"]) for row in moved} == {
        (topic, p) for topic, numbers in found.actives("b").items() for p in numbers
    }
    assert {row["prev_member_id"] for row in rows} == {"a"}
    assert all(row["rejected"] == ["a"] for row in moved)
    assert {row["restore"] for row in moved if row["topic"] in CHANGELOGS} == {"full"}
    assert {
        row["restore"] for row in rows if row["topic"] not in CHANGELOGS or not row["moved"]
    } == {"none"}
    assert all(row["cold"] for row in moved if row["topic"] in CHANGELOGS)


def test_promotion_is_a_warm_move() -> None:
    """The owner died and its standby took over: not cold, and only the tail is read."""
    survivor = {"b": {"actives": {}, "standbys": {"shop-orders-changelog": range(6)}}}
    inputs, found = decide(members("b", "c", **survivor))
    rows = [
        row
        for table, row in rows_of(inputs, found)
        if table == "assignment"
        and row["role"] == "active"
        and row["topic"] == "shop-orders-changelog"
    ]
    promoted = [row for row in rows if row["member_id"] == "b"]
    assert promoted
    for row in promoted:
        assert (row["standby_hit"], row["cold"], row["restore"]) == (True, False, "tail")
    assert any(row["moved"] and row["rule"] == "promoted" for row in promoted)


def test_decision_says_what_it_was_made_from() -> None:
    """The row has members, settings, time, the digest of the inputs and the number of moves."""
    inputs, found = decide(
        members("a", "b", a=EVERYTHING), solve_ms=1.25, refused={"b": "too large"}, trigger="join"
    )
    table, row = rows_of(inputs, found)[0]
    assert table == "decision"
    assert row["members"][0] == {"member_id": "a", "rack": "r", "capacity": 1.0, "epoch": 6}
    assert row["config"] == {"deploy": "v1", "replicas": "1"}
    assert (row["generation"], row["trigger"], row["solve_ms"]) == (7, "join", 1.25)
    assert row["moves"] == found.moves
    assert row["refused"] == {"b": "too large"}
    again = rows_of(*decide(members("a", "b", a=EVERYTHING)))[0][1]
    other = rows_of(*decide(members("a", "b", b=EVERYTHING)))[0][1]
    assert row["inputs_digest"] == again["inputs_digest"] != other["inputs_digest"]


def test_two_leaders_of_one_generation_give_one_id() -> None:
    """The id depends only on group, generation and the set of members."""
    name = decision_id("shop", 7, ["a", "b"])
    assert name == decision_id("shop", 7, ["b", "a"])
    assert (
        len(
            {
                name,
                decision_id("shop", 8, ["a", "b"]),
                decision_id("shop2", 7, ["a", "b"]),
                decision_id("shop", 7, ["a", "c"]),
            }
        )
        == 4
    )


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (None, ["a"], "first"),
        (["a"], ["a", "b"], "join"),
        (["a", "b"], ["b"], "leave"),
        (["a"], ["b"], "join+leave"),
        (["a"], ["a"], "rejoin"),
    ],
)
def test_trigger_names_what_changed(before: list[str] | None, now: list[str], why: str) -> None:
    """The trigger names joins and leaves since this leader's last decision."""
    last = decide(members(*before))[0] if before else None
    assert trigger(last, decide(members(*now))[0]) == why


def test_trigger_names_subscriptions_and_partitions() -> None:
    """A deploy may add a topic, and a topic may grow."""
    last = decide([Member("a", ["orders"])])[0]
    assert trigger(last, decide(members("a"))[0]) == "subscription"
    grown = DecisionInputs("shop", 8, last.members, {**TOPICS, "audit": 9}, 1, CHANGELOGS)
    assert trigger(last, grown) == "partitions"


def test_what_weighs_nothing_is_said_and_digested() -> None:
    """A replay needs the weightless topics; another input has another digest."""
    plain, idle = (
        decide(members("a", "b"), weightless=frozenset(names)) for names in ((), ("audit",))
    )
    with_work = plan(
        members("a", "b"), TOPICS, replicas=1, changelogs=CHANGELOGS, weightless={"audit"}
    )
    (_, said), *_ = rows_of(plain[0], plain[1])
    assert "weightless" not in said["config"]
    (_, other), *_ = rows_of(idle[0], with_work)
    assert other["config"]["weightless"] == "audit"
    assert said["inputs_digest"] != other["inputs_digest"]


class Weights(dict[tuple[str, int], float]):
    """Weights of version 3."""

    version = 3


def test_a_decision_names_its_cause_and_what_this_leader_found() -> None:
    """A second round completes the first; the row has this leader's earlier owners."""
    last = Directory(
        ("http://a", "http://b"),
        {topic: np.array([0, 1, 0, -1]) for topic in ("audit", "orders")} | {"log": np.array([1])},
        ("one", ""),
    )
    inputs, found = decide(
        [*members("a"), Member("b", list(TOPICS), generation=6, instance_id="two", capacity=2.0)],
        urls={"b": "http://b", "a": "http://a"},
        leaving=frozenset({"c", "b"}),
        follows=True,
        completes="join",
        last=last,
        last_generation=5,
        weights=Weights({("orders", 0): 2.0}),
    )
    rows = decision_rows(inputs, found, at=2.5, config={}, session_timeout_s=60)
    row = next(rows)[1]
    assert row["cause"] == {
        "urls": {"a": "http://a", "b": "http://b"},
        "leaving": ["b", "c"],
        "follows": True,
        "completes": "join",
    }
    assert row["before"] == {
        "generation": 5,
        "urls": ["http://a", "http://b"],
        "instances": ["one", ""],
        "owners": [
            {"topics": ["audit", "orders"], "partitions": ["0,2", "1"]},
            {"topics": ["log"], "partitions": ["", "0"]},
        ],
    }
    assert row["members"][1]["instance_id"] == "two"
    assert row["config"]["weights_version"] == "3"
    assert (row["ts"], row["session_timeout_s"]) == (2.5, 60.0)


def test_a_decision_has_the_inputs_from_which_it_is_planned_again() -> None:
    """A replay without its weights, warm-ups or former ids would move other tasks."""
    inputs, found = decide(
        members("a", "b", a=EVERYTHING),
        previous_ids={"orders": 4},
        weights=Weights({("orders", 1): 2.5}),
        warmups=WarmupPolicy(max_per_member=3),
        weightless=frozenset({"audit"}),
    )
    asked = decode_plan_input(next(decision_rows(inputs, found, at=1.0, config={}))[1]["asked"])
    assert (asked.partitions, asked.replicas, asked.changelogs) == (TOPICS, 1, CHANGELOGS)
    assert (dict(asked.previous_ids), asked.weightless) == ({"orders": 4}, {"audit"})
    assert (asked.warmups, asked.weights) == (inputs.warmups, {("orders", 1): 2.5})
    assert [member.member_id for member in asked.members] == ["a", "b"]


def test_a_row_names_at_most_four_rejected_members() -> None:
    """The former owner comes first; a task may have a hundred copies."""
    names = "abcdefgh"
    copies = {"standbys": {"shop-orders-changelog": range(6)}}
    inputs, found = decide(members(*names, **dict.fromkeys(names[1:], copies), a=EVERYTHING))
    rows = [row for _, row in rows_of(inputs, found) if row.get("role") == "active"]
    rejected = [row["rejected"] for row in rows]
    assert max(map(len, rejected)) == 4
    assert all(len(set(names_of)) == len(names_of) for names_of in rejected)


def test_a_standby_that_held_the_state_reads_the_tail() -> None:
    """The former owner has the state; any other member reads the whole changelog."""
    inputs, found = decide(members("a", "b", a=EVERYTHING))
    rows = [row for table, row in rows_of(inputs, found) if row.get("role") == "standby"]
    assert {row["member_id"] for row in rows} == {"a", "b"}
    for row in rows:
        was_here = row["member_id"] == "a"
        assert (row["moved"], row["standby_hit"], row["cold"]) == (
            not was_here,
            was_here,
            not was_here,
        )
        assert row["restore"] == ("tail" if was_here else "full")


@pytest.mark.parametrize("replicas", [0, 1])
def test_a_copy_that_becomes_the_owner_is_a_warmup(replicas: int) -> None:
    """A new member has nothing but warm-ups; with standbys, these copies are the standbys."""
    ends = {"shop-orders-changelog": dict.fromkeys(range(6), 1_000_000)}
    both = members("a", "b", a={**EVERYTHING, "positions": ends}, b={"positions": {}})
    inputs, _ = decide(both)
    found = plan(both, TOPICS, replicas=replicas, changelogs=CHANGELOGS, warmups=WarmupPolicy())
    wanted = found.awaited("b")["shop-orders-changelog"]
    rows = [row for _, row in rows_of(inputs, found) if row.get("role") == "warmup"]
    assert [(row["member_id"], row["partition"]) for row in rows] == [("b", n) for n in wanted]
    assert len(wanted) == 3
    others = [row for _, row in rows_of(inputs, found) if row.get("role") == "standby"]
    assert len(others) == (3 if replicas else 0)


def test_a_task_s_row_names_the_holders_of_that_task() -> None:
    """Tasks are numbered over all groups, partitions within a group."""
    copies = {"b": [0, 3], "c": [3, 5]}
    claims = {m: {"standbys": {"shop-orders-changelog": held}} for m, held in copies.items()}
    inputs, found = decide(members("a", "b", "c", a=EVERYTHING, **claims))
    group = next(g for g, one in enumerate(found.groups) if "orders" in one.topics)
    assert group > 0, "tasks of another group come before"
    rows = [row for _, row in rows_of(inputs, found) if row.get("role") == "active"]
    for row in (row for row in rows if row["topic"] == "orders"):
        number = row["partition"]
        holders = [name for name, held in copies.items() if number in held]
        passed = dict.fromkeys(["a", found.member_ids[found.target[group][number]], *holders])
        assert row["rejected"] == [name for name in passed if name != row["member_id"]]


def test_the_first_owner_of_a_table_reads_its_whole_changelog() -> None:
    """No member has its state, and the task has no previous owner."""
    inputs, found = decide(members("a"))
    rows = [row for _, row in rows_of(inputs, found) if row.get("role") == "active"]
    assert {row["prev_member_id"] for row in rows} == {None}
    assert {row["restore"] for row in rows if row["topic"] in CHANGELOGS} == {"full"}
    assert {row["restore"] for row in rows if row["topic"] not in CHANGELOGS} == {"none"}
