"""Requests at the limits of their APIs: versions, bounds, repeated names, and open transactions."""

from __future__ import annotations

import asyncio
import datetime
import logging
from typing import Any

import pytest

from faust_assigner.broker import limits
from faust_assigner.broker.answering import _answer_error
from faust_assigner.broker.api import offset_commit
from faust_assigner.broker.request_walk import NullArray
from faust_assigner.broker.storage.records import TRANSACTIONAL, parse_batch
from faust_assigner.broker.throttle import AnswerTooLarge, Throttle
from faust_assigner.broker.wire import RequestHeader
from faust_assigner.coordinator.offsets import Committed
from faust_assigner.coordinator.transactions.events import AddPartitions, InitProducer
from tests.support.asking import ask, read, to_topic
from tests.support.clients.raw_client import batch
from tests.support.hall import Hall, in_hall

PRODUCE, LIST_OFFSETS, METADATA, COMMIT, FETCH_OFFSETS, JOIN, LEAVE = 0, 2, 3, 8, 9, 11, 13
CREATE, DELETE_RECORDS, EDIT_CONFIGS, HEARTBEAT = 19, 21, 44, 68
LATEST = -1
TIMED_OUT, ILLEGAL_GENERATION, UNKNOWN_MEMBER, INVALID_REQUEST = 7, 22, 25, 42
GROUP_NOT_FOUND, UNSTABLE, TOO_LARGE = 69, 88, 12
GROUP_CONFIGS = 32
SECOND = datetime.timedelta(seconds=1)


# -- records ---------------------------------------------------------------------------------


def test_a_topic_that_a_produce_names_twice_takes_the_records_of_both() -> None:
    """The entries have different partitions, and a single topic in the answer has both."""

    async def story(hall: Hall) -> tuple[int, list[int]]:
        topic = hall.node.catalogue.create("t", 2, {})
        request = to_topic(batch())
        request["topic_data"] += to_topic(batch(), partition=1)["topic_data"]
        answer = await ask(hall, PRODUCE, 9, **request)
        return len(answer.responses), [log.end_offset for log in topic.partitions]

    assert in_hall(story) == (1, [1, 1])


def test_a_batch_that_took_too_long_to_check_is_refused_and_not_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The producer will repeat the batch: a batch already appended would be stored twice."""

    def late(throttle: Throttle) -> None:
        raise TimeoutError("too late")

    async def story(hall: Hall) -> tuple[int, int]:
        log = hall.node.catalogue.create("t", 1, {}).partitions[0]
        monkeypatch.setattr(Throttle, "check_time", late)
        answer = await ask(hall, PRODUCE, 9, **to_topic(batch()))
        return int(answer.responses[0].partition_responses[0].error_code), log.end_offset

    assert in_hall(story) == (TIMED_OUT, 0)


async def open_transaction(hall: Hall) -> Any:
    """Return the log of "t": a committed record of time 1,000 and an open transaction of 2,000."""
    topic = hall.node.catalogue.create("t", 1, {})
    log, ask_id = topic.partitions[0], hall.node.transactions.ask
    ask_id("tx", InitProducer(60_000, 7))
    ask_id("tx", AddPartitions(7, 0, frozenset({(topic.topic_id.bytes, 0)})))
    for time, header in ((1_000, {}), (2_000, {"producer_id": 7, "epoch": 0, "sequence": 0})):
        data = batch(timestamp=time, attributes=TRANSACTIONAL if header else 0, **header)
        log.append(parse_batch(data), data, 0)
    return log


@pytest.mark.parametrize(
    ("committed", "found"),
    [(1, {LATEST: 1, 1_000: 0, 1_001: -1}), (0, {LATEST: 2, 1_000: 0, 1_001: 1})],
)
def test_a_committed_reader_finds_no_offset_from_the_open_transaction_on(
    committed: int, found: dict[int, int]
) -> None:
    """The latest offset and a search by time exclude the transaction; other readers see both."""

    async def story(hall: Hall) -> dict[int, int]:
        await open_transaction(hall)
        offsets = {}
        for time in found:
            part = {"partition_index": 0, "timestamp": time, "current_leader_epoch": -1}
            topics = [{"name": "t", "partitions": [part]}]
            answer = await ask(
                hall, LIST_OFFSETS, 5, replica_id=-1, isolation_level=committed, topics=topics
            )
            offsets[time] = answer.topics[0].partitions[0].offset
        return offsets

    assert in_hall(story) == found


def test_all_records_are_deleted_also_those_of_an_open_transaction() -> None:
    """-1 is the high watermark, not the last stable offset."""

    async def story(hall: Hall) -> int:
        log = await open_transaction(hall)
        parts = [{"partition_index": 0, "offset": -1}]
        topics = [{"name": "t", "partitions": parts}]
        await ask(hall, DELETE_RECORDS, 1, topics=topics, timeout_ms=1_000)
        return int(log.start_offset)

    assert in_hall(story) == 2


@pytest.mark.parametrize(
    ("change", "outcome"),
    [("compacted", (2, 1, 0)), ("trimmed", (2, 1, 0)), ("deleted", (1, -1, 0))],
)
def test_a_time_is_looked_for_again_if_its_batch_is_gone_meanwhile(
    change: str, outcome: tuple[int, int, int]
) -> None:
    """A consumer takes -1 for the end of the log, and would skip the second record."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        topic = hall.node.catalogue.create("t", 1, {})
        log = topic.partitions[0]
        for time in (1_000, 2_000):
            await ask(hall, PRODUCE, 9, **to_topic(batch(timestamp=time)))
        load, times = log.store.get_many, 0

        def changed(keys: Any) -> list[bytes | None]:
            nonlocal times
            times += 1
            if times == 1 and change == "compacted":
                log.cleanings += 1
                log.index.drop(1)
                return [None]
            if times == 1 and change == "trimmed":
                log.trim(1)
            if times == 1 and change == "deleted":
                hall.node.catalogue.delete(topic)
            return load(keys)

        log.store.get_many = changed
        part = {"partition_index": 0, "timestamp": 500, "current_leader_epoch": -1}
        topics = [{"name": "t", "partitions": [part]}]
        answer = await ask(hall, LIST_OFFSETS, 5, replica_id=-1, isolation_level=0, topics=topics)
        (found,) = answer.topics[0].partitions
        return times, found.offset, int(found.error_code)

    assert in_hall(story) == outcome


