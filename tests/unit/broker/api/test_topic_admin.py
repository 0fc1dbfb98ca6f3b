"""CreateTopics, CreatePartitions, DeleteTopics: refusals and effects."""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from faust_assigner.broker import throttle
from faust_assigner.coordinator.offsets import Committed
from tests.support.asking import ask, to_topic
from tests.support.clients.raw_client import batch, keyed_record
from tests.support.hall import Hall, frames, in_hall

PRODUCE, CREATE, DELETE, DELETE_RECORDS, GROW, COMMIT = 0, 19, 20, 21, 37, 8
BAD_PARTITIONS, BAD_REPLICATION, BAD_ASSIGNMENT, INVALID_REQUEST = 37, 38, 39, 42
POLICY_VIOLATION, OUT_OF_RANGE = 44, 1


async def created(hall: Hall, **topic: Any) -> int:
    """Create "t" and return the error."""
    values = {"name": "t", "num_partitions": 1, "replication_factor": 1, **topic}
    answer = await ask(hall, CREATE, 7, topics=[values])
    return int(answer.topics[0].error_code)


def placed(*brokers: int) -> list[dict[str, Any]]:
    """Return a replica of each new partition on each of the brokers."""
    return [{"partition_index": n, "broker_ids": (broker,)} for n, broker in enumerate(brokers)]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ({"replication_factor": -1}, 0),
        ({"replication_factor": 0}, BAD_REPLICATION),
        ({"replication_factor": 2}, BAD_REPLICATION),
        ({"num_partitions": 0}, BAD_PARTITIONS),
        ({"num_partitions": -1}, 0),
        ({"num_partitions": -2}, BAD_PARTITIONS),
        ({"assignments": placed(1, 1)}, INVALID_REQUEST),
    ],
)
def test_a_topic_is_created_with_counts_that_one_broker_can_have(
    topic: dict[str, Any], error: int
) -> None:
    """-1 is the broker's default; counts and assignments exclude each other."""
    assert in_hall(lambda hall: created(hall, **topic)) == error


@pytest.mark.parametrize(("brokers", "error"), [((1, 1), 0), ((1, 2), BAD_ASSIGNMENT)])
def test_replicas_are_placed_on_this_broker_alone(brokers: tuple[int, ...], error: int) -> None:
    """The broker's node id is 1."""
    places = {"num_partitions": -1, "replication_factor": -1, "assignments": placed(*brokers)}
    assert in_hall(lambda hall: created(hall, **places)) == error


