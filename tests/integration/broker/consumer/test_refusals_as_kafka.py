"""Requests that a group refuses: Apache Kafka and ours answer alike, in the same order."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from faust_assigner.coordinator.protocol import write_assignment
from faust_assigner.testing.kafka import KafkaServer
from tests.property.consumer_sim.clients import subscription
from tests.support.coordination.raw_consumer_group import ConsumerScript, Story, assert_same, span


def joining(
    s: ConsumerScript, group: str = "", *, metadata: bytes = b"", **changes: Any
) -> dict[str, Any]:
    """Return the values of a JoinGroup of the classic protocol."""
    return {
        "group_id": group or s.group,
        "session_timeout": span(10_000),
        "rebalance_timeout": span(5_000),
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [
            {"name": "range", "metadata": metadata or subscription([s.real["a"]], {}, 1)}
        ],
        **changes,
    }


def join(s: ConsumerScript, label: str, version: int = 5, **changes: Any) -> Any:
    """Send this JoinGroup and log its answer without ids."""
    asked = joining(s, **changes)
    answer = s.client.call(11, version, **asked)
    shown = answer.member_id == asked["member_id"] if asked["member_id"] else bool(answer.member_id)
    s.log.append((label, int(answer.error_code), shown, answer.generation_id, answer.protocol_name))
    return answer


def without_a_group(s: ConsumerScript) -> None:
    """An empty, a blank and an unknown group id in each request, oldest and newest version."""
    s.topic("a", 1)
    for group in ("", "  ", f"{s.group}-nobody"):
        by = {"group_id": group}
        told: list[Any] = [group.replace(s.group, "GROUP")]
        one = by | {"generation_id": 1, "member_id": "x"}
        told += [int(s.client.call(12, v, **one).error_code) for v in (0, 4)]
        told += [int(s.client.call(14, v, **one).error_code) for v in (0, 3)]
        told += [int(s.client.call(13, v, **by, member_id="x").error_code) for v in (0, 2)]
        leavers = [{"member_id": "x"}, {"member_id": "", "group_instance_id": "i"}]
        for version, members in ((3, leavers), (5, leavers), (5, [])):
            left = s.client.call(13, version, **by, members=members)
            results = [(m.member_id, m.group_instance_id, int(m.error_code)) for m in left.members]
            told.append((int(left.error_code), results))
        for changes in ({}, {"session_timeout": span(1)}, {"protocol_type": ""}, {"protocols": []}):
            asked = joining(s) | by | {"member_id": "x"} | changes
            answer = s.client.call(11, 5, **asked)
            told.append((int(answer.error_code), answer.member_id))
        told.append(int(s.client.call(47, 0, **by, topics=[]).error_code))
        told.append(int(s.client.call(42, 2, groups_names=[group]).results[0].error_code))
        s.log.append(tuple(told))
        for epoch in (3, -1, -2):
            s.beat("x", epoch, f"{epoch}", instance_id="i", **by)
            s.beat("x", epoch, f"{epoch}, empty rack", instance_id="i", rack_id="", **by)
            s.beat(
                "x", epoch, f"{epoch}, assignor", instance_id="i", server_assignor="nobody's", **by
            )
            s.beat(
                "x", epoch, f"{epoch}, pattern", instance_id="i", subscribed_topic_regex="(", **by
            )


def places_that_are_not(s: ConsumerScript) -> None:
    """Commits and deletions for unknown topics and partitions, by members of every kind."""
    s.topic("a", 2)
    s.settle("one")
    epoch, here = s.epochs["one"], s.real["a"]
    cases = (
        ("known and not", {here: {0: "", 7: "", -1: ""}, "nowhere": {0: ""}}),
        ("nowhere", {"nowhere": {0: ""}}),
        ("no such partition", {here: {9: ""}}),
        ("long note", {here: {0: "x" * 5_000, 1: ""}}),
        ("only a long note", {here: {0: "x" * 5_000}}),
        ("wide note", {here: {0: "\u00e4" * 4_096, 1: "\U0001f600" * 2_049}}),
        ("nothing", {}),
    )
    for version in (8, 9, 10):
        for label, topics in cases:
            for member, at in (
                (f"{s.group}-one", epoch),
                (f"{s.group}-one", epoch - 1),
                ("stranger", 1),
            ):
                _commit(s, (label, version, member == "stranger", at), topics, member, at, version)
    for number, (label, topics) in enumerate(cases[1:3] + cases[-1:]):
        group = f"{s.group}-{number}"
        _commit(s, (label, "founds none"), topics, "", -1, 9, group)
        _commit(s, (label, "has none"), topics, "m", 5, 9, group)
        s.log.append(("is there", group in {g.group_id for g in s.client.call(16, 5).groups}))
    s.delete_offsets_of({here: (0, 9), "nowhere": (0,)})
    s.beat("one", -1, "leaves")
    s.delete_offsets_of({here: (0, 9), "nowhere": (0,)})


def _commit(
    s: ConsumerScript,
    label: tuple[Any, ...],
    topics: dict[str, dict[int, str]],
    member: str,
    epoch: int,
    version: int,
    group: str = "",
) -> None:
    known = {s.real["a"]: s.topic_id("a")}
    asked = [
        {
            "name": name,
            "topic_id": known.get(name, uuid.UUID(int=7)),
            "partitions": [
                {"partition_index": p, "committed_offset": 1, "committed_metadata": note}
                for p, note in parts.items()
            ],
        }
        for name, parts in topics.items()
    ]
    values = {
        "group_id": group or s.group,
        "generation_id_or_member_epoch": epoch,
        "member_id": member,
    }
    answer = s.client.call(8, version, **values, topics=asked)
    found = (
        sorted((p.partition_index, int(p.error_code)) for p in t.partitions) for t in answer.topics
    )
    errors = sorted(found)
    s.log.append((*label, errors))


def filters_of_a_list(s: ConsumerScript) -> None:
    """Blanks around a state, mixed case, and unknown words."""
    s.topic("a", 1)
    s.settle("one")
    for state in (" stable ", "STABLE", "nonsense", ""):
        s.listed(states_filter=[state])
    for kind in ("CONSUMER", " consumer", "classic", "unknown", "nonsense", ""):
        s.listed(types_filter=[kind])


def what_is_looked_at_last(s: ConsumerScript) -> None:
    """An invalid pattern is checked after member and epoch; empty member ids in old versions."""
    s.topic("a", 2)
    s.settle("one")
    epoch, bad = s.epochs["one"], {"subscribed_topic_regex": "("}
    s.beat("stranger", 5, "stranger", **bad)
    s.beat("one", epoch + 1, "fenced", **bad)
    s.beat("one", epoch, "itself", **bad)
    s.beat("one", epoch, "nothing changed")
    s.beat("new", 0, "joins", **s.joining() | bad)
    s.beat("one", -1, "leaves", **bad)
    s.beat("one", -1, "has left")
    for version in (0, 1):
        for epoch in (-2, -3):
            s.beat(
                "x", epoch, f"no name, v{version}", version=version, member_id="", instance_id="i"
            )


def classic_members_inside(s: ConsumerScript) -> None:
    """Each refusal of JoinGroup, SyncGroup and Heartbeat in a consumer group, with its member id."""
    s.topic("a", 2)
    s.settle("one")
    join(s, "no protocols", protocols=[])
    join(s, "another type", 3, protocol_type="connect")
    join(s, "too short a session", session_timeout=span(1))
    join(s, "a static stranger", member_id="ghost", group_instance_id="i")
    member = join(s, "is given an id").member_id
    joined = join(s, "joins", member_id=member)
    s.members[member] = "classic"
    ids = {"group_id": s.group, "member_id": member, "generation_id": joined.generation_id}
    said = {"protocol_type": "consumer", "protocol_name": "range"}
    for changes in (
        {"generation_id": 77},
        {"protocol_name": "other"},
        {"protocol_type": "connect"},
        {"generation_id": 77, "protocol_name": "other"},
        {"group_instance_id": "i"},
        {},
    ):
        s.log.append(
            ("sync", str(changes), int(s.client.call(14, 5, **ids | said | changes).error_code))
        )
    for changes in (
        {},
        {"generation_id": 77},
        {"group_instance_id": "i"},
        {"member_id": f"{s.group}-one"},
    ):
        s.log.append(("beat", len(changes), int(s.client.call(12, 4, **ids | changes).error_code)))
    for version in (7, 9, 10):
        for epoch in (joined.generation_id, joined.generation_id + 1, 0, -1):
            s.commit("", epoch, version=version, label=f"v{version} at {epoch}", member_id=member)
    s.settle("one", label="one gave up")
    s.log.append(("beat", int(s.client.call(12, 4, **ids).error_code)))


def groups_that_stay_classic(s: ConsumerScript) -> None:
    """Unreadable metadata or assignments keep the group classic."""
    s.topic("a", 2)
    plain = write_assignment(0, {s.real["a"]: (0, 1)})
    sound = subscription([s.real["a"]], {}, 1)
    cases = ((sound, plain), (sound, b"junk"), (b"junk", plain))
    for number, (metadata, assignment) in enumerate(cases):
        group = f"{s.group}-{number}"
        joined = s.client.call(11, 3, **joining(s, group, metadata=metadata))
        ids = {
            "group_id": group,
            "member_id": joined.member_id,
            "generation_id": joined.generation_id,
        }
        given = [{"member_id": joined.member_id, "assignment": assignment}]
        s.log.append(("sync", int(s.client.call(14, 3, **ids, assignments=given).error_code)))
        answer = s.send("m", 0, **s.joining(), group_id=group)
        s.log.append(("joins", int(answer.error_code), bool(answer.error_message)))
        state = s.client.call(15, 6, groups=[group]).groups[0].group_state
        s.log.append((int(s.client.call(12, 4, **ids).error_code), state))


def a_topic_gone_while_a_target_waits(s: ConsumerScript) -> None:
    """Members learn nothing before the next target, unless they change their subscription."""
    s.topic("a", 2)
    s.topic("b", 2)
    s.configure("consumer.assignment.interval.ms", "15000", keep=True)
    s.beat("one", 0, "joins", **s.joining(topics=["a", "b"]))
    epoch = s.first_epoch or 0
    s.remove("b")
    s.beat("one", epoch, "is told nothing")
    s.beat("one", epoch, "nor now")
    s.describe("b is gone")
    s.beat("one", epoch, "reads a alone", subscribed_topic_names=[s.real["a"]])
    s.beat("one", epoch, "reads nothing", subscribed_topic_names=[])
    s.describe("gives all up")


STORIES = (
    without_a_group,
    places_that_are_not,
    filters_of_a_list,
    what_is_looked_at_last,
    classic_members_inside,
    groups_that_stay_classic,
    a_topic_gone_while_a_target_waits,
)


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_ours_refuses_as_kafka_does(story: Story, kafka: KafkaServer) -> None:
    """The answers are compared line by line."""
    assert_same(story, kafka)
