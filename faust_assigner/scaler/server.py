"""The gRPC server for one recommender, with TLS, limits, health and reflection."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from faust_assigner.errors import ConfigError
from faust_assigner.scaler.proto import externalscaler_pb2 as pb
from faust_assigner.scaler.proto.externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server
from faust_assigner.scaler.recommender import Recommender
from faust_assigner.scaler.servicer import ExternalScaler
from faust_assigner.service.certificates import Certificates
from faust_assigner.service.server.options import is_loopback
from faust_assigner.service.server.readable import ReadableRequests
from faust_assigner.status.collect import Looks, Where

SERVICE: Final = pb.DESCRIPTOR.services_by_name["ExternalScaler"].full_name
#: The maximum bytes of a request; a ScaledObject's metadata has a few hundred bytes.
REQUEST_BYTES: Final = 64 * 1024
MOST_CALLS: Final = 128
STOP_GRACE_S: Final = 2.0
#: Seconds between two pings of a connection, and for the answer. A peer that vanished without closing its
#: connection would otherwise occupy its streams for the two hours of gRPC's default.
PING_S: Final = 10.0
_LIMITS: Final = (
    ("grpc.so_reuseport", 0),  # otherwise a second scaler could listen on the same port by mistake
    ("grpc.max_receive_message_length", REQUEST_BYTES),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.max_concurrent_streams", MOST_CALLS),
    ("grpc.keepalive_permit_without_calls", 1),
)


@dataclass(frozen=True, kw_only=True)
class Listening:
    """The listening address, and its TLS files in PEM format.

    With ``client_ca``, clients must present a certificate that it signed. ``insecure`` allows a non-loopback
    address without TLS.
    """

    host: str
    port: int
    cert: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    insecure: bool = False

    @property
    def address(self) -> str:
        """The address in gRPC's format."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def check_options(self) -> None:
        """Raise ConfigError for contradictory options, and for invalid certificate files."""
        if bool(self.cert) != bool(self.key):
            raise ConfigError("--tls-cert and --tls-key require each other")
        if self.client_ca and not self.cert:
            raise ConfigError("--tls-client-ca requires --tls-cert and --tls-key")
        if not (self.cert or self.insecure or is_loopback(self.host)):
            raise ConfigError(
                f"{self.host} is not loopback: give --tls-cert and --tls-key, or --insecure"
            )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            if self.cert and self.key:
                context.load_cert_chain(self.cert, self.key, password="")
            if self.client_ca:
                context.load_verify_locations(self.client_ca)
        except (OSError, ValueError) as error:
            raise ConfigError(f"the TLS files cannot be read as PEM: {error}") from error

    def listen(self, server: grpc.aio.Server) -> int:
        """Return the bound port. Raises OSError if the address is in use or not this machine's.

        The TLS files are read again after each change.
        """
        try:
            if not (self.cert and self.key):
                return server.add_insecure_port(self.address)
            files = Certificates(self.cert, self.key, self.client_ca, user="The scaler")
            return server.add_secure_port(self.address, files.credentials())
        except RuntimeError as error:
            raise OSError(
                f"cannot listen on {self.address}: the address is in use, or not this machine's"
            ) from error


@dataclass
class ScalerServer:
    """Answers KEDA's calls from one recommender. It can be started only once."""

    recommender: Recommender
    listening: Listening
    defaults: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        pings = [
            (f"grpc.{name}_ms", int(PING_S * 1000))
            for name in ("keepalive_time", "keepalive_timeout", "http2.ping_timeout")
        ]
        self._server = grpc.aio.server(
            options=(*_LIMITS, *pings),
            interceptors=(ReadableRequests(),),
            maximum_concurrent_rpcs=MOST_CALLS,
        )
        self._health: Any = health.aio.HealthServicer()
        scaler: Any = ExternalScaler(self.recommender, self.defaults)
        add_ExternalScalerServicer_to_server(scaler, self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)

    async def start(self) -> int:
        """Listen; return the port. Raises OSError."""
        port = self.listening.listen(self._server)
        for role in ("", SERVICE):
            await self._health.set(role, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()
        return port

    async def stop(self) -> None:
        """Report unhealthy, then end calls and streams within :data:`STOP_GRACE_S` seconds."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(STOP_GRACE_S)
        await self.recommender.close()


def serve(
    where: Where, listening: Listening, defaults: Mapping[str, str], say: Callable[[str], None]
) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError and OSError before listening."""
    listening.check_options()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    asyncio.run(_serve(where, listening, defaults, say))


async def _serve(
    where: Where, listening: Listening, defaults: Mapping[str, str], say: Callable[[str], None]
) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with Looks(where, time.monotonic) as looks:
        recommender = Recommender(where.group_id, looks.look, time.monotonic)
        server = ScalerServer(recommender, listening, defaults)
        port = await server.start()
        try:
            at = listening.address.rpartition(":")[0]
            say(f"The scaler of group {where.group_id} listens on {at}:{port}")
            await ended.wait()
            say("stopping")
        finally:
            await server.stop()
