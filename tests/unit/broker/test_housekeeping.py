"""The broker's background work: retention, space, notifications, and cached state."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faust_assigner.broker import limits
from faust_assigner.broker.connection_settings import STANDARD_AUTHORIZER
from faust_assigner.broker.housekeeping import repeat, retain
from faust_assigner.broker.node import Node
from faust_assigner.broker.security.acls import ALLOW, DESCRIBE, GROUP, LITERAL, TOPIC, Acl
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.records import RecordRules, parse_batch
from faust_assigner.broker.storage.store import StoreFailed
from faust_assigner.broker.throttle import LONG_AT_A_TIME, SLICE_S
from faust_assigner.coordinator.settings import ConsumerLimits, MigrationPolicy
from tests.support.clients.raw_client import batch
from tests.support.waiting import PATIENCE_S


def node(folder: Path | None = None, **settings: Any) -> Node:
    """Return a broker without its sockets, at 1,000 s."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Node(Settings.parse(given), folder, clock=lambda: 1_000_000)


def append(found: Node, name: str) -> None:
    """Append an old record."""
    data = batch(timestamp=1)
    log = found.catalogue.partition(name, 0)
    assert log is not None
    log.append(parse_batch(data), data, 0)


def test_a_topic_that_is_deleted_during_retention_leaves_nothing_behind() -> None:
    """The round reaches the partitions after the deletion."""
    found = node()
    for name in ("a", "b"):
        append_to = found.catalogue.create(name, 1, {"retention.ms": "1"})
        append(found, append_to.name)
    chore = retain(found)
    assert next(chore) == 1
    gone = found.catalogue.get("b")
    assert gone is not None
    found.catalogue.delete(gone)
    assert sum(chore) == 0
    place = gone.partitions[0].place
    assert not [key for kind in (b"s", b"x", b"b") for key, _ in found.store.scan(kind + place)]
    found.close()


def test_a_chore_that_fails_gives_its_place_in_line_back() -> None:
    """Otherwise the fifth failure would stop every long request of the broker."""

    async def story() -> int:
        found = node()
        failures = 0

        def chore() -> Iterator[int]:
            nonlocal failures
            time.sleep(2 * SLICE_S)
            yield 1
            failures += 1
            raise StoreFailed("no space")

        task = asyncio.create_task(repeat(found.line, 1, chore))
        while failures < LONG_AT_A_TIME + 2:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        found.close()
        return found.line.places._value

    assert asyncio.run(asyncio.wait_for(story(), PATIENCE_S)) == LONG_AT_A_TIME


@pytest.mark.parametrize("is_low", [False, True])
def test_freed_space_is_reclaimed_once_where_it_is_short(tmp_path: Path, is_low: bool) -> None:
    """Each deletion causes a reclaim, including the second deletion."""

    async def story() -> list[int]:
        found = node(tmp_path)
        store: Any = found.store
        reclaimed: list[None] = []
        store.reclaim = lambda: reclaimed.append(None)
        store.is_low = is_low
        found.space.freed()
        assert found.space.reclaiming is None, "the broker has no threads yet"
        assert found.space.needs_reclaim
        found.space.is_open = True
        counts = []
        for _ in range(2):
            found.space.freed()
            await asyncio.sleep(0.1)
            counts.append(len(reclaimed))
        found.space.reclaim_if_low()
        await asyncio.sleep(0.1)
        counts.append(len(reclaimed))
        found.close()
        return counts

    assert asyncio.run(story()) == ([1, 2, 2] if is_low else [0, 0, 0])


def test_a_topic_that_comes_while_groups_are_told_is_told_too() -> None:
    """The running notification may have passed the group that reads the topic."""

    async def story() -> list[int]:
        found = node()
        told: list[int] = []

        def telling() -> Iterator[str]:
            told.append(len(found.catalogue))
            if len(told) == 1:
                found.catalogue.create("b", 1, {})
            yield "g"

        found._topic_notifier.start(asyncio.get_running_loop(), found.line, telling)
        found.catalogue.create("a", 1, {})
        for _ in range(50):
            await asyncio.sleep(0.01)
        found.close()
        return told

    assert asyncio.run(story()) == [1, 2]


