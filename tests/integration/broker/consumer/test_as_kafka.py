"""The consumer group protocol by raw requests: Apache Kafka and ours answer alike, errors above all."""

from __future__ import annotations

import pytest

from faust_assigner.testing.kafka import KafkaServer
from tests.support.coordination.raw_consumer_group import ConsumerScript, Story, assert_same, span


def malformed_heartbeats(s: ConsumerScript) -> None:
    """Errors that are returned before the group is looked up."""
    s.topic("a", 2)
    for version in (0, 1):
        join = s.joining()
        s.beat("m", 0, f"v{version}: no member id", version=version, member_id="", **join)
        s.beat("m", 1, f"v{version}: no member id, epoch 1", version=version, member_id="")
    join = s.joining()
    s.beat("m", 0, "no group id", group_id="", **join)
    s.beat("m", 0, "blank group id", group_id="  ", **join)
    s.beat("m", -3, "epoch -3")
    s.beat("m", 0, "empty instance id", instance_id="", **join)
    s.beat("m", 0, "empty rack id", rack_id="", **join)
    s.beat("m", 0, "no rebalance timeout", **join | {"rebalance_timeout": span(-1)})
    s.beat("m", 0, "no word of what it owns", **join | {"topic_partitions": None})
    something = [{"topic_id": s.topic_id("a"), "partitions": [0]}]
    s.beat("m", 0, "owns something already", **join | {"topic_partitions": something})
    s.beat("m", 0, "subscription is null", **join | {"subscribed_topic_names": None})
    # Ours also counts an epoch for a member with an empty subscription.
    answer = s.send("m", 0, **join | {"subscribed_topic_names": []})
    s.log.append(("subscription is empty", int(answer.error_code)))
    s.beat("m", 0, "unknown assignor", server_assignor="nobody's", **join)
    s.beat("m", 0, "bad pattern", subscribed_topic_regex="(", **join)
    s.beat("m", -2, "away without an instance id")


def groups_nobody_knows(s: ConsumerScript) -> None:
    """Requests for an unknown group, with every epoch except 0."""
    for epoch in (1, 5, -1):
        s.beat("ghost", epoch)
    s.beat("ghost", -2, "static ghost away", instance_id="i")
    s.beat("ghost", -1, "static ghost leaves", instance_id="i")
    s.describe()
    s.describe_classic(6)
    s.describe_classic(5)
    s.delete()
    s.listed()


def epochs_that_are_wrong(s: ConsumerScript) -> None:
    """Greater, lower, previous and unknown epochs have their own errors and change no state."""
    s.topic("a", 6)
    s.settle("one")
    s.settle("one", "two")
    s.settle("one", "two", "three")
    epoch = s.epochs["one"]
    s.beat("one", epoch + 1, "from the future")
    s.beat("one", epoch - 1, "previous epoch, says nothing of what it owns")
    s.beat("one", epoch - 2, "older than the previous")
    s.beat("stranger", epoch, "nobody")
    s.beat("stranger", -1, "nobody leaves")
    s.beat("one", epoch, "owns everything", topic_partitions=s.owned["one"] + s.owned["two"])
    s.beat("one", epoch - 1, "previous epoch, owns what it has", topic_partitions=s.owned["one"])
    everything = [{"topic_id": s.topic_id("a"), "partitions": [0, 1, 2, 3, 4, 5]}]
    s.beat("one", epoch - 1, "previous epoch, owns too much", topic_partitions=everything)
    s.beat("one", epoch, "as it is")
    s.beat("one", epoch, "full request", **s.joining() | {"topic_partitions": s.owned["one"]})
    s.describe()


def a_member_that_joins_twice(s: ConsumerScript) -> None:
    """Epoch 0 again: the member lost the response and gets it again."""
    s.topic("a", 3)
    s.settle("one")
    s.beat("one", 0, "again", **s.joining())
    s.settle("one", label="after")
    s.beat("one", -1, "leaves")
    s.beat("one", -1, "leaves again")
    s.describe()
    s.listed()
    s.delete()
    s.describe("gone")


