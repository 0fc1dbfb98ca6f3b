"""An orphan goes to a member with most of its state, preferably to its former owner."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from faust_assigner import Member, plan

TOPICS = {"orders": 3, "orders-log": 3, "totals-log": 3}
LOGS = ("orders-log", "totals-log")


def claims(*numbers: int, topics: tuple[str, ...] = tuple(TOPICS)) -> dict[str, list[int]]:
    """Return these partitions of each topic."""
    return {topic: list(numbers) for topic in topics}


def owner_of_0(
    members: list[Member], weights: Mapping[tuple[str, int], float] | None = None
) -> str:
    """Return the new owner of the orphan."""
    made = plan(members, TOPICS, changelogs=LOGS, weights=weights)
    return next(m for m in made.member_ids if 0 in made.actives(m).get("orders", ()))


@pytest.mark.parametrize("weights", [None, {("orders", 0): 2.0}])
def test_who_holds_all_of_its_tables_goes_before_who_holds_one(
    weights: Mapping[tuple[str, int], float] | None,
) -> None:
    """The member with one table would restore the other table first, even if it is idle."""
    holds_one = Member("a", list(TOPICS), standbys=claims(0, topics=LOGS[:1]), generation=3)
    holds_all = Member(
        "b", list(TOPICS), actives=claims(1, 2), standbys=claims(0, topics=LOGS), generation=3
    )
    assert owner_of_0([holds_one, holds_all], weights) == "b"


def test_the_heaviest_go_back_to_where_they_were_or_to_the_lightest() -> None:
    """Among complete holders, the former owner comes first, then the member with the least load."""
    weights = {("orders", 0): 2.0}
    light = Member("b", list(TOPICS), standbys=claims(0, topics=LOGS), generation=3)
    busy = Member(
        "a", list(TOPICS), actives=claims(1, 2), standbys=claims(0, topics=LOGS), generation=3
    )
    assert owner_of_0([light, busy], weights) == "b"
    remembers = Member(
        "a",
        list(TOPICS),
        actives=claims(1, 2),
        standbys=claims(0, topics=LOGS),
        former_actives=claims(0),
        generation=3,
    )
    assert owner_of_0([light, remembers], weights) == "a"


def test_who_remembers_a_task_and_holds_nothing_of_it_is_not_asked() -> None:
    """The former owner would restore the table before processing; a holder would not."""
    weights = {("orders", 0): 2.0}
    holds = Member(
        "b", list(TOPICS), actives=claims(1, 2), standbys=claims(0, topics=LOGS), generation=3
    )
    holds_too = Member("c", list(TOPICS), standbys=claims(0, topics=LOGS), generation=3)
    remembers = Member("a", list(TOPICS), former_actives=claims(0), generation=3)
    assert owner_of_0([holds, holds_too, remembers], weights) != "a"


def test_the_lightest_holder_is_the_one_with_the_least_for_its_capacity() -> None:
    """A larger load on four times the capacity is a smaller relative load."""
    weights = {("orders", 0): 2.0}
    small = Member("a", list(TOPICS), standbys=claims(0, topics=LOGS), generation=3)
    large = Member(
        "b",
        list(TOPICS),
        actives=claims(1, 2),
        standbys=claims(0, topics=LOGS),
        generation=3,
        capacity=4.0,
    )
    assert owner_of_0([small, large], weights) == "b"


def test_each_promotion_counts_for_the_next() -> None:
    """Two idle members hold two orphans: each member gets one."""
    weights = {("orders", 0): 2.0, ("orders", 1): 2.0}
    holders = [
        Member(name, list(TOPICS), standbys=claims(0, 1, topics=LOGS), generation=3)
        for name in ("a", "b")
    ]
    owner = Member("c", list(TOPICS), actives=claims(2), generation=3)
    made = plan([*holders, owner], TOPICS, changelogs=LOGS, weights=weights)
    assert sorted(len(made.actives(name)["orders"]) for name in ("a", "b")) == [1, 1]


def test_the_heaviest_orphan_is_placed_first() -> None:
    """Two members hold three orphans; placed last, the heaviest would join a light one."""
    weights = {("orders", 0): 1.5, ("orders", 1): 1.5, ("orders", 2): 9.0}
    holders = [
        Member(name, list(TOPICS), standbys=claims(0, 1, 2, topics=LOGS), generation=3)
        for name in ("a", "b")
    ]
    made = plan(holders, TOPICS, changelogs=LOGS, weights=weights)
    assert sorted(made.actives(name)["orders"] for name in ("a", "b")) == [[0, 1], [2]]


@pytest.mark.parametrize(("replicas", "owner"), [(1, "a"), (0, "b")])
def test_with_copies_everywhere_an_orphan_evens_out_the_tasks_with_state(
    replicas: int, owner: str
) -> None:
    """Only member b's task has state, so member a gets the orphan; otherwise the target decides."""
    topics = dict.fromkeys(("s", "t", "t-log", "u", "u-log"), 1)
    copy = {"t-log": [0]}
    members = [
        Member("a", list(topics), actives={"s": [0]}, standbys=copy, generation=3),
        Member("b", list(topics), actives={"u": [0], "u-log": [0]}, standbys=copy, generation=3),
    ]
    made = plan(
        members,
        topics,
        changelogs=("t-log", "u-log"),
        replicas=replicas,
        co_partitioned=(("t", "t-log"), ("u", "u-log")),
    )
    assert [name for name in "ab" if "t" in made.actives(name)] == [owner]
