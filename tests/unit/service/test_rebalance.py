"""The leader's moves towards a plan's targets, and its clean-up, compared as complete bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.leading.bundles import Bundle
from faust_assigner.service.leading.moves import (
    held_back,
    living_owners,
    pinned_partitions,
    planned,
    rebalance,
    waiting,
)
from faust_assigner.service.leading.targets import Targets
from faust_assigner.service.leading.tidying import tidy
from faust_assigner.service.records import Assigned, Consumer, Pin, PlannedMove, Status
from faust_assigner.service.store.base import (
    Compare,
    Delete,
    Event,
    KeyValue,
    Put,
    absent,
    unchanged,
)
from faust_assigner.service.view import View
from faust_assigner.settings.service import ServiceSettings
from tests.unit.service.stories import ALL, view_of

SETTINGS = ServiceSettings(prefix="/g/", max_handoffs=100, max_handoffs_per_consumer=50)
A = Consumer(name="a", incarnation="a1")
B = Consumer(name="b", incarnation="b1")
C = Consumer(name="c", incarnation="c1")
GONE = ("gone", "g1")
T0, T1, T2, T3, U0 = (*(TopicPartition("t", n) for n in range(4)), TopicPartition("u", 0))


def put(view: View, key: str, value: bytes, lease: int = 0) -> None:
    """Add a key to the view."""
    revision = 100 + len(view.raw)
    view.apply(Event(key, revision, KeyValue(key, value, revision, revision, 1, lease)))


def seen(
    owned: Mapping[TopicPartition, tuple[str, str]],
    *handoffs: Handoff,
    consumers: Sequence[Consumer] = (A, B, C),
    topics: Mapping[str, int] | None = None,
) -> View:
    """A view with these owners and hand-offs."""
    view = view_of(*consumers, topics={"t": 4, "u": 1} if topics is None else topics)
    for at, (name, incarnation) in owned.items():
        assigned = Assigned(at, name, incarnation=incarnation)
        put(view, ALL.assignment(at), codec.dump_assigned(assigned))
    for handoff in handoffs:
        put(view, ALL.handoff(handoff.at), codec.dump_handoff(handoff))
    return view


def moves(view: View, **wanted: str) -> list[Bundle]:
    """The bundles for these targets: "t0" stands for partition 0 of "t"."""
    targets = {TopicPartition(name[0], int(name[1:])): to for name, to in wanted.items()}
    return list(rebalance(view, Targets(targets, {}), SETTINGS, 1_000.0))


def as_it_was(view: View, *keys: str) -> tuple[Compare, ...]:
    """Compares for unchanged or absent keys."""
    return tuple(unchanged(view.raw[key]) if key in view.raw else absent(key) for key in keys)


def assigned_to(at: TopicPartition, consumer: Consumer) -> Put:
    """The write that makes this process the owner."""
    owned = Assigned(at, consumer.name, incarnation=consumer.incarnation)
    return Put(ALL.assignment(at), codec.dump_assigned(owned))


def test_partitions_without_a_living_owner_are_given_at_once_by_consumer() -> None:
    """The partitions were never assigned, or belong to a dead owner or an earlier process."""
    ended = Handoff(T3, "gone", "b", Phase.WARMING, 1.0, old_incarnation="g1", new_incarnation="b1")
    view = seen({T1: GONE, T2: ("a", "a0"), T3: GONE, U0: ("c", "c1")}, ended)
    bundles = moves(view, t0="b", t1="a", t2="a", t3="b", u0="c")

    def bundle(at: TopicPartition, to: Consumer, old: str, why: str, *more: Delete) -> Bundle:
        keys = [ALL.assignment(at), ALL.handoff(at)]
        keys += [ALL.consumer(old)] if old else []
        return Bundle(
            as_it_was(view, *keys, ALL.consumer(to.name)),
            (assigned_to(at, to), *more),
            ((str(at), f"given to {to.name} at once, because {why}"),),
        )

    assert bundles == [
        bundle(T1, A, "gone", "gone is gone"),
        bundle(T2, A, "a", "its process has restarted"),
        bundle(T0, B, "", "it had no owner"),
        bundle(T3, B, "gone", "gone is gone", Delete(ALL.handoff(T3))),
    ]


def test_a_partition_of_a_replaced_process_waits_for_the_end_of_its_lease() -> None:
    """Only the fence of this process counts, not one of a different process or owner."""
    view = seen({T0: ("a", "a0"), T1: GONE, T2: ("gone", "g0")})
    for name, incarnation in (("a", "a0"), ("gone", "g0"), ("b", "g1")):
        put(view, ALL.fence(name, incarnation), b"x", 9)
    assert [b.told[0][0] for b in moves(view, t0="b", t1="b", t2="b")] == ["t/1"]


def test_a_living_owner_loses_what_it_does_not_subscribe_to_and_what_does_not_exist() -> None:
    """The hand-off is deleted too; leaving or dead owners keep partitions that exist."""
    leaves = replace(B, status=Status.DRAINING)
    t4, t5, x0 = TopicPartition("t", 4), TopicPartition("t", 5), TopicPartition("x", 0)
    handoff = Handoff(T0, "a", "c", Phase.WARMING, 1.0, old_incarnation="a1", new_incarnation="c1")
    only = replace(handoff, at=t5)
    view = seen(
        {T0: ("a", "a1"), T1: ("b", "b1"), T2: GONE, t4: GONE, x0: ("b", "b1")},
        handoff,
        only,
        consumers=[A, leaves, C],
    )

    def bundle(at: TopicPartition, keys: list[str], owner: str, why: str) -> Bundle:
        compared = [*keys, ALL.consumer(owner)] if owner != "its owner" else keys
        told = ((str(at), f"removed from {owner}, which {why} any longer"),)
        return Bundle(as_it_was(view, *compared), tuple(map(Delete, keys)), told)

    no_such = "keeps no partition that does not exist"
    assert moves(view, t3="a")[1:] == [
        bundle(T0, [ALL.assignment(T0), ALL.handoff(T0)], "a", "does not subscribe to the topic"),
        bundle(t4, [ALL.assignment(t4)], "gone", no_such),
        bundle(t5, [ALL.handoff(t5)], "its owner", no_such),
        bundle(x0, [ALL.assignment(x0)], "b", no_such),
    ]


def test_a_hand_off_that_the_plan_does_not_want_any_more_is_withdrawn_while_it_warms() -> None:
    """A hand-off to the wanted owner and a ready hand-off continue."""
    warming = Handoff(T0, "a", "b", Phase.WARMING, 1.0, old_incarnation="a1", new_incarnation="b1")
    view = seen(
        dict.fromkeys((T0, T1, T2, T3), ("a", "a1")),
        warming,
        replace(warming, at=T1),
        replace(warming, at=T2, phase=Phase.READY),
        replace(warming, at=T3),
    )
    assert moves(view, t0="c", t1="b", t2="c", t3="c") == [
        Bundle(
            as_it_was(view, ALL.handoff(at)),
            (Delete(ALL.handoff(at)),),
            ((str(at), "stays with a: the plan no longer moves it to b"),),
            (("unwanted", at),),
        )
        for at in (T0, T3)
    ]


@pytest.mark.parametrize("strict", [True, False])
def test_a_hand_off_begins_with_both_processes_the_mode_and_its_reason(strict: bool) -> None:
    """The owner leaves, an operator ordered the move, or the loads are uneven."""
    leaves = replace(B, status=Status.DRAINING)
    owned = {T0: ("a", "a1"), T1: ("b", "b1"), T2: ("a", "a1"), T3: ("b", "b1")}
    view = seen(owned, consumers=[A, leaves, C])
    put(view, ALL.pin(T2), codec.dump_pin(Pin(T2, "c")))
    settings = replace(SETTINGS, strict=strict)
    targets = Targets({T0: "c", T1: "c", T2: "c", T3: "c"}, {})

    def bundle(at: TopicPartition, old: Consumer, why: str) -> Bundle:
        handoff = Handoff(
            at,
            old.name,
            "c",
            Phase.WARMING,
            1_000.0,
            strict=strict,
            old_incarnation=old.incarnation,
            new_incarnation="c1",
        )
        return Bundle(
            as_it_was(view, ALL.handoff(at), ALL.assignment(at)),
            (Put(ALL.handoff(at), codec.dump_handoff(handoff)),),
            ((str(at), f"a hand-off from {old.name} to c begins, because {why}"),),
        )

    assert list(rebalance(view, targets, settings, 1_000.0)) == [
        bundle(T1, B, "b leaves"),
        bundle(T3, B, "b leaves"),
        bundle(T0, A, "the plan balances the loads"),
        bundle(T2, A, "an operator ordered the move"),
    ]


def test_partitions_that_move_are_planned_due_and_waiting_by_their_living_owner() -> None:
    """An orphan is planned but does not wait; a partition in a hand-off is planned but not due."""
    under_way = Handoff(T0, "a", "b", Phase.WARMING, 1.0, old_incarnation="a1")
    view = seen({T0: ("a", "a1"), T1: ("a", "a0"), T2: ("a", "a1"), T3: ("c", "c1")}, under_way)
    targets = Targets({T3: "b", T2: "b", T1: "a", T0: "b", U0: "c"}, {})
    assert living_owners(view) == {T0: "a", T2: "a", T3: "c"}
    assert waiting(view, targets) == 2
    assert list(planned(view, targets)) == [
        PlannedMove(T0, "a", "b"),
        PlannedMove(T1, None, "a"),
        PlannedMove(T2, "a", "b"),
        PlannedMove(T3, "c", "b"),
        PlannedMove(U0, None, "c"),
    ]
    stays = Targets({T0: "a", T3: "c"}, {})
    assert list(planned(view, stays, ["c"])) == [PlannedMove(T3, None, "c")]


# -- after an outage -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mark", "held"), [(None, set()), (b"known", {T0, T1}), (b"forgotten", {T0, T1, U0})]
)
def test_partitions_of_missing_consumers_are_held_back_after_an_outage(
    mark: bytes | None, held: set[TopicPartition]
) -> None:
    """If the store lost its state, unassigned partitions without a claim are held back too."""
    claims = replace(B, former={"t": (3, 9)})
    view = seen(
        {T0: GONE, T1: GONE, T2: ("left", "l1"), T3: ("a", "a1")},
        consumers=[A, claims, C],
        topics={"t": 4, "u": 1},
    )
    key = ALL.assignment(T3)
    view.apply(Event(key, 900, None))
    put(view, ALL.departed("left"), b"left")
    if mark is not None:
        put(view, ALL.awaiting, mark)
    assert held_back(view) == held
    given = [b.told[0][0] for b in moves(view, t0="a", t1="a", t2="a", t3="b", u0="c")]
    everything = {T0: "t/0", T1: "t/1", T2: "t/2", T3: "t/3", U0: "u/0"}
    assert sorted(given) == [text for at, text in everything.items() if at not in held]


def test_an_operators_order_covers_the_co_partitioned_partitions() -> None:
    """Only partitions with the pinned numbers are covered."""
    bound = replace(A, co_partitioned=(("t", "u"),))
    view = seen({}, consumers=[bound], topics={"t": 3, "u": 3, "v": 3})
    assert pinned_partitions(view) == set()
    u1, v2 = TopicPartition("u", 1), TopicPartition("v", 2)
    for at in (u1, v2):
        put(view, ALL.pin(at), codec.dump_pin(Pin(at, "a")))
    assert pinned_partitions(view) == {T1, u1, v2}


# -- clean-up ----------------------------------------------------------------------------------------


def tidied(view: View, **replicas: Sequence[TopicPartition]) -> list[Bundle]:
    """The bundles of the clean-up, with these replicas in the plan."""
    return list(tidy(view, Targets({}, {name: tuple(ats) for name, ats in replicas.items()})))


def deleted(view: View, key: str, *told: tuple[str, str]) -> Bundle:
    """The bundle that deletes a key."""
    return Bundle(as_it_was(view, key), (Delete(key),), told)


def test_only_changed_replicas_are_written_and_ended_ones_deleted() -> None:
    """The cases by consumer: new, changed, equal, unplanned, unregistered, and empty replicas."""
    view = seen({}, consumers=[A, B, C, *(replace(A, name=n) for n in "dez")])
    for name, ats in (("b", (T0,)), ("c", (T0, T1)), ("d", (T2,)), ("x", (T3,)), ("e", (T1,))):
        put(view, ALL.replicas(name), codec.dump_partitions(ats))
    found = tidied(view, a=[T1, T0], b=[T0, T2], c=[T0, T1], e=[], x=[T3], y=[T0], z=[U0])

    def written(name: str, *ats: TopicPartition) -> Bundle:
        key = ALL.replicas(name)
        return Bundle(as_it_was(view, key), (Put(key, codec.dump_partitions(ats)),))

    assert found == [
        written("a", T1, T0),
        written("b", T0, T2),
        deleted(view, ALL.replicas("d")),
        deleted(view, ALL.replicas("e")),
        deleted(view, ALL.replicas("x")),
        written("z", U0),
    ]


def test_a_leaving_consumer_ends_when_it_has_nothing_more_or_waits_in_vain() -> None:
    """Consumers are in the order of names; one with a possible taker or a hand-off stays."""
    drains = [
        Consumer(name=name, incarnation=f"{name}1", status=Status.DRAINING)
        for name in ("done", "earlier", "hands", "takes", "vain", "waits")
    ]
    ready = Consumer(name="z", topics=("u",))
    going = Handoff(T2, "hands", "z", Phase.WARMING, 1.0, old_incarnation="hands1")
    to = Handoff(T3, "z", "takes", Phase.WARMING, 1.0, new_incarnation="takes1")
    owned = {T0: ("vain", "vain1"), T1: ("earlier", "earlier0"), U0: ("waits", "waits1")}
    view = seen(owned, going, to, consumers=[*drains, ready])
    told = "drained: it owns no partitions any longer, and its stream ends"
    key = ALL.consumer("vain")
    assert tidied(view) == [
        deleted(view, ALL.consumer("done"), ("done", told)),
        deleted(view, ALL.consumer("earlier"), ("earlier", told)),
        Bundle(as_it_was(view, key), (Put(ALL.departed("vain"), b"dismissed"),)),
    ]


@pytest.mark.parametrize(
    ("owned", "consumers", "ends"),
    [({T0: ("a", "a1")}, (A,), True), ({T0: GONE}, (A,), False), ({}, (), False)],
)
def test_the_mark_of_an_outage_ends_when_no_consumer_is_missing(
    owned: Mapping[TopicPartition, tuple[str, str]], consumers: Sequence[Consumer], ends: bool
) -> None:
    """At least one consumer must be registered."""
    view = seen(owned, consumers=consumers)
    put(view, ALL.awaiting, b"known", 9)
    assert tidied(view) == ([deleted(view, ALL.awaiting)] if ends else [])


def test_the_marks_of_departed_consumers_end_with_their_partitions() -> None:
    """An owner and a registered consumer keep their marks; the other two are deleted by name."""
    view = seen({T0: ("owns", "o1")})
    for name in ("z", "owns", "a", "gone"):
        put(view, ALL.departed(name), b"left")
    assert tidied(view) == [deleted(view, ALL.departed("gone")), deleted(view, ALL.departed("z"))]


def test_only_cool_downs_without_a_lease_are_deleted() -> None:
    """The store deletes cooldowns with a lease."""
    view = seen({})
    for at, name, lease in ((T1, "b", 0), (T0, "c", 5), (T0, "b", 0)):
        put(view, ALL.cooldown(at, name), codec.dump_until(9.0), lease)
    assert tidied(view) == [
        deleted(view, ALL.cooldown(T0, "b")),
        deleted(view, ALL.cooldown(T1, "b")),
    ]


def test_a_one_time_move_ends_with_its_own_reason() -> None:
    """The move is complete at the registered process, and cancelled for an unknown consumer."""
    view = seen({T0: ("b", "b1"), T1: ("b", "b0"), T2: ("a", "a1"), T3: ("b", "b1")})
    for at, name, once in ((T2, "x", True), (T0, "b", True), (T1, "b", True), (T3, "b", False)):
        put(view, ALL.pin(at), codec.dump_pin(Pin(at, name, once=once)))
    complete = "the move to b that an operator ordered is complete"
    cancelled = "the move to x that an operator ordered is cancelled: x cannot take the partition"
    assert tidied(view) == [
        deleted(view, ALL.pin(T0), ("t/0", complete)),
        deleted(view, ALL.pin(T2), ("t/2", cancelled)),
    ]
