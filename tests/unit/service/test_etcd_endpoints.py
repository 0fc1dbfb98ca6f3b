"""Etcd's endpoints: which one is asked next, and that none is connected to twice."""

from __future__ import annotations

import asyncio
import socket

import pytest

from faust_assigner.service.errors import StoreUnavailable
from faust_assigner.service.store.etcd import EtcdAccess, EtcdStore


def closed_ports(count: int) -> list[str]:
    """Addresses of loopback at which nobody listens."""
    found = []
    for _ in range(count):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            found.append(f"127.0.0.1:{taken.getsockname()[1]}")
    return found


async def test_an_outage_opens_no_connection_after_the_other() -> None:
    """Each endpoint has one, however often it is tried."""
    store = EtcdStore(EtcdAccess(endpoints=tuple(closed_ports(3)), deadline_s=2.0))
    for _ in range(12):
        with pytest.raises(StoreUnavailable):
            await store.get("/a")
    assert len(store._channels) == 3
    await store.close()


async def test_calls_that_fail_together_turn_to_one_next_endpoint() -> None:
    """And not past it, to one that was found dead before."""
    store = EtcdStore(EtcdAccess(endpoints=tuple(closed_ports(3)), deadline_s=2.0))
    await asyncio.gather(*(store.get("/a") for _ in range(5)), return_exceptions=True)
    assert store._number == 1
    await store.close()
