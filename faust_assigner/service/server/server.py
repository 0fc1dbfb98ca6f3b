"""The gRPC server for all groups, with limits, TLS, health and reflection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any, Final

import grpc.aio
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from faust_assigner.service.proto import kafka_assigner_pb2 as pb
from faust_assigner.service.proto.kafka_assigner_pb2_grpc import (
    add_KafkaAssignerAdminServicer_to_server,
    add_KafkaAssignerServicer_to_server,
)
from faust_assigner.service.server.admin_servicer import AdminServicer
from faust_assigner.service.server.groups import Groups
from faust_assigner.service.server.health import Health, probing
from faust_assigner.service.server.options import Options
from faust_assigner.service.server.readable import ReadableRequests
from faust_assigner.service.server.servicer import ConsumerServicer

#: Maximum bytes of a request or an answer: gRPC's default, so that clients need no option. The
#: service splits longer answers.
MESSAGE_BYTES: Final = 4 * 2**20
METADATA_BYTES: Final = 16 * 2**10
STREAMS_PER_CONNECTION: Final = 128
IDLE_MS: Final = 300_000
HANDSHAKE_MS: Final = 10_000
STOP_GRACE_S: Final = 2.0
#: Seconds between two checks of the file of tokens.
LOOK_S: Final = 2.0
#: The time for the open calls of a connection that has reached its maximum age; then they end.
AGE_GRACE_MS: Final = 5_000


def channel_options(consumer_ttl_s: float, most_age_s: float = 0.0) -> list[tuple[str, object]]:
    """Return gRPC's limits, and pings that detect a dead peer within half a time to live.

    A connection older than ``most_age_s`` is closed (gRPC varies this age by a tenth); 0: never.
    """
    every_ms = max(1_000, int(consumer_ttl_s * 1000 / 4))
    aged = [
        ("grpc.max_connection_age_ms", int(most_age_s * 1000)),
        ("grpc.max_connection_age_grace_ms", AGE_GRACE_MS),
    ]
    return [
        # A second instance on the same port is a mistake; without this option both would listen.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
        ("grpc.max_metadata_size", METADATA_BYTES),
        ("grpc.max_concurrent_streams", STREAMS_PER_CONNECTION),
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.keepalive_time_ms", every_ms),
        ("grpc.keepalive_timeout_ms", every_ms),
        ("grpc.http2.ping_timeout_ms", every_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        *(aged if most_age_s else ()),
    ]


class AssignerServer:
    """Serves the consumers and operators of the groups. The caller starts the groups' nodes."""

    def __init__(self, groups: Groups, options: Options) -> None:
        self._groups = groups
        self._options = options
        self._health = Health(groups)
        self._probing: Any = None
        self.health_port = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._server: grpc.aio.Server = grpc.aio.server(
            options=channel_options(
                options.settings.consumer_ttl_s, options.server.max_connection_age_s
            ),
            interceptors=(ReadableRequests(),),
            maximum_concurrent_rpcs=options.server.max_calls,
        )
        self._authenticator = authenticator = options.authenticator()
        add_KafkaAssignerServicer_to_server(ConsumerServicer(groups, authenticator), self._server)
        add_KafkaAssignerAdminServicer_to_server(AdminServicer(groups, authenticator), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health.servicer, self._server)
        reflection.enable_server_reflection(
            (
                *(service.full_name for service in pb.DESCRIPTOR.services_by_name.values()),
                health.SERVICE_NAME,
                reflection.SERVICE_NAME,
            ),
            self._server,
        )

    async def start(self) -> int:
        """Listen, and return the port.

        Raises OSError if an address is taken or does not belong to this machine.
        """
        said = self._options.server
        with _grpc_address(said.bind) as address:
            taken = self._listen(address)
        if said.health:
            limits = channel_options(self._options.settings.consumer_ttl_s)
            with _grpc_address(said.health) as address:
                self._probing, self.health_port = probing(self._health, address, limits)
        await self._health.look()
        await self._server.start()
        if self._probing is not None:
            await self._probing.start()
        works = {"health": self._health.follow(), "tokens": self._look()}
        self._tasks = [
            asyncio.create_task(work, name=f"assigner-{name}") for name, work in works.items()
        ]
        return taken

    def _listen(self, address: str) -> int:
        certificates = self._options.certificates()
        if certificates is None:
            return self._server.add_insecure_port(address)
        return self._server.add_secure_port(address, certificates.credentials())

    async def _look(self) -> None:
        """Read the file of tokens again after each change, forever."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._authenticator.look()

    async def stop(self) -> None:
        """Report unhealthy, let the nodes end their streams, and close all connections.

        gRPC cancels the remaining calls after :data:`STOP_GRACE_S` seconds.
        """
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._health.servicer.enter_graceful_shutdown()
        stopping = asyncio.create_task(self._server.stop(STOP_GRACE_S))
        await self._groups.stop()
        await stopping
        if self._probing is not None:
            await self._probing.stop(None)


@contextlib.contextmanager
def _grpc_address(at: tuple[str, int]) -> Iterator[str]:
    """Yield the address in gRPC's form; convert a RuntimeError of the block into OSError."""
    host, port = at
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        yield address
    except RuntimeError as error:
        raise OSError(
            f"cannot listen on {address}: the address is in use, or not this machine's"
        ) from error
