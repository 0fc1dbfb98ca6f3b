"""Requests as bytes to a broker without sockets: rare clients and rare moments."""

from __future__ import annotations

import asyncio
import datetime
import gzip
import threading
from typing import Any

from faust_assigner.broker.api.consumer_groups import _unchanged_answer
from tests.support.asking import ask, to_topic, wanting
from tests.support.clients.raw_client import batch, one_record
from tests.support.hall import Hall, frames, in_hall
from tests.support.waiting import PATIENCE_S

PRODUCE, FETCH, LIST_OFFSETS, DELETE_RECORDS = 0, 1, 2, 21
OFFSET_COMMIT, OFFSET_DELETE = 8, 47
EARLIEST, EARLIEST_LOCAL = -2, -4
JOIN_GROUP, LEAVE_GROUP, DELETE_GROUPS, DESCRIBE_CONFIGS, ALTER_CONFIGS = 11, 13, 42, 32, 44
REPLACE_CONFIGS = 33
SECOND = datetime.timedelta(seconds=1)


def test_of_several_batches_for_a_partition_the_last_counts() -> None:
    """As in Kafka, the answer has a single result and the log a single batch."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        topic = hall.node.catalogue.create("t", 1, {})
        first, last = batch(one_record()), batch(one_record() + one_record(offset_delta=1), count=2)
        answer = await ask(hall, PRODUCE, 9, **to_topic(first, last))
        parts = answer.responses[0].partition_responses
        return len(parts), int(parts[0].error_code), topic.partitions[0].end_offset

    assert in_hall(story) == (1, 0, 2)


def test_a_topic_that_is_deleted_while_a_batch_is_checked_takes_nothing() -> None:
    """A compressed batch is checked in a thread; meanwhile a client deletes the topic."""

    async def story(hall: Hall) -> tuple[int, list[object]]:
        topic = hall.node.catalogue.create("t", 1, {})
        held, aside = threading.Event(), hall.node.aside

        def late(work: Any) -> Any:
            return aside(lambda: (held.wait(PATIENCE_S), work())[1])

        hall.node.aside = late  # type: ignore[method-assign]
        data = batch(gzip.compress(one_record()), attributes=1)
        asked = asyncio.ensure_future(ask(hall, PRODUCE, 9, **to_topic(data)))
        for _ in range(5):
            await asyncio.sleep(0)
        hall.node.catalogue.delete(topic)
        held.set()
        answer = await asked
        return int(answer.responses[0].partition_responses[0].error_code), list(
            hall.node.store.scan(b"b")
        )

    assert in_hall(story) == (3, [])


def test_a_reader_that_waited_is_forgotten() -> None:
    """Its waiter is removed after new data and after the end of the wait."""

    async def story(hall: Hall) -> list[int]:
        topic = hall.node.catalogue.create("t", 1, {})
        wanted = {"topics": wanting(1), "max_bytes": 1_000, "min_bytes": 1}
        await ask(hall, FETCH, 4, max_wait=datetime.timedelta(milliseconds=5), **wanted)
        waiting = [len(topic.partitions[0].waiters)]
        asked = asyncio.ensure_future(ask(hall, FETCH, 4, max_wait=20 * SECOND, **wanted))
        while not topic.partitions[0].waiters:
            await asyncio.sleep(0)
        waiting.append(len(topic.partitions[0].waiters))
        other, _ = hall.connect("producer")
        other.data_received(next(frames(PRODUCE, 1, 9, **to_topic(batch()))))
        await asked
        return [*waiting, len(topic.partitions[0].waiters)]

    assert in_hall(story) == [0, 1, 0]


def test_a_reader_with_a_mistake_is_answered_at_once() -> None:
    """The reader must learn of the missing partition without a wait for data."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 1, {})
        wanted = {"topics": wanting(2), "max_bytes": 1_000, "min_bytes": 1}
        answer = await ask(hall, FETCH, 4, max_wait=300 * SECOND, **wanted)
        return [int(part.error_code) for part in answer.responses[0].partitions]

    assert in_hall(story) == [0, 3]


