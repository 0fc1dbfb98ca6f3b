"""The planner's members and the first step of a hand-over, from names alone and as a whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from faust_assigner.app.rebalance.member_claims import (
    MemberClaims,
    _ClaimReader,
    claims_of,
    existing_positions,
)
from faust_assigner.app.rebalance.placement import Placement
from faust_assigner.app.rebalance.two_phase import RoundStep, step
from faust_assigner.wire.directory import Directory
from faust_assigner.wire.join import STOCK, VERSION, JoinData
from faust_assigner.wire.runs import Runs

PARTITIONS = {"orders": 8, "log": 8, "rates": 3, "bills": 5}
TOPICS = ("bills", "log", "orders", "rates")
FIELDS = (
    "actives",
    "standbys",
    "former_actives",
    "awaited",
    "overdue",
    "former_generation",
    "generation",
    "instance_id",
    "rack_id",
    "capacity",
    "positions",
)


def runs(**numbers: list[int]) -> dict[str, Runs]:
    """Return claims by topic."""
    return {topic: Runs.of(held) for topic, held in numbers.items()}


def member(name: str, *, topics: tuple[str, ...] = TOPICS, **said: Any) -> MemberClaims:
    """Return the claims of a member with our assignor."""
    return MemberClaims(name, topics, JoinData(f"http://{name}", **{"version": VERSION, **said}), 4)


def planned(*said: MemberClaims, **more: Any) -> tuple[dict[str, dict[str, Any]], dict[str, int]]:
    """Return each planned member's fields, and the counts of claims on missing partitions."""
    owners = {
        "orders": np.array([0, 1, 1, 0, 1, 0, 0, 0]),
        "log": np.array([0, 1, 1, 0, 1, 0, 0, 0]),
    }
    settled: dict[str, Any] = {
        "generation": 10,
        "is_kafkas": True,
        "last": Directory(("http://x", "http://y"), owners, ("one", "two")),
        "last_generation": 6,
    }
    found = claims_of(said, PARTITIONS, {"rates": False}, **settled | more)
    assert [one.member_id for one in found.members] == [one.member_id for one in said]
    assert [one.topics for one in found.members] == [one.topics for one in said]
    assert found.refused == {}

    return {one.member_id: plain(one) for one in found.members}, found.beyond


def plain(one: Any) -> dict[str, Any]:
    """Return the fields of a planned member without numpy, and without fields that are None."""
    found = {name: value for name in FIELDS if (value := getattr(one, name)) is not None}
    for name, value in found.items():
        if name == "positions":
            found[name] = {
                t: dict(zip(*map(np.ndarray.tolist, at), strict=True)) for t, at in value.items()
            }
        elif not isinstance(value, int | float | str):
            found[name] = {topic: [int(p) for p in numbers] for topic, numbers in value.items()}
    return found


def test_each_claim_of_a_member_is_its_own() -> None:
    """Global tables have no copies, lost partitions are counted, and promises join the actives."""
    found, beyond = planned(
        member(
            "z",
            actives=runs(orders=[3, 1, 9], log=[1, 3], rates=[2], other=[0]),
            standbys=runs(log=[5, 8], rates=[0]),
            on_disk=runs(log=[4], bills=[2, 7], rates=[1]),
            former_actives=runs(orders=[6], rates=[0]),
            former_generation=4,
            promised=runs(orders=[0], bills=[4]),
            awaited=runs(log=[5, 6], rates=[2]),
            overdue=runs(log=[7], rates=[2]),
            generation=9,
            instance_id="two",
            rack_id="r3",
            capacity=2.5,
            positions={"log": (np.array([1, 8]), np.array([70, 3]))},
        ),
        member("a", topics=("orders",), actives=runs(log=[0], orders=[7, 8]), generation=12),
    )
    assert found == {
        "z": {
            "actives": {"bills": [4], "log": [1, 3], "orders": [0, 1, 3], "rates": [2]},
            "standbys": {"bills": [2], "log": [4, 5]},
            "former_actives": {"orders": [6], "rates": [0]},
            "awaited": {"log": [5, 6]},
            "overdue": {"log": [7]},
            "former_generation": 4,
            "generation": 9,
            "instance_id": "two",
            "rack_id": "r3",
            "capacity": 2.5,
            "positions": {"log": {1: 70}},
        },
        "a": {
            "actives": {"orders": [7]},
            "standbys": {},
            "former_actives": {},
            "awaited": {},
            "overdue": {},
            "former_generation": -1,
            "generation": 9,
            "capacity": 1.0,
        },
    }
    assert beyond == {"bills": 1, "log": 1, "orders": 2}


