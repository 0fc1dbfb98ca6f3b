"""The leader's next step for each open hand-off, compared as complete bundles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import Handoff, Phase, TopicPartition
from faust_assigner.service.leading.advance import advance
from faust_assigner.service.leading.bundles import COOLDOWN_LEASE, EXPELLED_LEASE, Bundle
from faust_assigner.service.records import Assigned, Consumer, Status
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

AT = TopicPartition("t", 0)
MATE = TopicPartition("u", 0)
SETTINGS = ServiceSettings(prefix="/g/", cooldown_s=7.0)
OLD = Consumer(name="old", incarnation="o1")
NEW = Consumer(name="new", incarnation="n1")
WARMING = Handoff(
    AT, "old", "new", Phase.WARMING, 50.0, old_incarnation="o1", new_incarnation="n1", offset=41
)
READY = replace(WARMING, phase=Phase.READY)
RELEASING = replace(READY, strict=True)
UNRELEASED = replace(RELEASING, unreleased="a flush hangs")
EXPELLED = replace(UNRELEASED, expelled=True)
RELEASED = replace(RELEASING, released=True)
FAILED = replace(WARMING, failed="the disk is full")
COMPLETE = replace(READY, phase=Phase.COMPLETE)
HANDED = replace(RELEASED, phase=Phase.COMPLETE)


def seen(
    *handoffs: Handoff,
    consumers: Sequence[Consumer] = (OLD, NEW),
    owner: Assigned | None = None,
    topics: dict[str, int] | None = None,
    fenced: tuple[str, str] | None = None,
) -> View:
    """A view with these hand-offs, and with their partitions assigned to the owners."""
    view = view_of(*consumers, topics={"t": 1, "u": 1} if topics is None else topics)
    revision = 100
    for handoff in handoffs:
        is_new = handoff.phase is Phase.COMPLETE
        owned = owner or Assigned(
            handoff.at,
            handoff.new_owner if is_new else handoff.old_owner,
            incarnation=handoff.new_incarnation if is_new else handoff.old_incarnation,
        )
        for key, value in (
            (ALL.assignment(handoff.at), codec.dump_assigned(owned)),
            (ALL.handoff(handoff.at), codec.dump_handoff(handoff)),
        ):
            revision += 1
            view.apply(Event(key, revision, KeyValue(key, value, revision, revision)))
    if fenced is not None:
        key = ALL.fence(*fenced)
        view.apply(Event(key, 900, KeyValue(key, b"", 900, 900)))
    return view


def stepped(view: View, *late: TopicPartition) -> list[Bundle]:
    """The bundles of the due hand-offs."""
    return list(advance(view, late, SETTINGS, 1_000.0))


def handed_to_new(after: Handoff | None, *, at: TopicPartition = AT) -> tuple[Put | Delete, ...]:
    """The writes that make the new owner the owner."""
    key = ALL.handoff(at)
    owned = Assigned(at, "new", offset=41, incarnation="n1")
    return (
        Delete(key) if after is None else Put(key, codec.dump_handoff(after)),
        Put(ALL.assignment(at), codec.dump_assigned(owned)),
    )


def both(view: View, at: TopicPartition = AT) -> tuple[Compare, ...]:
    """The compares of a hand-off and of its assignment."""
    return (unchanged(view.raw[ALL.handoff(at)]), unchanged(view.raw[ALL.assignment(at)]))


def kept(view: View, *writes: Put | Delete, outcome: str = "", why: str = "") -> Bundle:
    """The bundle that leaves the partition with the old owner."""
    told = ((str(AT), why),) if why else ()
    ended = ((outcome, AT),) if outcome else ()
    return Bundle((unchanged(view.raw[ALL.handoff(AT)]),), writes, told, ended)


GIVEN_UP = "stays with old, because new gave up: the disk is full"
NOT_READY = "stays with old, because new did not get ready in time"
NO_TARGET = (
    "stays with old, because new is gone or leaves, or the hand-off of a co-partitioned "
    "partition ended"
)
COOLED = (
    Delete(ALL.handoff(AT)),
    Put(ALL.cooldown(AT, "new"), b'{"until":1007.0}', COOLDOWN_LEASE),
)


@pytest.mark.parametrize(
    ("handoff", "after"), [(READY, COMPLETE), (RELEASED, HANDED)], ids=["ready", "released"]
)
def test_a_hand_off_at_its_end_makes_the_new_process_the_owner(
    handoff: Handoff, after: Handoff
) -> None:
    """The owner starts at the released offset; hand-off and assignment are compared."""
    view = seen(handoff)
    assert stepped(view) == [
        Bundle(
            both(view),
            handed_to_new(after),
            (("t/0", "new is the new owner; old handed it over"),),
            (("handed", AT),),
        )
    ]


@pytest.mark.parametrize("handoff", [WARMING, READY, RELEASING, RELEASED, UNRELEASED, EXPELLED])
def test_the_new_owner_of_a_hand_off_gets_a_dead_owners_partition_at_once(handoff: Handoff) -> None:
    """The old owner's key must still be absent at the write, in case it returns."""
    view = seen(handoff, consumers=[NEW])
    is_expelled = handoff.unreleased is not None
    why = "did not release it and was expelled" if is_expelled else "is gone"
    [bundle] = stepped(view)
    assert bundle == Bundle(
        (*both(view), absent(ALL.consumer("old"))),
        handed_to_new(None),
        (("t/0", f"new is the new owner, because old {why}"),),
        (("expelled" if is_expelled else "orphan", AT),),
    )


