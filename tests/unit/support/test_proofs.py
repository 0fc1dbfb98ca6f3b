"""The checks of real processes can fail: each promise is broken once."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import HandoffEvent
from faust_assigner.service.records import Assigned, Leader
from faust_assigner.service.store.base import Compare, Event, Field, KeyValue, Put, Write, absent
from tests.support.assigning.proofs import after_the_term, moments, unfitting, without_compares
from tests.support.assigning.rules import Said
from tests.support.assigning.wiretap import Renewal, Transaction
from tests.unit.service.stories import ALL, AT, HANDOFF

TTL_S = 3.0
_ELECTED = Transaction(
    0.0, 0.1, (absent(ALL.leader),), (Put(ALL.leader, codec.dump_leader(Leader("n", 7)), 7),), 2
)


def _event(key: str, revision: int, value: bytes | None) -> Event:
    return Event(key, revision, None if value is None else KeyValue(key, value, revision, revision))


def _tap(*transactions: Transaction) -> Any:
    """The transactions of an instance elected at revision 2, with its lease renewed at 0 s."""
    return SimpleNamespace(transactions=[_ELECTED, *transactions], renewals=[Renewal(0.0, 7)])


def _gives(asked: float, revision: int, compares: Sequence[Compare]) -> Transaction:
    writes: tuple[Write, ...] = (Put(ALL.assignment(AT), codec.dump_assigned(Assigned(AT, "a"))),)
    return Transaction(asked, asked + 0.1, tuple(compares), writes, revision)


_GUARD, _OWN = Compare(ALL.leader, Field.MOD_REVISION, 2), absent(ALL.assignment(AT))


@pytest.mark.parametrize(
    ("compares", "faults"), [((_GUARD, _OWN), 0), ((_OWN,), 1), ((_GUARD,), 1)]
)
def test_a_transaction_without_a_compare_is_found(compares: Sequence[Compare], faults: int) -> None:
    """C3: a transaction compares the leader's key and the revision of each key that it writes."""
    assert len(without_compares([_tap(_gives(1.0, 3, compares))], ALL)) == faults


@pytest.mark.parametrize(
    ("asked", "revision", "faults"), [(1.0, 3, 0), (2.5, 0, 0), (3.5, 0, 1), (1.0, 5, 1)]
)
def test_what_a_leader_does_after_its_term_is_found(
    asked: float, revision: int, faults: int
) -> None:
    """C4: requested after the lease's end, or executed after the deletion of the leader's key."""
    events = [_event(ALL.leader, 2, b"{}"), _event(ALL.leader, 4, None)]
    found = after_the_term(
        [_tap(_gives(asked, revision, (_GUARD, _OWN)))], events, ALL, TTL_S, late_s=1.0
    )
    assert len(found) == faults, found


@pytest.mark.parametrize(
    ("name", "sent", "refused", "faults"),
    [
        ("new", 2.0, False, 0),
        ("other", 2.0, True, 0),
        ("other", 2.0, False, 1),
        ("new", 2.0, True, 1),
        ("new", 0.5, True, 0),
        ("new", 0.5, False, 1),
    ],
)
def test_an_answer_that_fits_no_state_is_found(
    name: str, sent: float, refused: bool, faults: int
) -> None:
    """C9: the hand-off began between 1.0 and 1.1 s; before, the partition had no hand-off."""
    began = Transaction(
        1.0, 1.1, (_GUARD,), (Put(ALL.handoff(AT), codec.dump_handoff(HANDOFF)),), 3
    )
    history = moments([_event(ALL.handoff(AT), 3, codec.dump_handoff(HANDOFF))], [began], ALL)
    said = Said(AT, name, HandoffEvent.WARM, 3, sent, sent + 0.2, refused)
    assert len(unfitting([said], history)) == faults
