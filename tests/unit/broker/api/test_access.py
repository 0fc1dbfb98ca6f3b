"""Rights within a request: refused elements, requests refused as a whole, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from faust_assigner.broker.api import access
from faust_assigner.broker.security.acls import (
    ALLOW,
    ALTER,
    CLUSTER,
    CLUSTER_ACTION,
    CREATE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    GROUP,
    LITERAL,
    READ,
    THE_CLUSTER,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    Acl,
    Acls,
)
from faust_assigner.broker.security.authorizer import ANONYMOUS, Authorizer
from faust_assigner.broker.storage.records import TRANSACTIONAL
from faust_assigner.broker.wire import decode_request, read_header
from tests.support.asking import ask, to_topic
from tests.support.clients.raw_client import batch, request_frame
from tests.support.hall import Hall, in_hall

Right = tuple[int, int, str]


class Asked:
    """A request of a peer with these rights; the handler returns ``answer``."""

    def __init__(self, key: int, version: int, values: dict[str, Any], *rights: Right) -> None:
        frame = request_frame(key, version, 7, values)[4:]
        body = read_header(frame).body
        self.request = decode_request(key, version, frame, body)
        self.handled: list[Any] = []
        self.turns = self.in_thread = 0
        self.answer: Callable[[Any], Any] = lambda request: {}
        topics = SimpleNamespace(by_id=lambda topic_id: None)
        self.call = SimpleNamespace(
            version=version,
            may=lambda operation, kind, name: (operation, kind, name) in rights,
            node=SimpleNamespace(authorizer=object(), catalogue=topics, crunch=self._crunch),
            throttle=SimpleNamespace(checkpoint=self._turn),
        )
        self.api = SimpleNamespace(key=key, handle=self._handle)

    async def _turn(self) -> None:
        self.turns += 1

    async def _crunch(self, work: Callable[[], Any]) -> Any:
        self.in_thread += 1
        return work()

    def _handle(self, call: Any, request: Any) -> Any:
        self.handled.append(request)
        return self.answer(request)

    async def outcome(self) -> Any:
        """Return the answer."""
        return await access.handle(cast(Any, self.api), cast(Any, self.call), self.request)


def commit(*rights: Right) -> Asked:
    """Return a commit of three topics; the handler accepts all its topics."""
    topics = [
        {"name": name, "partitions": [{"partition_index": 3, "committed_offset": 9}]}
        for name in "abc"
    ]
    made = Asked(8, 8, {"group_id": "g", "member_id": "m", "topics": topics}, *rights)
    made.answer = lambda request: {"topics": [{"name": topic.name} for topic in request.topics]}
    return made


async def test_elements_without_the_right_are_refused_and_the_others_handled() -> None:
    """The answer has refused and accepted topics; the loop runs between the elements."""
    asked = commit((READ, GROUP, "g"), (READ, TOPIC, "b"))
    found = await asked.outcome()
    assert [topic.name for topic in asked.handled[0].topics] == ["b"]
    assert found["topics"][0] == {"name": "b"}
    assert [topic["name"] for topic in found["topics"]] == ["b", "a", "c"]
    refused = found["topics"][1]["partitions"]
    assert [(one["partition_index"], one["error_code"]) for one in refused] == [
        (3, ErrorCode.topic_authorization_failed)
    ]
    assert (asked.turns, asked.in_thread) == (3, 0)


async def test_a_request_whose_group_is_refused_is_not_handled() -> None:
    """Each element has the group's error."""
    asked = commit(*((READ, TOPIC, name) for name in "abc"))
    found = await asked.outcome()
    assert asked.handled == []
    errors = [one["error_code"] for topic in found["topics"] for one in topic["partitions"]]
    assert errors == [ErrorCode.group_authorization_failed] * 3
    assert asked.in_thread == 0, "a client that has closed its sending side still gets the answer"


@pytest.mark.parametrize(("partitions", "threads"), [(499, 0), (500, 1)])
@pytest.mark.parametrize("rights", [(), ((READ, GROUP, "g"),)])
async def test_a_long_refusal_is_made_in_a_thread(
    partitions: int, threads: int, rights: tuple[Right, ...]
) -> None:
    """250,000 elements would keep other clients waiting, of the whole request or of some topics."""
    numbers = [{"partition_index": n, "committed_offset": 9} for n in range(partitions)]
    topics = [{"name": "a", "partitions": numbers}]
    asked = Asked(8, 8, {"group_id": "g", "member_id": "m", "topics": topics}, *rights)
    asked.answer = lambda request: {"topics": []}
    found = await asked.outcome()
    assert len(found["topics"][0]["partitions"]) == partitions
    assert asked.in_thread == threads


