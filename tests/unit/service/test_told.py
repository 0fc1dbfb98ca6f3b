"""The commands for changes of the store, compared as complete lists."""

from __future__ import annotations

from dataclasses import replace

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.commands import (
    AbortWarm,
    Assignment,
    Command,
    Owned,
    Release,
    Replicas,
    Warm,
)
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.records import Assigned, Consumer
from faust_assigner.service.serving.relay import commands_of_changes, snapshot
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import Change, View
from tests.unit.service.stories import ALL, view_of

T0, T1, T2, T3 = (TopicPartition("t", n) for n in range(4))
BASE = 10_000
WARMING = Handoff(T0, "a", "b", Phase.WARMING, 1.0, old_incarnation="a1", new_incarnation="b1")
READY = replace(WARMING, phase=Phase.READY)
RELEASING = replace(READY, strict=True)
COMPLETE = replace(READY, phase=Phase.COMPLETE)


class Group:
    """The processes a1, b1 and c1, and revisions from 100 on above a base of epochs."""

    def __init__(self) -> None:
        processes = [Consumer(name=name, incarnation=f"{name}1") for name in "abc"]
        self.view: View = view_of(*processes, topics={"t": 9})
        self.revision = 99
        self.write({ALL.epochs: codec.dump_base(BASE)})

    def write(self, documents: dict[str, bytes | None]) -> list[tuple[str, Command]]:
        """Write the keys at one revision, and return the commands."""
        self.revision += 1
        changes: list[Change] = []
        for key, value in documents.items():
            before = self.view.raw.get(key)
            created = before.create_revision if before else self.revision
            kv = None if value is None else KeyValue(key, value, created, self.revision)
            change = self.view.apply(Event(key, self.revision, kv))
            assert change is not None
            changes.append(change)
        return list(commands_of_changes(self.view, changes))

    def owned(self, **owners: tuple[str, str, int | None]) -> list[tuple[str, Command]]:
        """Assign partitions: t0=(owner, incarnation, offset)."""
        found = {}
        for name, (owner, incarnation, offset) in owners.items():
            at = TopicPartition("t", int(name[1:]))
            assigned = Assigned(at, owner, offset=offset, incarnation=incarnation)
            found[ALL.assignment(at)] = codec.dump_assigned(assigned)
        return self.write(dict(found))

    def handoff(self, *handoffs: Handoff, **more: bytes | None) -> list[tuple[str, Command]]:
        """Write hand-offs."""
        return self.write({ALL.handoff(h.at): codec.dump_handoff(h) for h in handoffs})

    def gone(self, *ats: TopicPartition) -> list[tuple[str, Command]]:
        """Delete hand-offs."""
        return self.write({ALL.handoff(at): None for at in ats})


def test_each_consumer_gets_one_assignment_of_all_its_gains_and_losses() -> None:
    """Entries are sorted, with epoch and offset; only the registered process gets partitions."""
    group = Group()
    group.owned(t0=("a", "a1", None), t1=("a", "a1", None), t2=("b", "b1", None))
    epoch = BASE + group.revision + 1
    found = group.owned(
        t3=("b", "b1", 7),
        t1=("b", "b1", 0),
        t2=("c", "c0", 5),
        t0=("c", "c1", None),
        t4=("gone", "g1", None),
    )
    assert found == [
        ("a", Assignment((), (T0, T1))),
        ("b", Assignment((Owned(T1, epoch, 0), Owned(T3, epoch, 7)), (T2,))),
        ("c", Assignment((Owned(T0, epoch, None),))),
    ]


def test_a_partition_without_an_owner_is_lost_and_one_that_stays_is_granted_anew() -> None:
    """The cases: a deletion, a second grant to the same process, and a grant to its successor."""
    group = Group()
    group.owned(t0=("a", "a1", None), t1=("a", "a1", None), t2=("b", "b0", None))
    assert group.write({ALL.assignment(T0): None}) == [("a", Assignment((), (T0,)))]
    assert group.owned(t1=("a", "a1", 3)) == [
        ("a", Assignment((Owned(T1, BASE + group.revision, 3),)))
    ]
    assert group.owned(t2=("b", "b1", None)) == [
        ("b", Assignment((Owned(T2, BASE + group.revision, None),)))
    ]


