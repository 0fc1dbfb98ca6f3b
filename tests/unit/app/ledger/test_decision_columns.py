"""Every column of a decision's rows, for a generated plan without equal members or tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from faust_assigner import Member
from faust_assigner.app.ledger import rows as module
from faust_assigner.app.ledger.rows import decision_rows, digest
from faust_assigner.app.rebalance.observers import DecisionInputs
from faust_assigner.ledger import decision_id
from faust_assigner.views.placed import RULES
from faust_assigner.wire.directory import Directory

NONE = -1
ids = ("a", "b", "c", "d", "e", "f", "g")


def made_up() -> Any:
    """A plan of two groups: two stateless tasks of a and b, then four tasks with two tables."""
    plain = SimpleNamespace(
        group_id="g1", topics=("clicks",), changelogs=(), partitions=2, weightless=False
    )
    stateful = SimpleNamespace(
        group_id="g2",
        topics=("log", "orders", "sums"),
        changelogs=("log", "sums"),
        partitions=4,
        weightless=True,
    )
    none = np.full((2, 0), NONE)
    return SimpleNamespace(
        member_ids=ids,
        replicas=2,
        groups=(plain, stateful),
        layout=SimpleNamespace(
            start=np.array([0, 2, 6]),
            groups=(plain, stateful),
            member_ids=ids,
            capacity=np.array([1.0, 2.0]),
            rack=np.array([0, 1]),
        ),
        previous=SimpleNamespace(
            owner=np.array([0, 1]),
            former=np.array([2, 3]),
            copy_task=np.array([2, 2, 3, 5, 5, 5, 5, 5]),
            copy_member=np.array([1, 2, 4, 0, 1, 2, 3, 4]),
        ),
        owner=(np.array([0, 1]), np.array([0, 2, NONE, 6])),
        previous_owner=(np.array([0, NONE]), np.array([0, 3, 1, 5])),
        target=(np.array([0, 1]), np.array([3, 2, 2, 6])),
        rule=(np.array([0, 1]), np.array([8, 4, 0, 3])),
        cold=(np.array([False, False]), np.array([False, False, False, True])),
        standby_hit=(np.array([False, False]), np.array([False, True, False, False])),
        moved=(np.array([False, True]), np.array([False, True, False, True])),
        standby=(none, np.array([[1, 6], [NONE, 3], [NONE, NONE], [2, NONE]])),
        warmup=(np.full(2, NONE), np.array([NONE, NONE, NONE, 1])),
        flat_awaited=np.array([NONE, NONE, 6, NONE, NONE, 1]),
        flat_cold=np.array([False, False, False, False, True, True]),
    )


def decided(**more: Any) -> DecisionInputs:
    """The inputs of the decision."""
    members = (
        Member("b", ("clicks",), generation=4, rack_id="r2", capacity=2.5, instance_id=""),
        Member("a", ("clicks",), generation=6),
    )
    return DecisionInputs("shop", 9, members, {"clicks": 2}, 3, frozenset({"log"}), **more)


def rows_of(inputs: DecisionInputs, monkeypatch: pytest.MonkeyPatch, **how: Any) -> list[Any]:
    """Return the rows, with stubs for the digest, the moves and the encoded inputs."""
    monkeypatch.setattr(module, "digest", lambda plan: "digest")
    monkeypatch.setattr(module, "moved_tasks", lambda plan: 3)
    monkeypatch.setattr(module, "encode_plan_input", lambda asked: asked)
    return list(decision_rows(inputs, made_up(), at=12.5, **how))


def test_a_decision_s_row_has_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members keep their order, names are sorted; an instance id may be empty."""
    version = type("Weights", (dict,), {"version": 0})()
    inputs = decided(
        solve_ms=7,
        trigger="join",
        refused={"z": "old", "y": "new"},
        urls={"b": "http://b", "a": "http://a"},
        leaving=frozenset({"d", "c"}),
        completes="leave",
        weightless=frozenset({"w", "v"}),
        previous_ids={"clicks": 1},
        weights=version,
    )
    config = {"deploy": "v1", "replicas": "of the config"}
    (table, row), *_ = rows_of(inputs, monkeypatch, config=config, session_timeout_s=0)
    asked = row.pop("asked")
    assert table == "decision"
    assert row == {
        "group_id": "shop",
        "decision_id": decision_id("shop", 9, ids),
        "ts": 12.5,
        "generation": 9,
        "trigger": "join",
        "policy": "faust-assigner",
        "config": {"deploy": "v1", "replicas": "3", "weights_version": "0", "weightless": "v w"},
        "members": [
            {"member_id": "b", "rack": "r2", "capacity": 2.5, "epoch": 4, "instance_id": ""},
            {"member_id": "a", "rack": None, "capacity": 1.0, "epoch": 6},
        ],
        "solve_ms": 7.0,
        "inputs_digest": "digest",
        "moves": 3,
        "cold": 2,
        "refused": {"y": "new", "z": "old"},
        "cause": {
            "urls": {"a": "http://a", "b": "http://b"},
            "leaving": ["c", "d"],
            "follows": False,
            "completes": "leave",
        },
        "session_timeout_s": 0.0,
    }
    assert list(row["refused"]) == ["y", "z"]
    assert list(row["cause"]["urls"]) == ["a", "b"]
    assert asked == module.PlanInput(
        members=inputs.members,
        partitions=inputs.partitions,
        replicas=3,
        changelogs=inputs.changelogs,
        weightless=inputs.weightless,
        previous_ids=inputs.previous_ids,
        warmups=None,
        weights=version,
    )