# -- topics ----------------------------------------------------------------------------------


async def created(hall: Hall, *names: str, count: int = -1) -> list[tuple[int, int]]:
    """Return (error, partitions) of each topic in the answer."""
    topics = [{"name": n, "num_partitions": count, "replication_factor": 1} for n in names]
    answer = await ask(hall, CREATE, 7, topics=topics)
    return [(int(t.error_code), t.num_partitions) for t in answer.topics]


def test_a_topic_that_is_named_twice_is_not_created() -> None:
    """The name has a single error; the second topic has the broker's number of partitions."""

    async def story(hall: Hall) -> Any:
        found = await created(hall, "twice", "once", "twice")
        return found, [topic.name for topic in hall.node.catalogue]

    usual = in_hall(lambda hall: _number(hall))
    assert in_hall(story) == ([(INVALID_REQUEST, -1), (0, usual)], ["once"])


async def _number(hall: Hall) -> int:
    return int(hall.node.settings.num_partitions)


@pytest.mark.parametrize(("version", "allows"), [(3, None), (4, True), (4, False)])
def test_a_client_that_cannot_say_so_lets_topics_be_created(
    version: int, allows: bool | None
) -> None:
    """allow_auto_topic_creation exists since version 4; created topics are counted."""

    async def story(hall: Hall) -> tuple[int, int]:
        more = {} if allows is None else {"allow_auto_topic_creation": allows}
        await ask(hall, METADATA, version, topics=[{"name": "t"}], **more)
        return len(hall.node.catalogue), hall.node.counters["topics_auto_created"]

    assert in_hall(story) == ((0, 0) if allows is False else (1, 1))


# -- members ---------------------------------------------------------------------------------


def test_a_negative_rebalance_timeout_counts_as_none() -> None:
    """A deadline in the past would end each round before its start."""

    async def story(hall: Hall) -> list[int]:
        values = {
            "group_id": "g", "session_timeout": 10 * SECOND, "rebalance_timeout": -SECOND,
            "member_id": "", "protocol_type": "consumer", "group_instance_id": "i",
            "protocols": [{"name": "range", "metadata": b"m"}],
        }  # fmt: skip
        events: list[Any] = []
        put = hall.node.groups.ask

        def noting(group_id: str, event_for: Any, *more: Any) -> None:
            events.append(event_for(0))
            put(group_id, event_for, *more)

        hall.node.groups.ask = noting  # type: ignore[method-assign]
        asked = asyncio.ensure_future(ask(hall, JOIN, 5, **values))
        while not events:
            await asyncio.sleep(0)
        asked.cancel()
        return [event.rebalance_timeout_ms for event in events]

    assert in_hall(story) == [0]