def test_a_process_whose_lease_runs_counts_as_the_owner_until_the_lease_ends() -> None:
    """The old process has a registered successor; only the old process's fence decides."""
    successor = replace(OLD, incarnation="o2")
    assert stepped(seen(WARMING, consumers=[successor, NEW], fenced=("old", "o1"))) == []
    [bundle] = stepped(seen(WARMING, consumers=[successor, NEW], fenced=("old", "o0")))
    assert bundle.ended == (("orphan", AT),)


@pytest.mark.parametrize(
    ("handoff", "late", "writes", "outcome", "why"),
    [
        (FAILED, (), COOLED, "failed", GIVEN_UP),
        (FAILED, (AT,), COOLED, "failed", GIVEN_UP),
        (WARMING, (AT,), COOLED, "late", NOT_READY),
        (COMPLETE, (AT,), COOLED[:1], "", ""),
        (HANDED, (), COOLED[:1], "", ""),
        (EXPELLED, (AT,), COOLED[:1], "late", NOT_READY),
    ],
)
def test_a_hand_off_that_failed_or_is_late_ends_without_a_new_owner(
    handoff: Handoff,
    late: tuple[TopicPartition, ...],
    writes: tuple[Put | Delete, ...],
    outcome: str,
    why: str,
) -> None:
    """A new owner that failed gets a cooldown of the configured length."""
    view = seen(handoff)
    assert stepped(view, *late) == [kept(view, *writes, outcome=outcome, why=why)]


@pytest.mark.parametrize("handoff", [WARMING, RELEASING, COMPLETE])
def test_a_hand_off_in_time_waits(handoff: Handoff) -> None:
    """The leader waits for the warm-up, the release, or the confirmation of the release."""
    assert stepped(seen(handoff), MATE) == []


GONE = {
    "the new owner is gone": seen(READY, consumers=[OLD]),
    "the new owner is another process": seen(
        READY, consumers=[OLD, replace(NEW, incarnation="n2")]
    ),
    "the new owner leaves": seen(READY, consumers=[OLD, replace(NEW, status=Status.DRAINING)]),
    "the assignment has another owner": seen(READY, owner=Assigned(AT, "third", incarnation="o1")),
    "the assignment has another process": seen(READY, owner=Assigned(AT, "old", incarnation="o2")),
    "the topic shrank": seen(READY, topics={"t": 0, "u": 1}),
    "the topic is gone": seen(READY, topics={"u": 1}),
}


@pytest.mark.parametrize("view", GONE.values(), ids=GONE)
def test_a_hand_off_that_cannot_take_effect_any_more_ends(view: View) -> None:
    """Each cause alone ends even a ready hand-off; the assignment stays with the old owner."""
    assert stepped(view) == [
        kept(view, Delete(ALL.handoff(AT)), outcome="target_gone", why=NO_TARGET)
    ]


@pytest.mark.parametrize(
    ("consumers", "owner", "ends"),
    [
        ((OLD, NEW), Assigned(AT, "new", incarnation="n1"), False),
        ((OLD, replace(NEW, status=Status.DRAINING)), None, False),
        ((OLD, NEW), Assigned(AT, "new", incarnation="n2"), True),
        ((OLD, NEW), Assigned(AT, "old", incarnation="o1"), True),
        ((OLD,), None, True),
        ((NEW,), None, True),
    ],
)
def test_a_complete_hand_off_ends_in_silence_with_its_parties(
    consumers: tuple[Consumer, ...], owner: Assigned | None, ends: bool
) -> None:
    """The end was counted and logged before; a leaving new owner keeps the hand-off."""
    view = seen(COMPLETE, consumers=consumers, owner=owner)
    assert stepped(view) == ([kept(view, Delete(ALL.handoff(AT)))] if ends else [])


