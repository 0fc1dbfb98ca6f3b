"""``faust-assigner groups`` against the embedded broker and Apache Kafka, in both protocols."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from click.testing import CliRunner, Result
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from faust_assigner.broker.embedded import EmbeddedBroker
from faust_assigner.cli import main
from faust_assigner.wire.answer import AnswerWriter
from faust_assigner.wire.directory import Directory

DEADLINE_S = 60.0
BOTH = ["classic", "consumer"]


@pytest.fixture(
    params=["embedded", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.kafka])]
)
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of the broker."""
    server: Any = request.getfixturevalue(
        "embedded_broker" if request.param == "embedded" else "kafka"
    )
    bootstrap: str = server.bootstrap
    return bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic of four partitions with five records each."""
    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 4, 1)])[name].result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(name, b"v", partition=number % 4)
    assert producer.flush(30) == 0
    return name


@pytest.fixture
def consumer(bootstrap: str, topic: str) -> Iterator[Callable[[str, str], Consumer]]:
    """Make members of (group, protocol), which leave after the test."""
    made: list[Consumer] = []

    def make(group: str, protocol: str) -> Consumer:
        timeouts = {} if protocol == "consumer" else {"session.timeout.ms": 6000}
        one = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "client.id": f"client-{len(made)}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **timeouts,
            }
        )
        one.subscribe([topic])
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


def groups(*arguments: str) -> Result:
    """Run the command; assert exit code 0."""
    done = CliRunner().invoke(main, ["groups", *arguments])
    assert done.exit_code == 0, done.output
    return done


def read_all(*consumers: Consumer) -> None:
    """Poll until the consumers share the four partitions and twenty records are read."""
    read, end = 0, time.monotonic() + DEADLINE_S
    while read < 20 or any(len(one.assignment()) != 4 // len(consumers) for one in consumers):
        assert time.monotonic() < end, f"{read} read, {[one.assignment() for one in consumers]}"
        for one in consumers:
            message = one.poll(0.05)
            read += message is not None and message.error() is None


@pytest.mark.parametrize("protocol", BOTH)
def test_a_group_is_listed_and_described(
    bootstrap: str, topic: str, consumer: Callable[[str, str], Consumer], protocol: str
) -> None:
    """Type and state in the list; members, owners, offsets and lag in the description."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    one = consumer(group, protocol)
    read_all(one)
    one.commit(asynchronous=False)
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"late", partition=2)
    assert producer.flush(30) == 0

    listed = json.loads(groups("list", "--bootstrap", bootstrap, "--json").stdout)
    assert {
        "group_id": group,
        "group_type": protocol,
        "protocol_type": "consumer",
        "state": "Stable",
    } in listed

    told = json.loads(groups("describe", group, "--bootstrap", bootstrap, "--json").stdout)
    assert (told["group_type"], told["state"]) == (protocol, "Stable")
    (member,) = told["members"]
    assert member["client_id"] == "client-0"
    assert member["owned"] == [[topic, number] for number in range(4)]
    assert member["pending"] == member["revoking"] == []
    assert [(row["committed"], row["lag"]) for row in told["partitions"]] == [
        (5, 0),
        (5, 0),
        (5, 1),
        (5, 0),
    ]
    if protocol == "consumer":
        assert told["epoch"] >= 1
        assert told["target_epoch"] == member["epoch"] == told["epoch"]

    shown = groups("describe", group, "--bootstrap", bootstrap).stdout
    assert f"group {group}: {protocol} consumer, Stable, 1 members" in shown
    assert f"{topic} 0-3" in shown
    assert "total lag 1, of 4 of 4 partitions" in shown


class Crosswise(RoundRobinPartitionAssignor):  # type: ignore[misc]
    """An assignor for two Faust workers: each has two actives and standbys of the other two."""

    name = "faust"

    @classmethod
    def assign(cls, cluster: Any, members: Any) -> Any:
        """Assign 0 and 1 to the first id, 2 and 3 to the other; report all four to both."""
        (topic,) = {t for said in members.values() for t in said.subscription}
        writer = AnswerWriter(Directory(), {topic: 0}, generation=1, is_uniform=True)
        return {
            member_id: ConsumerProtocolMemberAssignment(
                0,
                [(topic, [0, 1, 2, 3])],
                writer.for_ours(
                    {topic: [2 * n, 2 * n + 1]}, {topic: [2 - 2 * n, 3 - 2 * n]}, "http://a"
                ),
            )
            for n, member_id in enumerate(sorted(members))
        }


