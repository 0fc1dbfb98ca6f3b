"""DescribeConfigs and related requests: the sources of values, and refused changes."""

from __future__ import annotations

from typing import Any

import pytest

from faust_assigner.broker.groups.configs import GroupConfigs
from faust_assigner.broker.settings import Settings
from tests.support.asking import ask
from tests.support.hall import Hall, in_hall

DESCRIBE, REPLACE, EDIT, LIST = 32, 33, 44, 74
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
DYNAMIC_TOPIC, DYNAMIC_DEFAULT, STATIC_BROKER, DEFAULT, DYNAMIC_GROUP = 1, 3, 4, 5, 8
SET, UNSET, APPEND, SUBTRACT = 0, 1, 2, 3
INVALID_CONFIG, INVALID_REQUEST = 40, 42
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


async def described(hall: Hall, kind: int, *names: tuple[str, ...] | None) -> dict[str, Any]:
    """Return the settings of "t", requested once for each list of names."""
    resources = [
        {"resource_type": kind, "resource_name": "t", "configuration_keys": wanted}
        for wanted in names
    ]
    answer = await ask(hall, DESCRIBE, 4, resources=resources)
    (result,) = answer.results
    return {entry.name: entry for entry in result.configs}


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ((("retention.ms",), ("segment.ms",)), {"retention.ms", "segment.ms"}),
        ((None, ("segment.ms",)), None),
        ((("segment.ms",), None), None),
    ],
)
def test_a_resource_that_is_named_twice_is_answered_with_all_that_was_asked(
    asked: Any, found: set[str] | None
) -> None:
    """A null list requests all settings, whichever list comes first."""

    async def story(hall: Hall) -> set[str]:
        hall.node.catalogue.create("t", 1, {})
        every = set(hall.node.defaults)
        names = set(await described(hall, TOPIC, *asked))
        return names if found is not None else names ^ every

    assert in_hall(story) == (found if found is not None else set())