# -- the expulsion of an old owner -------------------------------------------------------------------


def with_lease(view: View, consumer: Consumer, lease: int) -> View:
    """Bind the consumer's key to the lease."""
    key = ALL.consumer(consumer.name)
    kv = KeyValue(key, codec.dump_consumer(consumer), 500, 500, 1, lease)
    view.apply(Event(key, 500, kv))
    return view


@pytest.mark.parametrize(
    ("handoff", "late", "reason"),
    [
        (UNRELEASED, (), "a flush hangs"),
        (UNRELEASED, (AT,), "a flush hangs"),
        (RELEASING, (AT,), "it did not release in time"),
    ],
)
def test_an_owner_that_does_not_release_is_expelled(
    handoff: Handoff, late: tuple[TopicPartition, ...], reason: str
) -> None:
    """Its session ends, its mark outlives its lease, and a fence exists until the lease ends."""
    view = with_lease(seen(handoff), OLD, 77)
    after = replace(handoff, unreleased=reason, expelled=True)
    assert stepped(view, *late) == [
        Bundle(
            (unchanged(view.raw[ALL.handoff(AT)]), unchanged(view.raw[ALL.consumer("old")])),
            (
                Put(ALL.handoff(AT), codec.dump_handoff(after)),
                Delete(ALL.consumer("old")),
                Put(ALL.expelled("old", "o1"), reason.encode(), EXPELLED_LEASE),
                Put(ALL.fence("old", "o1"), b"expelled", 77),
            ),
            warning=f"t/0: old (incarnation o1) is expelled: {reason}. Other consumers get its "
            "partitions when its lease has expired; restart the process",
        )
    ]


@pytest.mark.parametrize(
    ("incarnation", "lease", "marks"),
    [
        ("~made", 77, [("expelled", 77), ("fences", 77)]),
        ("", 77, [("expelled", 77), ("fences", 77)]),
        ("", 0, []),
        ("o1", 0, [("expelled", EXPELLED_LEASE)]),
    ],
)
def test_the_marks_of_an_expelled_process_end_with_its_lease_if_it_has_no_id(
    incarnation: str, lease: int, marks: list[tuple[str, int]]
) -> None:
    """A permanent mark would also refuse a successor without an id."""
    old = replace(OLD, incarnation=incarnation)
    view = with_lease(
        seen(replace(UNRELEASED, old_incarnation=incarnation), consumers=[old, NEW]), old, lease
    )
    [bundle] = stepped(view)
    found = [(ALL.kind(w.key), w.lease) for w in bundle.writes[2:] if isinstance(w, Put)]
    assert found == [((kind, ("old", incarnation or "-")), lease) for kind, lease in marks]
    named = incarnation or "not given"
    assert bundle.warning.startswith(f"t/0: old (incarnation {named}) is expelled: a flush hangs.")


def test_an_owner_is_expelled_once_for_all_its_partitions() -> None:
    """Two partitions of an owner cost one session; a second owner's hand-off costs its session."""
    other = Consumer(name="other", incarnation="x1")
    second = replace(UNRELEASED, at=TopicPartition("t", 1))
    third = replace(UNRELEASED, at=TopicPartition("t", 2), old_owner="other", old_incarnation="x1")
    ready = replace(READY, at=TopicPartition("t", 3))
    view = seen(UNRELEASED, second, third, ready, consumers=[OLD, NEW, other], topics={"t": 4})
    bundles = stepped(view)
    deleted = [[w.key for w in b.writes if isinstance(w, Delete)] for b in bundles]
    assert deleted == [[ALL.consumer("old")], [ALL.consumer("other")], []]
    assert bundles[2].ended == (("handed", ready.at),)


