"""The planner's arguments in the ledger: planning with them again gives the same plan."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from faust_assigner.model import Member
from faust_assigner.warmup import WarmupPolicy
from faust_assigner.wire import plan_input as room
from faust_assigner.wire.plan_input import (
    MOST_PARTITIONS,
    PlanInput,
    as_runs,
    decode_plan_input,
    encode_plan_input,
    of_runs,
)

TOPICS = ("log", "orders")
MEMBERS = (
    Member("a", TOPICS, actives={"orders": [0, 1, 2], "log": [0]}, generation=0, capacity=2.5),
    Member(
        "b",
        TOPICS,
        standbys={"log": [0, 2]},
        former_actives={"orders": [5]},
        former_generation=4,
        awaited={"log": [1]},
        overdue={"log": [3]},
        generation=7,
        instance_id="i",
        rack_id="r",
        positions={"log": {0: 10, 2: 20}},
    ),
    Member("c", ("audit", "orders")),
)
ASKED = PlanInput(
    members=MEMBERS,
    partitions={"orders": 6, "log": 6, "audit": 1},
    replicas=1,
    changelogs=frozenset({"log"}),
    weightless=frozenset({"audit"}),
    previous_ids={"orders": 3},
    warmups=WarmupPolicy(
        acceptable_recovery_lag=1, acceptable_from_nothing=2, max_per_member=3, max_per_group=4
    ),
    weights={("orders", 0): 2.5, ("log", 1): 0.5},
)


def read_again(asked: PlanInput) -> PlanInput:
    """Return the input after a round trip through the bytes of a ledger line."""
    found = decode_plan_input(json.loads(json.dumps(encode_plan_input(asked))))
    assert found is not None
    return found


def claims(member: Member) -> dict[str, Any]:
    """Return the fields of a member as plain values."""
    found: dict[str, Any] = {}
    for field in fields(member):
        value = getattr(member, field.name)
        if field.name == "positions" and value is not None:
            value = {t: sorted(dict(_pairs(said)).items()) for t, said in value.items()}
        elif isinstance(value, dict):
            value = {t: sorted(map(int, numbers)) for t, numbers in value.items()}
        elif field.name == "topics":
            value = sorted(value)
        found[field.name] = value
    return found


def _pairs(said: Any) -> Any:
    return said.items() if isinstance(said, dict) else zip(*(c.tolist() for c in said), strict=True)


def test_every_argument_and_every_claim_comes_back() -> None:
    """Zeros and other values that look empty are kept, too."""
    found = read_again(ASKED)
    assert [claims(one) for one in found.members] == [claims(one) for one in MEMBERS]
    assert replace(found, members=()) == replace(ASKED, members=())


def test_members_with_other_topics_of_the_same_number_keep_them() -> None:
    """A member's own topics are left out only if they equal the common topics."""
    found = read_again(ASKED)
    assert [sorted(one.topics) for one in found.members] == [
        ["log", "orders"],
        ["log", "orders"],
        ["audit", "orders"],
    ]


def test_no_weights_and_no_warm_ups_are_none() -> None:
    """An empty mapping of weights would give a different plan."""
    found = read_again(replace(ASKED, weights=None, warmups=None))
    assert (found.weights, found.warmups) == (None, None)
    assert read_again(replace(ASKED, weights={})).weights == {}