def test_kept_metadata_counts_its_bytes_from_nothing_after_it_was_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the cache would stay off after it reached its limit once."""
    monkeypatch.setattr(limits, "CACHED_METADATA_BYTES", 100)

    async def story() -> set[object]:
        found = node()

        async def make() -> bytes:
            return b"x" * 40

        for key in ("a", "b", "c", "d"):
            await found.metadata_cache.get(key, make)
        kept = set(found.metadata_cache._frames)
        found.close()
        return kept

    assert asyncio.run(story()) == {"c", "d"}


def test_who_asks_after_a_change_does_not_wait_for_an_answer_begun_before_it() -> None:
    """The older answer has the former topics."""

    async def story() -> tuple[bytes, bytes]:
        found, go_on = node(), asyncio.Event()

        async def slow() -> bytes:
            await go_on.wait()
            return b"before"

        async def fresh() -> bytes:
            return b"after"

        first = asyncio.create_task(found.metadata_cache.get("key", slow))
        await asyncio.sleep(0)
        found.catalogue.create("t", 1, {})
        second = asyncio.create_task(found.metadata_cache.get("key", fresh))
        await asyncio.sleep(0.01)
        go_on.set()
        answers = await first, await second
        found.close()
        return answers

    assert asyncio.run(story()) == (b"before", b"after")


def test_a_client_that_disconnects_leaves_the_answer_to_the_others_that_wait_for_it() -> None:
    """Two clients ask for the same metadata as the client that disconnects; one of them makes the answer."""

    async def story() -> tuple[list[Any], int]:
        found, go_on, made = node(), asyncio.Event(), 0

        async def make() -> bytes:
            nonlocal made
            made += 1
            await go_on.wait()
            return b"answer"

        clients = [asyncio.create_task(found.metadata_cache.get("key", make)) for _ in range(3)]
        await asyncio.sleep(0)
        clients[0].cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        go_on.set()
        answers = await asyncio.gather(*clients, return_exceptions=True)
        found.close()
        assert clients[0].cancelled()
        return answers[1:], made

    assert asyncio.run(story()) == ([b"answer"] * 2, 2)


def test_ids_of_producers_are_reserved_in_blocks() -> None:
    """A write for each id would make every new producer wait for the disk."""
    found = node()
    writes: list[Any] = []
    write = found.store.write
    found.store.write = lambda *puts, **more: (writes.append(puts), write(*puts, **more))[1]  # type: ignore[method-assign, func-returns-value]
    assert [found.new_producer_id() for _ in range(1_001)] == list(range(1_001))
    assert len(writes) == 2
    found.close()


@pytest.mark.parametrize(
    ("policy", "keys"), [("delete", False), ("compact", True), ("compact,delete", True)]
)
def test_a_topic_that_is_compacted_in_any_way_wants_keys(policy: str, keys: bool) -> None:
    """A record without a key could never be replaced."""
    found = node()
    topic = found.catalogue.create("t", 1, {"cleanup.policy": policy})
    assert found.rules(topic, 0).keys == keys
    found.close()


@pytest.mark.parametrize(
    ("host", "sent_to"), [("0.0.0.0", "10.0.0.7"), ("::", "10.0.0.7"), ("10.0.0.9", "10.0.0.9")]
)
def test_a_client_is_sent_to_the_address_that_the_broker_listens_on(
    host: str, sent_to: str
) -> None:
    """If the broker listens on every address, the client gets the address that it connected to."""
    found = node()
    found.listen_on(host, 9)
    assert found.address_for("10.0.0.7") == (sent_to, 9)
    found.close()


def test_growing_counts_new_partitions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is reached with the last partition that fits."""
    monkeypatch.setattr(limits, "MAX_PARTITIONS", 8)
    found = node()
    topic = found.catalogue.create("t", 3, {})
    found.catalogue.grow(topic, 6)
    found.catalogue.create("u", 2, {})
    found.close()