def test_the_old_owner_of_a_complete_hand_off_is_asked_to_release_in_place_of_a_loss() -> None:
    """The Release needs the same partition, the same owner, and the phase Complete."""
    group = Group()
    group.owned(**{f"t{n}": ("a", "a1", None) for n in range(4)})
    group.handoff(COMPLETE, replace(COMPLETE, at=T1, old_owner="c"), replace(RELEASING, at=T2))
    found = group.owned(**{f"t{n}": ("b", "b1", None) for n in range(4)})
    assert found[0] == ("a", Assignment((), (T1, T2, T3)))


@pytest.mark.parametrize(
    ("handoff", "told"),
    [
        (WARMING, [("b", Warm(T0, "a", 101, False))]),
        (replace(WARMING, strict=True), [("b", Warm(T0, "a", 101, True))]),
        (RELEASING, [("a", Release(T0, "b", 101, True))]),
        (COMPLETE, [("a", Release(T0, "b", 101, False))]),
        (READY, []),
        (replace(RELEASING, released=True), []),
        (replace(RELEASING, unreleased="no"), []),
        (replace(RELEASING, unreleased="no", expelled=True), []),
        (replace(WARMING, failed="no"), []),
        (replace(COMPLETE, released=True), []),
        (replace(WARMING, new_incarnation="b0"), []),
        (replace(WARMING, old_incarnation="a0"), [("b", Warm(T0, "a", 101, False))]),
        (replace(RELEASING, old_incarnation="a0"), []),
        (replace(COMPLETE, new_incarnation="b0"), [("a", Release(T0, "b", 101, False))]),
    ],
)
def test_each_state_asks_the_process_of_its_turn_once(
    handoff: Handoff, told: list[tuple[str, Command]]
) -> None:
    """The command is repeated only after a different state in between."""
    group = Group()
    assert group.handoff(handoff) == told
    assert group.handoff(replace(handoff, progress=0.5)) == []
    assert group.handoff(replace(WARMING, failed="x", progress=0.5)) == []
    assert group.handoff(handoff) == ([] if handoff.failed else told)


def test_a_hand_off_that_was_replaced_within_one_batch_asks_for_the_last_one_alone() -> None:
    """The first hand-off was known before, so its new owner gets an abort."""
    group = Group()
    group.handoff(WARMING)
    key, first = ALL.handoff(T0), group.view.handoffs[T0]
    changes = []
    for revision, handoff in (
        (300, None),
        (301, replace(WARMING, new_owner="c", new_incarnation="c1")),
    ):
        value = None if handoff is None else codec.dump_handoff(handoff)
        kv = None if value is None else KeyValue(key, value, revision, revision)
        changes.append(group.view.apply(Event(key, revision, kv)))
    told = [change for change in changes if change is not None]
    assert list(commands_of_changes(group.view, told)) == [
        ("b", AbortWarm(T0, first.kv.create_revision)),
        ("c", Warm(T0, "a", 301, False)),
    ]


KEPT = Assignment((Owned(T0, BASE + 101, 4, keep=True),))