@pytest.mark.parametrize(("more", "error"), [(0, 0), (1, INVALID_REQUEST)])
def test_a_list_of_leavers_has_a_bound(
    more: int, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit itself is allowed."""
    monkeypatch.setattr(limits, "MAX_LEAVERS", 2)

    async def story(hall: Hall) -> int:
        members = [{"member_id": str(n), "group_instance_id": None} for n in range(2 + more)]
        return int((await ask(hall, LEAVE, 3, group_id="g", members=members)).error_code)

    assert in_hall(story) == error


async def beat(hall: Hall, version: int, member: str, epoch: int, **said: Any) -> Any:
    """Send a ConsumerGroupHeartbeat to "g"."""
    values = {
        "group_id": "g", "member_id": member, "member_epoch": epoch, "instance_id": None,
        "rack_id": None, "server_assignor": None, "rebalance_timeout": 60 * SECOND,
        "subscribed_topic_names": ["t"] if epoch == 0 else None,
        "topic_partitions": [] if epoch == 0 else None, **said,
    }  # fmt: skip
    if version >= 1:
        values["subscribed_topic_regex"] = None
    return await ask(hall, HEARTBEAT, version, **values)


def test_a_member_without_an_id_gets_one_in_version_0() -> None:
    """Each member gets its own id; since version 1 the member chooses its id."""

    async def story(hall: Hall) -> list[Any]:
        first, second = [await beat(hall, 0, "", 0) for _ in range(2)]
        later = await beat(hall, 1, "", 0)
        return [len({first.member_id, second.member_id, ""}), int(later.error_code)]

    assert in_hall(story) == [3, INVALID_REQUEST]


def test_a_refused_heartbeat_is_answered_with_its_error_and_message() -> None:
    """An answer without an assignment would look like success."""

    async def story(hall: Hall) -> tuple[int, bool]:
        await beat(hall, 1, "m", 0)
        answer = await beat(hall, 1, "stranger", 5)
        return int(answer.error_code), bool(answer.error_message)

    assert in_hall(story) == (UNKNOWN_MEMBER, True)


def test_a_topic_without_partitions_in_a_report_is_no_partition() -> None:
    """A joining member may list topics without owned partitions, and must own no partition."""

    async def story(hall: Hall) -> list[int]:
        topics = [hall.node.catalogue.create(name, 1, {}) for name in ("t", "u")]
        codes = []
        for numbers in ((), ()), ((), (0,)):
            owned = [
                {"topic_id": topic.topic_id, "partitions": held}
                for topic, held in zip(topics, numbers, strict=True)
            ]
            codes.append(int((await beat(hall, 1, "m", 0, topic_partitions=owned)).error_code))
        return codes

    assert in_hall(story) == [0, INVALID_REQUEST]


def test_a_changed_config_reaches_the_live_group() -> None:
    """The answer to the next heartbeat has the new interval."""

    async def story(hall: Hall) -> list[datetime.timedelta]:
        joined = await beat(hall, 1, "m", 0)
        change = {"name": "consumer.heartbeat.interval.ms", "config_operation": 0, "value": "6000"}
        resources = [{"resource_type": GROUP_CONFIGS, "resource_name": "g", "configs": [change]}]
        await ask(hall, EDIT_CONFIGS, 1, resources=resources, validate_only=False)
        later = await beat(hall, 1, "m", joined.member_epoch)
        return [joined.heartbeat_interval, later.heartbeat_interval]

    assert in_hall(story) == [5 * SECOND, 6 * SECOND]


# -- offsets ---------------------------------------------------------------------------------


async def committed(hall: Hall, version: int, *notes: str, generation: int = -1) -> set[int]:
    """Commit offset 5 of a partition for each note; return the errors."""
    parts = [
        {
            "partition_index": n,
            "committed_offset": 5,
            "committed_leader_epoch": -1,
            "committed_metadata": note,
        }
        for n, note in enumerate(notes)
    ]
    answer = await ask(
        hall, COMMIT, version, group_id="g", generation_id_or_member_epoch=generation,
        member_id="" if generation < 0 else "m", group_instance_id=None,
        topics=[{"name": "t", "partitions": parts}],
    )  # fmt: skip
    return {int(p.error_code) for t in answer.topics for p in t.partitions}


@pytest.mark.parametrize(("version", "error"), [(8, ILLEGAL_GENERATION), (9, GROUP_NOT_FOUND)])
def test_a_commit_to_an_unknown_group_has_an_error_that_its_version_knows(
    version: int, error: int
) -> None:
    """The API has GROUP_ID_NOT_FOUND since version 9."""

    async def story(hall: Hall) -> set[int]:
        hall.node.catalogue.create("t", 1, {})
        return await committed(hall, version, "", generation=3)

    assert in_hall(story) == {error}


@pytest.mark.parametrize(
    ("note", "error"),
    [("ä" * 4_096, 0), ("ä" * 4_097, TOO_LARGE), ("😀" * 2_048, 0), ("😀" * 2_049, TOO_LARGE)],
)
def test_a_note_is_as_long_as_java_counts_it(note: str, error: int) -> None:
    """offset.metadata.max.bytes limits the UTF-16 units, 4,096 by default."""

    async def story(hall: Hall) -> set[int]:
        hall.node.catalogue.create("t", 1, {})
        return await committed(hall, 8, note)

    assert in_hall(story) == {error}


def test_every_slice_of_a_long_commit_is_stored() -> None:
    """Each partition is stored once."""
    count = 2 * offset_commit.COMMITTED_AT_ONCE + 1

    async def story(hall: Hall) -> int:
        hall.node.catalogue.create("t", count, {})
        assert await committed(hall, 8, *[""] * count) == {0}
        return len(hall.node.groups.books.offsets("g"))

    assert in_hall(story) == count


@pytest.mark.parametrize("version", [7, 8])
@pytest.mark.parametrize(("stable", "found"), [(True, (-1, UNSTABLE)), (False, (5, 0))])
def test_an_offset_that_may_change_is_unstable_for_those_alone_who_ask(
    stable: bool, found: tuple[int, int], version: int
) -> None:
    """With require_stable it is unstable (KIP-447); the transaction leaves the second partition."""

    async def story(hall: Hall) -> list[tuple[int, int]]:
        hall.node.catalogue.create("t", 2, {})
        await committed(hall, 8, "", "")
        hall.node.groups.books.store_pending("g", 7, {("t", 0): Committed(9)})
        group = {"group_id": "g", "topics": [{"name": "t", "partition_indexes": (0, 1)}]}
        values = {"groups": [group]} if version >= 8 else group
        answer = await ask(hall, FETCH_OFFSETS, version, require_stable=stable, **values)
        (topic,) = answer.groups[0].topics if version >= 8 else answer.topics
        return [(part.committed_offset, int(part.error_code)) for part in topic.partitions]

    assert in_hall(story) == [found, (5, 0)]


# -- every API -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "code", "counter"),
    [
        (NullArray("topics"), INVALID_REQUEST, "requests_invalid"),
        (AnswerTooLarge("large"), 44, "answers_too_large"),
        (TimeoutError("late"), TIMED_OUT, "answers_late"),
        (ValueError("a bug"), -1, "requests_failed"),
    ],
)
def test_a_request_that_fails_is_answered_and_counted_by_its_reason(
    problem: Exception, code: int, counter: str
) -> None:
    """A single counter counts the failure."""

    async def story(hall: Hall) -> tuple[int, int]:
        peer, _ = hall.connect("peer")
        header = RequestHeader(JOIN, 5, 9, "raw", 0)
        pieces = await _answer_error(hall.node, peer.peer, header, None, problem)
        found = read(JOIN, 5, b"".join(pieces))
        return int(found.error_code), hall.node.counters[counter]

    assert in_hall(story) == (code, 1)


@pytest.mark.parametrize(
    ("problem", "level", "name"),
    [
        (ValueError("a bug"), logging.ERROR, "unknown_server_error"),
        (TimeoutError("late"), logging.INFO, "request_timed_out"),
    ],
)
def test_a_request_that_fails_is_logged_with_its_peer_and_a_bug_with_its_trace(
    problem: Exception, level: int, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, in one line."""

    async def story(hall: Hall) -> None:
        peer, _ = hall.connect("peer")
        await _answer_error(
            hall.node, peer.peer, RequestHeader(JOIN, 5, 9, "raw", 0), None, problem
        )

    with caplog.at_level(logging.INFO):
        in_hall(story)
    (line,) = [one for one in caplog.records if "gets the error" in one.message]
    said = f"the request with key 11 v5 of 127.0.0.1 gets the error {name}: {problem!r}"
    assert (line.message, line.levelno) == (said, level)
    assert (line.exc_info is not None) == (level == logging.ERROR)


def test_a_member_is_shown_with_the_address_of_its_peer() -> None:
    """The address begins with a slash, as in Java; Kafka's tools expect the slash."""

    async def story(hall: Hall) -> list[tuple[str, str]]:
        await beat(hall, 1, "m", 0)
        group: Any = hall.node.groups.get("g")
        return [(m.client_id, m.client_host) for m in group.describe().members]

    assert in_hall(story) == [("raw", "/127.0.0.1")]