def test_a_topic_that_is_only_validated_is_refused_for_its_settings_too() -> None:
    """The validation covers the settings."""
    found = node()
    for validate_only in (True, False):
        with pytest.raises(Exception, match="retention"):
            found.catalogue.create("t", 1, {"retention.ms": "soon"}, validate_only=validate_only)
    found.close()


def test_retention_deletes_by_the_configs_of_each_topic_and_owes_its_space_once() -> None:
    """A topic's two partitions expire by age, a topic by size, and the last topic keeps all records."""
    found = node()
    freed: list[None] = []
    found.space.freed = lambda: freed.append(None)  # type: ignore[method-assign]
    size = len(batch())
    configs = {
        "age": {"retention.ms": "999999"},
        "size": {"retention.ms": "-1", "retention.bytes": str(2 * size)},
        "all": {"retention.ms": "-1"},
        "compacted": {"retention.ms": "0", "cleanup.policy": "compact"},
    }
    for name, given in configs.items():
        topic = found.catalogue.create(name, 2, given)
        for number, times in enumerate(((0, 0, 1), (0, 1, 1))):
            for time_ in times:
                data = batch(timestamp=time_)
                topic.partitions[number].append(parse_batch(data), data, 0)
    # Each partition is a turn: a broker may have many compacted partitions with many producers.
    assert list(retain(found)) == [2, 1, 1, 1, 0, 0, 0, 0]
    assert (len(freed), found.counters["records_deleted"]) == (1, 5)
    starts = {t.name: [log.start_offset for log in t.partitions] for t in found.catalogue}
    assert starts == {"age": [2, 1], "size": [1, 1], "all": [0, 0], "compacted": [0, 0]}
    found.close()


def test_space_that_is_freed_while_the_disk_is_busy_is_reclaimed_afterwards(tmp_path: Path) -> None:
    """A reclaim also follows a failed reclaim; without freed space no reclaim follows."""
    found = node(tmp_path)
    store: Any = found.store
    store.is_low = True
    found.space.is_open = True
    running: list[asyncio.Future[None]] = []
    loop = asyncio.new_event_loop()

    def aside(work: Any) -> asyncio.Future[None]:
        assert work == store.reclaim
        running.append(loop.create_future())
        return running[-1]

    found.space._aside = aside

    async def turn() -> None:
        await asyncio.sleep(0)

    found.space.freed()
    found.space.freed()
    assert len(running) == 1, "one at a time"
    running[0].set_exception(StoreFailed("busy"))
    loop.run_until_complete(turn())
    assert len(running) == 2, "the second deletion came after the first reclaim had begun"
    running[1].set_result(None)
    loop.run_until_complete(turn())
    found.space.reclaim_if_low()
    assert len(running) == 2
    found.space.freed()
    assert len(running) == 3
    loop.close()
    found.close()


def test_each_listener_has_its_own_address_and_the_first_one_is_the_nodes() -> None:
    """A client of a protocol without a listener gets the first address."""
    found = node()
    found.listen_on("10.0.0.1", 1, "SASL_SSL")
    found.listen_on("0.0.0.0", 2, "PLAINTEXT")
    assert (found.host, found.port) == ("10.0.0.1", 1)
    addresses = [found.address_for("10.0.0.7", one) for one in ("SASL_SSL", "PLAINTEXT", "SSL")]
    assert addresses == [("10.0.0.1", 1), ("10.0.0.7", 2), ("10.0.0.1", 1)]
    found.close()


