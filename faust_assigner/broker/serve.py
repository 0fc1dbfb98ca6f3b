"""``faust-assigner broker``: listen until SIGTERM or SIGINT, then stop cleanly."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

from faust_assigner.broker.node import Node
from faust_assigner.broker.server import BrokerServer
from faust_assigner.broker.settings import Settings
from faust_assigner.errors import ConfigError


def parse_assignments(pairs: tuple[str, ...]) -> dict[str, object]:
    """``NAME=VALUE`` texts as a dict. Raises ConfigError where one has no ``=`` or a name comes twice."""
    given: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError(f"--set wants NAME=VALUE, not {pair!r}")
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
) -> None:
    """Run one broker until a signal ends it. Raises ConfigError, StoreFailed, OSError before it listens."""
    parsed = Settings.parse(settings)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(_serve(parsed, data, host, port, say))


async def _serve(
    settings: Settings, data: Path | None, host: str, port: int, say: Callable[[str], None]
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = Node(settings, data)
    server = BrokerServer(node)
    try:
        taken = await server.start(host, port)
    except OSError:
        node.close()
        raise
    say(f"listening on {host}:{taken}")
    await stop.wait()
    await server.stop()
