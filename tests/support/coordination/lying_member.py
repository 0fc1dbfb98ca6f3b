"""A member of a group of Faust workers with false claims, which joins again and again."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.protocol.group import JoinGroupRequest

from faust_assigner.wire.join import COOPERATIVE, EAGER, JoinData, encode_join

#: A generation that no group reaches.
GENERATION = 2_000_000_000


class FalseClaims(AbstractPartitionAssignor):  # type: ignore[misc]
    """Claims to process all partitions, of a later generation with each join."""

    name = EAGER
    version = 4

    def __init__(self, topics: Mapping[str, int]) -> None:
        self._topics, self.joins = topics, 0

    def metadata(self, topics: object) -> ConsumerProtocolMemberMetadata:
        """Return the false claims."""
        self.joins += 1
        data = JoinData(
            "http://127.0.0.1:1",
            {topic: range(count) for topic, count in self._topics.items()},
            generation=GENERATION + self.joins,
            holds=True,
            cooperative=True,
        )
        names = sorted(self._topics)
        return ConsumerProtocolMemberMetadata(self.version, names, encode_join(data, names))

    def assign(self, cluster: object, members: object) -> Any:
        """Refuse to lead; an honest worker leads."""
        raise NotImplementedError

    def on_assignment(self, assignment: object) -> None:
        """Ignore the assignment."""


@contextlib.contextmanager
def lying_member(
    bootstrap: str, group_id: str, topics: Mapping[str, int], every_s: float
) -> Iterator[FalseClaims]:
    """Let the member join every ``every_s`` seconds, from a thread of its own."""
    claims, ended = FalseClaims(topics), threading.Event()
    thread = threading.Thread(
        target=lambda: asyncio.run(_lie(bootstrap, group_id, claims, every_s, ended))
    )
    thread.start()
    try:
        yield claims
    finally:
        ended.set()
        thread.join(60)


async def _lie(
    bootstrap: str, group_id: str, claims: FalseClaims, every_s: float, ended: threading.Event
) -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group_id,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=[claims],
        enable_auto_commit=False,
    )
    await consumer.start()
    coordinator = consumer._coordinator
    send = coordinator._send_req

    async def send_with_both_names(request: Any) -> Any:
        if isinstance(request, JoinGroupRequest):
            said = request._group_protocols[0][1]
            request._group_protocols = [(name, said) for name in (COOPERATIVE, EAGER)]
        return await send(request)

    coordinator._send_req = send_with_both_names
    coordinator._lookup_assignor = lambda name: claims
    consumer.subscribe(sorted(claims._topics))
    loop = asyncio.get_running_loop()
    due = loop.time()
    while not ended.is_set():
        await asyncio.sleep(0.1)
        if loop.time() - due > every_s:
            due = loop.time()
            coordinator.request_rejoin()
    await consumer.stop()
