"""``faust-assigner broker``: listen until SIGTERM or SIGINT, then stop cleanly."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from faust_assigner.broker.node import Node
from faust_assigner.broker.server import STOP_GRACE_S, BrokerServer
from faust_assigner.broker.settings import Settings
from faust_assigner.errors import ConfigError
from faust_assigner.settings.extras import needs

if TYPE_CHECKING:
    from faust_assigner.broker.metrics import MetricsPort

logger = logging.getLogger(__name__)
# Full garbage collections must be rare: with many thousand partitions, each blocks the event loop for long.
# Garbage collections of young objects are short.
COLLECT_AFTER: Final = (50_000, 5, 1_000)
SWITCH_INTERVAL_S: Final = 0.001  # after this time a thread must give the GIL to the event loop


def parse_assignments(pairs: tuple[str, ...]) -> dict[str, object]:
    """Parse ``NAME=VALUE`` texts. Raises ConfigError for a text without ``=`` or a repeated name."""
    given: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--set needs NAME=VALUE, not {pair!r}")
        if name.strip() in given:
            raise ConfigError(f"setting {name.strip()!r} is given twice")
        given[name.strip()] = value.strip()
    return given


def serve(
    data: Path | None,
    host: str,
    port: int,
    settings: Mapping[str, object],
    say: Callable[[str], None],
    *,
    metrics_port: int | None = None,
) -> None:
    """Run one broker until a signal. Raises ConfigError, StoreFailed, OSError before it listens."""
    parsed = Settings.parse(settings)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    uvloop.run(_serve(parsed, data, host, port, say, metrics_port))


async def _serve(
    settings: Settings,
    data: Path | None,
    host: str,
    port: int,
    say: Callable[[str], None],
    metrics_port: int | None,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = await _open(settings, data, stop)
    if node is None:
        return
    gc.collect()
    gc.freeze()  # collections skip the objects that the start created
    gc.set_threshold(*COLLECT_AFTER)
    server = BrokerServer(node)
    try:
        taken = await server.start(host, port)
    except BaseException:
        node.close()
        raise
    metrics: MetricsPort | None = None
    try:
        if metrics_port is not None:
            metrics = await _start_metrics(server, metrics_port, say)
        if settings.listeners:
            say(f"listening on {', '.join(map(str, server.listeners))}")
        else:
            say(f"listening on {host}:{taken}")
        await stop.wait()
    finally:
        if metrics is not None:
            await asyncio.to_thread(metrics.close)
        await server.stop()


async def _start_metrics(
    server: BrokerServer, port: int, say: Callable[[str], None]
) -> MetricsPort:
    """Start the metrics. Raises OSError if the port is taken, MissingExtra without prometheus-client."""
    with needs("metrics"):
        from faust_assigner.broker.metrics import MetricsPort
    metrics = MetricsPort(server, asyncio.get_running_loop(), port)
    say(f"metrics on http://127.0.0.1:{metrics.port}/metrics")
    return metrics


class _Stopped(Exception):
    """A signal arrived before the store was open."""


async def _open(settings: Settings, data: Path | None, stop: asyncio.Event) -> Node | None:
    """Open the store in a thread, so that signals are handled meanwhile; return None after a signal."""
    wanted = threading.Event()

    def progress() -> None:
        if wanted.is_set():
            raise _Stopped

    opening = asyncio.ensure_future(asyncio.to_thread(Node, settings, data, progress=progress))
    signalled = asyncio.ensure_future(stop.wait())
    await asyncio.wait({opening, signalled}, return_when=asyncio.FIRST_COMPLETED)
    if not opening.done():
        wanted.set()
        await asyncio.wait({opening}, timeout=STOP_GRACE_S)
        if not opening.done():
            os._exit(0)  # RocksDB cannot be interrupted; its files survive a kill at any time
    signalled.cancel()
    try:
        node = opening.result()
    except _Stopped:
        return None
    if stop.is_set():
        node.close()
        return None
    return node
