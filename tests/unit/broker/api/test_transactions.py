"""The APIs of transactions by version: rights to write, known errors, and waits for the disk."""

from __future__ import annotations

import datetime
from dataclasses import replace
from typing import Any

import pytest

from faust_assigner.broker import internal_topics
from faust_assigner.broker.api import offset_commit
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.transactions.state import LAST_EPOCH
from tests.support.asking import ask, to_topic
from tests.support.clients.raw_client import batch, one_record
from tests.support.hall import Hall, in_hall

PRODUCE, INIT, ADD_PARTITIONS, ADD_OFFSETS, END, COMMIT = 0, 22, 24, 25, 26, 28
HEARTBEAT_CONSUMER = 68
MINUTE = datetime.timedelta(minutes=1)
UNKNOWN_PARTITION, NOT_AVAILABLE, ILLEGAL_GENERATION, INVALID_GROUP = 3, 15, 22, 24
INVALID_REQUEST, INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING = 42, 47, 48, 49
NOT_ATTEMPTED, PRODUCER_FENCED, ABORTABLE, METADATA_TOO_LARGE = 55, 90, 120, 12
TOPIC_AUTHORIZATION_FAILED = 29


class Producer:
    """A transactional producer called "tx" of any version."""

    def __init__(self, hall: Hall) -> None:
        self.hall = hall
        self.id = self.epoch = -1

    async def init(self, version: int = 4, **more: Any) -> int:
        """Send InitProducerId; return its error."""
        values = {"transactional_id": "tx", "transaction_timeout": MINUTE, **more}
        if version >= 3:
            values = {"producer_id": -1, "producer_epoch": -1, **values}
        answer = await ask(self.hall, INIT, version, **values)
        if not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    async def add(self, *numbers: int, version: int = 3, topic: str = "t") -> dict[int, int]:
        """Send AddPartitionsToTxn; return the error of each partition."""
        answer = await ask(
            self.hall, ADD_PARTITIONS, version,
            v3_and_below_transactional_id="tx", v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[{"name": topic, "partitions": numbers}],
        )  # fmt: skip
        (found,) = answer.results_by_topic_v3_and_below
        return {p.partition_index: int(p.partition_error_code) for p in found.results_by_partition}

    async def add_group(self, group_id: str = "g", version: int = 3) -> int:
        """Send AddOffsetsToTxn; return its error."""
        values = {"transactional_id": "tx", "producer_id": self.id, "producer_epoch": self.epoch}
        answer = await ask(self.hall, ADD_OFFSETS, version, group_id=group_id, **values)
        return int(answer.error_code)

    async def write(self, version: int = 9, **more: Any) -> int:
        """Produce a transactional record; return the error."""
        header = {"producer_id": self.id, "epoch": self.epoch, "sequence": 0, "attributes": 0x10}
        data = batch(one_record(), **{**header, **more})
        topic = to_topic(data)
        if version >= 13:
            found = self.hall.node.catalogue.get("t")
            assert found is not None
            topic["topic_data"][0] = {
                "topic_id": found.topic_id,
                "partition_data": topic["topic_data"][0]["partition_data"],
            }
        answer = await ask(self.hall, PRODUCE, version, transactional_id="tx", **topic)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def commit(
        self, version: int = 3, *, note: str = "", count: int = 1, **more: Any
    ) -> set[int]:
        """Send TxnOffsetCommit of this many partitions; return its errors."""
        parts = [
            {"partition_index": n, "committed_offset": 7, "committed_metadata": note}
            for n in range(count)
        ]
        values = {
            "transactional_id": "tx", "group_id": "g", "producer_id": self.id,
            "producer_epoch": self.epoch, "topics": [{"name": "t", "partitions": parts}],
        }  # fmt: skip
        if version >= 3:
            values |= {"generation_id": -1, "member_id": "", "group_instance_id": None}
        answer = await ask(self.hall, COMMIT, version, **{**values, **more})
        return {int(p.error_code) for t in answer.topics for p in t.partitions}

    async def end(self, version: int = 3, *, commits: bool = True) -> Any:
        """Send EndTxn; return the answer."""
        values = {"transactional_id": "tx", "producer_id": self.id, "producer_epoch": self.epoch}
        return await ask(self.hall, END, version, committed=commits, **values)


