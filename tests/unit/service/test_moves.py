"""Open hand-offs under the leader: co-partitioned topics, deadlines, and leaving consumers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.leading.advance import advance
from faust_assigner.service.leading.bundles import Bundle, chunks
from faust_assigner.service.leading.moves import rebalance
from faust_assigner.service.leading.targets import Targets
from faust_assigner.service.records import Consumer, Status
from faust_assigner.service.store.base import Delete, Put
from faust_assigner.service.view import View
from tests.unit.service.stories import ALL, AT, HANDOFF, SETTINGS, view_of

MATE = TopicPartition("u", 0)
READY = replace(HANDOFF, phase=Phase.READY)
COMPLETE = replace(HANDOFF, phase=Phase.COMPLETE)


def given(*handoffs: Handoff, new: Status = Status.READY) -> View:
    """``old`` owns all that is not complete; the topics "t" and "u" are co-partitioned."""
    owners = {
        handoff.at: "new" if handoff.phase is Phase.COMPLETE else "old" for handoff in handoffs
    }
    bound = (("t", "u"),)
    return view_of(
        Consumer(name="old", co_partitioned=bound),
        Consumer(name="new", co_partitioned=bound, status=new),
        topics={"t": 1, "u": 1},
        owners={AT: "old", MATE: "old", **owners},
        handoffs=handoffs,
    )


def endings(view: View, *late: TopicPartition) -> dict[TopicPartition, str]:
    """How hand-offs end, according to the written keys."""
    found = {}
    for bundle in advance(view, late, SETTINGS, 1_000.0):
        keys = {write.key for write in bundle.writes}
        for at in (AT, MATE):
            if ALL.assignment(at) in keys:
                found[at] = "given"
            elif ALL.handoff(at) in keys:
                found[at] = "given up" if bundle.ended else "over"
    return found


def test_a_handoff_whose_time_is_over_is_given_up() -> None:
    """The other hand-offs continue."""
    view = given(HANDOFF, replace(HANDOFF, at=MATE, new_owner="old"))
    assert endings(view) == {}
    assert endings(view, AT) == {AT: "given up"}


def test_a_mate_that_is_complete_does_not_hold_the_others_up() -> None:
    """An earlier transaction completed one hand-off; only open hand-offs wait for each other."""
    view = given(COMPLETE, replace(READY, at=MATE))
    assert endings(view) == {MATE: "given"}


def test_mates_are_given_together_once_all_are_ready() -> None:
    """A partition in warm-up delays its co-partitioned one."""
    assert endings(given(READY, replace(HANDOFF, at=MATE))) == {}
    assert endings(given(READY, replace(READY, at=MATE))) == {AT: "given", MATE: "given"}


def test_who_travels_with_a_late_one_is_given_up_with_it() -> None:
    """One partition is ready, and the co-partitioned partition is late."""
    view = given(READY, replace(HANDOFF, at=MATE))
    assert endings(view, MATE) == {AT: "given up", MATE: "given up"}


def test_who_travels_with_a_late_release_waits_for_the_old_owners_lease() -> None:
    """The old owner is expelled, and the new owner gets both partitions after its lease."""
    ready = replace(READY, strict=True)
    view = given(replace(ready, released=True), replace(ready, at=MATE))
    assert endings(view, MATE) == {MATE: "over"}


@pytest.mark.parametrize(("handoff", "ends"), [(READY, {AT: "given up"}), (COMPLETE, {})])
def test_a_new_owner_that_leaves_ends_only_what_is_not_complete(
    handoff: Handoff, ends: dict[TopicPartition, str]
) -> None:
    """Owned partitions move on by hand-offs of their own; the old owner still confirms its release."""
    assert endings(given(handoff, new=Status.DRAINING)) == ends


def test_a_partition_goes_only_while_its_owner_is_still_who_it_was() -> None:
    """An operator or a second instance may have written the assignment meanwhile."""
    [bundle] = advance(given(READY), (), SETTINGS, 1_000.0)
    assert {compare.key for compare in bundle.compares} == {ALL.handoff(AT), ALL.assignment(AT)}


@pytest.mark.parametrize(("status", "is_kept"), [(Status.DRAINING, True), (Status.READY, False)])
def test_a_consumer_that_leaves_keeps_what_nobody_can_take(status: Status, is_kept: bool) -> None:
    """A leaving owner works until a consumer can take over; a ready owner outside the plan loses."""
    view = view_of(Consumer(name="old", status=status), topics={"t": 1}, owners={AT: "old"})
    bundles = list(rebalance(view, Targets({}, {}), SETTINGS, 1_000.0))
    assert [bundle.writes for bundle in bundles] == (
        [] if is_kept else [(Delete(ALL.assignment(AT)),)]
    )


def test_a_transaction_has_no_more_bytes_than_the_store_takes() -> None:
    """Two values of 600 KiB are two transactions; small values are one."""
    large = [Bundle((), (Put("/g/a", b"x" * 600 * 1024),)) for _ in range(3)]
    small = [Bundle((), (Put("/g/a", b"x" * 1024),)) for _ in range(3)]
    assert [len(chunk) for chunk in chunks(large, 100)] == [1, 1, 1]
    assert [len(chunk) for chunk in chunks(small, 100)] == [3]


def test_each_handoff_of_a_crew_that_ends_is_counted_and_logged() -> None:
    """Earlier, only the first partition of the joint decision was counted."""
    [bundle] = advance(given(READY, replace(READY, at=MATE)), (), SETTINGS, 1_000.0)
    assert bundle.ended == (("handed", AT), ("handed", MATE))
    assert [subject for subject, _ in bundle.told] == [str(AT), str(MATE)]
