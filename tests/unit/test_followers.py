"""Changelogs with other subscribers than their source: distribution of tasks without a leader."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from faust_assigner.followers import _even_counts, place_followers
from faust_assigner.model import NOBODY, Group, Ints, Layout, Previous


def even(n: int, *, followed: list[int], held: list[int], warm: list[int]) -> list[int]:
    """Return each member's number of tasks, of ``n`` tasks for three members."""
    who = np.arange(3)
    return _even_counts(who, n, np.array(followed), np.array(held), np.array(warm)).tolist()


def test_the_extra_goes_where_the_fewest_followed() -> None:
    """Ties are broken by total load, then stickiness, then warm state, then the member's name."""
    assert even(4, followed=[2, 2, 1], held=[9, 9, 0], warm=[9, 9, 0]) == [1, 1, 2]
    assert even(4, followed=[1, 1, 1], held=[1, 2, 0], warm=[9, 0, 0]) == [1, 2, 1]
    assert even(4, followed=[1, 1, 1], held=[0, 0, 0], warm=[0, 0, 3]) == [1, 1, 2]
    assert even(4, followed=[1, 1, 1], held=[0, 0, 0], warm=[0, 0, 0]) == [2, 1, 1]


A, B, C, N = 0, 1, 2, NOBODY


def ints(*values: int) -> Ints:
    """Return an array of integers."""
    return np.array(values, dtype=np.int64)


def placed(
    leader: Ints,
    *,
    subscribers: Ints,
    owner: Ints | None = None,
    former: Ints | None = None,
    copies: Sequence[tuple[int, int]] = (),
    follows: int | None = 0,
    weightless: bool = False,
) -> list[int]:
    """Return the owners of a group of four tasks beside a leader of four, for three members."""
    groups = (
        Group(group_id=1, topics=("src",), partitions=4, members=ints(A, B, C)),
        Group(
            group_id=2,
            topics=("log",),
            partitions=4,
            members=subscribers,
            changelogs=("log",),
            follows=follows,
            weightless=weightless,
        ),
    )
    layout = Layout(
        member_ids=("a", "b", "c"),
        groups=groups,
        start=ints(0, 4, 8),
        capacity=np.ones(3),
        rack=ints(N, N, N),
    )
    nobody = ints(*[N] * 8)
    before, last = nobody.copy(), nobody.copy()
    before[4:] = N if owner is None else owner
    last[4:] = N if former is None else former
    previous = Previous(
        owner=before,
        former=last,
        home=nobody,
        awaited=nobody,
        copy_task=ints(*(4 + number for number, _ in copies)),
        copy_member=ints(*(member for _, member in copies)),
        copy_logs=ints(*[1] * len(copies)),
        copy_was_standby=np.ones(len(copies), dtype=np.bool_),
    )
    flat = np.append(leader, ints(N, N, N, N))
    found = place_followers(layout, flat, previous)
    assert found[:4].tolist() == leader.tolist(), "no other task moves"
    assert flat[4:].tolist() == [N] * 4, "the input stays as it is"
    return found[4:].tolist()


def test_a_changelog_goes_to_the_owner_of_its_source_if_the_owner_subscribes_to_it() -> None:
    """The other numbers go to the subscribers with the fewest numbers."""
    assert placed(ints(A, B, A, B), subscribers=ints(A, B, C)) == [A, B, A, B]
    assert placed(ints(A, B, C, C), subscribers=ints(A, B)) == [A, B, A, B]
    assert placed(ints(A, A, C, C), subscribers=ints(A, B)) == [A, A, A, B]


def test_a_number_without_a_leader_stays_with_its_previous_owner() -> None:
    """Without a previous owner, the former owner or a member with a copy gets the task."""
    lost = ints(C, C, C, C)
    assert placed(lost, subscribers=ints(A, B), owner=ints(B, B, A, A)) == [B, B, A, A]
    assert placed(lost, subscribers=ints(A, B), former=ints(B, B, A, A)) == [B, B, A, A]
    copies = [(0, B), (1, B), (2, A), (3, A)]
    assert placed(lost, subscribers=ints(A, B), copies=copies) == [B, B, A, A]


def test_a_copy_of_a_number_that_follows_its_leader_draws_no_other_number() -> None:
    """Only copies of the numbers without a leader count."""
    leader = ints(A, B, C, C)
    copies = [(0, B), (1, B), (3, A)]
    assert placed(leader, subscribers=ints(A, B), copies=copies) == [A, B, B, A]


def test_a_weightless_group_is_placed_without_a_leader() -> None:
    """Its topic is assigned and stays with its previous owner."""
    found = placed(
        ints(A, A, A, A),
        subscribers=ints(A, B, C),
        follows=None,
        weightless=True,
        owner=ints(C, B, N, N),
    )
    assert found[:2] == [C, B]
    assert sorted(found) in ([A, A, B, C], [A, B, B, C], [A, B, C, C])
