"""A connection to a group's coordinator over aiokafka; the coordinator is looked up again after errors."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

from aiokafka import errors
from aiokafka.client import AIOKafkaClient, ConnectionGroup, CoordinationType

logger = logging.getLogger(__name__)
#: Seconds to find the coordinator and to connect to it; after this time the search starts again.
FIND_S: Final = 10.0


class CoordinatorLink:
    """A dedicated connection to the current coordinator of ``group_id``.

    ``connection`` are aiokafka's keywords (``bootstrap_servers``, ``security_protocol``, ...).
    """

    def __init__(self, group_id: str, *, retry_backoff_s: float, **connection: object) -> None:
        self._group_id = group_id
        self._backoff_s = retry_backoff_s
        self._client = AIOKafkaClient(**connection)
        self._node: int | None = None

    async def start(self) -> None:
        """Connect to the cluster; raises aiokafka's ``KafkaConnectionError`` if no server answers."""
        try:
            await self._client.bootstrap()
        except BaseException:
            await self._client.close()
            raise

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    def lost(self) -> None:
        """Forget the coordinator, so that the next request looks it up: it may be a different node now."""
        self._node = None

    def drop_connections(self) -> None:
        """Close all connections, which may be dead; the next request opens new connections.

        TCP reports a dead host, or a path that drops packets, only after a quarter of an hour.
        """
        for connection in list(self._client._conns.values()):
            connection.close()

    async def send(self, request: Any) -> Any:
        """Send a request to the coordinator, and return the answer. Raises ``KafkaError`` on failure."""
        try:
            return await self._client.send(
                await self._coordinator(), request, group=ConnectionGroup.COORDINATION
            )
        except errors.KafkaError:
            self.lost()
            raise

    async def _coordinator(self) -> int:
        while self._node is None:
            try:
                async with asyncio.timeout(FIND_S):
                    node = await self._find()
            except TimeoutError:
                logger.info(
                    "Group %s: no coordinator within %g s; trying again", self._group_id, FIND_S
                )
                self.drop_connections()
            except (
                errors.GroupCoordinatorNotAvailableError,
                errors.KafkaConnectionError,
                errors.NodeNotReadyError,
                errors.RequestTimedOutError,
            ) as problem:
                logger.info(
                    "Group %s: no coordinator yet, trying again (%s)",
                    self._group_id,
                    type(problem).__name__,
                )
            else:
                if node is not None:
                    self._node = node
                    break
            await asyncio.sleep(self._backoff_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIND_S):
                    await self._client.force_metadata_update()
        return self._node

    async def _find(self) -> int | None:
        node: int = await self._client.coordinator_lookup(CoordinationType.GROUP, self._group_id)
        return node if await self._client.ready(node, group=ConnectionGroup.COORDINATION) else None