def test_the_planner_gets_each_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing argument would explain a decision with a different plan."""
    seen: list[Any] = []
    monkeypatch.setattr(room, "plan", lambda *given, **named: seen.append((given, named)))
    ASKED.plan()
    ((members, partitions), named), *_ = seen
    assert (members, partitions) == (ASKED.members, ASKED.partitions)
    others = {one.name for one in fields(ASKED)} - {"members", "partitions"}
    assert named == {name: getattr(ASKED, name) for name in others}


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1], "0-1"),
        ([0, 2], "0,2"),
        ([5, 4, 0, 1, 4], "0-1,4-5"),
        ([0, 3, 4], "0,3-4"),
    ],
)
def test_numbers_are_written_as_runs(numbers: list[int], text: str) -> None:
    """Each number is written once, in order; numbers with a gap make two runs."""
    assert as_runs(numbers) == text
    assert as_runs(np.array(numbers, dtype=np.int64)) == text
    assert of_runs(text) == sorted(set(numbers))


@pytest.mark.parametrize(
    "broken", [None, [], {}, {"members": 1}, "missing topics", "bad numbers", "bad limits"]
)
def test_the_words_of_another_version_are_no_input(broken: Any) -> None:
    """The command then shows the line without an explanation and continues."""
    value: Any = encode_plan_input(ASKED)
    if broken == "missing topics":
        del value["topics"]
    elif broken == "bad numbers":
        value["members"][0]["actives"] = {"orders": "1-x"}
    elif broken == "bad limits":
        value["warmups"] = {"unknown": 1}
    else:
        value = broken
    assert decode_plan_input(value) is None


@pytest.mark.parametrize(
    ("name", "odd"),
    [("generation", []), ("capacity", 10**400), ("actives", {"orders": "0-99999999999999"})],
)
def test_a_member_with_an_odd_value_is_no_input(name: str, odd: Any) -> None:
    """A ledger line may have any JSON; a long run of numbers takes no memory."""
    value: Any = encode_plan_input(ASKED)
    value["members"][0][name] = odd
    assert decode_plan_input(value) is None


@pytest.mark.parametrize("count", [-1, MOST_PARTITIONS + 1, 10**400])
def test_an_impossible_number_of_partitions_is_no_input(count: int) -> None:
    """The planner allocates an array of this length."""
    value: Any = encode_plan_input(ASKED)
    value["partitions"]["orders"] = count
    assert decode_plan_input(value) is None


def test_one_member_is_found_by_its_id_and_others_can_take_all_places() -> None:
    """The explanation asks the planner for the plan of a different group."""
    assert ASKED.member("b") is MEMBERS[1]
    assert ASKED.member("nobody") is None
    other = ASKED.with_members(MEMBERS[:1])
    assert (other.members, other.partitions) == (MEMBERS[:1], ASKED.partitions)


def test_an_input_is_written_in_one_order_and_without_defaults() -> None:
    """Two leaders write an input identically; the members' common topics are written once."""
    members = (
        Member("b", ("orders", "log"), actives={"orders": [4, 0, 1], "log": [2]}, capacity=2.5),
        Member(
            "a", ("log", "audit"), standbys={"log": []}, former_actives={"log": [3]},
            former_generation=3, awaited={"log": [1], "audit": [0]}, overdue={"log": [5]},
            generation=8, instance_id="i", rack_id="r",
            positions={"log": {2: 20, 0: 10}, "audit": (np.array([1, 2]), np.array([7, 8]))},
        ),
        Member("c", ("log", "orders")),
    )  # fmt: skip
    asked = PlanInput(
        members=members,
        partitions={"orders": 6, "log": 7, "audit": 1},
        replicas=2,
        changelogs=frozenset({"log", "audit", "x", "y"}),
        weightless=frozenset({"orders", "audit", "x", "y"}),
        previous_ids={"orders": 3, "log": 1, "audit": 2},
        warmups=WarmupPolicy(
            acceptable_recovery_lag=1, acceptable_from_nothing=2, max_per_member=3, max_per_group=4
        ),
        weights={("orders", 5): 2.5, ("log", 1): 0.5, ("orders", 0): 1},
    )
    found = encode_plan_input(asked)
    assert json.dumps(found) == json.dumps({
        "topics": ["log", "orders"],
        "members": [
            {
                "member_id": "b", "actives": {"log": "2", "orders": "0-1,4"}, "generation": -1,
                "capacity": 2.5,
            },
            {
                "member_id": "a", "topics": ["audit", "log"], "former_actives": {"log": "3"},
                "awaited": {"audit": "0", "log": "1"}, "overdue": {"log": "5"}, "generation": 8,
                "former_generation": 3, "instance_id": "i", "rack_id": "r", "capacity": 1.0,
                "positions": {"audit": ["1-2", [7, 8]], "log": ["0,2", [10, 20]]},
            },
            {"member_id": "c", "generation": -1, "capacity": 1.0},
        ],
        "partitions": {"audit": 1, "log": 7, "orders": 6},
        "replicas": 2,
        "changelogs": ["audit", "log", "x", "y"],
        "weightless": ["audit", "orders", "x", "y"],
        "previous_ids": {"audit": 2, "log": 1, "orders": 3},
        "warmups": {
            "acceptable_recovery_lag": 1, "acceptable_from_nothing": 2, "max_per_member": 3,
            "max_per_group": 4,
        },
        "weights": [["log", 1, 0.5], ["orders", 0, 1.0], ["orders", 5, 2.5]],
    })  # fmt: skip
    again = read_again(asked)
    assert replace(again, members=()) == replace(asked, members=())
    assert [claims(one) for one in again.members[1:]] == [
        {**claims(one), "standbys": {}} for one in members[1:]
    ]


def test_no_member_is_an_input_too() -> None:
    """The list of common topics is empty then."""
    empty = PlanInput(members=(), partitions={})
    assert encode_plan_input(empty)["topics"] == []
    assert read_again(empty) == empty
    assert empty.member("a") is None


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("", []), ("4", [4]), ("0-2,4", [0, 1, 2, 4]), ("7-7,9-10", [7, 9, 10]), ("5-4", [])],
)
def test_runs_are_read_as_numbers(text: str, numbers: list[int]) -> None:
    """A run includes its last number; a run with an end before its start is empty."""
    assert of_runs(text) == numbers


def test_the_limit_of_partitions_holds_for_all_runs_of_a_text() -> None:
    """The limit holds for the sum of all runs of a text."""
    most = MOST_PARTITIONS
    assert len(of_runs(f"0-{most - 1}")) == most
    assert len(of_runs(f"0-9,20-{most + 9}")) == most
    for text in (f"0-{most}", f"0-9,20-{most + 10}", f"0-{most - 1},{most + 5}"):
        with pytest.raises(ValueError, match="are more than 1,000,000 partitions"):
            of_runs(text)


@pytest.mark.parametrize("count", [0, MOST_PARTITIONS])
def test_the_first_and_the_last_number_of_partitions_are_an_input(count: int) -> None:
    """A topic without partitions is a deleted topic."""
    found = decode_plan_input(
        {**encode_plan_input(ASKED), "partitions": {"orders": count, "log": 1}}
    )
    assert found is not None
    assert found.partitions == {"orders": count, "log": 1}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("partitions", [1]), ("members", [[]]), ("replicas", 1e400), ("replicas", "many"),
        ("weights", [["t", 0]]), ("previous_ids", [1]), ("warmups", {"unknown": 1}),
    ],
)  # fmt: skip
def test_a_line_of_another_shape_is_no_input(key: str, value: object) -> None:
    """The cases raise each kind of error during decoding."""
    assert decode_plan_input({**encode_plan_input(ASKED), key: value}) is None


def test_a_run_of_many_numbers_is_its_first_and_its_last() -> None:
    """In any order, each once; a gap of one number ends a run."""
    assert as_runs([6, 3, 5, 4, 4, 8, 9, 10, 12]) == "3-6,8-10,12"