def test_an_answer_has_so_many_bytes_whatever_its_partitions_hold() -> None:
    """The first batch is always included, the next one if the limit allows."""

    async def story(hall: Hall) -> list[list[bool]]:
        topic = hall.node.catalogue.create("t", 3, {})
        data = batch()
        for number in range(3):
            await ask(hall, PRODUCE, 9, **to_topic(data, partition=number))
        assert [log.size for log in topic.partitions] == [len(data)] * 3
        found = []
        for room in (1, 2 * len(data), 3 * len(data)):
            wanted = {"topics": wanting(3), "max_bytes": room, "min_bytes": 1}
            answer = await ask(hall, FETCH, 4, max_wait=0 * SECOND, **wanted)
            found.append([bool(part.records) for part in answer.responses[0].partitions])
        return found

    assert in_hall(story) == [[True, False, False], [True, True, False], [True, True, True]]


def test_a_transactional_batch_without_a_transactional_id_is_refused() -> None:
    """No coordinator would end its transaction, and read_committed readers would wait for ever.

    As in Kafka, all other batches of the request are refused, too.
    """

    async def story(hall: Hall) -> tuple[list[int], list[int]]:
        topic = hall.node.catalogue.create("t", 2, {})
        request = to_topic(batch(attributes=0x10))
        request["topic_data"][0]["partition_data"].append({"index": 1, "records": batch()})
        answer = await ask(hall, PRODUCE, 9, **request)
        codes = [int(part.error_code) for part in answer.responses[0].partition_responses]
        return codes, [log.end_offset for log in topic.partitions]

    assert in_hall(story) == ([53, 53], [0, 0])


async def offset_at(hall: Hall, timestamp: int, times: int = 1) -> tuple[int, int, int]:
    """Return (answers, error, offset) of ListOffsets for partition 0, named this many times."""
    part = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
    answer = await ask(
        hall, LIST_OFFSETS, 8, replica_id=-1, topics=[{"name": "t", "partitions": [part] * times}]
    )
    (found, *more) = answer.topics[0].partitions
    return 1 + len(more), int(found.error_code), found.offset


def test_a_time_inside_a_batch_that_was_trimmed_is_where_the_log_begins() -> None:
    """The batch is complete on disk; its deleted records are never returned."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        topic = hall.node.catalogue.create("t", 1, {})
        records = b"".join(one_record(offset_delta=n) for n in range(5))
        await ask(hall, PRODUCE, 9, **to_topic(batch(records, count=5, timestamp=1_000)))
        topic.partitions[0].trim(3)
        return await offset_at(hall, 500)

    assert in_hall(story) == (1, 0, 3)


def test_the_earliest_local_offset_is_the_earliest_also_of_an_empty_log() -> None:
    """KIP-405: without tiered storage both offsets are equal."""

    async def story(hall: Hall) -> list[tuple[int, int, int]]:
        topic = hall.node.catalogue.create("t", 1, {})
        await ask(hall, PRODUCE, 9, **to_topic(batch(timestamp=1_000)))
        topic.partitions[0].trim(1)
        return [await offset_at(hall, timestamp) for timestamp in (EARLIEST, EARLIEST_LOCAL)]

    assert in_hall(story) == [(1, 0, 1), (1, 0, 1)]


def test_a_partition_named_twice_is_an_invalid_request() -> None:
    """As in Kafka, the answer has the partition once."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        hall.node.catalogue.create("t", 1, {})
        return await offset_at(hall, -1, times=2)

    assert in_hall(story) == (1, 42, -1)


def test_records_that_are_not_there_yet_are_not_deleted() -> None:
    """An offset beyond the end is out of range and deletes no record; -1 is the end itself."""

    async def story(hall: Hall) -> list[tuple[int, int]]:
        hall.node.catalogue.create("t", 1, {})
        await ask(hall, PRODUCE, 9, **to_topic(batch()))
        found = []
        for offset in (2, -2, -1):
            parts = [{"partition_index": 0, "offset": offset}]
            answer = await ask(hall, DELETE_RECORDS, 1, topics=[{"name": "t", "partitions": parts}])
            part = answer.topics[0].partitions[0]
            found.append((int(part.error_code), part.low_watermark))
        return found

    assert in_hall(story) == [(1, -1), (1, -1), (0, 1)]