@pytest.mark.parametrize("is_kafkas", [True, False])
@pytest.mark.parametrize(
    ("said", "actives", "generation"),
    [
        ({"instance_id": "two"}, {"log": [1, 2, 4], "orders": [1, 2, 4]}, 6),
        ({"instance_id": "three"}, {}, -1),
        ({}, {}, -1),
        ({"instance_id": "two", "generation": 0}, {}, 0),
        ({"instance_id": "two", "generation": 5, "actives": runs(orders=[3])}, {"orders": [3]}, 5),
    ],
)
def test_a_static_member_without_memory_has_what_the_last_directory_lists(
    said: dict[str, Any], actives: dict[str, list[int]], generation: int, is_kafkas: bool
) -> None:
    """A name that the directory does not list is a new member's."""
    found, beyond = planned(member("m", **said), is_kafkas=is_kafkas)
    assert (found["m"]["actives"], found["m"]["generation"], beyond) == (actives, generation, {})


def test_a_stock_member_owns_nothing_of_a_global_table() -> None:
    """Faust gives each member all partitions of the table as actives."""
    found, _ = planned(
        member("s", version=STOCK, actives=runs(rates=[0, 1, 2], orders=[2]), generation=3),
        member("o", actives=runs(rates=[1], orders=[4]), generation=3),
    )
    assert {name: one["actives"] for name, one in found.items()} == {
        "s": {"orders": [2]},
        "o": {"orders": [4], "rates": [1]},
    }


# -- the first of two rounds

PLACED = Placement(
    ("a", "b", "c"),
    {
        "a": {"log": [0, 3], "orders": [0, 3]},
        "b": {"log": [1, 2], "orders": [1, 2], "bills": [0]},
        "c": {"log": [4], "orders": [4], "bills": [1]},
    },
    {"a": {"log": [1, 4]}, "b": {"log": [0]}, "c": {"log": [3]}},
    {
        "log": np.array([0, 1, 1, 0, 2]),
        "orders": np.array([0, 1, 1, 0, 2]),
        "bills": np.array([1, 2]),
    },
    {"log": 3, "orders": 3, "bills": 5},
)


def same(topics: tuple[str, ...] = ("orders", "log"), *numbers: int) -> dict[str, Runs]:
    """Return the same claims on each topic."""
    return {topic: Runs.of(numbers) for topic in topics}


def test_only_tasks_that_another_member_still_processes_are_promised() -> None:
    """One topic blocks its whole task; the new owner keeps its copies of it; the rest moves."""
    found = step(
        PLACED,
        [
            member("a", actives=runs(orders=[0, 2, 3]), generation=7, holds=True),
            member(
                "b",
                actives=runs(orders=[1], log=[1]),
                standbys=runs(log=[2, 4]),
                generation=7,
                holds=True,
            ),
            member("c", actives=runs(bills=[0]), standbys=runs(log=[1]), generation=7),
            member("d", actives=runs(orders=[4], bills=[1]), generation=5, holds=True),
        ],
    )
    assert found.follows
    assert found.held_up_by == {"d"}
    assert found.promised == {
        "b": {"log": [2], "orders": [2]},
        "c": {"log": [4], "orders": [4], "bills": [1]},
    }
    assert found.placement.actives == {
        "a": {"log": [0, 3], "orders": [0, 3]},
        "b": {"log": [1], "orders": [1], "bills": [0]},
        "c": {},
    }
    assert found.placement.standbys == {
        "a": {"log": [1, 4]},
        "b": {"log": [0, 2]},
        "c": {"log": [3]},
    }
    assert PLACED.standbys["b"] == {"log": [0]}, "the plan stays as it is"
    assert found.placement.owners is PLACED.owners
    assert found.placement.group_ids is PLACED.group_ids


@pytest.mark.parametrize(
    ("claim", "own", "follows"),
    [(6, None, True), (6, 7, False), (7, 7, False), (8, 7, True), (7, -1, True)],
)
def test_a_claim_no_newer_than_the_new_owner_s_own_is_false(
    claim: int, own: int | None, follows: bool
) -> None:
    """A claim that is newer than the new owner's own claim shows that the owner missed a round."""
    owner: dict[str, Any] = {"generation": 9}
    if own is not None:
        owner = {"actives": same(("orders", "log"), 0), "generation": own, "holds": True}
    found = step(
        PLACED,
        [
            member("a", **owner),
            member("b", actives=same(("orders", "log"), 0), generation=claim, holds=True),
        ],
    )
    assert found.follows is follows
    if not follows:
        assert found == RoundStep(PLACED)


