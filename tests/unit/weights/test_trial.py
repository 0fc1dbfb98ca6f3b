"""The trial of weights: the load of the heaviest member, computed by hand."""

from __future__ import annotations

import pytest

from faust_assigner import Member
from faust_assigner.weights.trial import TrialScore, score

#: Four partitions, the first heavy.
HEAVY = {("t", 0): 4.0, ("t", 1): 1.0, ("t", 2): 1.0, ("t", 3): 1.0}


def tried(
    *members: Member, weights: dict[tuple[str, int], float] | None = None, **more: object
) -> TrialScore:
    """Return the score of a topic with four partitions."""
    return score(members, {"t": 4}, HEAVY if weights is None else weights, **more)  # type: ignore[arg-type]


def test_the_heaviest_member_is_told_before_by_counts_and_by_weights() -> None:
    """Member a has all five heavy partitions: 25 of 35, or 21 after a move; the mean is 17.5."""
    members = (
        Member("a", ["t"], actives={"t": range(10)}, generation=1),
        Member("b", ["t"], actives={"t": range(10, 20)}, generation=1),
    )
    weights = {("t", number): 4.0 if number < 5 else 1.0 for number in range(20)}
    found = score(members, {"t": 20}, weights)
    assert (found.members, found.tasks) == (2, 20)
    assert (found.before, found.counted) == pytest.approx((25 / 17.5, 25 / 17.5))
    assert found.weighted == pytest.approx(21 / 17.5)
    assert found.ratio == pytest.approx(21 / 25)
    assert (found.counted_moves, found.weighted_moves) == (0, 1)
    assert found.report()["ratio"] == found.ratio


def test_members_may_own_nothing_yet() -> None:
    """Then no task moves, and no member was heavy before."""
    found = tried(Member("a", ["t"]), Member("b", ["t"]))
    assert (found.before, found.counted_moves, found.weighted_moves) == (0.0, 0, 0)
    assert (found.counted, found.weighted) == pytest.approx((5 / 3.5, 4 / 3.5))


def test_a_load_is_divided_by_capacity() -> None:
    """No partition had an owner; the member of capacity 6 gets its share of 7."""
    found = tried(Member("a", ["t"], capacity=6.0), Member("b", ["t"], capacity=1.0))
    assert found.before == 0.0
    assert found.weighted == pytest.approx(1.0)
    assert (found.counted_moves, found.weighted_moves) == (0, 0)


def test_partitions_that_nobody_owned_weigh_nothing_before() -> None:
    """The first member in order is treated like any other member."""
    found = tried(Member("a", ["t"], actives={"t": [0]}, generation=1), Member("b", ["t"]))
    assert found.before == pytest.approx(2.0)


def test_without_load_nothing_is_heavy() -> None:
    """The weights have no effect then."""
    found = tried(Member("a", ["t"]), Member("b", ["t"]), weights=dict.fromkeys(HEAVY, 0.0))
    assert (found.counted, found.weighted, found.ratio) == (0.0, 0.0, 1.0)


def test_weightless_topics_weigh_nothing() -> None:
    """A weightless topic is assigned in addition to the others."""
    members = (Member("a", ["t", "leader"]), Member("b", ["t", "leader"]))
    partitions = {"t": 2, "leader": 1}
    found = score(members, partitions, {}, weightless=["leader"])
    assert (found.tasks, found.counted, found.weighted) == (3, 1.0, 1.0)
    assert score(members, partitions, {}).counted == pytest.approx(4 / 3)


def test_a_trial_is_of_the_whole_group() -> None:
    """The group has capacities, a table with its changelog, a weightless topic, and old claims."""
    topics = {"s": 6, "s-log": 6, "t": 4, "lead": 1}
    members = (
        Member("a", list(topics), actives={"s": [0, 1, 2], "s-log": [0, 1, 2]}, generation=1),
        Member(
            "b",
            list(topics),
            actives={"s": [3, 4, 5], "s-log": [3, 4, 5], "t": [0, 1, 2, 3]},
            generation=1,
            capacity=2.0,
        ),
        Member("c", list(topics), generation=-1),
    )
    weights = {("s", 0): 3.0, ("s-log", 0): 2.0, ("t", 3): 5.0, ("lead", 0): 90.0}
    found = score(members, topics, weights, replicas=1, changelogs=["s-log"], weightless=["lead"])
    # Loads: a has 5 + 2 + 2, b 3 * 2 + 3 + 5 for twice the capacity; all 23 on capacity 4.
    assert (found.members, found.tasks) == (3, 11)
    assert found.before == pytest.approx(9 / (23 / 4))
    assert found.counted_moves == 3
    assert found.report() == {
        "members": 3,
        "tasks": 11,
        "before": found.before,
        "counted": found.counted,
        "weighted": found.weighted,
        "counted_moves": 3,
        "weighted_moves": found.weighted_moves,
        "ratio": found.weighted / found.counted,
    }
    assert found.weighted <= found.counted
