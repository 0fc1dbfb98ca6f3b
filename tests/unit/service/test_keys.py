"""Keys: the first assigner's layout, and names that it refused."""

from __future__ import annotations

import pytest

from faust_assigner.service import keys
from faust_assigner.service.errors import BadRequest
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.keys import Keys
from faust_assigner.service.store.base import Event, KeyValue
from faust_assigner.service.view import View

AT = TopicPartition("shop.orders", 3)
ALL = Keys("/kafka-assigner/shop/")


def test_keys_lie_where_the_first_assigner_has_them() -> None:
    """Names without dots stay unchanged."""
    at = TopicPartition("orders", 3)
    assert [
        ALL.consumer("c-1"),
        ALL.assignment(at),
        ALL.handoff(at),
        ALL.topic("orders"),
        ALL.leader,
    ] == [
        "/kafka-assigner/shop/consumers/c-1",
        "/kafka-assigner/shop/assignments/orders/3",
        "/kafka-assigner/shop/handoffs/orders/3",
        "/kafka-assigner/shop/config/topics/orders",
        "/kafka-assigner/shop/assigner/leader",
    ]


def test_the_fence_of_a_process_without_incarnation_has_a_name_too() -> None:
    """With an empty part, its key would be the prefix of all the consumer's fences."""
    assert Keys("/g/").fence("a", "") == "/g/fences/a/-"
    assert Keys("/g/").fence("a", "p.1") == "/g/fences/a/p%2E1"
    assert Keys("/g/").expelled("a", "") == "/g/expelled/a/-"


def test_kafkas_legal_names_are_one_part_of_a_key_and_come_back() -> None:
    """Dots are escaped, so no name looks like a path."""
    assert ALL.assignment(AT) == "/kafka-assigner/shop/assignments/shop%2Eorders/3"
    assert ALL.kind(ALL.assignment(AT)) == ("assignments", ("shop.orders", "3"))
    assert ALL.kind(ALL.topic("a.b")) == ("config", ("topics", "a.b"))


@pytest.mark.parametrize("name", ["", "a/b", "a b", "é", "..", ".", "x" * 250, "a\n", "a%2F"])
def test_a_topic_kafka_would_refuse_is_refused(name: str) -> None:
    """The name is refused before it becomes a key."""
    with pytest.raises(BadRequest):
        keys.checked_topic(name)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 129, "a\n", "a b"])
def test_a_consumer_that_cannot_be_a_key_is_refused(name: str) -> None:
    """The rule is the same, with a shorter limit."""
    with pytest.raises(BadRequest):
        keys.checked_consumer(name)


@pytest.mark.parametrize(
    "key", ["strange", "consumers", "assignments/t", "assignments/t/x", "handoffs/t/1/2"]
)
def test_keys_of_no_kind_we_know_are_left_alone(key: str) -> None:
    """Other programs may use keys under the prefix."""
    view = View(ALL)
    assert view.apply(Event(ALL.prefix + key, 5, KeyValue(ALL.prefix + key, b"{}", 5, 5))) is None
    assert not view.unreadable