@pytest.mark.parametrize("last", [Directory(), Directory(("http://a",), {}, ("",))])
def test_a_decision_without_owners_of_before_names_none(
    monkeypatch: pytest.MonkeyPatch, last: Directory
) -> None:
    """Missing weights, weightless topics and session timeouts have no column either."""
    (_, row), *_ = rows_of(decided(last=last), monkeypatch, config={})
    assert not {"before", "session_timeout_s"} & row.keys()
    assert row["config"] == {"replicas": "3"}


def test_owners_of_before_are_grouped_by_what_they_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group's topics are sorted."""
    owners = {"z": [1, 0], "b": [0, 1], "a": [1, 0], "c": [0, NONE]}
    last = Directory(
        ("http://a", "http://b"),
        {topic: np.array(found) for topic, found in owners.items()},
        ("x", "y"),
    )
    (_, row), *_ = rows_of(decided(last=last, last_generation=0), monkeypatch, config={})
    assert row["before"] == {
        "generation": 0,
        "urls": ["http://a", "http://b"],
        "instances": ["x", "y"],
        "owners": [
            {"topics": ["a", "z"], "partitions": ["1", "0"]},
            {"topics": ["b"], "partitions": ["0", "1"]},
            {"topics": ["c"], "partitions": ["0", ""]},
        ],
    }


def test_owners_of_before_are_written_for_members_whose_instances_are_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An older leader's directory names URLs alone."""
    last = Directory(("http://a", "http://b"), {"t": np.array([1, 0, 1])}, ())
    (_, row), *_ = rows_of(decided(last=last, last_generation=5), monkeypatch, config={})
    assert row["before"] == {
        "generation": 5,
        "urls": ["http://a", "http://b"],
        "instances": [],
        "owners": [{"topics": ["t"], "partitions": ["1", "0,2"]}],
    }


def test_placements_have_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's actives come by number and topic, then its standbys; unowned tasks have no row."""
    _, *found = rows_of(decided(), monkeypatch, config={})
    name = decision_id("shop", 9, ids)
    kept = ("clicks", 0, "a", "a", False, False, False, "kept", [], "none")
    placed = ("clicks", 1, "b", None, True, False, False, "placed", [], "none")
    expected = [
        kept,
        placed,
        *(
            (topic, 0, "a", "a", False, False, False, "waits", ["d", "b", "c"], "none")
            for topic in ("log", "orders", "sums")
        ),
        *(
            (topic, 1, "c", "d", True, True, False, "moved warm", ["d", "e"], restore)
            for topic, restore in (("log", "tail"), ("orders", "none"), ("sums", "tail"))
        ),
        *(
            (topic, 3, "g", "f", True, False, True, "moved", ["f", "a", "b", "c"], restore)
            for topic, restore in (("log", "full"), ("orders", "none"), ("sums", "full"))
        ),
    ]
    columns = (
        "topic",
        "partition",
        "member_id",
        "prev_member_id",
        "moved",
        "standby_hit",
        "cold",
        "rule",
        "rejected",
        "restore",
    )
    both = {"group_id": "shop", "decision_id": name}
    actives = [
        both | {"role": "active"} | dict(zip(columns, values, strict=True)) for values in expected
    ]
    standbys = [
        both
        | {
            "topic": topic,
            "partition": number,
            "role": role,
            "member_id": member,
            "prev_member_id": None,
            "moved": not held,
            "standby_hit": held,
            "cold": not held,
            "restore": "tail" if held else "full",
        }
        for number, member, held, role in (
            (0, "b", True, "standby"),
            (0, "g", False, "warmup"),
            (1, "d", True, "standby"),
            (3, "c", True, "standby"),
            (3, "b", True, "warmup"),
        )
        for topic in ("log", "sums")
    ]
    assert {table for table, _ in found} == {"assignment"}
    assert [row for _, row in found] == [*actives, *standbys]
    assert RULES.index("moved warm") == 4


@pytest.mark.parametrize(
    "place",
    [
        ("layout", "capacity"),
        ("layout", "rack"),
        ("previous", "owner"),
        ("previous", "former"),
        ("previous", "copy_task"),
        ("previous", "copy_member"),
    ],
    ids=".".join,
)
def test_each_array_of_the_inputs_is_in_the_digest(place: tuple[str, str]) -> None:
    """A change of the last item changes the digest, like a change of the first."""
    before, (part, name) = digest(made_up()), place
    assert before == digest(made_up())
    for at in (0, -1):
        plan = made_up()
        getattr(getattr(plan, part), name)[at] += 1
        assert digest(plan) != before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group_id", "x"),
        ("topics", ("x",)),
        ("changelogs", ("x",)),
        ("partitions", 9),
        ("weightless", "x"),
    ],
)
@pytest.mark.parametrize("group", [0, 1])
def test_each_group_is_in_the_digest(group: int, name: str, value: Any) -> None:
    """The members and the number of standbys are in the digest, too."""
    before, plan = digest(made_up()), made_up()
    setattr(plan.layout.groups[group], name, value)
    assert digest(plan) != before
    for part in ({"replicas": 1}, {"layout": SimpleNamespace(**vars(made_up().layout))}):
        plan = SimpleNamespace(**{**vars(made_up()), **part})
        if "layout" in part:
            plan.layout.member_ids = ("b", "a")
        assert digest(plan) != before


def test_the_former_owner_is_the_first_rejected_member_and_the_target_is_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last task of the second group is on g; e was its target, f its owner, a to c have copies."""
    whole = made_up()
    whole.target[1][3] = 4
    monkeypatch.setattr(module, "digest", lambda plan: "digest")
    monkeypatch.setattr(module, "moved_tasks", lambda plan: 3)
    rows = [row for _, row in decision_rows(decided(), whole, at=12.5, config={})]
    (found,) = (
        row["rejected"] for row in rows if (row.get("topic"), row.get("partition")) == ("orders", 3)
    )
    assert found == ["f", "e", "a", "b"]
