"""The connections to etcd, with endpoints and credentials."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc
import grpc.aio

from faust_assigner.errors import ConfigError
from faust_assigner.service.certificates import PemFiles

MAX_MESSAGE_BYTES = 64 << 20

#: With ping_timeout gRPC detects a silent network partition in 13 s; with keepalive_timeout alone
#: it takes more than a minute. A connection without calls is closed and sends no pings: etcd ends
#: such a connection after some pings, and gRPC then doubles the time between pings to this endpoint.
CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    ("grpc.client_idle_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 200),
    # gRPC also gives up a connection that is not complete after this time, and fails the waiting
    # calls. A connection with TLS takes four round trips.
    ("grpc.min_reconnect_backoff_ms", 1_500),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
#: Seconds between two checks of the certificate files for changes.
LOOK_S: Final = 2.0
#: Seconds for which open calls may keep a connection with replaced certificates open.
RETIRED_S: Final = 365 * 86_400.0


@dataclass(frozen=True, kw_only=True)
class EtcdAccess:
    """The access to etcd.

    ``endpoints``                each ``HOST:PORT`` or ``http(s)://HOST:PORT``
    ``ca, certificate, key``     PEM files for TLS; ``https`` or ``ca`` turns TLS on
    ``user, password``           for etcd's authentication
    ``deadline_s``               the deadline of every call
    """

    endpoints: tuple[str, ...]
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    deadline_s: float = 3.0

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ConfigError("no etcd endpoint is given")
        if (self.certificate is None) != (self.key is None):
            raise ConfigError(
                "a client certificate of etcd needs its key, and a key its certificate"
            )
        if (
            len({endpoint.partition("://")[0] for endpoint in self.endpoints if "://" in endpoint})
            > 1
        ):
            raise ConfigError(f"endpoints of etcd are http or https, not both: {self.endpoints}")

    @property
    def secure(self) -> bool:
        """Whether the connection is TLS."""
        return self.ca is not None or any(
            endpoint.startswith("https://") for endpoint in self.endpoints
        )

    def address(self, number: int) -> str:
        """Return ``HOST:PORT`` of an endpoint; numbers beyond the last start again at the first."""
        return self.endpoints[number % len(self.endpoints)].rpartition("://")[2]


class Connections:
    """One connection for each endpoint, opened at its first call and then kept.

    After a change of the certificates, new connections use the new files; open calls stay on their
    old connection until they end.
    Raises ConfigError or OSError if a file of ``access`` cannot be read or is not valid.
    """

    def __init__(self, access: EtcdAccess, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._clock = clock
        self._files = PemFiles(
            access.certificate,
            access.key,
            access.ca,
            "--etcd-cert and --etcd-key",
            "--etcd-ca",
            "The connection to etcd",
        )
        self._pem = self._files.read()
        self._looked_at = clock()
        self._open: dict[int, grpc.aio.Channel] = {}
        self._retired: dict[grpc.aio.Channel, asyncio.Task[None]] = {}

    def of(self, number: int) -> grpc.aio.Channel:
        """Return the connection to an endpoint; ``number`` as in :meth:`EtcdAccess.address`.

        Cost: every :data:`LOOK_S` seconds, one ``stat`` of each certificate file.
        """
        if self._access.secure and self._clock() >= self._looked_at + LOOK_S:
            self._look()
        number %= len(self._access.endpoints)
        if (channel := self._open.get(number)) is None:
            channel = self._open[number] = self._channel(number)
        return channel

    def _look(self) -> None:
        """Retire all connections if a file has changed."""
        self._looked_at = self._clock()
        if (changed := self._files.changed()) is None:
            return
        self._pem = changed
        for channel in self._open.values():
            self._retired[channel] = asyncio.get_running_loop().create_task(
                self._retire(channel), name="close a retired connection to etcd"
            )
        self._open = {}

    async def _retire(self, channel: grpc.aio.Channel) -> None:
        """Close a connection when its calls have ended."""
        await channel.close(RETIRED_S)
        del self._retired[channel]

    def _channel(self, number: int) -> grpc.aio.Channel:
        address = self._access.address(number)
        if not self._access.secure:
            return grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS)
        credentials = grpc.ssl_channel_credentials(
            self._pem.authorities, self._pem.key, self._pem.certificate
        )
        return grpc.aio.secure_channel(address, credentials, options=CHANNEL_OPTIONS)

    async def close(self) -> None:
        """Close all connections."""
        retired = dict(self._retired)
        for closing in retired.values():
            closing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await closing
        for channel in (*retired, *self._open.values()):
            await channel.close()
        self._open = {}
