"""The way to a group's coordinator over aiokafka's connections: found, lost, and found again."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from aiokafka import errors
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType

logger = logging.getLogger(__name__)


class CoordinatorLink:
    """One connection of its own to the coordinator of ``group_id``, wherever that is at the time.

    ``connection`` are aiokafka's keywords (``bootstrap_servers``, ``security_protocol``, ...).
    """

    def __init__(self, group_id: str, *, retry_backoff_s: float, **connection: Any) -> None:
        self._group_id = group_id
        self._backoff_s = retry_backoff_s
        self._client = AIOKafkaClient(**connection)
        self._node: int | None = None

    async def start(self) -> None:
        """Connect to the cluster; raises aiokafka's ``KafkaConnectionError`` when no server answers."""
        await self._client.bootstrap()

    async def close(self) -> None:
        """Let go of all connections."""
        await self._client.close()

    def lost(self) -> None:
        """Another node may be the coordinator by now."""
        self._node = None

    async def send(self, request: Any) -> Any:
        """The coordinator's answer. Raises ``KafkaError`` when it cannot be had; the next try looks again."""
        try:
            return await self._client.send(await self._coordinator(), request,
                                           group=ConnectionGroup.COORDINATION)
        except errors.KafkaError:
            self.lost()
            raise

    async def _coordinator(self) -> int:
        while self._node is None:
            try:
                node = await self._client.coordinator_lookup(CoordinationType.GROUP, self._group_id)
            except (errors.GroupCoordinatorNotAvailableError, errors.KafkaConnectionError,
                    errors.NodeNotReadyError, errors.RequestTimedOutError) as problem:
                logger.info("Group %s: no coordinator yet (%s)", self._group_id, type(problem).__name__)
            else:
                if await self._client.ready(node, group=ConnectionGroup.COORDINATION):
                    self._node = node
                    break
            await asyncio.sleep(self._backoff_s)
            await self._client.force_metadata_update()
        return self._node
