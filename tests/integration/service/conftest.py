"""Both stores behind one fixture: what is true of one has to be true of the other."""

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
from faust_assigner.testing.etcd import EtcdServer, etcd_server, installed
from tests.support.assigning.consumers import LoopClock, virtually
from tests.support.assigning.instances import calls_ended


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    """A real etcd, started at its first use and stopped after the last test; keep prefixes apart."""
    with etcd_server() as server:
        yield server


@pytest.fixture(scope="session")
def system_etcd() -> Iterator[EtcdServer]:
    """The one that the system has, of another version."""
    with etcd_server(program=installed()["system"]) as server:
        yield server


@dataclass
class Stores:
    """One store, opened as often as a test has instances; ``prefix`` is this test's own."""

    kind: str
    endpoint: str = ""
    prefix: str = field(default_factory=lambda: f"/{uuid.uuid4().hex[:12]}/")
    opened: list[Store] = field(default_factory=list)

    def open(self, *, deadline_s: float = 3.0) -> Store:
        """A connection of its own."""
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
#: A story on the store in memory, on virtual time, and on a real etcd; on the system's own where it has one.
on_both = _on(["memory", _SLOW, *_SYSTEMS])
on_both_always = _on(["memory", _ALWAYS, *_SYSTEMS])


@pytest_asyncio.fixture(
    params=["memory", pytest.param("etcd", marks=pytest.mark.processes), *_SYSTEMS]
)
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[Stores]:
    """A store in memory, and one in a real etcd of each version that is installed."""
    found = Stores(request.param)
    if request.param != "memory":
        found.endpoint = request.getfixturevalue(request.param).endpoint
    yield found
    for store in found.opened:
        await store.close()
    await calls_ended()
