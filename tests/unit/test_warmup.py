"""The lag of members, and the state of a group after a round."""

from __future__ import annotations

import numpy as np
import pytest

from faust_assigner.grouper import PartitionGrouper, starts
from faust_assigner.model import NOBODY, Ints, Layout, Member, Previous
from faust_assigner.warmup import Progress, WarmupPolicy

A, B, C = 0, 1, 2
#: Tasks 0 to 3 belong to the table's group, task 4 is stateless.
TOPICS = {"t": 4, "t-log": 4, "stateless": 1}


def ints(*values: int) -> Ints:
    """Return an array of integers."""
    return np.array(values, dtype=np.int64)


def layout() -> Layout:
    """Three members that subscribe to all topics."""
    groups = PartitionGrouper().group([list(TOPICS)] * 3, TOPICS, changelogs=["t-log"])
    in_order = tuple(sorted(groups, key=lambda group: not group.is_stateful))
    return Layout(
        member_ids=("a", "b", "c"),
        groups=in_order,
        start=starts(in_order),
        capacity=np.ones(3),
        rack=np.full(3, NOBODY),
    )


def previous() -> Previous:
    """Member a owns tasks 0, 1 and 4, b owns 2; nobody owns 3. Copies are on b and c."""
    return Previous(
        owner=ints(A, A, B, NOBODY, A),
        former=ints(NOBODY, NOBODY, NOBODY, C, NOBODY),
        home=ints(C, NOBODY, A, C, B),
        awaited=ints(B, C, NOBODY, NOBODY, NOBODY),
        copy_task=ints(0, 1, 3),
        copy_member=ints(B, C, C),
        copy_logs=ints(1, 1, 1),
        copy_was_standby=np.array([True, False, True]),
    )


def after() -> Previous:
    """The state after a round: task 0 goes to b as promised, 3 to c, and the stateless one to b."""
    members = [Member(name, list(TOPICS), positions={}) for name in "abc"]
    progress = Progress(layout(), members, previous(), WarmupPolicy())
    return progress.after(ints(B, A, B, C, B)).previous


def test_after_a_round_a_task_still_has_the_home_of_its_last_stop() -> None:
    """A member's former partitions stay a wish in the next round; the new owner is no home."""
    assert after().home.tolist() == [C, NOBODY, A, C, B]


def test_after_a_round_only_the_open_promises_are_left() -> None:
    """Task 0 has arrived at b; task 1 is still awaited on c."""
    assert after().awaited.tolist() == [NOBODY, C, NOBODY, NOBODY, NOBODY]


def test_after_a_round_no_task_has_a_former_owner() -> None:
    """Every task has an owner then."""
    found = after()
    assert found.former.tolist() == [NOBODY] * 5
    assert found.owner.tolist() == [B, A, B, C, B]


def test_after_a_round_the_former_owner_of_a_stateful_task_has_a_copy() -> None:
    """It has one changelog and was no standby; the new owners' copies, and a stateless task's, are none."""
    found = after()
    rows = zip(
        found.copy_task, found.copy_member, found.copy_logs, found.copy_was_standby, strict=True
    )
    assert [tuple(map(int, row)) for row in rows] == [(0, A, 1, False), (1, C, 1, False)]


@pytest.mark.parametrize(
    "limits",
    [
        {"acceptable_recovery_lag": -1},
        {"acceptable_from_nothing": -1},
        {"max_per_member": 0},
        {"max_per_group": 0},
    ],
)
def test_each_limit_of_a_policy_has_a_least_value(limits: dict[str, int]) -> None:
    """The error names the whole policy."""
    with pytest.raises(ValueError, match=f"{next(iter(limits))}={next(iter(limits.values()))}"):
        WarmupPolicy(**limits)
