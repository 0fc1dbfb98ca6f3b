"""A member's step towards its target: revocations, grants, and the wait for former owners."""

from __future__ import annotations

from typing import Any

from faust_assigner.coordinator.consumer.reconcile import Aim, next_step
from faust_assigner.coordinator.records import CurrentAssignment, MemberState

A, B = b"a" * 16, b"b" * 16
STABLE, UNREVOKED, UNRELEASED = (MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED)


def aim(epoch: int, target: dict[bytes, tuple[int, ...]], **more: Any) -> Aim:
    """Return a target of a member that reads both topics, with all partitions free."""
    values: dict[str, Any] = {
        "readable": {A, B}, "taken": lambda topic, number: False, "reads_anew": False
    }  # fmt: skip
    return Aim(epoch=epoch, target=target, **{**values, **more})


def test_a_member_with_a_part_of_its_partitions_waits_for_the_rest() -> None:
    """The member has the target's epoch already and keeps its granted partitions."""
    before = CurrentAssignment(1, 0, STABLE, {}, {})
    wanted = aim(2, {A: (0, 1)}, taken=lambda topic, number: number == 1)
    after = next_step(before, wanted, None)
    assert after == CurrentAssignment(2, 1, UNRELEASED, {A: {0: 2}}, {})
    assert next_step(after, aim(2, {A: (0, 1)}), None).state is STABLE


def test_a_member_that_says_nothing_of_its_partitions_still_holds_them() -> None:
    """Only a list without the partitions proves their revocation."""
    before = CurrentAssignment(1, 0, UNREVOKED, {A: {0: 1}}, {A: {1: 1}})
    wanted = aim(2, {A: (0,)})
    assert next_step(before, wanted, None) == before
    assert next_step(before, wanted, {A: (0, 1)}) == before
    after = next_step(before, wanted, {A: (0,)})
    assert after == CurrentAssignment(2, 1, STABLE, {A: {0: 1}}, {})


def test_a_member_that_reads_a_topic_no_more_gives_it_up_beside_what_it_owes() -> None:
    """A former request for revocation stays in effect."""
    before = CurrentAssignment(2, 1, UNREVOKED, {A: {0: 1}, B: {0: 1}}, {A: {1: 1}})
    wanted = aim(3, {A: (0,)}, readable={A}, reads_anew=True)
    after = next_step(before, wanted, None)
    assert after == CurrentAssignment(2, 2, UNREVOKED, {A: {0: 1}}, {A: {1: 1}, B: {0: 1}})


def test_a_partition_in_the_way_of_the_target_is_asked_for_before_anything_is_granted() -> None:
    """The member stays in its epoch until it has revoked the partition of the new owner."""
    before = CurrentAssignment(1, 0, STABLE, {A: {0: 1, 1: 1}}, {})
    after = next_step(before, aim(2, {A: (0,), B: (0,)}), None)
    assert after == CurrentAssignment(1, 1, UNREVOKED, {A: {0: 1}}, {A: {1: 1}})


def test_a_topic_that_a_member_reads_no_more_and_no_longer_holds_is_taken_at_once() -> None:
    """The member's list shows the revocation, so no request is necessary."""
    before = CurrentAssignment(2, 1, STABLE, {A: {0: 1}, B: {0: 1}}, {})
    wanted = aim(2, {A: (0,), B: (0,)}, readable={A}, reads_anew=True)
    after = next_step(before, wanted, {A: (0,)})
    assert after == CurrentAssignment(2, 2, STABLE, {A: {0: 1}}, {})
