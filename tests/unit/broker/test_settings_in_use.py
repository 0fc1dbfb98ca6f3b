"""Each setting reaches its part of the broker, in the unit of this part."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from faust_assigner.broker import limits
from faust_assigner.broker.housekeeping import expire, retain
from faust_assigner.broker.node import Node
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.records import RecordRules, parse_batch
from faust_assigner.broker.topic_configs import default_configs
from faust_assigner.coordinator.classic import GroupLimits
from faust_assigner.coordinator.events import CommitOffsets
from faust_assigner.coordinator.offsets import Committed
from faust_assigner.coordinator.settings import ConsumerLimits
from tests.support.clients.raw_client import batch

MINUTE_MS = 60_000
START_MS = 10_000_000_000


class Clock:
    """A node without sockets whose clock is set by hand."""

    def __init__(self, **settings: Any) -> None:
        self.now = START_MS
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.node = Node(Settings.parse(given), clock=lambda: self.now)


def test_classic_groups_get_each_limit_from_its_own_setting() -> None:
    """Five numbers in sequence are easily exchanged."""
    found = Clock(
        group_min_session_timeout_ms=11,
        group_max_session_timeout_ms=22,
        group_initial_rebalance_delay_ms=33,
        group_max_size=44,
    ).node
    assert found.groups._limits == GroupLimits(11, 22, 33, 44)
    found.close()


def test_consumer_groups_get_each_limit_from_its_own_setting_or_config() -> None:
    """A group's config has priority over the setting, for this group alone."""
    found = Clock(
        group_consumer_session_timeout_ms=50_000,
        group_consumer_heartbeat_interval_ms=6_000,
        group_consumer_max_size=77,
        group_consumer_assignment_interval_ms=88,
        group_consumer_migration_policy="upgrade",
    ).node
    own = {"consumer.session.timeout.ms": "45001", "consumer.heartbeat.interval.ms": "5001"}
    found.group_configs.configure("own", own, validate_only=False)

    def numbers(group_id: str) -> tuple[Any, ...]:
        given: ConsumerLimits = found.group_configs.consumer_limits(group_id)
        return (
            given.session_timeout_ms,
            given.heartbeat_interval_ms,
            given.max_size,
            given.migration_policy.value,
            given.assignment_interval_ms,
        )

    assert numbers("g") == (50_000, 6_000, 77, "upgrade", 88)
    assert numbers("own") == (45_001, 5_001, 77, "upgrade", 88)
    found.close()


def test_records_are_judged_by_the_topics_own_bounds_of_time() -> None:
    """``before`` limits the past and ``after`` the future."""
    found = Clock().node
    configs = {
        "message.timestamp.before.max.ms": "111",
        "message.timestamp.after.max.ms": "222",
        "message.timestamp.type": "LogAppendTime",
    }
    topic = found.catalogue.create("t", 1, configs)
    assert found.rules(topic, 5) == RecordRules(5, True, False, 111, 222)
    found.close()


def test_a_topic_without_configs_has_those_of_the_broker() -> None:
    """Each config has its own setting; each setting has a value that differs from its default."""
    given = {
        "log.cleanup.policy": "compact",
        "log.cleaner.delete.retention.ms": 11,
        "log.flush.interval.messages": 12,
        "log.cleaner.max.compaction.lag.ms": 99,
        "message.max.bytes": 14,
        "log.message.timestamp.type": "LogAppendTime",
        "log.cleaner.min.cleanable.ratio": 0.25,
        "log.cleaner.min.compaction.lag.ms": 16,
        "log.retention.bytes": 17,
        "log.retention.ms": 18,
    }
    found = default_configs(Settings.parse(given))
    assert {
        name: found[name] for name in found if found[name] != default_configs(Settings())[name]
    } == {
        "cleanup.policy": "compact",
        "delete.retention.ms": "11",
        "flush.messages": "12",
        "max.compaction.lag.ms": "99",
        "max.message.bytes": "14",
        "message.timestamp.type": "LogAppendTime",
        "min.cleanable.dirty.ratio": "0.25",
        "min.compaction.lag.ms": "16",
        "retention.bytes": "17",
        "retention.ms": "18",
    }


def test_offsets_of_a_group_without_members_expire_after_so_many_minutes() -> None:
    """offsets.retention.minutes counts to the exact millisecond."""
    clock = Clock(offsets_retention_minutes=2)
    clock.node.groups.ask("g", CommitOffsets, lambda reply: None)
    clock.node.groups.books.commit("g", {("t", 0): Committed(5, committed_at_ms=clock.now)})
    clock.now += 2 * MINUTE_MS - 1
    assert sum(expire(clock.node)) == 0
    clock.now += 1
    assert sum(expire(clock.node)) == 1
    clock.node.close()


