"""A failed request is answered to its sender and has no effect on other clients."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from faust_assigner.broker import EmbeddedBroker, api, limits
from faust_assigner.broker.answers import encode_response
from faust_assigner.broker.api.refusals import refuse
from faust_assigner.broker.rate_limited_log import LINES_PER_INTERVAL
from faust_assigner.testing.broker import broker_process
from tests.support.clients.raw_client import RawClient, request_frame

JOIN_GROUP, HEARTBEAT, LIST_GROUPS, DESCRIBE_GROUPS, METADATA = 11, 12, 16, 15, 3
VERSIONS = {a.key: range(a.low, a.high + 1) for a in api.APIS.values()}


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """A broker with a topic."""
    with EmbeddedBroker() as running:
        running.call(lambda node: node.catalogue.create("t", 1, {}))
        yield running


def errors_in(message: Any) -> set[int]:
    """Return every error code in an answer, at any depth."""
    found: set[int] = set()
    for item in fields(message):
        value = getattr(message, item.name)
        if item.name == "error_code":
            found.add(int(value))
        elif isinstance(value, tuple):
            found |= {
                code for v in value if hasattr(v, "__dataclass_fields__") for code in errors_in(v)
            }
    return found


@pytest.mark.parametrize("key", VERSIONS)
def test_every_api_can_say_that_something_went_wrong_in_every_version(key: int) -> None:
    """This holds for a request that the broker could not parse, too."""
    for version in VERSIONS[key]:
        refused = refuse(key, version, None, ErrorCode.invalid_request)
        assert struct.pack(">h", 42) in encode_response(key, version, refused)[8:], version


def test_a_fault_of_ours_is_an_answer_and_keeps_the_connection(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """UNKNOWN_SERVER_ERROR for each topic; the connection's next request is served."""

    def broken(call: object, request: object) -> None:
        raise ZeroDivisionError("a fault")

    apis = dict(api.APIS)
    sound = apis[2]
    monkeypatch.setitem(api.APIS, 2, replace(sound, handle=broken))  # type: ignore[arg-type]
    with RawClient(broker.bootstrap) as client:
        topics = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        assert errors_in(client.call(2, 5, topics=topics)) == {-1}
        assert [t.name for t in client.call(METADATA, 12, topics=None).topics] == ["t"]
    assert broker.call(lambda node: node.counters["requests_failed"]) == 1


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (10, 4, b"\0" + b"\0" + b"\0" + b"\0"),
        (2, 5, struct.pack(">ibi", -1, 0, -1)),
        (15, 4, struct.pack(">ib", -1, 0)),
        (19, 4, struct.pack(">iib", -1, 1000, 0)),
        (42, 1, struct.pack(">i", -1)),
        (
            11,
            5,
            b"\0\1g"
            + struct.pack(">ii", 10_000, 10_000)
            + b"\0\0\xff\xff\0\1c"
            + struct.pack(">i", -1),
        ),
        (13, 3, b"\0\1g" + struct.pack(">i", -1)),
        (14, 3, b"\0\1g" + struct.pack(">i", 1) + b"\0\1m\xff\xff" + struct.pack(">i", -1)),
    ],
)
def test_null_where_a_list_belongs_is_an_invalid_request(
    broker: EmbeddedBroker, key: int, version: int, body: bytes
) -> None:
    """The answer is INVALID_REQUEST, and the connection stays open."""
    with RawClient(broker.bootstrap) as client:
        frame = struct.pack(">hhih", key, version, 1, 3) + b"raw" + body
        client.socket.sendall(struct.pack(">i", len(frame)) + frame)
        assert errors_in(client.receive(key, version)) == {42}
        assert [t.name for t in client.call(METADATA, 12, topics=None).topics] == ["t"]


