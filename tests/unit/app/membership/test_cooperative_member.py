"""The moves of one answer: the revoked, gained and withheld partitions."""

from __future__ import annotations

import pytest
from faust.types.tuples import TP

from faust_assigner.app.membership.cooperative_member import Moves, moves

A, B, C, D = (TP("orders", number) for number in range(4))
NOTHING: frozenset[TP] = frozenset()


@pytest.mark.parametrize("follows", [True, False])
def test_kept_partitions_are_neither_revoked_nor_gained(follows: bool) -> None:
    """``A`` stays, ``B`` goes and ``C`` comes."""
    found = moves(frozenset({A, B}), frozenset({A, C}), NOTHING, follows=follows)
    assert found == Moves(frozenset({A, C}), frozenset({B}), frozenset({C}), NOTHING)


def test_a_torn_partition_is_revoked_and_assigned_again() -> None:
    """Its transaction ends, and no other member may use its new transactional id."""
    found = moves(frozenset({A, B}), frozenset({A, B}), frozenset({B}), follows=False)
    assert found == Moves(frozenset({A, B}), frozenset({B}), frozenset({B}), NOTHING)


def test_a_torn_partition_is_withheld_until_the_second_round() -> None:
    """A different member may use its new transactional id until it has revoked its own partitions."""
    found = moves(frozenset({A, B}), frozenset({A, B, C}), frozenset({B}), follows=True)
    assert found == Moves(frozenset({A, C}), frozenset({B}), frozenset({C}), frozenset({B}))


@pytest.mark.parametrize("follows", [True, False])
def test_only_partitions_that_stay_can_be_torn(follows: bool) -> None:
    """``B`` goes, ``C`` comes and ``D`` belongs to a different member."""
    found = moves(frozenset({A, B}), frozenset({A, C}), frozenset({B, C, D}), follows=follows)
    assert found == Moves(frozenset({A, C}), frozenset({B}), frozenset({C}), NOTHING)
