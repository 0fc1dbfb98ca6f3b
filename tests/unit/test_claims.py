"""Reading members' claims: malformed claims yield valid partition numbers or none."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

from faust_assigner import Member, plan
from faust_assigner.claims import TopicClaims, claim_on, items_of, numbers, offsets_at


class Hostile:
    """Raise when iterated or converted to an array."""

    def __iter__(self) -> Iterator[int]:
        raise RuntimeError("no")

    def __array__(self, *_: Any) -> Any:
        raise RuntimeError("no")


class Touchy:
    """Hash like the topic name and raise when compared."""

    def __hash__(self) -> int:
        return hash("orders")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "claim",
    [
        [0, 2],
        (0, 2),
        {0, 2},
        frozenset({0, 2}),
        range(0, 3, 2),
        range(2, -1, -2),
        iter([0, 2]),
        {0: "x", 2: "y"},
        np.array([0, 2]),
        np.array([0, 2], dtype=np.uint8),
        np.array([[0], [2]]),
        [0, 2, -1, 4, 10**30],
        [0, "1", None, 2, 1.0],
        np.array([0, 2, 2**63], dtype=np.uint64),
        np.array([0, "x", 2], dtype=object),
    ],
)
def test_any_sequence_set_or_array_of_numbers_is_read(claim: Any) -> None:
    """Numbers outside the topic and values of other types are dropped."""
    assert sorted(numbers(claim, 4).tolist()) == [0, 2]


@pytest.mark.parametrize(
    "claim",
    [
        None,
        7,
        "012",
        b"\x00\x01",
        bytearray(b"\x00"),
        object(),
        Hostile(),
        [Hostile()],
        np.array([0.0, 1.0]),
        np.array("x"),
        [[0], [1, 2]],
        [],
        range(0),
        range(-5, 0),
        range(4, 10**18),
    ],
)
def test_what_holds_no_partition_number_claims_nothing(claim: Any) -> None:
    """The reader neither raises nor returns a partition."""
    assert numbers(claim, 4).tolist() == []


def test_a_range_far_beyond_the_topic_is_clipped_before_it_is_laid_out() -> None:
    """A hostile range uses no memory."""
    assert numbers(range(-(10**18), 10**18), 3).tolist() == [0, 1, 2]
    assert numbers(range(10**18, -(10**18), -1), 3).tolist() == [0, 1, 2]
    assert numbers(range(-5, 10**18, 3), 8).tolist() == [1, 4, 7]


def test_an_endless_claim_ends() -> None:
    """Reading stops at a limit instead of exhausting memory."""
    assert set(numbers(count(), 4).tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "junk",
    [
        None,
        7,
        "orders",
        [("orders", [0])],
        {"orders": Hostile()},
        {7: [0]},
        {Touchy(): [0]},
        {"orders": 10**30},
        {None: None},
    ],
)
def test_claims_that_are_no_mapping_make_a_stateless_member(junk: Any) -> None:
    """The good member keeps its partitions; the bad member is treated like a new member."""
    good = Member("good", ["orders"], actives={"orders": [0, 1]})
    bad = Member("bad", ["orders"], actives=junk, standbys=junk, generation=junk)
    answer = plan([good, bad], {"orders": 4}, changelogs=["orders"], replicas=1)
    assert answer.actives("good") == {"orders": [0, 1]}
    assert answer.actives("bad") == {"orders": [2, 3]}


def test_claims_on_unsubscribed_topics_and_missing_partitions_are_ignored() -> None:
    """A member loses its claim with the subscription; a shrunken topic has fewer partitions."""
    members = [
        Member("a", ["kept"], actives={"kept": [0, 1, 2, 7], "dropped": [0]}),
        Member("b", ["kept", "dropped"]),
    ]
    answer = plan(members, {"kept": 3, "dropped": 1})
    assert answer.actives("b")["dropped"] == [0]
    assert answer.actives("a") == {"kept": [0, 1]}


def test_topics_claimed_by_the_same_members_with_other_numbers_are_read_apart() -> None:
    """Members ``a`` and ``b`` claim different partitions of topic ``s`` than of topic ``t``."""
    members = [
        Member("a", ["s", "t"], actives={"s": range(0, 1), "t": range(0, 2)}, generation=1),
        Member("b", ["s", "t"], actives={"s": range(3, 4), "t": range(2, 4)}, generation=1),
    ]
    assert plan(members, {"s": 4, "t": 4}).previous.owner.tolist() == [0, 0, 1, 1]


def test_ranges_are_clipped_before_they_are_laid_out() -> None:
    """The ranges begin before partition 0 or end beyond the last partition."""
    members = [
        Member("a", ["t"], actives={"t": range(-3, 2)}, generation=1),
        Member("b", ["t"], actives={"t": range(3, 10**15)}, generation=1),
    ]
    assert plan(members, {"t": 5}).previous.owner.tolist() == [0, 0, -1, 1, 1]


def test_an_iterable_that_names_a_partition_twice_is_read_beyond_the_partition_count() -> None:
    """The reader takes twice as many numbers as partitions, so partition 1 is claimed too."""
    assert numbers((n for n in (0, 0, 1, 1)), 2).tolist() == [0, 0, 1, 1]
    twice = [n // 2 for n in range(80)]
    assert numbers(iter(twice), 40).tolist() == twice


@pytest.mark.parametrize(
    "claim",
    [
        [0, 2],
        [0, 2, 1.5],
        [2, "x", 0],
        [0, None, 2],
        [[0], [2]],
        [[0], [1, 2]],
        [False, True],
        [0, 2, 10**30],
        [0, 2, 2**63],
        [0.0, 2.0],
        [-1, 4, 0],
        [],
    ],
)
def test_lists_of_many_members_are_read_as_each_alone(claim: list[Any]) -> None:
    """The lists are joined before reading; a malformed list does not affect other members."""
    members = [
        Member("a", ["t"], actives={"t": claim}, generation=1),
        Member("b", ["t"], actives={"t": [3]}, generation=1),
    ]
    mine = numbers(claim, 4).tolist()
    expected = [0 if p in mine else 1 if p == 3 else -1 for p in range(4)]
    assert plan(members, {"t": 4}).previous.owner.tolist() == expected


@pytest.mark.parametrize(
    ("claim", "offsets"),
    [
        ({1: 10, 3: 30}, [10, 0, 30]),
        ((np.array([1, 3]), np.array([10, 30])), [10, 0, 30]),
        ((np.array([1, 2, 3]), np.array([10, 20, 30])), [10, 20, 30]),
        ((np.array([3], dtype=np.int32), np.array([30])), [0, 0, 30]),
        ((np.array([0]), np.array([7])), [0, 0, 0]),
        ({1: True, 2: -1, 3: 1 << 62}, [0, 0, 0]),
        ({1: "10", 2: None, 3: (1 << 62) - 1}, [0, 0, (1 << 62) - 1]),
        ((np.array([1, 3]), np.array([10])), [0, 0, 0]),
        ((np.array([1, 3]), np.array([10.0, 30.0])), [0, 0, 0]),
        ((np.array([[1, 3]]), np.array([[10, 30]])), [0, 0, 0]),
        ((np.array([1]), np.array([10]), np.array([1.5])), [0, 0, 0]),
        ((np.array([1]), np.array([10]), np.array([1])), [0, 0, 0]),
        ((np.array([], dtype=np.int64), np.array([], dtype=np.int64)), [0, 0, 0]),
        (([1, 3], [10, 30]), [0, 0, 0]),
        (None, [0, 0, 0]),
        (Hostile(), [0, 0, 0]),
    ],
)
def test_offsets_are_read_from_mappings_and_pairs_of_arrays(claim: Any, offsets: list[int]) -> None:
    """Invalid or missing offsets are read as 0."""
    assert offsets_at(claim, np.array([1, 2, 3])).tolist() == offsets


def test_claims_on_equal_arrays_are_read_singly() -> None:
    """Only the same objects and equal ranges are compared at once."""
    one, other = TopicClaims([0], [np.array([1, 2])]), TopicClaims([0], [np.array([1, 2])])
    assert one.is_same(one)
    assert not one.is_same(other)


@pytest.mark.parametrize("odd", [range(3, 1), range(1 << 70, (1 << 70) + 2), range(9, 12)])
def test_a_range_without_partitions_takes_none_from_the_next_one(odd: range) -> None:
    """The range is reversed or lies beyond the topic."""
    number, member = TopicClaims([0, 1], [odd, range(2)]).pairs(4)
    assert (number.tolist(), member.tolist()) == ([0, 1], [1, 1])


@pytest.mark.parametrize("error", [KeyError, TypeError, ValueError, RuntimeError, OSError])
def test_a_mapping_that_raises_any_error_claims_nothing(error: type[Exception]) -> None:
    """A decoder of another package may read its bytes only at the first look."""

    class Late(dict[str, object]):
        """A mapping whose every method fails."""

        def items(self) -> Any:
            """Fail."""
            raise error("late")

        def get(self, key: str, default: object = None) -> Any:
            """Fail."""
            raise error(key)

    late = Late(orders=[1])
    assert list(items_of(late)) == []
    assert claim_on(late, "orders") is None
    assert claim_on({"orders": [1]}, "orders") == [1]


_LIST, _SET = [1, 2], {1, 2}


@pytest.mark.parametrize(
    ("members", "claims", "is_same"),
    [
        ([3, 5], [_LIST, _SET], True),
        ([5, 3], [_LIST, _SET], False),
        ([3], [_LIST], False),
        ([3, 5], [_LIST, {1, 2}], False),
        ([3, 5], [_SET, _LIST], False),
        ([3, 5], [[1, 2], [1, 2]], False),
    ],
)
def test_claims_are_the_same_for_the_same_members_and_objects(
    members: list[int], claims: list[Any], *, is_same: bool
) -> None:
    """One equal object of two is not enough, nor equal members in another order."""
    assert TopicClaims([3, 5], [_LIST, _SET]).is_same(TopicClaims(members, claims)) is is_same


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ([range(2, 4), range(5)], [range(2, 4), range(5)], True),
        ([range(2, 4), range(5)], [range(2, 4), range(6)], False),
        ([range(2, 4), range(5)], [range(2, 4), _LIST], False),
        ([range(2, 4), _LIST], [range(2, 4), [1, 2]], False),
        ([[1, 2], [3]], [[1, 2], [3]], False),
        ([range(4, 4)], [range(9, 9)], True),
    ],
)
def test_equal_ranges_are_the_same_claims_and_equal_lists_are_not(
    one: list[Any], other: list[Any], *, is_same: bool
) -> None:
    """A comparison of lists would take as long as their conversion."""
    members = list(range(7, 7 + len(one)))
    assert TopicClaims(members, one).is_same(TopicClaims(members, other)) is is_same
    assert TopicClaims(members, other).is_same(TopicClaims(members, one)) is is_same


@pytest.mark.parametrize(
    ("claims", "numbers_", "members"),
    [
        ([[4, 0, 4], [2]], [4, 0, 4, 2], [9, 9, 9, 6]),
        ([[5, 4, -1], [0, 6]], [4, 0], [9, 6]),
        ([[], [3]], [3], [6]),
        ([[], []], [], []),
        ([[2**70, 1], [3]], [1, 3], [9, 6]),
        ([[1.0, 1], [True, 3]], [1, 1, 3], [9, 6, 6]),
        ([range(3, 9), range(-2, 2)], [3, 4, 0, 1], [9, 9, 6, 6]),
        ([range(0, 5, 2), range(3, 4)], [0, 2, 4, 3], [9, 9, 9, 6]),
        ([range(4, 0, -1), range(2)], [1, 2, 3, 4, 0, 1], [9, 9, 9, 9, 6, 6]),
        ([np.array([4, 5, 0]), [1]], [4, 0, 1], [9, 9, 6]),
        ([np.array([[3, 0]]), range(1, 2)], [3, 0, 1], [9, 9, 6]),
        ([np.array([4, 2**63], dtype=np.uint64), {3}], [4, 3], [9, 6]),
        ([Hostile(), [3, -5]], [3], [6]),
        (["34", (2, 9)], [2], [6]),
        ([[-1, 2], [3, -7]], [2, 3], [9, 6]),
        ([[Hostile(), 1], [3]], [1, 3], [9, 6]),
        ([[[1, 2], [3, 0]], [[1, 1]]], [], []),
        ([((1, 2), (3, 0)), {2}], [2], [6]),
    ],
)
def test_each_claimed_number_stands_beside_its_member(
    claims: list[Any], numbers_: list[int], members: list[int]
) -> None:
    """The numbers 0 and 4 are in the topic of 5, -1 and 5 are not; the order is that of the claims."""
    number, member = TopicClaims([9, 6], claims).pairs(5)
    assert (number.tolist(), member.tolist()) == (numbers_, members)
    assert (number.dtype, member.dtype) == (np.int64, np.int64)


def test_claims_of_nobody_and_of_a_single_member() -> None:
    """An array of small integers is converted as well."""
    for part in TopicClaims().pairs(5):
        assert (part.tolist(), part.dtype) == ([], np.int64)
    number, member = TopicClaims([8], [np.array([4, 0, 7], dtype=np.int16)]).pairs(5)
    assert (number.tolist(), member.tolist()) == ([4, 0], [8, 8])
    assert number.dtype == np.int64


def test_an_object_with_items_is_no_mapping() -> None:
    """Only a mapping promises that its items are pairs."""

    class Shop:
        """Has items, which are for sale."""

        def items(self) -> list[tuple[str, list[int]]]:
            """Return pairs all the same."""
            return [("orders", [1])]

    assert list(items_of(Shop())) == []
    assert claim_on(Shop(), "orders") is None