def test_an_advertised_address_stands_before_that_of_its_listener() -> None:
    """Only the advertised address of the same protocol counts."""
    found = node(
        listeners="PLAINTEXT://0.0.0.0:1,SASL_PLAINTEXT://10.0.0.2:2",
        advertised_listeners="SASL_PLAINTEXT://shop:9",
    )
    found.listen_on("0.0.0.0", 1, "PLAINTEXT")
    found.listen_on("10.0.0.2", 2, "SASL_PLAINTEXT")
    addresses = [found.address_for("10.0.0.7", one) for one in ("PLAINTEXT", "SASL_PLAINTEXT")]
    assert addresses == [("10.0.0.7", 1), ("shop", 9)]
    found.close()


def test_the_rules_of_a_topic_are_its_own_configs_each_in_its_place() -> None:
    """A second topic has the broker's settings."""
    found = node(log_message_timestamp_type="LogAppendTime")
    configs = {
        "message.timestamp.type": "CreateTime",
        "message.timestamp.before.max.ms": "11",
        "message.timestamp.after.max.ms": "22",
        "cleanup.policy": "compact",
    }
    rules = [
        found.rules(found.catalogue.create(name, 1, given), 7)
        for name, given in (("own", configs), ("plain", {}))
    ]
    assert rules == [
        RecordRules(7, False, True, 11, 22),
        RecordRules(7, True, False, 2**63 - 1, 3_600_000),
    ]
    found.close()


def test_the_limits_of_a_group_are_its_own_configs_and_the_brokers_settings() -> None:
    """A second group has only the broker's settings."""
    found = node(
        group_consumer_session_timeout_ms=46_000,
        group_consumer_heartbeat_interval_ms=6_000,
        group_consumer_max_size=17,
        group_max_size=18,
        group_consumer_assignors="range,uniform",
        group_consumer_migration_policy="upgrade",
        group_consumer_assignment_interval_ms=123,
    )
    own = {
        "consumer.session.timeout.ms": "47000",
        "consumer.heartbeat.interval.ms": "7000",
        "consumer.assignment.interval.ms": "0",
    }
    found.group_configs.configure("g", own, validate_only=False)
    more = 17, ("range", "uniform"), MigrationPolicy.UPGRADE
    assert found.group_configs.consumer_limits("g") == ConsumerLimits(47_000, 7_000, *more, 0)
    assert found.group_configs.consumer_limits("h") == ConsumerLimits(46_000, 6_000, *more, 123)
    found.close()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, StoreFailed])
def test_a_start_that_is_broken_off_leaves_the_data_to_the_next_one(
    stop: type[BaseException], tmp_path: Path
) -> None:
    """The store is closed after every error, and the data is unchanged."""
    first = node(tmp_path)
    first.catalogue.create("t", 1, {})
    append(first, "t")
    first.close()

    def progress() -> None:
        raise stop("ended")

    with pytest.raises(stop):
        Node(Settings.parse({}), tmp_path, progress=progress)
    again = node(tmp_path)
    log = again.catalogue.partition("t", 0)
    assert log is not None
    assert log.end_offset == 1
    again.close()


def test_changed_rules_are_changed_topics_to_the_groups() -> None:
    """An expression matches the topics that its client may describe; group rules change no topics."""
    found = node(authorizer_class_name=STANDARD_AUTHORIZER)
    found.catalogue.create("t", 1, {})
    assert found.authorizer is not None
    rule = Acl(TOPIC, "t", LITERAL, "User:a", "*", DESCRIBE, ALLOW)
    topics, hidden = [found._topic_notifier.now()], []
    for change in (found.authorizer.acls.add, found.authorizer.acls.remove):
        for one in (rule._replace(resource_type=GROUP), rule):
            change([one])
            topics.append(found._topic_notifier.now())
            hidden.append(set(topics[-1].hidden_from("User:a", "/h")))
    assert hidden == [{"t"}, set(), set(), {"t"}]
    assert [a is b for a, b in itertools.pairwise(topics)] == [True, False, True, False]
    found.close()