async def test_an_error_of_the_whole_answer_leaves_no_elements() -> None:
    """Kafka's answer also has only the error."""
    asked = commit((READ, GROUP, "g"), (READ, TOPIC, "b"))
    error = {"error_code": ErrorCode.coordinator_load_in_progress}
    asked.answer = lambda request: error
    assert await asked.outcome() == error


@pytest.mark.parametrize("kind", ["coroutine", "future", "value"])
async def test_the_handler_may_answer_later(kind: str) -> None:
    """The handler may return a coroutine or a future."""
    asked = commit((READ, GROUP, "g"), *((READ, TOPIC, name) for name in "abc"))
    future = asyncio.get_running_loop().create_future()
    future.set_result({"topics": []})

    async def later() -> Any:
        return await future

    answers = {"coroutine": later, "future": lambda: future, "value": future.result}
    asked.answer = lambda request: answers[kind]()
    assert await asked.outcome() == {"topics": []}
    assert asked.handled == [asked.request]


async def test_the_right_on_the_cluster_is_enough_where_kafka_says_so() -> None:
    """The right covers the creation of topics but not of partitions."""
    topic = {"name": "t", "num_partitions": 1, "replication_factor": 1}
    everywhere = (CREATE, CLUSTER, THE_CLUSTER)
    asked = Asked(19, 5, {"topics": [topic]}, everywhere)
    await asked.outcome()
    assert [one.name for one in asked.handled[0].topics] == ["t"]
    asked = Asked(19, 5, {"topics": [topic]})
    found = await asked.outcome()
    assert [(one["name"], one["error_code"]) for one in found["topics"]] == [
        ("t", ErrorCode.topic_authorization_failed)
    ]
    asked = Asked(37, 1, {"topics": [{"name": "t", "count": 3}]}, everywhere)
    assert (await asked.outcome())["results"][0]["name"] == "t"


async def test_each_kind_of_a_configured_resource_has_its_own_error() -> None:
    """The error for a broker's settings is the cluster's error."""
    resources = [
        {"resource_type": kind, "resource_name": name}
        for kind, name in ((2, "t"), (32, "g"), (4, "0"), (2, "mine"))
    ]
    asked = Asked(32, 1, {"resources": resources}, (DESCRIBE_CONFIGS, TOPIC, "mine"))
    asked.answer = lambda request: {"results": [{"resource_name": "mine"}]}
    found = (await asked.outcome())["results"]
    assert [one["resource_name"] for one in found] == ["mine", "t", "g", "0"]
    assert [one["error_code"] for one in found[1:]] == [
        ErrorCode.topic_authorization_failed,
        ErrorCode.group_authorization_failed,
        ErrorCode.cluster_authorization_failed,
    ]
    asked = Asked(32, 1, {"resources": resources[2:3]}, (DESCRIBE_CONFIGS, CLUSTER, THE_CLUSTER))
    await asked.outcome()
    assert len(asked.handled[0].resources) == 1


async def test_a_few_requests_are_refused_at_the_top_and_in_each_element() -> None:
    """Kafka also does so for elections, reassignments and descriptions of users."""
    topics = [{"topic": "t", "partitions": (0, 1)}]
    asked = Asked(43, 1, {"election_type": 0, "topic_partitions": topics, "timeout_ms": 1})
    found = await asked.outcome()
    assert asked.handled == []
    assert found["error_code"] == ErrorCode.cluster_authorization_failed
    (topic,) = found["replica_election_results"]
    assert [one["partition_id"] for one in topic["partition_result"]] == [0, 1]
    allowed = Asked(
        43,
        1,
        {"election_type": 0, "topic_partitions": topics, "timeout_ms": 1},
        (ALTER, CLUSTER, THE_CLUSTER),
    )
    await allowed.outcome()
    assert len(allowed.handled) == 1


async def test_groups_of_a_list_are_refused_by_their_names() -> None:
    """The elements of the list are texts."""
    asked = Asked(15, 5, {"groups": ("g", "h")}, (DESCRIBE, GROUP, "h"))
    found = await asked.outcome()
    assert asked.handled[0].groups == ("h",)
    assert [(one["group_id"], one["error_code"]) for one in found["groups"]] == [
        ("g", ErrorCode.group_authorization_failed)
    ]


