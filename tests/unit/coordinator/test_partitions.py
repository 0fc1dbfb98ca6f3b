"""Sets of partitions by topic, with and without epochs, and the fields of a member's steps."""

from __future__ import annotations

import pytest

from faust_assigner.coordinator.catalogue import Partitions
from faust_assigner.coordinator.consumer.partitions import (
    dated,
    keep,
    merge,
    overlaps,
    pairs,
    plain,
    within,
)
from faust_assigner.coordinator.consumer.reconcile import Aim, next_step
from faust_assigner.coordinator.records import CurrentAssignment, MemberState

A, B, C = b"a", b"b", b"c"
HELD = {A: {2: 7, 0: 5}, B: {4: 6}, C: dict[int, int]()}
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED


def test_epochs_are_dropped_and_given() -> None:
    """Partitions ascend; a topic without partitions is left out."""
    assert plain(HELD) == {A: (0, 2), B: (4,)}
    assert dated({A: (2, 0), C: ()}, 9) == {A: {2: 9, 0: 9}}
    assert list(pairs(HELD)) == [(A, 2), (A, 0), (B, 4)]
    assert list(pairs({A: (3, 1)})) == [(A, 3), (A, 1)]


def test_partitions_are_kept_with_their_epochs() -> None:
    """The filter gets topic and number; a topic without remaining partitions is left out."""
    assert keep(HELD, lambda topic, number: number != 2) == {A: {0: 5}, B: {4: 6}}
    assert keep(HELD, lambda topic, number: topic == A) == {A: {2: 7, 0: 5}}
    assert keep(HELD, lambda topic, number: False) == {}


def test_a_union_has_the_later_epoch() -> None:
    """The second set's epoch is used, and topics are in order."""
    merged = merge({B: {1: 1}, A: {0: 1, 2: 1}}, {A: {2: 8, 3: 8}, C: {5: 8}})
    assert merged == {A: {0: 1, 2: 8, 3: 8}, B: {1: 1}, C: {5: 8}}
    assert list(merged) == [A, B, C]


@pytest.mark.parametrize(
    ("one", "overlap", "subset"),
    [
        ({}, False, True),
        ({A: ()}, False, True),
        ({A: (0,)}, True, True),
        ({A: (0, 3)}, True, False),
        ({A: (3, 0)}, True, False),
        ({A: (3,)}, False, False),
        ({A: (2, 0), B: (4,)}, True, True),
        ({A: (1,), B: (4,)}, True, False),
        ({A: (0,), B: (1,)}, True, False),
        ({C: (0,)}, False, False),
        ({b"z": (0,)}, False, False),
    ],
)
def test_every_partition_counts_for_a_subset_and_any_for_an_overlap(
    one: Partitions, overlap: bool, subset: bool
) -> None:
    """Every topic is compared, and the order does not matter."""
    assert (overlaps(one, HELD), within(one, HELD)) == (overlap, subset)


def aim(target: Partitions, *, taken: object = (), reads_anew: bool = False) -> Aim:
    """Return a target of epoch 9 for a member that reads a and b."""
    held = set(taken)  # type: ignore[call-overload]
    return Aim(9, target, frozenset({A, B}), lambda t, p: (t, p) in held, reads_anew)


def at(
    state: MemberState = STABLE,
    *,
    epoch: int = 5,
    assigned: dict[bytes, dict[int, int]] | None = None,
    revoking: dict[bytes, dict[int, int]] | None = None,
) -> CurrentAssignment:
    """Return the state of a member that came from epoch 4."""
    return CurrentAssignment(epoch, 4, state, assigned or {}, revoking or {})


STAYS = {A: {0: 3, 1: 5}, B: {4: 2}}