async def begun(hall: Hall, partitions: int = 1) -> Producer:
    """Create a topic of this many partitions and return an initialised producer."""
    hall.node.catalogue.create("t", partitions, {})
    producer = Producer(hall)
    assert await producer.init() == 0
    return producer


@pytest.mark.parametrize(("present", "error"), [((-1, -1), 0), ((5, -1), 42), ((-1, 5), 42)])
def test_a_producer_names_both_its_id_and_its_epoch_or_neither(
    present: tuple[int, int], error: int
) -> None:
    """An id without an epoch, or the reverse, is a bug of the client."""

    async def story(hall: Hall) -> int:
        named = {"producer_id": present[0], "producer_epoch": present[1]}
        return await Producer(hall).init(4, **named)

    assert in_hall(story) == error


def test_a_producer_that_names_its_epoch_goes_on_and_an_older_one_is_fenced() -> None:
    """KIP-360: without the check an old producer would fence its successor."""

    async def story(hall: Hall) -> list[int]:
        old, new = Producer(hall), Producer(hall)
        await old.init()
        await new.init()
        found = [await new.init(4, producer_id=new.id, producer_epoch=new.epoch)]
        found.append(await old.init(4, producer_id=old.id, producer_epoch=old.epoch))
        return [*found, new.epoch, old.epoch]

    assert in_hall(story) == [0, PRODUCER_FENCED, 2, 0]


@pytest.mark.parametrize(
    ("api", "version", "error"),
    [
        ("init", 3, INVALID_EPOCH), ("init", 4, PRODUCER_FENCED),
        ("add", 1, INVALID_EPOCH), ("add", 2, PRODUCER_FENCED),
        ("add group", 1, INVALID_EPOCH), ("add group", 2, PRODUCER_FENCED),
        ("end", 1, INVALID_EPOCH), ("end", 2, PRODUCER_FENCED),
    ],
)  # fmt: skip
def test_a_fenced_producer_gets_an_error_that_its_version_knows(
    api: str, version: int, error: int
) -> None:
    """PRODUCER_FENCED exists since KIP-588, in each API from its own version on."""

    async def story(hall: Hall) -> int:
        old = await begun(hall)
        present = {"producer_id": old.id, "producer_epoch": old.epoch}
        for _ in range(2):
            await Producer(hall).init()
        if api == "init":
            return await old.init(version, **present)
        if api == "add":
            return (await old.add(0, version=version))[0]
        if api == "add group":
            return await old.add_group(version=version)
        return int((await old.end(version)).error_code)

    assert in_hall(story) == error


def test_partitions_are_added_all_or_none() -> None:
    """The missing partition has its own error, the remaining ones have OPERATION_NOT_ATTEMPTED."""

    async def story(hall: Hall) -> list[Any]:
        producer = await begun(hall, 2)
        found = [await producer.add(0, 1, 2), hall.node.transactions.get("tx").state.value]  # type: ignore[union-attr]
        return [*found, await producer.add(0, 1), hall.node.transactions.get("tx").state.value]  # type: ignore[union-attr]

    refused = {0: NOT_ATTEMPTED, 1: NOT_ATTEMPTED, 2: UNKNOWN_PARTITION}
    assert in_hall(story) == [refused, "Empty", {0: 0, 1: 0}, "Ongoing"]


@pytest.mark.parametrize(("name", "error"), [("", INVALID_GROUP), ("g", 0)])
def test_only_a_group_with_a_name_is_added(name: str, error: int) -> None:
    """Offsets of a group without a name could never be read."""

    async def story(hall: Hall) -> int:
        return await (await begun(hall)).add_group(name)

    assert in_hall(story) == error


@pytest.mark.parametrize(
    ("version", "error"), [(10, INVALID_STATE), (11, ABORTABLE), (12, 0), (13, 0)]
)
def test_a_record_outside_of_a_transaction_is_refused_until_clients_add_partitions_so(
    version: int, error: int
) -> None:
    """KIP-890: since version 12 the batch itself adds its partition."""

    async def story(hall: Hall) -> tuple[int, str]:
        producer = await begun(hall)
        found = await producer.write(version)
        return found, hall.node.transactions.get("tx").state.value  # type: ignore[union-attr]

    assert in_hall(story) == (error, "Empty" if error else "Ongoing")


