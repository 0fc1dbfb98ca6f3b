"""Rules of the coordinator with unusual inputs: versions, repetitions, names, second holders."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from faust_assigner.coordinator import effects as fx
from faust_assigner.coordinator.assignors import ASSIGNORS, compute, register
from faust_assigner.coordinator.catalogue import Catalogue
from faust_assigner.coordinator.classic import ClassicGroup, GroupLimits
from faust_assigner.coordinator.consumer.book import Book
from faust_assigner.coordinator.consumer.core import RETRY_MS
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.offsets import Committed, OffsetBook
from faust_assigner.coordinator.protocol import read_assignment, read_subscription, write_assignment
from faust_assigner.coordinator.records import Key, Kind, MemberMetadata, Record
from faust_assigner.coordinator.restore import restore
from faust_assigner.coordinator.settings import ConsumerLimits
from faust_assigner.coordinator.transactions import State, Transaction, TransactionLimits, step
from faust_assigner.coordinator.transactions.events import EndAndBump, EndTransaction, InitProducer
from faust_assigner.coordinator.transactions.state import LAST_EPOCH
from tests.support.coordination.consumer_bench import Bench, catalogue, topic_id
from tests.unit.coordinator.test_assignors import spec

LIMITS = TransactionLimits(max_timeout_ms=60_000)


# -- the bytes of classic consumers ----------------------------------------------------------


def subscription(
    version: int, *, rack: bytes | None = b"r", owned: tuple[int, ...] = (1,)
) -> bytes:
    """Return a subscription to "foo" with owned partitions, in the version's format."""
    data = struct.pack(">hih3si", version, 1, 3, b"foo", -1)
    if version >= 1:
        numbers = struct.pack(f">i{len(owned)}i", len(owned), *owned)
        data += struct.pack(">ih3s", 1, 3, b"foo") + numbers
    if version >= 2:
        data += struct.pack(">i", 7)
    if version >= 3:
        size = -1 if rack is None else len(rack)
        data += struct.pack(f">h{max(size, 0)}s", size, rack or b"")
    return data


@pytest.mark.parametrize(
    ("version", "owned", "rack"),
    [
        (0, {}, None),
        (1, {"foo": (1,)}, None),
        (2, {"foo": (1,)}, None),
        (3, {"foo": (1,)}, "r"),
        (4, {"foo": (1,)}, "r"),
    ],
)
def test_each_version_of_a_subscription_has_its_own_fields(
    version: int, owned: dict[str, tuple[int, ...]], rack: str | None
) -> None:
    """Owned partitions exist from version 1, a generation from 2, a rack from 3."""
    found = read_subscription(subscription(version))
    assert found is not None
    assert (found.version, found.topics, dict(found.owned), found.rack_id) == (
        version,
        ("foo",),
        owned,
        rack,
    )


@pytest.mark.parametrize("rack", [None, b""])
def test_an_empty_rack_is_no_rack(rack: bytes | None) -> None:
    """Clients without client.rack send an empty rack."""
    found = read_subscription(subscription(3, rack=rack))
    assert found is not None
    assert found.rack_id is None


def test_partitions_below_zero_do_not_exist() -> None:
    """Each number is kept once and in order, in assignments and in subscriptions."""
    found = read_subscription(subscription(1, owned=(3, -1, 0, 3)))
    assert found is not None
    assert dict(found.owned) == {"foo": (0, 3)}
    assert read_assignment(write_assignment(0, {"foo": (2, -7, 1)})) == {"foo": (1, 2)}


# -- groups ----------------------------------------------------------------------------------


def test_the_record_of_a_former_holder_does_not_free_an_instance_id() -> None:
    """The records of a takeover may be read in any order."""
    book = Book("g")
    for member_id in ("m1", "m2"):
        book.apply(Record(Key(Kind.MEMBER, "g", member_id), MemberMetadata(instance_id="i")))
    book.apply(Record(Key(Kind.MEMBER, "g", "m1"), None))
    assert book.instances == {"i": "m2"}
    book.apply(Record(Key(Kind.MEMBER, "g", "m2"), None))
    assert book.instances == {}


def test_a_failed_write_is_tried_again_after_a_pause() -> None:
    """A full disk must not make the timers fire without a pause."""
    bench = Bench()
    bench.disk_fails = True
    assert bench.join("m1").error is not Code.NONE
    assert bench.group.next_deadline_ms == bench.now + RETRY_MS


def test_a_topic_without_partitions_in_a_report_is_left_out() -> None:
    """No mapping of partitions has an empty entry."""
    topics = catalogue(a=4)
    assert topics.partitions_of({"a": (), "unknown": (1,)}) == {}
    assert topics.partitions_of({"a": (2, 0, 2)}) == {topic_id("a"): (0, 2)}


@pytest.mark.parametrize("count", [1, 5])
def test_the_existing_names_are_found_from_either_side(count: int) -> None:
    """The cases have few names of many topics and many names of few topics."""
    topics = catalogue(**{f"t{n}": 1 for n in range(3)})
    names = {f"t{n}" for n in range(2, 2 + count)}
    assert topics.existing_topics(names) == {"t2"}