@pytest.mark.parametrize(
    ("claim", "promise", "follows"), [(6, 7, True), (7, 7, False), (8, 7, False)]
)
def test_a_claim_as_new_as_the_promise_to_the_new_owner_is_false(
    claim: int, promise: int, follows: bool
) -> None:
    """The answer of the promise's generation made the claimant revoke the partition."""
    found = step(
        PLACED,
        [
            member("a", promised=same(("orders", "log"), 0, 3), generation=promise),
            member("b", actives=same(("orders", "log"), 0, 3), generation=claim, holds=True),
        ],
    )
    assert found.follows is follows
    assert found.promised == ({"a": {"log": [0, 3], "orders": [0, 3]}} if follows else {})


def test_with_a_stock_member_a_blocked_task_stays_with_its_owner() -> None:
    """Its copies elsewhere stay; the owner has no copy of its own partition."""
    found = step(
        PLACED,
        [
            member("a", actives=runs(orders=[2, 3], log=[2, 3]), generation=7, holds=True),
            member("b", actives=runs(orders=[1]), generation=7, holds=True),
            member("c", actives=runs(orders=[0], log=[0, 1]), version=STOCK, generation=7),
            member("b2", actives=runs(orders=[4]), generation=6, holds=True),
        ],
    )
    assert (found.follows, found.promised, found.held_up_by) == (True, {}, {"b2"})
    assert found.placement.actives == {
        "a": {"log": [0, 2, 3], "orders": [0, 2, 3]},
        "b": {"log": [1], "orders": [1], "bills": [0]},
        "c": {"log": [], "orders": [], "bills": [1]},
    }
    assert found.placement.standbys == PLACED.standbys


def test_the_size_of_a_claim_is_what_it_expands_to() -> None:
    """Numbers beyond a topic's end and unknown topics cost nothing; a shared claim counts once."""
    shared = Runs.of([0, 1, 2, 6, 7, 90])
    said = JoinData(
        "http://a",
        {"orders": shared, "log": shared, "bills": shared},
        {"log": Runs.of([3, 80]), "unknown": Runs.of(range(500))},
        {"log": Runs.of([4, 5])},
        former_actives=runs(rates=[0, 1, 2, 3, 4]),
        promised=runs(orders=[5]),
        awaited=runs(log=[0, 1, 2, 3]),
        overdue=runs(log=[1, 2, 3, 4, 5, 6, 7]),
    )
    # The shared claim counts for eight and for five partitions.
    assert _ClaimReader(PARTITIONS, {}).count_numbers(said) == (5 + 3) + 1 + 2 + 3 + 1 + 4 + 7
    assert _ClaimReader(PARTITIONS, {}).count_numbers(JoinData()) == 0


def test_a_claim_that_topics_share_is_cut_at_the_end_of_each() -> None:
    """Topics of one size share the numbers; the lost partitions of each topic are counted."""
    shared = Runs.of([1, 4, 6, 9])
    claims = dict.fromkeys(("bills", "log", "orders"), shared)
    found = claims_of(
        [member("a", actives=claims, standbys={"log": shared}, generation=3)],
        PARTITIONS,
        {},
        generation=10,
        is_kafkas=True,
        last=Directory(),
        last_generation=-1,
    )
    (one,) = found.members
    assert {t: [int(p) for p in numbers] for t, numbers in one.actives.items()} == {
        "bills": [1, 4],
        "log": [1, 4, 6],
        "orders": [1, 4, 6],
    }
    assert one.actives["log"] is one.actives["orders"]
    assert found.beyond == {"bills": 2, "log": 2, "orders": 1}


def test_positions_of_partitions_that_are_gone_are_cut() -> None:
    """A topic may have been deleted, or created again with fewer partitions."""
    read = {
        "log": (np.array([0, 3, 7]), np.array([5, 6, 1])),
        "bills": (np.array([0, 4]), np.array([1, 2])),
        "gone": (np.array([0]), np.array([1])),
        "orders": {1: 200},
    }
    kept = existing_positions(read, {"log": 3, "bills": 5, "orders": 9})
    assert {t: [side.tolist() for side in pair] for t, pair in kept.items()} == {  # type: ignore[union-attr]
        "log": [[0], [5]],
        "bills": [[0, 4], [1, 2]],
    }
    assert existing_positions(read, {}) == {}
