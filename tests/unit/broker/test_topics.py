"""The catalogue of topics: ids, versions, limits, and effects of a start and a refused write."""

from __future__ import annotations

import uuid

import pytest

from faust_assigner.broker import limits
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.entries import CLEAN, OFFSET
from faust_assigner.broker.storage.losses import accept_losses
from faust_assigner.broker.storage.records import TRANSACTIONAL
from faust_assigner.broker.storage.store import MemoryStore, StoreFailed
from faust_assigner.broker.topic_configs import check_configs
from faust_assigner.broker.topics import Catalogue, Refused
from tests.unit.broker.test_log_life import append


def catalogue(store: MemoryStore | None = None) -> Catalogue:
    """Return a catalogue in memory."""
    return Catalogue(store or MemoryStore(), Settings.parse({}), uuid.uuid4)


def test_the_id_of_a_deleted_topic_finds_no_topic_that_took_its_name() -> None:
    """A reader of the old topic must learn about its deletion."""
    topics = catalogue()
    old = topics.create("t", 1, {})
    topics.delete(old)
    fresh = topics.create("t", 1, {})
    assert topics.by_id(old.topic_id) is None
    assert topics.by_id(fresh.topic_id) is fresh


def test_whatever_metadata_shows_raises_the_version() -> None:
    """Creation, growth and deletion raise the version; a validated change does not."""
    topics = catalogue()
    versions = [topics.version]
    topic = topics.create("t", 1, {})
    versions.append(topics.version)
    topics.grow(topic, 3)
    versions.append(topics.version)
    topics.grow(topic, 5, validate_only=True)
    topics.create("other", 1, {}, validate_only=True)
    assert topics.version == versions[-1]
    assert (len(topic.partitions), topics.get("other")) == (3, None)
    topics.delete(topic)
    versions.append(topics.version)
    assert versions == sorted(set(versions))


def test_a_topic_that_is_only_validated_is_not_there_after_a_start() -> None:
    """The topic's name stays free."""
    store = MemoryStore()
    catalogue(store).create("t", 1, {}, validate_only=True)
    again = catalogue(store)
    assert again.get("t") is None
    again.create("t", 2, {})


def test_partitions_of_deleted_topics_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit counts existing partitions, also after a growth."""
    monkeypatch.setattr(limits, "MAX_PARTITIONS", 10)
    topics = catalogue()
    for _ in range(3):
        topic = topics.create("t", 4, {})
        topics.grow(topic, 10)
        with pytest.raises(Refused, match="topics and 10 partitions"):
            topics.create("one-more", 1, {})
        topics.delete(topic)
    topics.create("t", 10, {})


def test_settings_of_a_topic_are_there_after_a_start() -> None:
    """Validated configs are not stored."""
    store = MemoryStore()
    topics = catalogue(store)
    topic = topics.create("t", 1, {})
    topics.configure(topic, {"retention.ms": "5"})
    topics.configure(topic, {"retention.ms": "6"}, validate_only=True)
    found = catalogue(store).get("t")
    assert found is not None
    assert found.configs == {"retention.ms": "5"}


def test_whoever_waits_for_a_deleted_topic_is_woken() -> None:
    """The partitions are marked as deleted."""
    topics, woken = catalogue(), []
    topic = topics.create("t", 2, {})
    for number, log in enumerate(topic.partitions):
        log.waiters[1] = lambda number=number: woken.append(number)  # type: ignore[misc]
    topics.delete(topic)
    assert woken == [0, 1]
    assert all(log.deleted for log in topic.partitions)


def test_a_topic_that_grew_is_restored_with_its_configs_and_its_new_partitions() -> None:
    """A second topic keeps its own configs; the notified listener sees the raised version."""
    store = MemoryStore()
    topics, told = catalogue(store), list[tuple[str, int, int]]()
    topics.on_change = lambda name: told.append((name, topics.version, len(topics)))
    topic = topics.create("t", 2, {"retention.ms": "5"})
    topics.create("u", 1, {"retention.ms": "6"})
    topics.grow(topic, 4)
    assert [one.configs for one in catalogue(store)] == [{"retention.ms": v} for v in "56"]
    topics.configure(topic, {"retention.bytes": "7"})
    found = {
        one.name: (one.topic_id, [log.number for log in one.partitions], one.configs)
        for one in catalogue(store)
    }
    other = topics.get("u")
    assert other is not None
    assert found == {
        "t": (topic.topic_id, [0, 1, 2, 3], {"retention.bytes": "7"}),
        "u": (other.topic_id, [0], {"retention.ms": "6"}),
    }
    topics.delete(other)
    assert told == [("t", 1, 1), ("u", 2, 2), ("t", 3, 2), ("u", 4, 1)]
    assert topics.at(topic.topic_id.bytes, 3) == (topic, topic.partitions[3])
    assert [topics.at(topic.topic_id.bytes, n) for n in (4, -1)] == [None, None]
    assert [topics.partition("t", n) for n in (3, 4, -1)] == [topic.partitions[3], None, None]


@pytest.mark.parametrize("change", ["create", "grow", "configure", "delete"])
def test_a_change_of_a_topic_that_the_store_refuses_has_not_happened(change: str) -> None:
    """The catalogue and its version stay the same, and no group is notified."""
    store = MemoryStore()
    topics = catalogue(store)
    topic = topics.create("t", 2, {"retention.ms": "5"})
    told: list[str] = []
    topics.on_change = told.append

    def full(*arguments: object, **more: object) -> None:
        raise StoreFailed("no space")

    store.write = full  # type: ignore[method-assign]
    changes = {
        "create": lambda: topics.create("u", 1, {}),
        "grow": lambda: topics.grow(topic, 3),
        "configure": lambda: topics.configure(topic, {"retention.ms": "6"}),
        "delete": lambda: topics.delete(topic),
    }
    with pytest.raises(StoreFailed):
        changes[change]()
    assert (list(topics), topics.version, told) == ([topic], 1, [])
    assert (len(topic.partitions), topic.configs) == (2, {"retention.ms": "5"})
    assert topics.by_id(topic.topic_id) is topic
    assert not any(log.deleted for log in topic.partitions)


def test_the_limits_of_topics_and_partitions_are_met_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last topic that fits is created, and a growing topic needs no new topic slot."""
    monkeypatch.setattr(limits, "MAX_TOPICS", 2)
    monkeypatch.setattr(limits, "MAX_PARTITIONS", 9)
    monkeypatch.setattr(limits, "MAX_PARTITIONS_PER_TOPIC", 6)
    store = MemoryStore()
    topics = catalogue(store)
    refused = []
    for name, count in (("t", 7), ("t", 0), ("t", -2), ("t", 3), ("t", 3), ("u", 6), ("v", 1)):
        try:
            topics.create(name, count, {})
        except Refused as error:
            refused.append((name, count, error.error.name))
    assert refused == [
        ("t", 7, "invalid_partitions"),
        ("t", 0, "invalid_partitions"),
        ("t", -2, "invalid_partitions"),
        ("t", 3, "topic_already_exists"),
        ("v", 1, "policy_violation"),
    ]
    topics = catalogue(store)  # the counts are restored, too
    first, second = topics
    for topic, count, error in (
        (first, 4, "policy_violation"),
        (first, 7, "invalid_partitions"),
        (first, 3, "invalid_partitions"),
        (first, 2, "invalid_partitions"),
    ):
        with pytest.raises(Refused) as found:
            topics.grow(topic, count)
        assert found.value.error.name == error
    topics.delete(second)
    topics.grow(first, 6)
    topics.create("v", 3, {})


