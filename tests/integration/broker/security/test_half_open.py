"""2,000 peers begin a TLS handshake and do not end it: memory, other clients, and the timeout."""

from __future__ import annotations

import resource
import selectors
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from faust_assigner.broker.security.gate import LOG_IN_TIMEOUT_S
from faust_assigner.testing.broker import broker_process
from tests.integration.broker.security.test_clients import keystore
from tests.support.clients.raw_client import RawClient

PEERS = 2_000
LARGEST_GROWTH = 256 * 2**20  # bytes of resident memory for all of them
HALF_A_HELLO = b"\x16\x03\x01\x02\x00\x01\x00"


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise the limit of open files of this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * PEERS:
        pytest.skip(f"the system allows {hard} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * PEERS + 500, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident_bytes(pid: int) -> int:
    """The resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def is_served(address: tuple[str, int], authority: Path) -> bool:
    """Return whether a client with a complete handshake gets an answer."""
    context = ssl.create_default_context(cafile=str(authority))
    with RawClient(f"{address[0]}:{address[1]}", 60) as client:
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        return bool(client.call(3, 12, topics=None).brokers)


def await_closed(peers: list[socket.socket], deadline: float) -> int:
    """Read from all peers until the broker has closed them; return how many are still open."""
    with selectors.DefaultSelector() as selector:
        for peer in peers:
            peer.setblocking(False)
            selector.register(peer, selectors.EVENT_READ)
        left = len(peers)
        while left and time.monotonic() < deadline:
            for key, _ in selector.select(1.0):
                try:
                    is_open = bool(key.fileobj.recv(4_096))  # type: ignore[union-attr]
                except OSError:
                    is_open = False
                if not is_open:
                    selector.unregister(key.fileobj)
                    left -= 1
    return left


@pytest.mark.slow
@pytest.mark.processes
def test_2000_half_open_handshakes_are_bounded_and_end(tmp_path: Path, many_files: None) -> None:
    """Other peers are served, memory stays bounded, and each handshake ends at its timeout."""
    settings = (
        "listeners=SSL://127.0.0.1:0",
        f"ssl.keystore.location={keystore(tmp_path)}",
        "max.connections.per.ip=3000",
    )
    with broker_process(None, *settings) as broker, ExitStack() as stack:
        address, authority = ("127.0.0.1", broker.port), tmp_path / "authority.ca.pem"
        assert is_served(address, authority)
        before = resident_bytes(broker.process.pid)
        peers = []
        for number in range(PEERS):
            peer = stack.enter_context(socket.create_connection(address, 30))
            if number % 2:
                peer.sendall(HALF_A_HELLO)
            peers.append(peer)
        began = time.monotonic()
        assert is_served(address, authority)
        assert resident_bytes(broker.process.pid) - before < LARGEST_GROWTH
        assert await_closed(peers, began + LOG_IN_TIMEOUT_S + 60) == 0
        assert is_served(address, authority)