def test_a_refused_resource_is_answered_with_the_reason_beside_the_others() -> None:
    """Tools print the reason."""

    async def story(hall: Hall) -> list[tuple[int, str | None, int]]:
        hall.node.catalogue.create("t", 1, {})
        resources = [
            {"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}
            for name in ("none", "t")
        ]
        answer = await ask(hall, DESCRIBE, 4, resources=resources)
        return [
            (int(one.error_code), one.error_message, len(one.configs)) for one in answer.results
        ]

    refused, told = in_hall(story)
    assert (refused[0], refused[2]) == (3, 0)
    assert "none" in (refused[1] or "")
    assert told[:2] == (0, None)
    assert told[2] > 0


def test_each_value_of_a_topic_says_where_it_comes_from() -> None:
    """The source is the topic, the cluster as in a new Kafka cluster (KIP-966), or the default."""

    async def story(hall: Hall) -> list[tuple[int, bool]]:
        hall.node.catalogue.create("t", 1, {"retention.ms": "1"})
        found = await described(hall, TOPIC, None)
        names = ("retention.ms", "min.insync.replicas", "segment.ms")
        return [(int(found[name].config_source), found[name].read_only) for name in names]

    assert in_hall(story) == [(DYNAMIC_TOPIC, False), (DYNAMIC_DEFAULT, False), (DEFAULT, False)]


def test_each_value_of_a_group_says_where_it_comes_from() -> None:
    """The value is the group's, the broker's from its file, or Kafka's default."""

    async def story(hall: Hall) -> dict[str, tuple[str, int]]:
        own = Settings.parse(
            {
                "group.consumer.heartbeat.interval.ms": 6_000,
                "group.consumer.session.timeout.ms": 46_000,
            }
        )
        hall.node.group_configs = GroupConfigs(hall.node.store, own)
        hall.node.group_configs.configure("t", {SESSION: "50000"}, validate_only=False)
        found = await described(hall, GROUP, None)
        return {name: (entry.value, int(entry.config_source)) for name, entry in found.items()}

    found = in_hall(story)
    assert found[SESSION] == ("50000", DYNAMIC_GROUP)
    assert found[HEARTBEAT] == ("6000", STATIC_BROKER)
    assert found["consumer.assignment.interval.ms"][1] == DEFAULT


async def edited(hall: Hall, kind: int, *changes: tuple[str, int, str | None]) -> int:
    """Change settings of "t" and return the error."""
    configs = [
        {"name": name, "config_operation": operation, "value": value}
        for name, operation, value in changes
    ]
    resource = {"resource_type": kind, "resource_name": "t", "configs": configs}
    answer = await ask(hall, EDIT, 1, resources=[resource], validate_only=False)
    return int(answer.responses[0].error_code)


def test_a_setting_may_be_named_once_in_a_change_whatever_its_values() -> None:
    """Kafka also refuses two values."""

    async def story(hall: Hall) -> tuple[int, dict[str, str]]:
        topic = hall.node.catalogue.create("t", 1, {})
        error = await edited(hall, TOPIC, ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
        return error, topic.configs

    assert in_hall(story) == (INVALID_REQUEST, {})


def test_only_an_unset_needs_no_value() -> None:
    """Groups and topics have the same rule."""

    async def story(hall: Hall) -> tuple[list[int], dict[str, str]]:
        topic = hall.node.catalogue.create("t", 1, {"retention.ms": "1"})
        hall.node.group_configs.configure("t", {SESSION: "50000"}, validate_only=False)
        errors = [
            await edited(hall, kind, (name, operation, None))
            for kind, name in ((TOPIC, "retention.ms"), (GROUP, SESSION))
            for operation in (SET, UNSET)
        ]
        return errors, topic.configs

    assert in_hall(story) == ([INVALID_REQUEST, 0, INVALID_REQUEST, 0], {})


def test_a_value_that_is_appended_again_stays_once() -> None:
    """Scripts may append a value again."""

    async def story(hall: Hall) -> str:
        topic = hall.node.catalogue.create("t", 1, {"cleanup.policy": "delete"})
        for value in ("delete", "compact", "compact,delete"):
            assert await edited(hall, TOPIC, ("cleanup.policy", APPEND, value)) == 0
        return topic.configs["cleanup.policy"]

    assert in_hall(story) == "delete,compact"


@pytest.mark.parametrize(
    ("value", "left"), [("delete", "compact"), ("delete,compact", ""), ("compact,delete", "")]
)
def test_each_of_the_subtracted_values_goes(value: str, left: str) -> None:
    """The order does not matter."""

    async def story(hall: Hall) -> str:
        topic = hall.node.catalogue.create("t", 1, {"cleanup.policy": "compact,delete"})
        assert await edited(hall, TOPIC, ("cleanup.policy", SUBTRACT, value)) == 0
        return topic.configs["cleanup.policy"]

    assert in_hall(story) == left


@pytest.mark.parametrize("way", [APPEND, SUBTRACT])
@pytest.mark.parametrize(
    ("name", "value"), [("retention.ms", "604800000"), ("message.timestamp.type", "CreateTime")]
)
def test_only_a_list_is_edited(way: int, name: str, value: str) -> None:
    """The change is refused even with a valid result; the topic keeps its default."""

    async def story(hall: Hall) -> tuple[int, dict[str, str]]:
        topic = hall.node.catalogue.create("t", 1, {})
        return await edited(hall, TOPIC, (name, way, value)), dict(topic.configs)

    assert in_hall(story) == (INVALID_CONFIG, {})


def test_version_0_of_the_list_knows_client_metrics_alone() -> None:
    """KIP-1142 added the kinds; before, the request was ListClientMetricsResources."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 1, {})
        found = []
        for version, more in (
            (0, {}),
            (1, {"resource_types": ()}),
            (1, {"resource_types": (TOPIC,)}),
        ):
            answer = await ask(hall, LIST, version, **more)
            found.append(len(answer.config_resources))
        return found

    nothing, everything, topics = in_hall(story)
    assert (nothing, topics) == (0, 1)
    assert everything > topics


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("retention.ms", "7000", 0),
        ("retention.ms", "7_000", INVALID_CONFIG),
        ("min.cleanable.dirty.ratio", "0.5", 0),
        ("min.cleanable.dirty.ratio", "0_1", INVALID_CONFIG),
        ("preallocate", " TRUE", 0),
        ("preallocate", "yes", INVALID_CONFIG),
    ],
)
def test_values_of_topics_are_written_as_in_java(name: str, value: str, error: int) -> None:
    """Python accepts underscores in numbers, and Java accepts any case of a boolean."""

    async def story(hall: Hall) -> int:
        hall.node.catalogue.create("t", 1, {})
        return await edited(hall, TOPIC, (name, SET, value))

    assert in_hall(story) == error


def test_a_number_of_a_group_has_no_underscores_and_a_boolean_is_shown_in_lower_case() -> None:
    """Kafka has the same rules."""

    async def story(hall: Hall) -> tuple[int, list[str]]:
        hall.node.catalogue.create("t", 1, {"preallocate": " TRUE"})
        error = await edited(hall, GROUP, (SESSION, SET, "50_000"))
        found = await described(hall, TOPIC, None)
        return error, [found[name].value for name in ("preallocate", "message.timestamp.type")]

    assert in_hall(story) == (INVALID_CONFIG, ["true", "CreateTime"])


def test_a_topic_and_a_group_of_one_name_are_changed_in_one_request() -> None:
    """Only a second entry of the same type and name is a repetition."""

    async def story(hall: Hall) -> list[int]:
        hall.node.catalogue.create("t", 1, {})
        resources = [
            {
                "resource_type": kind,
                "resource_name": "t",
                "configs": [{"name": name, "config_operation": SET, "value": "50000"}],
            }
            for kind, name in ((TOPIC, "retention.ms"), (GROUP, SESSION))
        ]
        answer = await ask(hall, EDIT, 1, resources=resources, validate_only=False)
        topic = hall.node.catalogue.get("t")
        assert topic is not None
        assert topic.configs == {"retention.ms": "50000"}
        assert hall.node.group_configs.explicit("t") == {SESSION: "50000"}
        return [int(one.error_code) for one in answer.responses]

    assert in_hall(story) == [0, 0]


@pytest.mark.parametrize(
    ("name", "error"),
    [("", 0), ("1", 0), ("01", INVALID_REQUEST), ("2", INVALID_REQUEST), ("x", INVALID_REQUEST)],
)
def test_the_broker_is_described_by_its_own_id_or_without_a_name(name: str, error: int) -> None:
    """The node id is 1; the name is a text."""

    async def story(hall: Hall) -> tuple[int, bool]:
        resource = {"resource_type": BROKER, "resource_name": name, "configuration_keys": None}
        (result,) = (await ask(hall, DESCRIBE, 4, resources=[resource])).results
        return int(result.error_code), bool(result.configs)

    assert in_hall(story) == (error, not error)
