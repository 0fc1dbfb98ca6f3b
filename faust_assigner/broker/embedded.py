"""A broker for tests and scripts: ``with`` (its own loop in a thread) or ``async with`` (your loop).

>>> with EmbeddedBroker(settings={"num.partitions": 4}) as broker:
...     broker.bootstrap.startswith("127.0.0.1:")
True
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Self, TypeVar

import uvloop

from faust_assigner.broker.node import Node
from faust_assigner.broker.server import BrokerServer
from faust_assigner.broker.settings import Settings

T = TypeVar("T")
STOP_TIMEOUT_S = 30.0


class EmbeddedBroker:
    """One broker. ``data=None`` keeps everything in memory; ``port=0`` picks a free port.

    ``settings`` have Kafka's names. For tests, a new group does not wait for more members, unless
    ``group.initial.rebalance.delay.ms`` is given. ``users`` are names and passwords for SASL
    listeners. Raises ConfigError, StoreFailed, OSError.
    """

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        settings: Mapping[str, object] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        users: Mapping[str, str] | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        given = {
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 100,
            "group.consumer.min.session.timeout.ms": 100,
            "group.consumer.min.heartbeat.interval.ms": 50,
            **(settings or {}),
        }
        self.settings = Settings.parse(given)
        self.data = Path(data) if data is not None else None
        self.host = host
        self.port = port
        self._users = dict(users or {})
        self._clock = clock
        self._server: BrokerServer | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running_on: asyncio.AbstractEventLoop | None = None

    @property
    def bootstrap(self) -> str:
        """``host:port`` for a client's bootstrap servers."""
        return f"{self.host}:{self.port}"

    def address(self, protocol: str) -> str:
        """Return ``host:port`` of the listener of a protocol (``SASL_SSL``). Raises KeyError."""
        found = {one.protocol: one for one in self.server.listeners}[protocol]
        return f"{found.host}:{found.port}"

    @property
    def node(self) -> Node:
        """The node of the running broker; use it on the broker's loop only (see :meth:`call`)."""
        if self._server is None:
            raise RuntimeError("the broker is not running")
        return self._server.node

    @property
    def server(self) -> BrokerServer:
        """The running server, which accepts the connections."""
        if self._server is None:
            raise RuntimeError("the broker is not running")
        return self._server

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop on which the broker runs."""
        if self._server is None or self._running_on is None:
            raise RuntimeError("the broker is not running")
        return self._running_on

    async def start(self) -> None:
        """Start the broker on the running event loop."""
        node = await asyncio.to_thread(Node, self.settings, self.data, clock=self._clock)
        try:
            server = BrokerServer(node)
            for user, password in self._users.items():
                node.credentials.set_password(user, password)
            self.port = await server.start(self.host, self.port)
        except BaseException:
            node.close()
            raise
        self._server = server
        self._running_on = asyncio.get_running_loop()

    async def stop(self) -> None:
        """Stop the broker; release port and files. The broker can start again, on the same port."""
        if self._server is not None:
            await self._server.stop()
            self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="embedded-broker", daemon=True
        )
        self._thread.start()
        try:
            self._run(self.start())
        except BaseException:
            self._stop_thread()
            raise
        return self

    def __exit__(self, *reason: object) -> None:
        try:
            self._run(self.stop())
        finally:
            self._stop_thread()

    def restart(self) -> None:
        """Stop the broker, then start it again on the same port and data (``with`` only)."""
        self._run(self.stop())
        self._run(self.start())

    def call(self, function: Callable[[Node], T]) -> T:
        """Run ``function(node)`` on the broker's loop and return its result (``with`` only)."""

        async def on_loop() -> T:
            return function(self.node)

        return self._run(on_loop())

    def _run(self, coroutine: Coroutine[object, None, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(STOP_TIMEOUT_S)

    def _stop_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_TIMEOUT_S)
        self._loop.close()
        self._loop = self._thread = None