def test_an_old_owner_that_stopped_half_way_is_expelled_although_the_new_owner_is_gone() -> None:
    """The owner no longer processes the partition, so keeping it would block the partition."""
    [bundle] = stepped(seen(UNRELEASED, consumers=[OLD]))
    assert Delete(ALL.consumer("old")) in bundle.writes
    [bundle] = stepped(seen(UNRELEASED, consumers=[replace(OLD, incarnation="o2"), NEW]))
    assert bundle.ended == (("expelled", AT),)
    view = seen(UNRELEASED, consumers=[replace(OLD, incarnation="o2")], fenced=("old", "o1"))
    [bundle] = stepped(view)
    assert bundle.ended == (("target_gone", AT),)


@pytest.mark.parametrize(
    ("handoff", "consumers", "is_expelled"),
    [(RELEASING, (OLD, NEW), True), (RELEASING, (replace(OLD, incarnation="o2"), NEW), False)],
)
def test_a_late_owner_that_is_not_registered_is_not_expelled_again(
    handoff: Handoff, consumers: tuple[Consumer, ...], is_expelled: bool
) -> None:
    """Its lease is no longer renewed, and its successor keeps the new session."""
    view = seen(handoff, consumers=consumers, fenced=("old", "o1"))
    assert len(stepped(view, AT)) == is_expelled


# -- co-partitioned partitions -----------------------------------------------------------------------

BOUND = (replace(OLD, co_partitioned=(("t", "u"),)), replace(NEW, co_partitioned=(("t", "u"),)))


def of_mate(handoff: Handoff) -> Handoff:
    """The same hand-off for the partition of "u"."""
    return replace(handoff, at=MATE)


def test_co_partitioned_hand_offs_complete_in_one_transaction() -> None:
    """The order is by topic; released and ready partitions are treated alike."""
    view = seen(READY, of_mate(RELEASED), consumers=BOUND)
    told = "new is the new owner; old handed it over"
    assert stepped(view) == [
        Bundle(
            (*both(view), *both(view, MATE)),
            (*handed_to_new(COMPLETE), *handed_to_new(of_mate(HANDED), at=MATE)),
            (("t/0", told), ("u/0", told)),
            (("handed", AT), ("handed", MATE)),
        )
    ]


def test_partitions_with_different_numbers_complete_apart() -> None:
    """Only partitions with equal numbers are co-partitioned."""
    later = replace(READY, at=TopicPartition("u", 1))
    view = seen(READY, later, consumers=BOUND, topics={"t": 2, "u": 2})
    assert [bundle.ended for bundle in stepped(view)] == [
        (("handed", AT),),
        (("handed", later.at),),
    ]


@pytest.mark.parametrize(
    ("mate", "late", "ended"),
    [
        (FAILED, (), [("target_gone", AT), ("failed", MATE)]),
        (WARMING, (MATE,), [("target_gone", AT), ("late", MATE)]),
        (WARMING, (AT,), []),
        (RELEASING, (), []),
        (COMPLETE, (), [("handed", AT)]),
        (replace(FAILED, failed=""), (), [("target_gone", AT), ("failed", MATE)]),
        (replace(FAILED, old_owner="x"), (), [("failed", MATE), ("handed", AT)]),
    ],
    ids=["failed", "late", "only AT is late", "releasing", "complete", "no reason", "of another"],
)
def test_a_ready_hand_off_shares_the_end_of_its_co_partitioned_one(
    mate: Handoff, late: tuple[TopicPartition, ...], ended: list[tuple[str, TopicPartition]]
) -> None:
    """The two hand-offs must be incomplete and between the same two consumers."""
    view = seen(READY, of_mate(mate), consumers=BOUND)
    assert [end for bundle in stepped(view, *late) for end in bundle.ended] == ended


def test_co_partitioned_orphans_and_failures_are_separate_decisions() -> None:
    """A conflict in one decision does not delay the second."""
    orphans = seen(READY, of_mate(READY), consumers=BOUND[1:])
    assert [b.ended for b in stepped(orphans)] == [(("orphan", AT),), (("orphan", MATE),)]
    failures = seen(FAILED, of_mate(FAILED), consumers=BOUND)
    assert sorted(b.ended for b in stepped(failures)) == [(("failed", AT),), (("failed", MATE),)]


def test_hand_offs_are_advanced_by_topic_and_number() -> None:
    """The order of arrival does not matter, so every leader logs alike."""
    ats = [TopicPartition("u", 0), TopicPartition("t", 10), TopicPartition("t", 9)]
    view = seen(*(replace(READY, at=at) for at in ats), topics={"t": 11, "u": 1})
    ended = [end for bundle in stepped(view) for end in bundle.ended]
    assert ended == [("handed", at) for at in sorted(ats)]
