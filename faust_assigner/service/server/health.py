"""Health for each role: the process, what serves consumers, what leads; and a port for probes alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.server.groups import Groups

SERVES: Final = pb.DESCRIPTOR.services_by_name["KafkaAssigner"].full_name
LEADS: Final = "leader"
LIVES: Final = "liveness"
READY: Final = "readiness"
#: Probes at once, on the port that is theirs alone.
PROBES: Final = 64
LOOK_S: Final = 0.5

_STATUS: Final = {
    True: health_pb2.HealthCheckResponse.SERVING,
    False: health_pb2.HealthCheckResponse.NOT_SERVING,
}


class Health:
    """Names of gRPC's health service -> when they are SERVING:

    ``""``              the process runs
    ``liveness``        none of the instance's tasks has ended: else a restart mends it
    ``readiness``       consumers are served, and some instance leads
    ``kafka_assigner.v1.KafkaAssigner``  consumers are served: the store was heard of lately
    ``leader``          this instance leads, a group at least
    ``leader/GROUP``    it leads this one, where groups have names
    """

    def __init__(self, groups: Groups) -> None:
        self.servicer: Any = health.aio.HealthServicer()
        self._groups = groups

    async def follow(self) -> None:
        """Look at the nodes again and again; never returns."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Tell what the nodes are now."""
        nodes = list(self._groups)
        roles = {
            "": True,
            LIVES: all(node.lives for node in nodes),
            READY: all(node.serving and node.condition.has_leader for node in nodes),
            SERVES: all(node.serving for node in nodes),
            LEADS: any(node.leads for node in nodes),
        }
        roles |= {f"{LEADS}/{name}": node.leads for name, node in self._groups.items() if name}
        for role, is_well in roles.items():
            await self.servicer.set(role, _STATUS[is_well])


class Probes(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
    """``Check`` alone, for a port without TLS: who watches instead would keep others' probes out."""

    def __init__(self, health: Health) -> None:
        self._health = health

    async def Check(self, request: Any, context: Any) -> Any:
        """As gRPC's health service."""
        return await self._health.servicer.Check(request, context)

    async def Watch(self, request: Any, context: Any) -> None:
        """Not here."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "only Check is answered on this port")


def probing(health: Health, address: str, options: Sequence[tuple[str, Any]]) -> tuple[Any, int]:
    """A server without TLS that answers health probes alone, and its port. Raises RuntimeError where the
    address cannot be listened on."""
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=PROBES)
    health_pb2_grpc.add_HealthServicer_to_server(Probes(health), server)
    return server, server.add_insecure_port(address)
