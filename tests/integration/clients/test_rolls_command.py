"""``faust-assigner groups rolls``: the state of a group's members, as the broker returns it."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from faust_assigner.cli import main
from faust_assigner.wire.join import JoinData, encode_join


class Ours(RoundRobinPartitionAssignor):  # type: ignore[misc]
    """An assignor under Faust's name with a cooperative worker's metadata."""

    name = "faust"

    @classmethod
    def metadata(cls, topics: Any) -> Any:
        """Return metadata with our user data."""
        said = encode_join(JoinData("http://a", {}, cooperative=True), sorted(topics))
        return ConsumerProtocolMemberMetadata(0, sorted(topics), said)


@pytest.fixture(
    params=["embedded", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.kafka])]
)
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of the broker."""
    server: Any = request.getfixturevalue(
        "embedded_broker" if request.param == "embedded" else "kafka"
    )
    address: str = server.bootstrap
    return address


async def asked(bootstrap: str, group: str, topic: str) -> Any:
    """Return the command's output with a member in the group, and after the member has left."""
    one = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id="shop",
        partition_assignment_strategy=[Ours],
    )
    one.subscribe([topic])
    await one.start()
    try:
        async with asyncio.timeout(60.0):
            while not one.assignment():
                await asyncio.sleep(0.05)
        said = [
            await asyncio.to_thread(command, group, bootstrap, *more) for more in ((), ("--json",))
        ]
    finally:
        await one.stop()
    return said, await asyncio.to_thread(command, group, bootstrap)


def command(group: str, bootstrap: str, *more: str) -> Any:
    """Run the command."""
    return CliRunner().invoke(main, ["groups", "rolls", group, "--bootstrap", bootstrap, *more])


@pytest.mark.timeout(120)
def test_a_group_is_told_which_roll_comes_next(bootstrap: str) -> None:
    """The last round's protocol and the members' kinds decide; an empty group is an error."""
    name = uuid.uuid4().hex[:8]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(f"orders-{name}", 2, 1)])[f"orders-{name}"].result(30)
    (plain, as_json), gone = asyncio.run(asked(bootstrap, f"shop-{name}", f"orders-{name}"))
    assert plain.exit_code == 0, plain.output
    assert (
        "the last round: faust\nrebalances are cooperative from the next one on\nback to"
        in plain.output
    )
    found = json.loads(as_json.output)
    assert [(worker["client_id"], worker["kind"]) for worker in found["workers"]] == [
        ("shop", "cooperative")
    ]
    assert gone.exit_code != 0
