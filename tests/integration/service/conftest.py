"""Both stores behind one fixture: the in-memory store and a real etcd must behave alike."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio

from faust_assigner.service.store.access import EtcdAccess
from faust_assigner.service.store.base import Store
from faust_assigner.service.store.etcd import EtcdStore
from faust_assigner.service.store.memory import MemoryStore
from tests.support.assigning.consumers import LoopClock, virtually
from tests.support.assigning.instances import calls_ended
from tests.support.etcd import EtcdServer, etcd_server, installed


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    """Start a real etcd at its first use, and stop it after the last test; tests use separate prefixes."""
    with etcd_server() as server:
        yield server


@pytest.fixture(scope="session")
def system_etcd() -> Iterator[EtcdServer]:
    """Start the system's own etcd, which has a different version."""
    with etcd_server(program=installed()["system"]) as server:
        yield server


@dataclass
class Stores:
    """Connections to one store, one per instance of a test; ``prefix`` is unique to the test."""

    kind: str
    endpoint: str = ""
    prefix: str = field(default_factory=lambda: f"/{uuid.uuid4().hex[:12]}/")
    opened: list[Store] = field(default_factory=list)

    def open(self, *, deadline_s: float = 3.0) -> Store:
        """Open a connection; in memory, all calls return the same store."""
        if self.kind == "memory" and self.opened:
            return self.opened[0]
        store: Store = (
            MemoryStore(clock=LoopClock())
            if self.kind == "memory"
            else EtcdStore(EtcdAccess(endpoints=(self.endpoint,), deadline_s=deadline_s))
        )
        self.opened.append(store)
        return store


Story = Callable[[Stores], Coroutine[Any, Any, None]]


def _on(kinds: Sequence[Any]) -> Callable[[Story], Callable[..., None]]:
    def decorate(story: Story) -> Callable[..., None]:
        @pytest.mark.parametrize("kind", kinds)
        def test(kind: str, request: pytest.FixtureRequest) -> None:
            endpoint = "" if kind == "memory" else request.getfixturevalue(kind).endpoint

            async def whole() -> None:
                stores = Stores(kind, endpoint)
                try:
                    await story(stores)
                finally:
                    for store in stores.opened:
                        await store.close()

            virtually(whole) if kind == "memory" else asyncio.run(whole())

        test.__name__, test.__doc__, test.__module__ = (
            story.__name__,
            story.__doc__,
            story.__module__,
        )
        return test

    return decorate


_SLOW = pytest.param("etcd", marks=[pytest.mark.processes, pytest.mark.slow])
_ALWAYS = pytest.param("etcd", marks=pytest.mark.processes)
_SYSTEMS = [
    pytest.param("system_etcd", marks=[pytest.mark.processes, pytest.mark.slow])
    for source in installed()
    if source == "system"
]
#: Runs a scenario on the in-memory store in virtual time, on a real etcd, and on an installed
#: system etcd.
on_both = _on(["memory", _SLOW, *_SYSTEMS])
on_both_always = _on(["memory", _ALWAYS, *_SYSTEMS])


@pytest_asyncio.fixture(
    params=["memory", pytest.param("etcd", marks=pytest.mark.processes), *_SYSTEMS]
)
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[Stores]:
    """Yield an in-memory store, then a real etcd of each installed version."""
    found = Stores(request.param)
    if request.param != "memory":
        found.endpoint = request.getfixturevalue(request.param).endpoint
    yield found
    for store in found.opened:
        await store.close()
    await calls_ended()
