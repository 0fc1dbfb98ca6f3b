"""etcd for the service's scenarios, and the two stores that each scenario runs on."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tests.support.etcd import EtcdServer, etcd_server

_PREFIXES = itertools.count()


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    """Start one etcd for all scenarios that do not damage it."""
    with etcd_server() as server:
        yield server


@pytest.fixture(params=["memory", pytest.param("etcd", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The flags of a store: none for memory, or etcd with a prefix unique to the test."""
    if request.param == "memory":
        return ()
    server: EtcdServer = request.getfixturevalue("etcd")
    return on(server)


def on(server: EtcdServer) -> tuple[str, ...]:
    """The flags of a new group in this etcd."""
    prefix = f"/kafka-assigner/t{os.getpid()}-{next(_PREFIXES)}/"
    return ("--etcd", f"http://{server.endpoint}", "--prefix", prefix)
