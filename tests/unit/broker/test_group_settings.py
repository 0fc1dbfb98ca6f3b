"""Settings of single groups, their offsets, and the topics that groups are notified of."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from faust_assigner.broker import limits
from faust_assigner.broker.groups.books import GroupBooks
from faust_assigner.broker.groups.configs import GroupConfigs
from faust_assigner.broker.groups.topic_notifier import TopicNotifier
from faust_assigner.broker.security.acls import ALLOW, DESCRIBE, LITERAL, READ, TOPIC, Acl, Acls
from faust_assigner.broker.security.authorizer import Authorizer
from faust_assigner.broker.settings import Settings
from faust_assigner.broker.storage.store import MemoryStore, StoreFailed
from faust_assigner.broker.topics import Refused
from faust_assigner.coordinator.errors import Code
from faust_assigner.coordinator.offsets import Committed
from tests.unit.broker.test_topics import catalogue

SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize(
    ("configs", "is_taken"),
    [
        ({SESSION: "60000", HEARTBEAT: "15000"}, True),
        ({SESSION: "45000", HEARTBEAT: "45000"}, False),
        ({SESSION: "50000"}, True),
    ],
)
def test_a_session_is_longer_than_the_time_between_two_heartbeats(
    configs: dict[str, str], is_taken: bool, validate_only: bool
) -> None:
    """A trial reports the error, too; equal times are refused."""
    limit = {"group.consumer.max.heartbeat.interval.ms": 60_000}
    found = GroupConfigs(MemoryStore(), Settings.parse(limit))
    if is_taken:
        found.configure("g", configs, validate_only=validate_only)
        assert found.explicit("g") == ({} if validate_only else configs)
    else:
        with pytest.raises(Refused, match="must be greater than"):
            found.configure("g", configs, validate_only=validate_only)


def test_configs_of_two_groups_are_replaced_whole_and_come_back_with_a_start() -> None:
    """An omitted config returns to the broker's setting; a group without configs has no key."""
    store, interval = MemoryStore(), "consumer.assignment.interval.ms"
    settings = Settings.parse({"group.consumer.session.timeout.ms": 46_000})
    found = GroupConfigs(store, settings)
    found.configure("g", {SESSION: "50000", interval: "0"}, validate_only=False)
    found.configure("h", {HEARTBEAT: "6000"}, validate_only=False)
    found.configure("g", {interval: "7"}, validate_only=False)
    found.configure("i", {interval: "8"}, validate_only=False)
    found.configure("i", {}, validate_only=False)
    for one in (found, GroupConfigs(store, settings)):
        assert {group_id: one.explicit(group_id) for group_id in one} == {
            "g": {interval: "7"}, "h": {HEARTBEAT: "6000"}
        }  # fmt: skip
        numbers = {
            group_id: tuple(one.number(group_id, name) for name in (SESSION, HEARTBEAT, interval))
            for group_id in "ghi"
        }
        assert numbers == {
            "g": (46_000, 5_000, 7), "h": (46_000, 6_000, 1_000), "i": (46_000, 5_000, 1_000)
        }  # fmt: skip
    defaults = [found.is_broker_default(name) for name in (SESSION, HEARTBEAT, interval)]
    assert defaults == [False, True, True]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (SESSION, "45000", None),
        (SESSION, "60000", None),
        (
            SESSION,
            "44999",
            "must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (SESSION, "60001", "must be less than or equal to group.consumer.max.session.timeout.ms"),
        (HEARTBEAT, "4999", "greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        (HEARTBEAT, "15000", None),
        ("consumer.assignment.interval.ms", "0", None),
        ("consumer.assignment.interval.ms", "15000", None),
        ("consumer.assignment.interval.ms", "15001", "less than or equal to 15000"),
        ("consumer.assignment.interval.ms", "1_0", "Not a number of type INT"),
        ("share.session.timeout.ms", "1", "Unknown group config name"),
    ],
)
def test_a_config_of_a_group_is_taken_at_both_of_its_limits(
    name: str, value: str, words: str | None
) -> None:
    """A value just beyond a limit is refused, with the name of the limiting setting."""
    found = GroupConfigs(MemoryStore(), Settings())
    if words is None:
        found.configure("g", {name: value}, validate_only=False)
        assert found.number("g", name) == int(value)
        return
    with pytest.raises(Refused) as refused:
        found.configure("g", {name: value}, validate_only=True)
    assert words in refused.value.message
    assert name in refused.value.message
    assert refused.value.error.name == "invalid_config"


def test_a_setting_that_cannot_be_stored_does_not_hold() -> None:
    """The client gets an error, and the next start would not restore the setting."""
    store = MemoryStore()
    found = GroupConfigs(store, Settings.parse({}))

    def full(*arguments: object, **more: object) -> None:
        raise StoreFailed("no space")

    store.write = full  # type: ignore[method-assign]
    with pytest.raises(StoreFailed):
        found.configure("g", {SESSION: "50000"}, validate_only=False)
    assert found.explicit("g") == {}