def test_offsets_of_partitions_that_were_not_named_are_kept() -> None:
    """OffsetDelete removes the named partitions of a topic without readers."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 2, {})
        parts = [
            {
                "partition_index": number,
                "committed_offset": 5,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            for number in (0, 1)
        ]
        await ask(
            hall,
            OFFSET_COMMIT,
            8,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id=None,
            topics=[{"name": "t", "partitions": parts}],
        )
        named = [{"name": "t", "partitions": [{"partition_index": 1}]}]
        await ask(hall, OFFSET_DELETE, 0, group_id="g", topics=named)
        return [number for _, number in hall.node.groups.books.offsets("g").entries]

    assert in_hall(story) == [0]


def joining(**more: Any) -> dict[str, Any]:
    """Return a first JoinGroup."""
    protocols = [{"name": "range", "metadata": b"m"}]
    return {"group_id": "g", "session_timeout": 10 * SECOND, "member_id": "", "protocol_type": "consumer",
            "protocols": protocols, **more}  # fmt: skip


def test_before_version_1_a_join_may_take_as_long_as_a_session() -> None:
    """Such clients send no rebalance timeout; later versions send their own."""

    async def story(hall: Hall) -> list[int]:
        peer, _ = hall.connect("old")
        peer.data_received(next(frames(JOIN_GROUP, 1, 0, **joining(group_id="old"))))
        peer, _ = hall.connect("new")
        values = joining(group_id="new", rebalance_timeout=SECOND)
        peer.data_received(next(frames(JOIN_GROUP, 1, 1, **values)))
        for _ in range(20):
            await asyncio.sleep(0)
        members = [next(iter(group.roster)) for group in hall.node.groups]
        return [member.rebalance_timeout_ms for member in members]

    assert in_hall(story) == [10_000, 1_000]


def test_a_static_member_is_in_at_once() -> None:
    """Its instance id identifies the member: only dynamic members join again with an id."""

    async def story(hall: Hall) -> list[int]:
        codes = []
        for instance in (None, "worker-1"):
            values = joining(
                group_id=f"g-{instance}", rebalance_timeout=SECOND, group_instance_id=instance
            )
            asked = asyncio.ensure_future(ask(hall, JOIN_GROUP, 5, **values))
            for _ in range(20):
                await asyncio.sleep(0)
            hall.node.groups.tick(f"g-{instance}")
            codes.append(int((await asked).error_code))
        return codes

    assert in_hall(story) == [79, 0]


def test_what_was_answered_before_a_stop_is_delivered() -> None:
    """Connections are closed after their answers, and dropped only if the peers do not read."""

    async def story(hall: Hall) -> tuple[bool, bool]:
        _, taker = hall.connect("taker")
        stop = asyncio.ensure_future(hall.server.stop())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen = taker.closed, taker.aborted
        for connection in list(hall.server._connections):
            connection.connection_lost(None)
        await stop
        return seen

    assert in_hall(story) == (True, False)


# -- administration --------------------------------------------------------------------------


def test_before_version_3_a_leaver_learns_of_its_error_at_the_top() -> None:
    """Such an answer has no list of members."""

    async def story(hall: Hall) -> list[int]:
        peer, _ = hall.connect("static")
        values = joining(rebalance_timeout=SECOND, group_instance_id="i")
        peer.data_received(next(frames(JOIN_GROUP, 1, 5, **values)))
        for _ in range(20):
            await asyncio.sleep(0)
        gone = [{"member_id": "stranger", "group_instance_id": None}]
        old = await ask(hall, LEAVE_GROUP, 1, group_id="g", member_id="stranger")
        new = await ask(hall, LEAVE_GROUP, 3, group_id="g", members=gone)
        return [int(old.error_code), int(new.error_code), int(new.members[0].error_code)]

    assert in_hall(story) == [25, 0, 25]


def test_a_group_that_is_named_twice_is_deleted_once() -> None:
    """The group has a single result."""

    async def story(hall: Hall) -> list[tuple[str, int]]:
        answer = await ask(hall, DELETE_GROUPS, 2, groups_names=("g", "h", "g"))
        return [(result.group_id, int(result.error_code)) for result in answer.results]

    assert in_hall(story) == [("g", 69), ("h", 69)]


async def configure(
    hall: Hall, operation: int, value: str | None, *, validate_only: bool = False
) -> int:
    """Change cleanup.policy of "t"; return the error."""
    change = {"name": "cleanup.policy", "config_operation": operation, "value": value}
    resource = {"resource_type": 2, "resource_name": "t", "configs": [change]}
    answer = await ask(hall, ALTER_CONFIGS, 1, resources=[resource], validate_only=validate_only)
    return int(answer.responses[0].error_code)


def test_lists_in_settings_are_edited_and_a_validated_change_is_not_made() -> None:
    """Append keeps existing values once; subtract, unset and the source of a value work."""

    async def story(hall: Hall) -> list[tuple[str, int]]:
        hall.node.catalogue.create("t", 1, {})
        told = []
        for operation, value, validate_only in (
            (2, "delete,compact", False), (3, "delete", True), (3, "delete", False), (1, None, False)
        ):  # fmt: skip
            assert await configure(hall, operation, value, validate_only=validate_only) == 0
            resource = {
                "resource_type": 2,
                "resource_name": "t",
                "configuration_keys": ("cleanup.policy",),
            }
            answer = await ask(hall, DESCRIBE_CONFIGS, 4, resources=[resource])
            (entry,) = answer.results[0].configs
            told.append((entry.value, int(entry.config_source)))
        return told

    assert in_hall(story) == [
        ("delete,compact", 1),
        ("delete,compact", 1),
        ("compact", 1),
        ("delete", 5),
    ]


def test_configs_are_replaced_as_a_whole_by_the_older_request() -> None:
    """Omitted configs are the default; a validation, a null and a repeated resource change none."""

    async def story(hall: Hall) -> tuple[list[int], list[dict[str, str]]]:
        topic = hall.node.catalogue.create("t", 1, {"retention.ms": "1", "segment.ms": "2"})
        errors, states = [], []
        for value, times, validate_only in (
            ("9", 1, True), (None, 1, False), ("9", 2, False), ("9", 1, False)
        ):  # fmt: skip
            configs = [{"name": "segment.ms", "value": value}]
            resource = {"resource_type": 2, "resource_name": "t", "configs": configs}
            answer = await ask(
                hall, REPLACE_CONFIGS, 2, resources=[resource] * times, validate_only=validate_only
            )
            errors += [int(response.error_code) for response in answer.responses]
            states.append(dict(topic.configs))
        return errors, states

    before = {"retention.ms": "1", "segment.ms": "2"}
    assert in_hall(story) == ([0, 42, 42, 42, 0], [before, before, before, {"segment.ms": "9"}])


def test_configs_of_groups_are_replaced_as_a_whole_too() -> None:
    """The older request replaces the configs of groups, too."""

    async def story(hall: Hall) -> list[dict[str, str]]:
        states = []
        sent = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}
        for name, value in sent.items():
            configs = [{"name": name, "value": value}]
            resource = {"resource_type": 32, "resource_name": "g", "configs": configs}
            answer = await ask(hall, REPLACE_CONFIGS, 2, resources=[resource], validate_only=False)
            assert int(answer.responses[0].error_code) == 0
            states.append(dict(hall.node.group_configs.explicit("g")))
        return states

    assert in_hall(story) == [
        {"consumer.session.timeout.ms": "50000"}, {"consumer.heartbeat.interval.ms": "6000"}
    ]  # fmt: skip


def test_a_fault_in_a_produce_names_each_partition_it_was_asked_for() -> None:
    """Otherwise the producer would find no result for its partition."""

    async def story(hall: Hall) -> list[tuple[int, int]]:
        hall.node.catalogue.create("t", 5, {})
        hall.node.rules = None  # type: ignore[assignment, method-assign]
        answer = await ask(hall, PRODUCE, 9, **to_topic(batch(), partition=3))
        return [
            (part.index, int(part.error_code)) for part in answer.responses[0].partition_responses
        ]

    assert in_hall(story) == [(3, -1)]


def test_answers_to_members_with_long_names_are_not_kept() -> None:
    """Cached heartbeat answers could otherwise fill the memory with names of 32 KiB."""

    async def story(hall: Hall) -> list[int]:
        grown = []
        for member_id in ("short", "l" * 30_000):
            said = {"group_id": "g" + member_id[0], "member_id": member_id, "instance_id": None,
                    "rack_id": None, "subscribed_topic_regex": None, "server_assignor": None}  # fmt: skip
            first = await ask(hall, 68, 1, **said, member_epoch=0, subscribed_topic_names=["t"],
                              rebalance_timeout=SECOND, topic_partitions=[])  # fmt: skip
            before = _unchanged_answer.cache_info().currsize
            calm = await ask(hall, 68, 1, **said, member_epoch=first.member_epoch, rebalance_timeout=SECOND,
                             subscribed_topic_names=None, topic_partitions=None)  # fmt: skip
            assert calm.member_id == member_id
            grown.append(_unchanged_answer.cache_info().currsize - before)
        return grown

    _unchanged_answer.cache_clear()
    assert in_hall(story) == [1, 0]