@pytest.mark.parametrize("field", ["group_instance_id", "protocol_type", "client_id", "member_id"])
def test_a_string_no_old_answer_could_carry_is_refused_at_once(
    broker: EmbeddedBroker, field: str
) -> None:
    """Over 32,767 bytes the string would break each answer of the group, the leader's too."""
    too_long = "x" * 32_768
    values: dict[str, Any] = {
        "group_id": "g",
        "session_timeout": datetime.timedelta(seconds=10),
        "rebalance_timeout": datetime.timedelta(seconds=1),
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    if field != "client_id":
        values[field] = too_long
    frame = request_frame(JOIN_GROUP, 7, 1, values)
    if field == "client_id":
        frame = frame[:12] + struct.pack(">H", 32_768) + too_long.encode() + frame[17:]
        frame = struct.pack(">i", len(frame) - 4) + frame[4:]
    with RawClient(broker.bootstrap) as poisoner:
        poisoner.socket.sendall(frame)
        assert poisoner.is_closed()
    with RawClient(broker.bootstrap) as other:
        assert other.call(LIST_GROUPS, 2).groups == ()
        assert other.call(DESCRIBE_GROUPS, 0, groups=("g",)).groups[0].error_code == 0


def test_ids_of_one_connection_do_not_lock_everybody_out(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Abandoned groups make room; a peer creates at most as many groups as it leaves free."""
    monkeypatch.setattr(limits, "MAX_GROUPS", 40)
    with RawClient(broker.bootstrap) as flood:
        codes = [join(flood, f"fresh-{n}") for n in range(60)]
        assert set(codes) == {79, 81}, "MEMBER_ID_REQUIRED, then GROUP_MAX_SIZE_REACHED"
        with RawClient(broker.bootstrap) as other:
            assert join(other, "mine") == 79
    floods = [RawClient(broker.bootstrap) for _ in range(8)]
    for number, again in enumerate(floods):
        for n in range(30):
            join(again, f"more-{number}-{n}")
        again.socket.close()
    with RawClient(broker.bootstrap) as other:
        assert join(other, "mine too") == 79


def join(client: RawClient, group_id: str) -> int:
    """Send a first JoinGroup; return its error."""
    answer = client.call(
        JOIN_GROUP,
        5,
        group_id=group_id,
        session_timeout=datetime.timedelta(seconds=10),
        rebalance_timeout=datetime.timedelta(seconds=1),
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b"m"}],
    )
    return int(answer.error_code)


def test_clients_are_sent_to_the_advertised_address() -> None:
    """Without advertised.listeners a broker on all addresses returns the client's address."""
    settings = {"advertised.listeners": "PLAINTEXT://broker.example:9093"}
    for given, host, expected in (
        (settings, "127.0.0.1", ("broker.example", 9093)),
        ({}, "0.0.0.0", ("127.0.0.1", None)),
    ):
        with EmbeddedBroker(settings=given, host=host) as broker:
            port = expected[1] or broker.port
            with RawClient(f"127.0.0.1:{broker.port}") as client:
                found = client.call(METADATA, 12, topics=None).brokers[0]
                assert (found.host, found.port) == (expected[0], port)
                coordinator = client.call(10, 3, key="g")
                assert (coordinator.host, coordinator.port) == (expected[0], port)


def test_refused_frames_fill_no_log() -> None:
    """Ten lines per kind and minute, then a line that further ones are counted."""
    with broker_process(None) as broker:
        for _ in range(100):
            with RawClient(broker.bootstrap) as stranger:
                stranger.socket.sendall(struct.pack(">i", -1))
                assert stranger.is_closed()
        assert broker.stop() == 0
        lines = [
            line for line in broker.errors().splitlines() if "an invalid size of -1 bytes" in line
        ]
        assert len(lines) == LINES_PER_INTERVAL
        assert "more lines about frames_refused" in broker.errors()


def test_a_change_of_quotas_is_refused_with_its_entity(broker: EmbeddedBroker) -> None:
    """The broker enforces no quotas, so it refuses to store one."""
    entity = [{"entity_type": "user", "entity_name": "alice"}]
    ops = [{"key": "producer_byte_rate", "value": 1.0, "remove": False}]
    with RawClient(broker.bootstrap) as client:
        (entry,) = client.call(49, 1, entries=[{"entity": entity, "ops": ops}]).entries
    assert entry.error_code is ErrorCode.invalid_request
    assert "no quotas" in entry.error_message
    assert [(one.entity_type, one.entity_name) for one in entry.entity] == [("user", "alice")]