def members_come_and_go(s: ConsumerScript) -> None:
    """Three members join, one leaves: the epochs, partitions and states in between."""
    s.topic("a", 6)
    s.topic("b", 3)
    s.settle("one", topics=["a"])
    s.describe("one")
    s.go_on("two", topics=["a"])
    s.log.append(("two joins, nothing is free", s.standing("two")))
    s.go_on("one")
    s.log.append(("one is asked", s.standing("one")))
    s.describe("reconciling")
    s.listed(states_filter=["reconciling"])
    s.listed(types_filter=["consumer"], states_filter=["Stable"])
    s.settle("one", "two")
    s.settle("one", "two", "three", topics=["b"])
    s.describe("three")
    s.beat("two", -1, "two leaves")
    s.settle("one", "three", label="without two")
    s.describe("without two")
    s.delete()


def static_members(s: ConsumerScript) -> None:
    """Instance ids: in use, away, taken over, fenced (KIP-345 in KIP-848)."""
    s.topic("a", 4)
    s.go_on("one", instance_id="i1")
    s.beat("other", 0, "instance is held", instance_id="i1", **s.joining())
    s.beat("one", 0, "the same member joins again", instance_id="i1", **s.joining())
    s.settle("one")
    s.go_on("two", instance_id="i2")
    s.settle("one", "two")
    s.beat("one", s.epochs["one"], "wrong instance", instance_id="i2")
    s.beat("one", s.epochs["one"], "unknown instance", instance_id="i3")
    s.beat("one", -2, "one is away", instance_id="i1")
    s.describe("one is away")
    s.beat("one", s.epochs["one"], "one, as if it were not", instance_id="i1")
    s.beat("again", 0, "one is back by another name", instance_id="i1", **s.joining())
    s.beat("one", -1, "the old name leaves", instance_id="i1")
    s.describe("taken over")
    s.beat("again", -1, "leaves for good", instance_id="i1")
    s.settle("two", label="one left")
    s.describe("one left")


def commits_and_reads(s: ConsumerScript) -> None:
    """Commits and reads of offsets by version and epoch."""
    s.topic("a", 2)
    s.settle("one")
    s.settle("one", "two")
    epoch = s.epochs["one"]
    for version in (8, 9, 10):
        s.commit("one", epoch, version=version)
        s.commit("one", epoch - 1, version=version)
        s.commit("one", epoch + 1, version=version)
        s.commit("stranger", epoch, version=version)
        s.commit("", -1, version=version)
        s.commit("one", -1, version=version)
    for version in (9, 10):
        s.fetch_offsets("one", epoch, version=version)
        s.fetch_offsets("one", epoch - 1, version=version)
        s.fetch_offsets("one", epoch + 1, version=version)
        s.fetch_offsets("stranger", epoch, version=version)
        s.fetch_offsets(None, -1, version=version)
        s.fetch_offsets("", -1, version=version)
        s.fetch_offsets("one", epoch, version=version, stable=True)
    s.fetch_offsets(None, -1, version=8)
    s.topic("other", 1)
    s.delete_offsets("a", "other")
    s.delete()
    s.beat("one", -1, "leaves")
    s.beat("two", -1, "leaves")
    s.commit("", -1, version=9, label="an outsider commits to the empty group")
    s.commit("one", epoch, version=9, label="a former member commits to the empty group")
    s.fetch_offsets("one", epoch)
    s.delete_offsets("a", "other")
    s.delete()


def the_other_protocols_requests(s: ConsumerScript) -> None:
    """Classic requests for a consumer group."""
    s.topic("a", 2)
    s.settle("one")
    s.classic_requests("one", s.epochs["one"])
    s.classic_requests("stranger", s.epochs["one"])
    s.describe_classic(6)
    s.describe_classic(5)
    s.leave_by_admin(member_id="nobody", group_instance_id=None)
    s.leave_by_admin(member_id="", group_instance_id="i")
    join = {
        "group_id": s.group,
        "session_timeout": span(10_000),
        "rebalance_timeout": span(5_000),
        "member_id": "",
        "protocol_type": "connect",
        "protocols": [{"name": "range", "metadata": b"meta"}],
    }
    answer = s.client.call(11, 5, **join)
    s.log.append(("another protocol type joins", int(answer.error_code)))
    answer = s.client.call(11, 5, **join | {"protocol_type": "consumer"})
    s.log.append(("a consumer with bytes that are no subscription joins", int(answer.error_code)))
    s.leave_by_admin(member_id=f"{s.group}-one", group_instance_id=None)
    s.describe("after")