def test_a_topic_is_found_by_either_name_and_an_unknown_id_has_none() -> None:
    """The handler answers an unknown id with its own error."""
    asked = commit()
    right = access.Right(READ, TOPIC, each="topics")

    def resource(**fields: Any) -> Any:
        return access._resource(cast(Any, asked.call), right, SimpleNamespace(**fields))

    assert resource(name="a") == resource(topic="a") == (TOPIC, "a")
    assert resource(name=None, topic_id=uuid4()) == (TOPIC, None)
    asked.call.node.catalogue.by_id = lambda topic_id: SimpleNamespace(name="b")
    assert resource(name=None, topic_id=uuid4()) == (TOPIC, "b")


async def test_an_element_of_an_unknown_id_goes_to_the_handler() -> None:
    """No rule names an unknown id."""
    asked = commit()
    element = SimpleNamespace(name=None, topic_id=uuid4())
    request = SimpleNamespace(topics=(element,))
    right = access.Right(READ, TOPIC, each="topics")
    refused: dict[str, list[Any]] = {}
    api, call = cast(Any, asked.api), cast(Any, asked.call)
    assert await access._filter_elements(api, call, request, right, refused) is request
    assert refused == {}


def test_a_request_without_a_name_needs_no_right_on_one() -> None:
    """A producer without a transactional id is an example."""
    asked = commit()
    right = access.Right(READ, GROUP, "group_id")
    call = cast(Any, asked.call)
    assert access._may_perform(call, SimpleNamespace(group_id=None), right)
    assert not access._may_perform(call, SimpleNamespace(group_id="g"), right)


@pytest.mark.parametrize(
    ("operation", "handled"), [(CLUSTER_ACTION, ["t"]), (DESCRIBE, []), (CREATE, [])]
)
async def test_another_right_on_the_cluster_is_not_enough(
    operation: int, handled: list[str]
) -> None:
    """OffsetForLeaderEpoch needs CLUSTER_ACTION on the cluster, or DESCRIBE on the topic."""
    parts = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
    topics = [{"topic": "t", "partitions": parts}]
    right = (operation, CLUSTER, THE_CLUSTER)
    asked = Asked(23, 3, {"replica_id": -1, "topics": topics}, right)
    await asked.outcome()
    assert [one.topic for one in asked.handled[0].topics] == handled


def allow(kind: int, name: str, operation: int) -> Acl:
    """Return a rule for clients without a log-in."""
    return Acl(kind, name, LITERAL, ANONYMOUS, "*", operation, ALLOW)


@pytest.mark.parametrize(
    ("rule", "error"), [(None, ErrorCode.transactional_id_authorization_failed), (WRITE, None)]
)
def test_a_transactional_batch_needs_a_right_on_its_transactional_id(
    rule: int | None, error: ErrorCode | None
) -> None:
    """Rights on the topic are not enough."""

    async def story(hall: Hall) -> int:
        hall.node.catalogue.create("t", 1, {})
        rules = Acls(hall.node.store)
        rules.add(
            [allow(TOPIC, "t", WRITE), *([allow(TRANSACTIONAL_ID, "tx", rule)] if rule else [])]
        )
        hall.node.authorizer = Authorizer(rules, frozenset())
        data = batch(producer_id=1, epoch=0, sequence=0, attributes=TRANSACTIONAL)
        answer = await ask(hall, 0, 9, **to_topic(data), transactional_id="tx")
        return int(answer.responses[0].partition_responses[0].error_code)

    expected = error or ErrorCode.invalid_producer_id_mapping  # no producer began under "tx"
    assert in_hall(story) == expected


def test_a_barred_partition_keeps_the_others_out_of_the_transaction() -> None:
    """AddPartitionsToTxn adds all partitions or none; the answer names the refused partition."""

    async def story(hall: Hall) -> dict[str, int]:
        for name in ("t", "u"):
            hall.node.catalogue.create(name, 1, {})
        rules = Acls(hall.node.store)
        rules.add([allow(TOPIC, "t", WRITE), allow(TRANSACTIONAL_ID, "tx", WRITE)])
        hall.node.authorizer = Authorizer(rules, frozenset())
        answer = await ask(
            hall, 24, 3, v3_and_below_transactional_id="tx", v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[{"name": name, "partitions": (0,)} for name in ("t", "u")],
        )  # fmt: skip
        return {
            one.name: int(one.results_by_partition[0].partition_error_code)
            for one in answer.results_by_topic_v3_and_below
        }

    barred = {"u": ErrorCode.topic_authorization_failed, "t": ErrorCode.operation_not_attempted}
    assert in_hall(story) == barred
