"""Bundles of the leader's decisions: joined, grouped within the store's limits, and logged."""

from __future__ import annotations

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.leading.bundles import (
    MAX_BUNDLE,
    MAX_CHUNK_BYTES,
    Bundle,
    chunks,
    joined,
    lines,
    owner,
    still_gone,
)
from faust_assigner.service.records import Assigned, Consumer
from faust_assigner.service.store.base import Compare, Delete, Field, Put, absent, unchanged
from tests.unit.service.stories import ALL, view_of


def bundle(number: int, *, compares: int = 2, writes: int = 2) -> Bundle:
    """A decision about one partition with its own keys."""
    at = TopicPartition("t", number)
    return Bundle(
        tuple(Compare(f"{number}/{n}", Field.VERSION, 1) for n in range(compares)),
        tuple(Put(f"{number}/{n}", b"v") for n in range(writes)),
        ((str(at), "moved"), (f"c{number}", "ended")),
        (("handed", at), ("late", at)),
    )


def test_joined_bundles_keep_all_parts_in_their_order() -> None:
    """Each of three decisions keeps its compares, writes, lines and outcomes."""
    one, two, three = bundle(1), bundle(2, writes=3), bundle(3, compares=1)
    assert list(joined([one, two, three])) == [
        Bundle(
            (*one.compares, *two.compares, *three.compares),
            (*one.writes, *two.writes, *three.writes),
            (*one.told, *two.told, *three.told),
            (*one.ended, *two.ended, *three.ended),
        )
    ]
    [alone] = joined([Bundle((), (), warning="look")])
    assert alone.warning == "look"
    assert list(joined([])) == []


def test_bundles_above_the_limit_of_a_transaction_are_several() -> None:
    """127 single writes fit beside the leader's own compare; a second bundle has the rest."""
    many = [bundle(number, writes=1, compares=1) for number in range(2 * MAX_BUNDLE + 3)]
    found = list(joined(many))
    assert [len(one.writes) for one in found] == [MAX_BUNDLE, MAX_BUNDLE, 3]
    assert [write for one in found for write in one.writes] == [
        write for one in many for write in one.writes
    ]


SHARED = Compare("shared", Field.VERSION, 1)


@pytest.mark.parametrize(
    ("bundles", "sizes"),
    [
        ([bundle(n, writes=0) for n in range(5)], [2, 2, 1]),
        ([bundle(n, compares=0) for n in range(5)], [2, 2, 1]),
        ([bundle(n, compares=0, writes=1) for n in range(9)], [4, 4, 1]),
        ([bundle(n, compares=3, writes=0) for n in range(3)], [1, 1, 1]),
        ([bundle(0, writes=9), bundle(1), bundle(2)], [1, 2]),
        ([bundle(0), bundle(1, compares=9), bundle(2)], [1, 1, 1]),
        ([Bundle((SHARED, *bundle(n, compares=1).compares), ()) for n in range(6)], [3, 3]),
        ([Bundle((SHARED,), (Delete(str(n)),)) for n in range(6)], [4, 2]),
        ([], []),
    ],
    ids=[
        "compares",
        "writes",
        "single writes",
        "uneven",
        "large first",
        "large amid",
        "shared",
        "deletes",
        "none",
    ],
)
def test_a_group_of_bundles_has_at_most_four_compares_and_four_writes(
    bundles: list[Bundle], sizes: list[int]
) -> None:
    """A compare of several bundles counts once per group; a large bundle is a group of its own."""
    found = list(chunks(bundles, 4))
    assert [len(group) for group in found] == sizes
    assert [one for group in found for one in group] == bundles


@pytest.mark.parametrize(("more", "sizes"), [(0, [2, 2]), (1, [1, 1, 1, 1])])
def test_the_values_of_a_group_have_at_most_a_mebibyte(more: int, sizes: list[int]) -> None:
    """All values of a bundle count, the limit is inclusive, and each group starts at 0."""
    half = MAX_CHUNK_BYTES // 2
    first = Bundle((), (Put("a", b"x" * (half - 5)), Delete("b"), Put("c", b"x" * 5)))
    second = Bundle((), (Put("d", b"x" * (half + more)),))
    found = chunks([first, second, first, second], 9)
    assert [len(group) for group in found] == sizes


@pytest.mark.parametrize(("count", "more"), [(20, ""), (21, " and 1 more"), (25, " and 5 more")])
def test_partitions_with_the_same_change_share_a_line(count: int, more: str) -> None:
    """A line names twenty partitions of any bundles; lines are in order of arrival."""
    found = list(lines(bundle(number) for number in range(count)))
    assert found == [
        ", ".join(f"t/{number}" for number in range(20)) + f"{more}: moved",
        ", ".join(f"c{number}" for number in range(20)) + f"{more}: ended",
    ]


def test_the_parts_of_a_bundle_name_their_keys() -> None:
    """The parts are the new owner's process and offset, and the consumer's unchanged key."""
    view = view_of(Consumer(name="a"), topics={"t": 1})
    at = TopicPartition("t", 0)
    assert owner(view, at, "a", "a1", 0) == Put(
        ALL.assignment(at), codec.dump_assigned(Assigned(at, "a", offset=0, incarnation="a1"))
    )
    assert still_gone(view, "a") == unchanged(view.raw[ALL.consumer("a")])
    assert still_gone(view, "b") == absent(ALL.consumer("b"))
