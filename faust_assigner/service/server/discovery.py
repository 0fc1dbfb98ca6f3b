"""Reads the partition counts of topics from Kafka."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import UnknownTopicOrPartitionError, for_code

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
        found = self._listed.get(topic)
        if found is None or found[0] == UnknownTopicOrPartitionError.errno:
            return None
        error, count = found
        if error:
            # The topic exists. If it counted as deleted, its owners would lose all its partitions.
            raise for_code(error)
        return count

    async def _list(self) -> None:
        """List all topics: a request for one topic by its name may create the topic."""
        found = await self._client.describe_topics()
        self._listed = {one["topic"]: (one["error_code"], len(one["partitions"])) for one in found}
        self._listed_until = asyncio.get_running_loop().time() + LISTED_S

    async def close(self) -> None:
        """Close the connection."""
        async with self._turn:
            await self._drop()

    async def _drop(self) -> None:
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()