def test_the_logs_of_all_topics_are_restored_each_with_its_own_facts() -> None:
    """Three topics: records, a trim, an accepted loss, a compaction, open and aborted transactions."""
    store = MemoryStore()
    topics = catalogue(store)
    logs = [log for name in "abc" for log in topics.create(name, 2, {}).partitions]
    for number, log in enumerate(logs, 1):
        for _ in range(number):
            append(log)
    logs[1].trim(1)
    accept_losses(logs[3], [(4, 9)], ())
    store.write([(CLEAN + logs[4].place, OFFSET.pack(3))])
    for number in (2, 5):
        for producer_id in (7, 8):
            header = {"producer_id": producer_id, "epoch": 0, "sequence": 0}
            append(logs[number], attributes=TRANSACTIONAL, **header)
        ending = logs[number].end_transaction(7, 0, 0, commits=False)
        store.write(ending.puts, ending.deletes)
        ending.stored()
    steps: list[None] = []
    again = Catalogue(store, Settings(), uuid.uuid4, progress=lambda: steps.append(None))
    found = [
        (log.start_offset, log.end_offset, log.cleaned_to, log.accepted, log.transactions.open,
         [one.last for one in log.aborted(0, 99)])
        for topic in again for log in topic.partitions
    ]  # fmt: skip
    assert found == [
        (0, 1, 0, (), {}, []),
        (1, 2, 0, (), {}, []),
        (0, 6, 0, (), {8: 4}, [5]),
        (0, 9, 0, ((4, 9),), {}, []),
        (0, 5, 3, (), {}, []),
        (0, 9, 0, (), {8: 7}, [8]),
    ]
    assert len(steps) == 3 + 6, "each topic and each log asks whether to go on"
    assert again._partitions == 6


def test_each_new_partition_of_a_grown_topic_has_its_own_number() -> None:
    """The existing partitions keep their logs; a topic grows also at the limit of topics."""
    topics = catalogue()
    topic = topics.create("t", 2, {})
    before = list(topic.partitions)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "MAX_TOPICS", 1)
        topics.grow(topic, 5)
        with pytest.raises(Refused, match="1 topics"):
            topics.create("u", 1, {})
    assert topic.partitions[:2] == before
    assert [log.number for log in topic.partitions] == [0, 1, 2, 3, 4]
    assert {log.place[:-4] for log in topic.partitions} == {topic.topic_id.bytes}


@pytest.mark.parametrize(
    ("least", "most", "is_valid"),
    [
        (None, None, True),
        ("5", None, True),
        (None, "5", True),
        ("5", "5", True),
        ("6", "5", False),
        (str(2**63 - 1), None, True),
    ],
)
def test_each_lag_of_compaction_is_compared_with_the_default_of_the_other(
    least: str | None, most: str | None, is_valid: bool
) -> None:
    """Kafka's defaults are 0 and no limit."""
    given = {"min.compaction.lag.ms": least, "max.compaction.lag.ms": most}
    configs = {name: value for name, value in given.items() if value is not None}
    problem = check_configs(configs)
    assert (problem is None) is is_valid
    if not is_valid:
        assert problem == "min.compaction.lag.ms (6) is above max.compaction.lag.ms (5)"
