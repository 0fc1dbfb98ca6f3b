"""Reads the partition counts of topics from Kafka."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import UnknownTopicOrPartitionError, for_code

from faust_assigner.service.errors import StoreUnavailable

log = logging.getLogger(__name__)


class KafkaTopics:
    """Reads Kafka's metadata; connects at the first request, and again after a failure."""

    def __init__(self, bootstrap: str, *, timeout_s: float = 10.0) -> None:
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._client: Any = None
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
        # List all topics first: a request for one topic by its name may create the topic.
        if topic not in await self._client.list_topics():
            return None
        found = await self._client.describe_topics([topic])
        one = next((one for one in found if one["topic"] == topic), None)
        if one is None or one["error_code"] == UnknownTopicOrPartitionError.errno:
            return None
        if one["error_code"]:
            # The topic exists. If it counted as deleted, its owners would lose all its partitions.
            raise for_code(one["error_code"])
        return len(one["partitions"])

    async def close(self) -> None:
        """Close the connection."""
        async with self._turn:
            await self._drop()

    async def _drop(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()
