"""Both stores behind one fixture: what is true of one has to be true of the other."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from faust_assigner.service.store.base import Store
from faust_assigner.service.store.etcd import EtcdAccess, EtcdStore
from faust_assigner.service.store.memory import MemoryStore
from faust_assigner.testing.etcd import EtcdServer, etcd_server


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    """A real etcd, started at its first use and stopped after the last test; keep prefixes apart."""
    with etcd_server() as server:
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
        store: Store = MemoryStore() if self.kind == "memory" else EtcdStore(
            EtcdAccess(endpoints=(self.endpoint,), deadline_s=deadline_s))
        self.opened.append(store)
        return store


@pytest_asyncio.fixture(params=["memory", pytest.param("etcd", marks=pytest.mark.processes)])
async def stores(request: pytest.FixtureRequest) -> AsyncIterator[Stores]:
    """A store in memory, and one in a real etcd."""
    found = Stores(request.param)
    if request.param == "etcd":
        found.endpoint = request.getfixturevalue("etcd").endpoint
    yield found
    for store in found.opened:
        await store.close()
