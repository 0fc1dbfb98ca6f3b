"""Health for each role: the process, what serves consumers, what leads."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from grpc_health.v1 import health, health_pb2

from faust_assigner.service.node import AssignerNode
from faust_assigner.service.proto import kafka_assigner_pb2 as pb

SERVES: Final = pb.DESCRIPTOR.services_by_name["KafkaAssigner"].full_name
LEADS: Final = "leader"
LOOK_S: Final = 0.5

_STATUS: Final = {
    True: health_pb2.HealthCheckResponse.SERVING,
    False: health_pb2.HealthCheckResponse.NOT_SERVING,
}


class Health:
    """``""`` while the process runs, ``kafka_assigner.v1.KafkaAssigner`` while consumers are served,
    ``leader`` while this instance leads."""

    def __init__(self, node: AssignerNode) -> None:
        self.servicer: Any = health.aio.HealthServicer()
        self._node = node

    async def follow(self) -> None:
        """Look at the node again and again; never returns."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Tell what the node is now."""
        await self.servicer.set("", _STATUS[True])
        await self.servicer.set(SERVES, _STATUS[self._node.serving])
        await self.servicer.set(LEADS, _STATUS[self._node.leads])
