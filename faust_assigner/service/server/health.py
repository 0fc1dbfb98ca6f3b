"""Reports the instance's health by role (process, serving, leading), also on a port for probes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.server.groups import Groups

if TYPE_CHECKING:
    from faust_assigner.service.server.auth import Context

SERVES: Final = pb.DESCRIPTOR.services_by_name["KafkaAssigner"].full_name
LEADS: Final = "leader"
LIVES: Final = "liveness"
READY: Final = "readiness"
#: Maximum number of concurrent calls on the port for probes.
PROBES: Final = 64
LOOK_S: Final = 0.5

_STATUS: Final = {
    True: health_pb2.HealthCheckResponse.SERVING,
    False: health_pb2.HealthCheckResponse.NOT_SERVING,
}


class Health:
    """Names in gRPC's health service -> the condition for SERVING:

    ``""``              the process runs
    ``liveness``        all tasks of the instance run; if not, a restart may help
    ``readiness``       the instance serves consumers, and some instance leads
    ``kafka_assigner.v1.KafkaAssigner``  it serves consumers: the store has answered recently
    ``leader``          this instance leads at least one group
    ``leader/GROUP``    this instance leads the group, if groups have names
    """

    def __init__(self, groups: Groups) -> None:
        self.servicer: Any = health.aio.HealthServicer()
        self._groups = groups

    async def follow(self) -> None:
        """Update the health of each role from the nodes, forever."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Set the health of each role from the nodes' current state."""
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
    """Answers only ``Check``, on a port without TLS. A ``Watch`` would block other probes."""

    def __init__(self, health: Health) -> None:
        self._health = health

    async def Check(self, request: Any, context: Context) -> Any:
        """Answer as gRPC's health service does."""
        return await self._health.servicer.Check(request, context)

    async def Watch(self, request: Any, context: Context) -> None:
        """Refuse with UNIMPLEMENTED."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "only Check is answered on this port")


def probing(
    health: Health, address: str, options: Sequence[tuple[str, object]]
) -> tuple[object, int]:
    """Return a server without TLS that answers only health probes, and its port.

    Raises RuntimeError if the server cannot listen on the address.
    """
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=PROBES)
    health_pb2_grpc.add_HealthServicer_to_server(Probes(health), server)
    return server, server.add_insecure_port(address)
