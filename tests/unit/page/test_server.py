"""The page's own server: where it listens, and that nothing listens after it."""

from __future__ import annotations

import asyncio

import pytest

from faust_assigner.page.server import served
from faust_assigner.page.watch import Watch
from tests.support.page import Script
from tests.support.status import group


async def test_a_page_that_has_ended_gives_its_port_back() -> None:
    """A second one is refused the port while the first one is served."""
    watch = Watch("shop", Script(iter([group(3).evidence()])))
    async with served(watch, host="127.0.0.1", port=0) as (host, port):
        _, writer = await asyncio.open_connection(host, port)
        writer.close()
        with pytest.raises(OSError, match="address already in use"):
            async with served(watch, host=host, port=port):
                pass
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(host, port)