@pytest.mark.parametrize(
    ("places", "error"),
    [
        ([(1, (1,)), (0, (1,))], 0),
        ([(0, (1,)), (0, (1,))], BAD_ASSIGNMENT),
        ([(0, (1,)), (1, (1,)), (1, (1,))], BAD_ASSIGNMENT),
        ([(0, (1,)), (2, (1,))], BAD_ASSIGNMENT),
        ([(1, (1,))], BAD_ASSIGNMENT),
        ([(0, (1, 2))], BAD_ASSIGNMENT),
        ([(0, (1, 1))], BAD_ASSIGNMENT),
        ([(0, ())], BAD_ASSIGNMENT),
    ],
)
def test_an_assignment_names_each_partition_once_with_one_replica(
    places: list[tuple[int, tuple[int, ...]]], error: int
) -> None:
    """The numbers begin at 0 without gaps; their order in the request is free."""

    async def story(hall: Hall) -> tuple[int, list[int]]:
        assignments = [{"partition_index": n, "broker_ids": brokers} for n, brokers in places]
        code = await created(
            hall, num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        return code, [len(topic.partitions) for topic in hall.node.catalogue]

    assert in_hall(story) == (error, [] if error else [len(places)])


async def grown(
    hall: Hall, count: int, *, validate_only: bool = False, **more: Any
) -> tuple[int, int]:
    """Grow "t" from one partition; return the error and the number of partitions afterwards."""
    topic = hall.node.catalogue.create("t", 1, {})
    wanted = {"name": "t", "count": count, "assignments": None, **more}
    answer = await ask(hall, GROW, 3, topics=[wanted], validate_only=validate_only)
    return int(answer.results[0].error_code), len(topic.partitions)


def test_growing_may_be_tried_without_being_done() -> None:
    """Tools validate a request before they send it for real."""
    assert in_hall(lambda hall: grown(hall, 3, validate_only=True)) == (0, 1)
    assert in_hall(lambda hall: grown(hall, 3)) == (0, 3)


@pytest.mark.parametrize(("places", "found"), [(2, (0, 3)), (3, (BAD_ASSIGNMENT, 1))])
def test_only_new_partitions_are_placed(places: int, found: tuple[int, int]) -> None:
    """The request adds two partitions: the existing partition has its place."""
    new = [{"broker_ids": (1,)}] * places
    assert in_hall(lambda hall: grown(hall, 3, assignments=new)) == found


@pytest.mark.parametrize("api", [DELETE, DELETE_RECORDS])
def test_deletions_give_their_space_back(api: int) -> None:
    """A broker with a full disk refuses records until a deletion is reported."""

    async def story(hall: Hall) -> int:
        hall.node.catalogue.create("t", 1, {})
        await ask(hall, PRODUCE, 9, **to_topic(batch()))
        freed: list[None] = []
        hall.node.space.freed = lambda: freed.append(None)  # type: ignore[method-assign]
        if api == DELETE:
            await ask(hall, DELETE, 5, topic_names=("t",))
        else:
            parts = [{"partition_index": 0, "offset": 1}]
            await ask(hall, DELETE_RECORDS, 1, topics=[{"name": "t", "partitions": parts}])
        return len(freed)

    assert in_hall(story) == 1


@pytest.mark.parametrize(
    ("offset", "found"),
    [(0, (0, 2, 2)), (1, (0, 2, 2)), (3, (0, 3, 3)), (4, (OUT_OF_RANGE, -1, 2))],
)
def test_records_that_are_gone_are_deleted_without_an_error(
    offset: int, found: tuple[int, int, int]
) -> None:
    """An offset below the log start is no error, and the low watermark stays at the log start."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        log = hall.node.catalogue.create("t", 1, {}).partitions[0]
        for _ in range(3):
            await ask(hall, PRODUCE, 9, **to_topic(batch()))
        log.trim(2)
        parts = [{"partition_index": 0, "offset": offset}]
        answer = await ask(hall, DELETE_RECORDS, 1, topics=[{"name": "t", "partitions": parts}])
        (part,) = answer.topics[0].partitions
        return int(part.error_code), part.low_watermark, log.start_offset

    assert in_hall(story) == found


@pytest.mark.parametrize("way", ["name", "name since version 6", "id"])
def test_a_topic_that_a_deletion_names_twice_is_not_deleted(way: str) -> None:
    """The topic is answered once with an error; the topic between its entries is deleted."""

    async def story(hall: Hall) -> tuple[list[int], list[str]]:
        ids = {name: hall.node.catalogue.create(name, 1, {}).topic_id for name in ("t", "u")}
        names = ("t", "u", "t")
        if way == "name":
            answer = await ask(hall, DELETE, 5, topic_names=names)
        elif way == "id":
            topics = [{"name": None, "topic_id": ids[name]} for name in names]
            answer = await ask(hall, DELETE, 6, topics=topics)
        else:
            topics = [{"name": name, "topic_id": None} for name in names]
            answer = await ask(hall, DELETE, 6, topics=topics)
        codes = [int(one.error_code) for one in answer.responses]
        return codes, [topic.name for topic in hall.node.catalogue]

    assert in_hall(story) == ([INVALID_REQUEST, 0], ["t"])


@pytest.mark.parametrize("version", [5, 6])
def test_a_topic_takes_the_offsets_that_groups_committed_for_it_along(version: int) -> None:
    """Both versions of the request delete the offsets: a new topic of this name has none."""

    async def story(hall: Hall) -> int:
        topic = hall.node.catalogue.create("t", 1, {})
        part = {
            "partition_index": 0,
            "committed_offset": 5,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        await ask(
            hall, COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1, member_id="",
            group_instance_id=None, topics=[{"name": "t", "partitions": [part]}],
        )  # fmt: skip
        if version >= 6:
            await ask(hall, DELETE, 6, topics=[{"name": None, "topic_id": topic.topic_id}])
        else:
            await ask(hall, DELETE, 5, topic_names=("t",))
        return len(hall.node.groups.books.offsets("g").entries)

    assert in_hall(story) == 0


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of a handler takes longer than a slice."""
    count = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: next(count) * 2 * throttle.SLICE_S)
    monkeypatch.setattr(throttle, "time", clock)