async def described_pair(bootstrap: str, group: str, topic: str) -> Any:
    """Return the command's output for two such members: as JSON and as text."""
    pair = [
        AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, partition_assignment_strategy=[Crosswise]
        )
        for _ in range(2)
    ]
    try:
        for one in pair:
            one.subscribe([topic])
            await one.start()
        async with asyncio.timeout(DEADLINE_S):
            while True:
                how = ("describe", group, "--bootstrap", bootstrap)
                told = json.loads((await asyncio.to_thread(groups, *how, "--json")).stdout)
                if told["state"] == "Stable" and len(told["members"]) == 2:
                    return told, (await asyncio.to_thread(groups, *how)).stdout
                await asyncio.sleep(0.05)
    finally:
        for one in pair:
            await one.stop()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_owner_of_a_partition_is_its_active_and_no_standby(bootstrap: str, topic: str) -> None:
    """Both members report every partition; the first id owns 0 and 1, the other one 2 and 3."""
    told, shown = asyncio.run(described_pair(bootstrap, f"g-{uuid.uuid4().hex[:8]}", topic))
    first, second = (member["member_id"] for member in told["members"])
    assert [row["owner"] for row in told["partitions"]] == [first, first, second, second]
    assert [sorted(n for _, n in member["standbys"]) for member in told["members"]] == [
        [2, 3],
        [0, 1],
    ]
    assert "standby" in shown


@pytest.mark.slow
def test_a_group_without_members_keeps_its_offsets(
    bootstrap: str, topic: str, consumer: Callable[[str, str], Consumer]
) -> None:
    """The group is Empty, and its lag is still counted."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    one = consumer(group, "classic")
    read_all(one)
    one.commit(asynchronous=False)
    one.unsubscribe()
    end = time.monotonic() + DEADLINE_S
    describe = ("describe", group, "--bootstrap", bootstrap, "--json")
    while (told := json.loads(groups(*describe).stdout))["members"]:
        assert time.monotonic() < end, told
    assert (told["state"], told["members"]) == ("Empty", [])
    assert [row["owner"] for row in told["partitions"]] == [None] * 4


def test_a_group_that_is_not_there_is_an_error(bootstrap: str) -> None:
    """The command prints one line and exits with 1."""
    done = CliRunner().invoke(main, ["groups", "describe", "nobody", "--bootstrap", bootstrap])
    assert done.exit_code == 1
    assert "no group 'nobody'" in done.output


def test_a_cluster_that_is_not_there_may_be_asked_again() -> None:
    """Exit code 75 means that a retry may help."""
    done = CliRunner().invoke(main, ["groups", "list", "--bootstrap", "127.0.0.1:1"])
    assert done.exit_code == 75
    assert done.output.count("\n") <= 2


def test_a_static_member_that_stopped_is_retired(
    bootstrap: str, topic: str, consumer: Callable[[str, str], Consumer]
) -> None:
    """The group removes it at once, not after its session; an unknown name is an error."""
    group = f"g-{uuid.uuid4().hex[:8]}"
    one = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.instance.id": "w1",
            "session.timeout.ms": 60_000,
            "auto.offset.reset": "earliest",
        }
    )
    one.subscribe([topic])
    read_all(one)
    one.close()
    describe = ("describe", group, "--bootstrap", bootstrap, "--json")
    (member,) = json.loads(groups(*describe).stdout)["members"]
    assert member["instance_id"] == "w1"
    retired = groups("retire", group, "--instance-id", "w1", "--bootstrap", bootstrap)
    assert retired.stdout == "w1: removed\n"
    assert json.loads(groups(*describe).stdout)["members"] == []
    again = CliRunner().invoke(
        main, ["groups", "retire", group, "--instance-id", "w1", "--bootstrap", bootstrap]
    )
    absent = "the group has no member with this instance id: UnknownMemberIdError"
    assert (again.exit_code, again.stdout) == (1, f"w1: not removed, {absent}\n")


def test_a_refused_login_is_reported_with_the_brokers_reason(tmp_path: Path) -> None:
    """The line names the broker and its reason, and a scheduler need not try again."""
    users, client = tmp_path / "users", tmp_path / "client.properties"
    users.write_text("alice=a long password\n")
    users.chmod(0o600)
    client.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="wrong";\n'
    )
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.users.file": str(users),
        "sasl.plain.without.tls": "true",
    }
    with EmbeddedBroker(settings=settings) as broker:
        reach = ["--bootstrap", broker.bootstrap, "--config", str(client)]
        done = CliRunner().invoke(main, ["status", "--group", "shop", *reach])
    refused = (
        f"{broker.bootstrap} refused the login or the TLS connection: SaslAuthenticationFailed"
    )
    assert (done.exit_code, refused in done.stderr) == (1, True), done.output