def test_a_plain_record_within_an_open_transaction_is_refused() -> None:
    """The record would be committed or aborted with a transaction that it does not belong to."""

    async def story(hall: Hall) -> list[int]:
        producer = await begun(hall)
        await producer.add(0)
        found = [await producer.write(sequence=0)]
        return [*found, await producer.write(sequence=1, attributes=0)]

    assert in_hall(story) == [0, INVALID_STATE]


@pytest.mark.parametrize(("version", "error"), [(3, INVALID_STATE), (4, ABORTABLE), (5, 0)])
def test_offsets_of_a_group_outside_of_the_transaction_are_refused_until_version_5(
    version: int, error: int
) -> None:
    """A commit of version 5 adds the group, as a batch adds its partition."""

    async def story(hall: Hall) -> set[int]:
        producer = await begun(hall)
        await producer.add(0)
        return await producer.commit(version)

    assert in_hall(story) == {error}


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_count_from_the_commit_of_their_transaction_on(commits: bool) -> None:
    """A commit makes all slices of a long request visible, an abort makes none visible."""

    async def story(hall: Hall) -> list[int]:
        producer = await begun(hall, offset_commit.COMMITTED_AT_ONCE + 1)
        await producer.add_group()
        assert await producer.commit(count=offset_commit.COMMITTED_AT_ONCE + 1) == {0}
        found = [
            len(hall.node.groups.books.offsets("g")),
            hall.node.groups.books.pending.count("g"),
        ]
        assert (await producer.end(commits=commits)).error_code == 0
        return [*found, len(hall.node.groups.books.offsets("g"))]

    every = offset_commit.COMMITTED_AT_ONCE + 1
    assert in_hall(story) == [0, every, every if commits else 0]


def test_a_transaction_that_ends_between_two_slices_takes_no_further_offset() -> None:
    """Offsets that arrive after the end would stay pending for ever."""

    async def story(hall: Hall) -> tuple[set[int], int]:
        producer = await begun(hall, offset_commit.COMMITTED_AT_ONCE + 1)
        await producer.add_group()
        later = hall.node.groups.books.store_pending

        def then_end(*arguments: Any) -> Code:
            found = later(*arguments)
            known = hall.node.transactions.get("tx")
            assert known is not None
            hall.node.transactions._clock = lambda: known.started_ms + 60_000
            hall.node.transactions.tick("tx")
            return found

        hall.node.groups.books.store_pending = then_end  # type: ignore[method-assign]
        errors = await producer.commit(count=offset_commit.COMMITTED_AT_ONCE + 1)
        return errors, hall.node.groups.books.pending.count("g")

    errors, pending = in_hall(story)
    assert 0 not in errors
    assert pending == 0


@pytest.mark.parametrize(("note", "errors"), [("x" * 5_000, {METADATA_TOO_LARGE}), ("", {0})])
def test_a_note_that_is_too_long_is_refused_where_the_group_admits_the_producer(
    note: str, errors: set[int]
) -> None:
    """The note's error has lower priority than an error of the transaction."""

    async def story(hall: Hall) -> list[set[int]]:
        producer = await begun(hall)
        outside = await producer.commit(note=note)
        await producer.add_group()
        return [outside, await producer.commit(note=note)]

    assert in_hall(story) == [{INVALID_STATE}, errors]


def test_a_member_commits_within_a_transaction_with_its_own_epoch() -> None:
    """In both group protocols a stale epoch is an illegal generation in this API."""

    async def story(hall: Hall) -> list[set[int]]:
        producer = await begun(hall)
        await producer.add_group()
        joined = await ask(
            hall, HEARTBEAT_CONSUMER, 1, group_id="g", member_id="m", member_epoch=0,
            instance_id=None, rack_id=None, rebalance_timeout=MINUTE, subscribed_topic_names=["t"],
            subscribed_topic_regex=None, server_assignor=None, topic_partitions=[],
        )  # fmt: skip
        epochs = (joined.member_epoch, joined.member_epoch + 1, -1)
        found = [await producer.commit(member_id="m", generation_id=epoch) for epoch in epochs]
        return [*found, await producer.commit()]

    assert in_hall(story) == [{0}, {ILLEGAL_GENERATION}, {ILLEGAL_GENERATION}, {0}]