def with_offsets(hall: Hall, *topics: str) -> None:
    """Create topics, and nine groups with an offset of each."""
    for name in topics:
        hall.node.catalogue.create(name, 1, {})
    for number in range(9):
        offsets = {(name, 0): Committed(5) for name in topics}
        hall.node.groups.books.commit(f"g{number}", offsets)


@pytest.mark.usefixtures("slow_clock")
def test_a_deleted_topic_takes_its_offsets_along_though_the_client_disconnects() -> None:
    """The connection ends after the deletion of the topic, before that of most offsets."""

    async def story(hall: Hall) -> tuple[int, int, int, bool]:
        with_offsets(hall, "t", "u")
        peer, _ = hall.connect("peer")
        peer.data_received(next(frames(DELETE, 1, 5, topic_names=("t",))))
        while len(hall.node.catalogue) == 2:
            await asyncio.sleep(0)
        before = len(list(hall.node.store.scan(b"o")))
        peer.connection_lost(None)
        for _ in range(100):
            await asyncio.sleep(0)
        after = len(list(hall.node.store.scan(b"o")))
        return before > 9, after, len(hall.written), hall.node.line.places.locked()

    assert in_hall(story) == (True, 9, 0, False)


@pytest.mark.usefixtures("slow_clock")
def test_many_clients_that_delete_topics_do_not_wait_for_each_other_for_ever() -> None:
    """There are twice as many clients as places, and each client deletes two topics."""
    clients = 2 * throttle.LONG_AT_A_TIME
    names = [f"t{number}" for number in range(2 * clients)]

    async def story(hall: Hall) -> tuple[int, int, bool]:
        with_offsets(hall, *names)
        for number in range(clients):
            asked = next(frames(DELETE, 1, 5, topic_names=names[number::clients]))
            hall.connect(str(number))[0].data_received(asked)
        await hall.answers(clients)
        left = len(list(hall.node.store.scan(b"o")))
        return len(hall.node.catalogue), left, hall.node.line.places.locked()

    assert in_hall(story) == (0, 0, False)


@pytest.mark.parametrize("both", [True, False])
def test_a_topic_to_delete_is_named_in_one_way(both: bool) -> None:
    """An answer to name and id together could not identify the deleted topic."""

    async def story(hall: Hall) -> int:
        topic = hall.node.catalogue.create("t", 1, {})
        named = {"name": "t" if both else None, "topic_id": topic.topic_id}
        answer = await ask(hall, DELETE, 6, topics=[named])
        return int(answer.responses[0].error_code)

    assert in_hall(story) == (INVALID_REQUEST if both else 0)


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        ("delete", (0, 1)),
        ("compact,delete", (0, 1)),
        ("", (0, 1)),
        ("compact", (POLICY_VIOLATION, 0)),
    ],
)
def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(
    policy: str, found: tuple[int, int]
) -> None:
    """Its first records may be the only records of their keys."""

    async def story(hall: Hall) -> tuple[int, int]:
        log = hall.node.catalogue.create("t", 1, {"cleanup.policy": policy}).partitions[0]
        await ask(hall, PRODUCE, 9, **to_topic(batch(keyed_record(b"k", b"v"))))
        parts = [{"partition_index": 0, "offset": 1}]
        answer = await ask(hall, DELETE_RECORDS, 1, topics=[{"name": "t", "partitions": parts}])
        return int(answer.topics[0].partitions[0].error_code), log.start_offset

    assert in_hall(story) == found