def test_only_so_many_groups_have_settings_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any client could fill the store with unknown groups; known groups can still change."""
    monkeypatch.setattr(limits, "MAX_GROUPS", 1)
    found = GroupConfigs(MemoryStore(), Settings.parse({}))
    found.configure("g", {SESSION: "50000"}, validate_only=False)
    found.configure("g", {SESSION: "51000"}, validate_only=False)
    with pytest.raises(Refused, match="have their own configs"):
        found.configure("h", {SESSION: "50000"}, validate_only=False)
    found.configure("h", {}, validate_only=False)
    found.configure("g", {}, validate_only=False)
    found.configure("h", {SESSION: "50000"}, validate_only=False)
    assert list(found) == ["h"]


# -- offsets -----------------------------------------------------------------------------------


def books() -> GroupBooks:
    """Return the offsets of all groups, in memory."""
    return GroupBooks(MemoryStore(), lambda: 0, Counter())


def test_a_group_at_its_cap_still_commits_what_it_has_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only a new partition would exceed the limit."""
    monkeypatch.setattr(limits, "MAX_OFFSETS_PER_GROUP", 2)
    found = books()
    both: dict[Any, Committed] = {("t", 0): Committed(1), ("t", 1): Committed(1)}
    assert found.commit("g", both) is Code.NONE
    assert found.commit("g", {("t", 0): Committed(2)}) is Code.NONE
    assert found.commit("g", {("t", 2): Committed(2)}) is Code.INVALID_REQUEST
    assert found.offsets("g").entries[("t", 0)].offset == 2


def test_a_deleted_topic_takes_the_offsets_of_those_groups_that_are_left() -> None:
    """A second group with offsets of the topic was deleted before."""
    found = books()
    for group in ("gone", "left"):
        found.commit(group, {("t", 0): Committed(1), ("u", 0): Committed(1)})
    found.close("gone")
    assert list(found.topic_deleted("t")) == ["left"]
    assert list(found.offsets("left").entries) == [("u", 0)]


def test_a_closed_group_costs_no_look_at_the_topics_of_other_groups() -> None:
    """Thousands of groups may end together, beside thousands of topics of other groups."""

    class Topics(dict[str, set[str]]):
        def __iter__(self) -> Any:
            raise AssertionError("all topics are listed")

        items = values = keys = __iter__  # type: ignore[assignment]

    found = books()
    found.commit("g", {("t", 0): Committed(1), ("u", 0): Committed(1)})
    found.store_pending("g", 7, {("v", 0): Committed(1)})
    found.commit("other", {("u", 0): Committed(1), ("w", 0): Committed(1)})
    found._readers = readers = Topics(found._readers)
    found.close("g")
    left = {topic: readers[topic] for topic in "tuvw" if topic in readers}
    assert left == {"u": {"other"}, "w": {"other"}}
    found.close("never seen")


def test_a_closed_group_may_have_lost_its_topics_before() -> None:
    """Its deleted topic no longer names it, whether the deletion of the offsets has ended or not."""
    found = books()
    for group in ("one", "two"):
        found.commit(group, {("t", 0): Committed(1)})
    deleting = found.topic_deleted("t")
    next(deleting)
    for group in ("one", "two"):
        found.close(group)
    assert len(list(deleting)) == 1
    assert found.topics() == ()


# -- topics in the view of groups --------------------------------------------------------------


def test_a_topic_that_was_made_anew_is_told_under_its_new_id_alone() -> None:
    """The old id must be unknown, and the new topics must differ from the former ones."""
    topics = catalogue()
    topic = topics.create("t", 2, {})
    told = TopicNotifier(topics)
    topics.on_change = told.changed
    before = told.now()
    topics.delete(topic)
    fresh = topics.create("t", 2, {})
    after = told.now()
    assert set(after.by_id) == {fresh.topic_id.bytes}
    assert after.digests != before.digests
    topics.delete(fresh)
    assert (told.now().by_id, told.now().by_name, told.now().digests) == ({}, {}, {})


def test_nothing_new_is_the_same_object() -> None:
    """Groups compare the object to detect changes."""
    topics = catalogue()
    told = TopicNotifier(topics)
    topics.on_change = told.changed
    assert told.now() is told.now()
    topics.create("t", 1, {})
    assert told.now() is told.now()
    told.rights_changed()
    assert told.now() is told.now()


def test_topics_that_a_client_may_not_describe_are_hidden_from_it() -> None:
    """Rights belong to a principal at a host; without an authorizer no topic is hidden."""
    topics = catalogue()
    for name in ("open", "secret"):
        topics.create(name, 1, {})
    acls = Acls(MemoryStore())
    told = TopicNotifier(topics, Authorizer(acls, frozenset({"User:root"})))
    acls.on_topic_change = told.rights_changed
    topics.on_change = told.changed
    both = frozenset(("open", "secret"))
    assert told.now().hidden_from("User:alice", "/10.0.0.1") == both
    assert told.now().hidden_from("User:root", "/10.0.0.1") == frozenset()
    before = told.now()
    acls.add([Acl(TOPIC, "open", LITERAL, "User:alice", "*", READ, ALLOW)])
    acls.add([Acl(TOPIC, "secret", LITERAL, "User:alice", "10.0.0.1", DESCRIBE, ALLOW)])
    assert told.now() is not before, "groups compare the objects"
    assert told.now().hidden_from("User:alice", "/10.0.0.1") == frozenset()
    assert told.now().hidden_from("User:alice", "/10.0.0.2") == {"secret"}
    assert told.now().hidden_from("User:bob", "/10.0.0.1") == both
    topics.create("later", 1, {})
    assert told.now().hidden_from("User:alice", "/10.0.0.1") == {"later"}
    acls.remove(list(acls))
    assert told.now().hidden_from("User:alice", "/10.0.0.1") == {*both, "later"}
    assert TopicNotifier(topics).now().hidden_from("User:alice", "/10.0.0.1") == frozenset()