@pytest.mark.parametrize(("version", "bumped"), [(4, False), (5, True)])
def test_an_end_since_version_5_brings_the_next_epoch(version: int, bumped: bool) -> None:
    """KIP-890's second version: a repeated end returns the same epoch again."""

    async def story(hall: Hall) -> list[Any]:
        producer = await begun(hall)
        await producer.add(0)
        answers = [await producer.end(version) for _ in range(2)]
        return [
            (
                int(one.error_code),
                getattr(one, "producer_id", None),
                getattr(one, "producer_epoch", None),
            )
            for one in answers
        ] + [producer.id]

    *answers, producer_id = in_hall(story)
    assert answers == [(0, producer_id, 1) if bumped else (0, None, None)] * 2


def test_the_last_epoch_of_an_id_is_followed_by_a_fresh_id() -> None:
    """The fresh id comes with the end of the transaction; no other end uses up an id."""

    async def story(hall: Hall) -> list[int]:
        producer = await begun(hall)
        await producer.add(0)
        unused = hall.node._next_producer_id
        first = await producer.end(5)
        same = hall.node._next_producer_id == unused and first.producer_id == producer.id
        producer.epoch = first.producer_epoch
        known = hall.node.transactions.get("tx")
        assert known is not None
        hall.node.transactions._known["tx"] = replace(known, epoch=LAST_EPOCH, is_bumped=False)
        producer.epoch = LAST_EPOCH
        await producer.add(0)
        last = await producer.end(5)
        return [same, last.producer_id == unused, last.producer_epoch]

    assert in_hall(story) == [True, True, 0]


def test_an_end_whose_fresh_id_is_not_stored_is_repeated_by_the_producer() -> None:
    """COORDINATOR_NOT_AVAILABLE; the transaction is open until the repetition."""

    async def story(hall: Hall) -> Any:
        producer = await begun(hall)
        known = hall.node.transactions.get("tx")
        assert known is not None
        hall.node.transactions._known["tx"] = replace(known, epoch=LAST_EPOCH)
        producer.epoch = LAST_EPOCH
        await producer.add(0)
        fresh = hall.node.new_producer_id

        def full() -> int:
            raise StoreFailed("no space")

        found = []
        for new_id in (full, fresh):
            hall.node.new_producer_id = new_id  # type: ignore[method-assign]
            ended = await producer.end(5)
            after = hall.node.transactions.get("tx")
            assert after is not None
            found.append((int(ended.error_code), ended.producer_epoch, after.state.value))
        return found

    assert in_hall(story) == [(NOT_AVAILABLE, -1, "Ongoing"), (0, 0, "CompleteCommit")]


def test_an_end_waits_for_the_disk_where_a_topic_asks_for_it() -> None:
    """A failed wait refuses the end, and each retry waits again until a wait succeeds."""

    async def story(hall: Hall) -> list[Any]:
        hall.node.catalogue.create("t", 1, {"flush.messages": "1"})
        producer = Producer(hall)
        await producer.init()
        await producer.add(0)
        outcomes: list[Any] = []
        freed: list[None] = []
        hall.node.space.reclaim_if_low = lambda: freed.append(None)  # type: ignore[method-assign]

        async def flushed() -> None:
            outcomes.append(None)
            if len(outcomes) == 1:
                raise StoreFailed("no space")

        hall.node.flushing.flushed = flushed  # type: ignore[method-assign]
        codes = [int((await producer.end()).error_code) for _ in range(3)]
        assert hall.node.transactions.unflushed_partitions("tx") == (), (
            "nothing is left to wait for"
        )
        return [codes, len(outcomes), len(freed)]

    assert in_hall(story) == [[NOT_AVAILABLE, 0, 0], 2, 1]


def test_the_partitions_of_a_transaction_share_one_wait_for_the_disk() -> None:
    """A slow disk delays an end once, not once for each partition."""

    async def story(hall: Hall) -> tuple[int, int, list[int]]:
        logs = hall.node.catalogue.create("t", 3, {"flush.messages": "1"}).partitions
        producer = Producer(hall)
        await producer.init()
        await producer.add(0, 1, 2)
        waits: list[None] = []

        async def flushed() -> None:
            waits.append(None)

        hall.node.flushing.flushed = flushed  # type: ignore[method-assign]
        error = int((await producer.end()).error_code)
        return error, len(waits), [log.flushed_to for log in logs]

    assert in_hall(story) == (0, 1, [1, 1, 1])


