"""Reads the partition counts of topics from Kafka."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.metadata import MetadataRequest

from faust_assigner.service.errors import StoreUnavailable

log = logging.getLogger(__name__)

#: Seconds for which the counts of a list of all topics are used. The leader asks for each topic in
#: turn, and a list of its own for each of a thousand topics would keep the instance busy.
LISTED_S: Final = 1.0


class KafkaTopics:
    """Reads Kafka's metadata; connects at the first request, and again after a failure."""

    def __init__(self, bootstrap: str, *, timeout_s: float = 10.0) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._client: Any = None
        #: Topic -> (error code, partition count) in the last list, and the end of its use.
        self._listed: Mapping[str, tuple[int, int]] = {}
        self._listed_until = 0.0
        self._turn = asyncio.Lock()

    async def count(self, topic: str) -> int | None:
        """Return the topic's partition count, or None if Kafka has no such topic.

        Raises StoreUnavailable.
        """
        try:
            # The timeout includes the wait for earlier requests.
            async with asyncio.timeout(self._timeout_s), self._turn:
                return await self._connected(topic)
        except Exception as error:
            raise StoreUnavailable(
                f"Kafka at {self._bootstrap} did not return the number of partitions of "
                f"{topic}: {type(error).__name__}: {error}"
            ) from error

    async def _connected(self, topic: str) -> int | None:
        try:
            return await self._count(topic)
        except BaseException:
            await self._drop()
            raise

    async def _count(self, topic: str) -> int | None:
        if self._client is None:
            client = AIOKafkaAdminClient(
                bootstrap_servers=self._bootstrap, client_id="faust-assigner"
            )
            try:
                await client.start()
            except BaseException:
                await client.close()
                raise
            self._client = client
        if topic not in self._listed or asyncio.get_running_loop().time() >= self._listed_until:
            await self._list()
        # Kafka leaves topics that this client may not describe out of a list, and names them in an
        # answer about one topic.
        found = self._listed.get(topic) or (await self._described([topic])).get(topic)
        if found is None or found[0] == UnknownTopicOrPartitionError.errno:
            return None
        error, count = found
        if error:
            # The topic may exist. If it counted as deleted, its owners would lose all its partitions.
            raise for_code(error)
        return count

    async def _list(self) -> None:
        self._listed = await self._described(None)
        self._listed_until = asyncio.get_running_loop().time() + LISTED_S

    async def _described(self, topics: list[str] | None) -> dict[str, tuple[int, int]]:
        """Return the topics, or all, with error codes and partition counts; create none of them."""
        request = MetadataRequest(topics, allow_auto_topic_creation=False)
        answer = (await self._client._send_request(request)).to_object()
        return {
            one["topic"]: (one["error_code"], len(one["partitions"])) for one in answer["topics"]
        }

    async def close(self) -> None:
        """Close the connection."""
        async with self._turn:
            await self._drop()

    async def _drop(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()