def test_idle_producers_are_forgotten_by_the_round_that_applies_retention() -> None:
    """producer.id.expiration.ms also counts for topics without retention by age."""
    clock = Clock(producer_id_expiration_ms=1_000)
    log = clock.node.catalogue.create("t", 1, {"cleanup.policy": "compact"}).partitions[0]
    data = batch(producer_id=7, epoch=0, sequence=0, timestamp=START_MS)
    log.append(parse_batch(data), data, clock.now)
    clock.now += 1_000
    sum(retain(clock.node))
    assert len(log.producers) == 1
    clock.now += 1
    sum(retain(clock.node))
    assert len(log.producers) == 0
    clock.node.close()


def test_retention_counts_the_records_that_it_deletes() -> None:
    """The count is of records, not of batches, over all partitions."""
    clock = Clock()
    topic = clock.node.catalogue.create("t", 2, {"retention.ms": "10"})
    data = batch(count=3, timestamp=START_MS)
    for log in topic.partitions:
        log.append(parse_batch(data), data, clock.now)
    clock.now += 11
    assert sum(retain(clock.node)) == 6
    assert clock.node.counters["records_deleted"] == 6
    clock.node.close()


@pytest.mark.parametrize("of_topic", [False, True])
def test_size_and_age_of_retention_are_those_of_the_topic_or_else_of_the_broker(
    of_topic: bool,
) -> None:
    """The broker's own numbers would delete no record, or the topic's numbers would not."""
    data = batch(timestamp=START_MS)
    size = str(len(data))
    clock = Clock() if of_topic else Clock(log_retention_bytes=size)
    configs = {"retention.bytes": size} if of_topic else {}
    log = clock.node.catalogue.create("t", 1, configs).partitions[0]
    for _ in range(3):
        log.append(parse_batch(data), data, clock.now)
    assert sum(retain(clock.node)) == 2
    assert log.start_offset == 2
    clock.node.close()


def test_answers_get_smaller_while_peers_do_not_read_theirs() -> None:
    """An answer gets a quarter of the remaining memory, and at least the smallest answer."""
    found = Clock().node
    room = found.room_for_answer()
    assert room == limits.MAX_UNSENT_BYTES // 4
    found.unsent_bytes = limits.MAX_UNSENT_BYTES // 2
    assert found.room_for_answer() == room // 2
    found.unsent_bytes = 2 * limits.MAX_UNSENT_BYTES
    assert found.room_for_answer() == limits.SMALLEST_ANSWER_BYTES
    found.close()


def test_the_first_address_is_the_nodes_own_and_each_protocol_has_its_port() -> None:
    """A client of a protocol without a listener gets the first address."""
    found = Clock().node
    found.listen_on("127.0.0.1", 1)
    found.listen_on("127.0.0.2", 2, "SSL")
    assert (found.host, found.port) == ("127.0.0.1", 1)
    assert found.address_for("10.0.0.1", "SSL") == ("127.0.0.2", 2)
    assert found.address_for("10.0.0.1", "SASL_SSL") == ("127.0.0.1", 1)
    found.close()


def test_a_broker_that_listens_everywhere_names_the_address_that_was_reached() -> None:
    """A client cannot connect to 0.0.0.0."""
    found = Clock().node
    found.listen_on("0.0.0.0", 3)
    assert found.address_for("10.0.0.9") == ("10.0.0.9", 3)
    found.close()


def test_transactions_may_last_as_long_as_the_setting_says() -> None:
    """The setting is transaction.max.timeout.ms."""
    found = Clock(transaction_max_timeout_ms=123).node
    assert found.transactions._limits.max_timeout_ms == 123
    found.close()


def test_compaction_gets_its_memory_from_the_setting() -> None:
    """log.cleaner.dedupe.buffer.size is converted to a number of keys."""
    small, large = (
        Clock(log_cleaner_dedupe_buffer_size=size).node for size in (1_000_000, 2_000_000)
    )
    assert small.compaction._max_keys * 2 == pytest.approx(large.compaction._max_keys, abs=1)
    small.close()
    large.close()


def test_every_limit_of_a_group_is_told() -> None:
    """A new field of the limits needs a setting and a line in the tests above."""
    assert [one.name for one in fields(GroupLimits)] == [
        "min_session_timeout_ms",
        "max_session_timeout_ms",
        "initial_rebalance_delay_ms",
        "max_size",
        "max_pending",
    ]