def subscriptions_by_pattern(s: ConsumerScript) -> None:
    """A pattern matches whole names and new topics; names and a pattern add up."""
    s.topic("a", 2)
    s.topic("a-more", 1)
    s.topic("other", 1)
    pattern = {"topics": [], "subscribed_topic_regex": f"{s.group}-a.*"}
    s.settle("one", **pattern)
    s.begin_here()
    s.describe("by pattern")
    whole = s.joining(topics=[], subscribed_topic_regex=f"{s.group}-othe")
    s.beat(
        "one",
        s.epochs["one"],
        "a part of a name matches nothing",
        **whole | {"topic_partitions": None},
    )
    s.settle("one", label="nothing matches")
    changed = {"subscribed_topic_regex": "", "subscribed_topic_names": [s.real["other"]]}
    s.beat("one", s.epochs["one"], "names instead", **changed)
    s.settle("one", label="by name")
    s.describe("by name")


def assignors_by_vote(s: ConsumerScript) -> None:
    """The assignor with most votes wins; range assigns ranges."""
    s.topic("a", 4)
    s.topic("b", 4)
    s.settle("one", topics=["a", "b"], server_assignor="range")
    s.settle("one", "two", topics=["a", "b"], server_assignor="range")
    s.describe("range")
    s.beat("one", s.epochs["one"], "one wants another", server_assignor="uniform")
    s.settle("one", "two", label="one vote each")


def topics_grow_and_go(s: ConsumerScript) -> None:
    """More partitions, an awaited topic and a deleted topic: each gives a new epoch."""
    s.topic("a", 2)
    s.settle("one", topics=["a", "later"], subscribed_topic_names=[s.real["a"], f"{s.group}-later"])
    s.grow("a", 4)
    s.settle("one", label="grown")
    s.topic("later", 2)
    s.settle("one", label="created")
    s.describe("with both")
    s.remove("a")
    s.settle("one", label="deleted")
    s.describe("with one")


def topics_in_pages(s: ConsumerScript) -> None:
    """DescribeTopicPartitions: by name, in pages, from a cursor, unknown and illegal names."""
    s.topic("a", 3)
    s.topic("b", 2)
    s.topic_page(["b", "a"])
    s.topic_page(["a", "b"], response_partition_limit=2)
    s.topic_page(["a", "b"], response_partition_limit=3)
    s.topic_page(["a", "b"], cursor={"topic_name": s.real["a"], "partition_index": 1})
    s.topic_page(["a", "b"], cursor={"topic_name": s.real["b"], "partition_index": 0})
    s.topic_page(["a"], cursor={"topic_name": s.real["b"], "partition_index": 0})
    s.topic_page(["nobody's"])
    s.topic_page(["not/legal"])


def configs_of_a_group(s: ConsumerScript) -> None:
    """The configs that can be set, their bounds, and the errors of the others."""
    for name in (
        "consumer.session.timeout.ms",
        "consumer.heartbeat.interval.ms",
        "nobody.knows.ms",
    ):
        for value in ("1", "5500", "46000", "70000", "soon"):
            s.configure(name, value)
    s.configure("consumer.heartbeat.interval.ms", "2000", operation=2)
    s.configure("consumer.heartbeat.interval.ms", "2000", group="")
    s.configure("consumer.heartbeat.interval.ms", "2000", keep=True)
    s.topic("a", 1)
    s.beat("one", 0, "the interval it is told", **s.joining())
    s.configure("consumer.heartbeat.interval.ms", None, operation=1, keep=True)
    s.beat("one", s.first_epoch or 0, "the broker's again")


STORIES = (
    malformed_heartbeats,
    groups_nobody_knows,
    epochs_that_are_wrong,
    a_member_that_joins_twice,
    members_come_and_go,
    static_members,
    commits_and_reads,
    the_other_protocols_requests,
    subscriptions_by_pattern,
    assignors_by_vote,
    topics_grow_and_go,
    topics_in_pages,
    configs_of_a_group,
)


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_ours_answers_as_kafka_does(story: Story, kafka: KafkaServer) -> None:
    """The answers are equal line by line: errors, epochs, intervals, assignments, listings."""
    assert_same(story, kafka)