@pytest.mark.parametrize(
    ("handoff", "owner", "told"),
    [
        (WARMING, ("a", "a1"), [("b", AbortWarm(T0, 102))]),
        (READY, ("a", "a1"), [("b", AbortWarm(T0, 102))]),
        (RELEASING, ("a", "a1"), [("a", KEPT), ("b", AbortWarm(T0, 102))]),
        (replace(RELEASING, released=True), ("a", "a1"), [("a", KEPT), ("b", AbortWarm(T0, 102))]),
        (replace(WARMING, strict=True), ("a", "a1"), [("b", AbortWarm(T0, 102))]),
        (RELEASING, ("a", "a2"), [("b", AbortWarm(T0, 102))]),
        (RELEASING, ("c", "c1"), [("b", AbortWarm(T0, 102))]),
        (replace(RELEASING, old_incarnation="a0"), ("a", "a0"), [("b", AbortWarm(T0, 102))]),
        (COMPLETE, ("b", "b1"), [("a", Assignment((), (T0,)))]),
        (RELEASING, ("b", "b0"), [("a", Assignment((), (T0,)))]),
    ],
)
def test_the_end_of_a_hand_off_tells_the_side_that_does_not_get_the_partition(
    handoff: Handoff, owner: tuple[str, str], told: list[tuple[str, Command]]
) -> None:
    """A strict owner in release keeps its epoch, if it is the same process."""
    group = Group()
    group.owned(t0=(*owner, 4))
    group.handoff(handoff)
    assert group.gone(T0) == told


def test_the_end_of_a_hand_off_without_an_assignment_keeps_nothing() -> None:
    """Only the new owner gets a command, to abort its warm-up."""
    group = Group()
    group.handoff(RELEASING)
    assert group.gone(T0) == [("b", AbortWarm(T0, group.revision - 1))]


def test_replicas_are_told_whole_and_their_end_as_none() -> None:
    """The replicas follow the assignments of the same revision."""
    group = Group()
    value = codec.dump_partitions((T2, T1))
    owned = codec.dump_assigned(Assigned(T0, "c", incarnation="c1"))
    found = group.write({ALL.replicas("b"): value, ALL.assignment(T0): owned})
    assert found == [
        ("c", Assignment((Owned(T0, BASE + group.revision, None),))),
        ("b", Replicas((T2, T1))),
    ]
    assert group.write({ALL.replicas("b"): None}) == [("b", Replicas(()))]


def test_a_snapshot_is_the_whole_state_of_one_process() -> None:
    """The snapshot has the owned partitions, the open releases, the warm-ups, and the replicas."""
    group = Group()
    group.owned(
        t3=("a", "a1", 9),
        t0=("a", "a1", None),
        t1=("a", "a0", None),
        t2=("a", "a1", None),
        t4=("b", "b1", None),
    )
    epoch, ids = BASE + group.revision, group.revision + 1
    t4, t5, t6 = (TopicPartition("t", n) for n in (4, 5, 6))
    to_a = replace(
        WARMING, old_owner="b", old_incarnation="b1", new_owner="a", new_incarnation="a1"
    )
    group.handoff(
        replace(to_a, at=t5),
        replace(to_a, at=t4, strict=True),
        replace(RELEASING, at=T0),
        replace(COMPLETE, at=t6),
        replace(RELEASING, at=T2, old_incarnation="a0"),
    )
    group.write({ALL.replicas("a"): codec.dump_partitions((T1,)), ALL.replicas("b"): None})
    assert list(snapshot(group.view, "a")) == [
        Assignment((Owned(T2, epoch), Owned(T3, epoch, 9)), (), True, (T0, t6)),
        Release(T0, "b", ids, True),
        Warm(t4, "b", ids, True),
        Warm(t5, "b", ids, False),
        Release(t6, "b", ids, False),
        Replicas((T1,)),
    ]
    assert list(snapshot(group.view, "c")) == [Assignment((), (), True, ())]


def test_a_whole_assignment_and_its_releases_are_in_the_order_of_their_numbers() -> None:
    """So two snapshots of the same state are the same bytes."""
    group = Group()
    numbers = (17, 3, 11, 5, 2, 13, 7, 19, 1, 23)
    group.owned(**{f"t{number}": ("a", "a1", None) for number in numbers})
    [told] = snapshot(group.view, "a")
    epoch = BASE + group.revision
    owned = tuple(Owned(TopicPartition("t", number), epoch) for number in sorted(numbers))
    assert told == Assignment(owned, full=True)