def test_a_restored_classic_group_knows_the_topics() -> None:
    """The group needs the topics for a conversion to a consumer group."""
    topics = catalogue(a=4)
    record = fx.GroupRecord("g", 1, "consumer", "range", None, 0, ())
    made = [
        restore(
            "g", found, classic=GroupLimits(), consumer=ConsumerLimits(session_timeout_ms=9),
            catalogue=topics, now_ms=0,
        )
        for found in ([Record(Key(Kind.CLASSIC, "g"), record)], [])
    ]  # fmt: skip
    for group in made:
        assert isinstance(group, ClassicGroup)
        assert group.catalogue is topics
        assert group.consumer_limits.session_timeout_ms == 9


def test_an_offset_that_is_reset_in_an_empty_group_has_its_whole_time() -> None:
    """An administrator's commit expires by its own age, older commits by the last leave."""
    record = fx.GroupRecord("g", 1, "consumer", "range", None, 1_000, ())
    group: Any = ClassicGroup.restore(record, GroupLimits(), 0)
    book = OffsetBook(
        {("t", 0): Committed(1, committed_at_ms=500), ("t", 1): Committed(1, committed_at_ms=1_400)}
    )
    for now, gone in (
        (1_099, ()),
        (1_100, (("t", 0),)),
        (1_499, (("t", 0),)),
        (1_500, (("t", 0), ("t", 1))),
    ):
        assert book.expired(group, retention_ms=100, now_ms=now) == gone


def test_a_topics_offsets_are_those_of_its_whole_name() -> None:
    """The deletion of "t" keeps "t2"."""
    book = OffsetBook({("t", 0): Committed(1), ("t2", 0): Committed(1), ("t", 3): Committed(1)})
    assert book.of_topic("t") == (("t", 0), ("t", 3))
    assert book.drop([("t", 0), ("t", 9)]) == (("t", 0),)


def test_one_name_is_registered_again_by_the_same_function_alone() -> None:
    """Two brokers in a process load the same plug-in."""
    name, assign = "uniform", ASSIGNORS["uniform"]
    register(name, assign)
    with pytest.raises(ValueError, match="a different function"):
        register(name, ASSIGNORS["range"])
    assert ASSIGNORS[name] is assign


def test_of_two_holders_of_a_partition_the_first_one_keeps_it() -> None:
    """After a change of the assignor an old target may name a partition twice."""
    before = {"a": {topic_id("x"): (0, 1)}, "b": {topic_id("x"): (1, 2)}}
    target = compute(spec("uniform", {"a": "x", "b": "x"}, {"x": 4}, before))
    assert set(target["a"][topic_id("x")]) >= {0, 1}
    assert 2 in target["b"][topic_id("x")]
    assert Catalogue().ids(["x"]) == frozenset()


# -- transactions ----------------------------------------------------------------------------


def ended(**more: Any) -> Transaction:
    """Return a transactional id whose last transaction was committed."""
    values = {"state": State.COMPLETE_COMMIT, "updated_ms": 1, **more}
    return Transaction("t", values.pop("producer_id", 7), values.pop("epoch", 4), 1_000, **values)


@pytest.mark.parametrize(
    ("epoch", "previous", "error"), [(0, 7, Code.NONE), (1, 99, Code.INVALID_PRODUCER_ID_MAPPING)]
)
def test_the_last_end_of_an_exhausted_id_is_repeated_while_its_successor_has_done_nothing(
    epoch: int, previous: int, error: Code
) -> None:
    """A later end under the new id is a new transaction, and the new id becomes the previous id."""
    known = ended(producer_id=99, epoch=epoch, previous_producer_id=previous, is_bumped=True)
    assert step("t", known, EndAndBump(7, LAST_EPOCH, True, 100), 5, LIMITS).error is error


@pytest.mark.parametrize(
    ("epoch", "error"), [(LAST_EPOCH, Code.NONE), (LAST_EPOCH - 1, Code.PRODUCER_FENCED)]
)
def test_only_the_last_epoch_of_the_id_before_goes_on_under_a_fresh_id(
    epoch: int, error: Code
) -> None:
    """KIP-360: a lower epoch of the previous id belongs to an older producer."""
    known = ended(
        producer_id=99, epoch=0, previous_producer_id=7, last_epoch=epoch, state=State.EMPTY
    )
    assert step("t", known, InitProducer(1_000, 100, (7, epoch)), 5, LIMITS).error is error


def test_an_end_of_the_first_version_is_not_repeated_as_one_of_the_second() -> None:
    """A producer of the first version got no next epoch."""
    known = ended(state=State.ONGOING, started_ms=1, is_bumped=True)
    done = step("t", known, EndTransaction(7, 4, True), 5, LIMITS).transaction
    assert done is not None
    assert not done.is_bumped
    again = step("t", done, EndAndBump(7, 3, True, 100), 5, LIMITS)
    assert again.error is Code.PRODUCER_FENCED


def test_an_assignment_with_a_name_that_is_not_utf8_does_not_parse() -> None:
    """The leader's client writes the assignment; the group continues without it."""
    assert read_assignment(struct.pack(">hih1sii", 0, 1, 1, b"\xff", 1, 0)) is None
    assert read_subscription(struct.pack(">hih1si", 0, 1, 1, b"\xff", -1)) is None
