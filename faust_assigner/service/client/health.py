"""Health checks of an instance, by role."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from faust_assigner.service.client.channel import Access

#: Role -> the name of the service in gRPC's health check.
ROLES: Final[Mapping[str, str]] = {
    "serving": "kafka_assigner.v1.KafkaAssigner",
    "leader": "leader",
    "process": "",
    "readiness": "readiness",
    "liveness": "liveness",
}


async def is_well(target: str, role: str, access: Access, *, patience_s: float = 2.0) -> bool:
    """Return whether the instance reports SERVING for the role within ``patience_s`` seconds."""
    async with access.open(target) as channel:
        try:
            answer = await health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=ROLES[role]), timeout=patience_s
            )
        except grpc.aio.AioRpcError:
            return False
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
