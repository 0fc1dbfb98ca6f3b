"""The preferred members of tasks: promised members, former homes, and owners with room."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from faust_assigner.model import NOBODY, Bools, Group, Ints, Layout, Previous
from faust_assigner.sticky import StickyAssignor, _preferred_members

A, B, C, N = 0, 1, 2, NOBODY


def ints(*values: int) -> Ints:
    """Return an array of integers."""
    return np.array(values, dtype=np.int64)


def previous(*, owner: Ints, home: Ints, awaited: Ints) -> Previous:
    """Return a previous state without copies and without former owners."""
    return Previous(
        owner=owner,
        former=ints(*[N] * owner.size),
        home=home,
        awaited=awaited,
        copy_task=ints(),
        copy_member=ints(),
        copy_logs=ints(),
        copy_was_standby=np.empty(0, dtype=np.bool_),
    )


def homes(*, promises: bool, **past: Ints) -> Any:
    """Return both answers as lists."""
    return tuple(
        None if one is None else one.tolist()
        for one in _preferred_members(previous(**past), promises=promises)
    )


OWNER = ints(A, A, B, N)


def test_a_promised_task_prefers_its_promise_and_leaves_its_owner_first() -> None:
    """The other tasks keep their homes, and their owners may stay."""
    found = homes(promises=True, owner=OWNER, home=ints(C, A, C, N), awaited=ints(B, N, N, N))
    assert found == ([B, A, C, N], [N, A, B, N])


def test_without_warm_ups_a_promise_counts_for_nothing() -> None:
    """The homes remain; an owner is preferred only at home."""
    past = {"owner": OWNER, "awaited": ints(B, N, N, N)}
    assert homes(promises=False, home=ints(C, A, C, N), **past) == ([C, A, C, N], [N, A, N, N])
    assert homes(promises=False, home=ints(N, N, N, N), **past) == (None, None)


@pytest.mark.parametrize("promises", [True, False])
def test_without_homes_and_promises_no_member_is_preferred(promises: bool) -> None:
    """The counts alone decide, in less time."""
    nobody = ints(N, N, N, N)
    assert homes(promises=promises, owner=OWNER, home=nobody, awaited=nobody) == (None, None)


def layout() -> Layout:
    """Return members a and b, a weightless topic, and a table of four partitions."""
    groups = (
        Group(group_id=1, topics=("lead",), partitions=1, members=ints(A, B), weightless=True),
        Group(
            group_id=4, topics=("t", "log"), partitions=4, members=ints(A, B), changelogs=("log",)
        ),
    )
    return Layout(
        member_ids=("a", "b"),
        groups=groups,
        start=ints(0, 1, 5),
        capacity=np.ones(2),
        rack=ints(N, N),
    )


def test_tasks_return_to_their_homes_if_the_counts_allow() -> None:
    """The tasks have no owners here; without homes the first member gets the first numbers."""
    nobody = ints(N, N, N, N, N)
    past = previous(owner=nobody, home=ints(N, B, B, A, A), awaited=nobody)
    assert StickyAssignor().assign(layout(), past).tolist() == [N, B, B, A, A]
    past = previous(owner=nobody, home=nobody, awaited=nobody)
    assert StickyAssignor().assign(layout(), past).tolist() == [N, A, A, B, B]


def test_copies_are_looked_at_under_the_number_of_their_group() -> None:
    """A preceding group without load has no row in the table of counts."""
    asked: set[int] = set()

    def caught_up(group: int, numbers: Ints, members: Ints) -> Bools:
        asked.add(group)
        return np.ones(numbers.size, dtype=np.bool_)

    nobody = ints(N, N, N, N, N)
    past = replace(
        previous(owner=ints(N, A, A, A, A), home=nobody, awaited=nobody),
        copy_task=ints(1, 2),
        copy_member=ints(B, B),
        copy_logs=ints(1, 1),
        copy_was_standby=np.ones(2, dtype=np.bool_),
    )
    found = StickyAssignor().assign(layout(), past, caught_up)
    assert (asked, found.tolist()) == ({1}, [N, B, B, A, A])


def test_without_warm_ups_copies_and_not_promises_decide_who_gets_more() -> None:
    """Two members share three tasks: the extra task goes to the member with copies."""
    groups = (
        Group(
            group_id=3, topics=("t", "log"), partitions=3, members=ints(A, B), changelogs=("log",)
        ),
    )
    whole = Layout(
        member_ids=("a", "b"), groups=groups, start=ints(0, 3), capacity=np.ones(2), rack=ints(N, N)
    )
    nobody = ints(N, N, N)
    past = replace(
        previous(owner=nobody, home=nobody, awaited=ints(A, A, A)),
        copy_task=ints(0, 1),
        copy_member=ints(B, B),
        copy_logs=ints(1, 1),
        copy_was_standby=np.ones(2, dtype=np.bool_),
    )
    assert StickyAssignor().assign(whole, past).tolist() == [B, B, A]
    near = StickyAssignor().assign(
        whole, past, lambda group, numbers, members: np.ones(numbers.size, dtype=np.bool_)
    )
    assert sorted(near.tolist()) == [A, A, B]
    near = StickyAssignor().assign(
        whole,
        replace(past, awaited=ints(A, N, N)),
        lambda group, numbers, members: np.ones(numbers.size, dtype=np.bool_),
    )
    assert sorted(near.tolist()) == [A, A, B]


def test_only_with_warm_ups_a_promised_task_is_the_first_to_leave() -> None:
    """Member a owns four tasks and may keep two; the first task was promised to member b."""
    nobody = ints(N, N, N, N, N)
    past = previous(owner=ints(N, A, A, A, A), home=nobody, awaited=ints(N, B, N, N, N))
    assert StickyAssignor().assign(layout(), past).tolist() == [N, A, A, B, B]
    near = StickyAssignor().assign(
        layout(), past, lambda group, numbers, members: np.ones(numbers.size, dtype=np.bool_)
    )
    assert near.tolist() == [N, B, A, A, B]


def test_a_task_without_a_promise_keeps_its_home_beside_a_promised_task() -> None:
    """Two tasks have no owner; the third is promised to member a, the fourth has its home there."""
    nobody = ints(N, N, N, N, N)
    past = previous(owner=nobody, home=ints(N, N, N, N, A), awaited=ints(N, N, N, A, N))
    found = StickyAssignor().assign(
        layout(), past, lambda group, numbers, members: np.ones(numbers.size, dtype=np.bool_)
    )
    assert found.tolist() == [N, B, B, A, A]