def test_a_partition_that_was_deleted_needs_no_wait_for_the_disk() -> None:
    """The transaction still ends."""

    async def story(hall: Hall) -> list[Any]:
        topic = hall.node.catalogue.create("t", 1, {"flush.messages": "1"})
        producer = Producer(hall)
        await producer.init()
        await producer.add(0)
        waits: list[None] = []

        async def flushed() -> None:
            waits.append(None)
            hall.node.catalogue.delete(topic)
            raise StoreFailed("no space")

        hall.node.flushing.flushed = flushed  # type: ignore[method-assign]
        codes = [int((await producer.end()).error_code) for _ in range(2)]
        return [codes, len(waits)]

    assert in_hall(story) == [[NOT_AVAILABLE, 0], 1]


def test_a_transactional_id_without_a_name_is_refused() -> None:
    """All such producers would share a single key in the store."""

    async def story(hall: Hall) -> list[int]:
        producer = Producer(hall)
        return [
            await producer.init(transactional_id=""),
            await producer.init(transactional_id=None),
        ]

    assert in_hall(story) == [INVALID_REQUEST, 0]


@pytest.mark.parametrize(("timeout_ms", "error"), [(0, 50), (1, 0), (900_000, 0), (900_001, 50)])
def test_a_transaction_lasts_as_long_as_the_broker_allows(timeout_ms: int, error: int) -> None:
    """The limit is transaction.max.timeout.ms, in milliseconds."""

    async def story(hall: Hall) -> int:
        timeout = datetime.timedelta(milliseconds=timeout_ms)
        return await Producer(hall).init(transaction_timeout=timeout)

    assert in_hall(story) == error


def test_an_end_that_waits_for_the_disk_does_not_get_the_epoch_of_the_next_producer() -> None:
    """The next producer begins during the wait: the former producer must stay fenced."""

    async def story(hall: Hall) -> tuple[int, int, int]:
        hall.node.catalogue.create("t", 1, {"flush.messages": "1"})
        before, after = Producer(hall), Producer(hall)
        await before.init()
        await before.add(0)

        async def flushed() -> None:
            assert await after.init() == 0

        hall.node.flushing.flushed = flushed  # type: ignore[method-assign]
        ended = await before.end(5)
        before.epoch = ended.producer_epoch
        return ended.producer_epoch, after.epoch, (await before.add(0))[0]

    assert in_hall(story) == (1, 2, PRODUCER_FENCED)


def test_a_later_end_waits_for_its_own_partitions_after_a_failed_wait() -> None:
    """The first transaction's wait failed, and its producer continued."""

    async def story(hall: Hall) -> list[Any]:
        for name in ("t", "u"):
            hall.node.catalogue.create(name, 1, {"flush.messages": "1"})
        producer = Producer(hall)
        await producer.init()
        waited: list[list[str]] = []

        async def flushed() -> None:
            waited.append(
                [topic.name for topic, _ in hall.node.transactions.unflushed_partitions("tx")]
            )
            if len(waited) == 1:
                raise StoreFailed("no space")

        hall.node.flushing.flushed = flushed  # type: ignore[method-assign]
        codes = []
        for name in ("t", "u"):
            await producer.add(0, topic=name)
            codes.append(int((await producer.end()).error_code))
        return [codes, waited]

    assert in_hall(story) == [[NOT_AVAILABLE, 0], [["t"], ["u"]]]


def test_no_transaction_writes_its_marker_into_an_internal_topic() -> None:
    """Clients see these topics as empty; Kafka answers as if the right were missing."""

    async def story(hall: Hall) -> tuple[dict[int, int], int]:
        name = internal_topics.OFFSETS
        internal_topics.ensure(hall.node.catalogue, hall.node.settings, name)
        producer = await begun(hall)
        errors = await producer.add(0, topic=name)
        await producer.add(0)
        await producer.end()
        log = hall.node.catalogue.partition(name, 0)
        assert log is not None
        return errors, log.end_offset

    assert in_hall(story) == ({0: TOPIC_AUTHORIZATION_FAILED}, 0)