@pytest.mark.parametrize(
    ("member", "where", "owned", "after"),
    [
        # Settled: the member's report changes no partition.
        (at(epoch=9, assigned=STAYS), aim({A: (7,)}), {}, at(epoch=9, assigned=STAYS)),
        # Two partitions must move: the revocation comes first, and kept partitions keep their
        # epochs.
        (
            at(assigned=STAYS), aim({A: (1, 2), B: ()}), None,
            CurrentAssignment(5, 5, UNREVOKED, {A: {1: 5}}, {A: {0: 3}, B: {4: 2}}),
        ),
        (
            at(assigned=STAYS), aim({A: (1, 2)}), {A: (1,), B: (4,)},
            CurrentAssignment(5, 5, UNREVOKED, {A: {1: 5}}, {A: {0: 3}, B: {4: 2}}),
        ),
        # The report has no partition to revoke: the free partitions are granted immediately.
        (
            at(assigned=STAYS), aim({A: (3, 1, 2)}), {A: (1,)},
            CurrentAssignment(9, 5, STABLE, {A: {1: 5, 2: 9, 3: 9}}, {}),
        ),
        (
            at(assigned=STAYS), aim({A: (3, 1, 2), B: (4, 5)}, taken=[(A, 2)]), {A: (1,)},
            CurrentAssignment(9, 5, UNRELEASED, {A: {1: 5, 3: 9}, B: {4: 2, 5: 9}}, {}),
        ),
        # A pending revocation blocks the member until its report has no revoked partition.
        (
            at(UNREVOKED, assigned={A: {1: 5}}, revoking={A: {0: 3}, B: {4: 2}}), aim({A: (1,)}),
            {B: (4,)},
            at(UNREVOKED, assigned={A: {1: 5}}, revoking={A: {0: 3}, B: {4: 2}}),
        ),
        (
            at(UNREVOKED, assigned={A: {1: 5}}, revoking={A: {0: 3}}), aim({A: (0, 1)}), {A: (1,)},
            CurrentAssignment(9, 5, STABLE, {A: {0: 9, 1: 5}}, {}),
        ),
        # At the target's epoch, a released partition is granted.
        (
            at(UNRELEASED, epoch=9, assigned={A: {1: 5}}), aim({A: (1, 2)}), None,
            CurrentAssignment(9, 9, STABLE, {A: {1: 5, 2: 9}}, {}),
        ),
        (
            at(UNRELEASED, epoch=9, assigned={A: {1: 5}}), aim({A: (1, 2)}, taken=[(A, 2)]), None,
            CurrentAssignment(9, 9, UNRELEASED, {A: {1: 5}}, {}),
        ),
        # A partition of an unsubscribed topic is always revoked and never granted.
        (
            at(assigned={C: {0: 1}}), aim({C: (0, 1), B: (2,)}), None,
            CurrentAssignment(5, 5, UNREVOKED, {}, {C: {0: 1}}),
        ),
        (
            at(), aim({C: (0, 1), B: (2,)}), {},
            CurrentAssignment(9, 5, STABLE, {B: {2: 9}}, {}),
        ),
        # A new subscription has the same effect on a blocked or settled member.
        (
            at(epoch=9, assigned={A: {0: 3}, C: {1: 2}}), aim({}, reads_anew=True), None,
            CurrentAssignment(9, 9, UNREVOKED, {A: {0: 3}}, {C: {1: 2}}),
        ),
        (
            at(epoch=9, assigned={A: {0: 3}, C: {1: 2}}), aim({}, reads_anew=True), {A: (0,)},
            CurrentAssignment(9, 9, STABLE, {A: {0: 3}}, {}),
        ),
        (
            at(UNREVOKED, assigned={C: {1: 2}}, revoking={A: {0: 3}}), aim({}, reads_anew=True), None,
            CurrentAssignment(5, 5, UNREVOKED, {}, {A: {0: 3}, C: {1: 2}}),
        ),
        (at(epoch=9, assigned={A: {0: 3}}), aim({}, reads_anew=True), {}, at(epoch=9, assigned={A: {0: 3}})),
    ],
)  # fmt: skip
def test_a_members_next_step_has_these_fields(
    member: CurrentAssignment, where: Aim, owned: Partitions | None, after: CurrentAssignment
) -> None:
    """The fields are both epochs, the state, and assigned and revoked partitions with epochs."""
    assert next_step(member, where, owned) == after
