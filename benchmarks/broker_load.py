"""Put load on a broker from a separate process: members with continuous heartbeats, or continuous readers.

python -m benchmarks.broker_load beat HOST:PORT COUNT SECONDS     # prints beats a second
python -m benchmarks.broker_load read HOST:PORT TOPIC COUNT SECONDS
"""

from __future__ import annotations

import asyncio
import struct
import sys
import time

CLIENT = struct.pack(">h", 4) + b"load"


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """Encode a request; only for versions without compact strings."""
    whole = struct.pack(">hhi", api_key, version, 1) + CLIENT + body
    return struct.pack(">i", len(whole)) + whole


def text(value: str) -> bytes:
    """Encode a string."""
    return struct.pack(">h", len(value)) + value.encode()


def heartbeat(group: str, member: str = "nobody") -> bytes:
    """Encode Heartbeat v3."""
    return frame(12, 3, text(group) + struct.pack(">i", 1) + text(member) + struct.pack(">h", -1))


def api_versions() -> bytes:
    """Encode ApiVersions v0."""
    return frame(18, 0, b"")


def fetch(topic: str, offset: int, max_bytes: int) -> bytes:
    """Encode Fetch v4 of partition 0 that does not wait."""
    head = struct.pack(">iiiib", -1, 0, 1, max_bytes, 0)
    return frame(
        1,
        4,
        head + struct.pack(">i", 1) + text(topic) + struct.pack(">iiqi", 1, 0, offset, max_bytes),
    )


class Repeat(asyncio.Protocol):
    """Send the same request after each answer; ``answers`` counts the answers."""

    def __init__(self, request: bytes) -> None:
        self.request = request
        self.answers = 0
        self.left = -4

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.head = b""
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        """Count the answer's bytes; send the request again after the last byte."""
        if self.left < 0:
            self.head += data
            if len(self.head) < 4:
                return
            self.left = struct.unpack_from(">i", self.head)[0] + 4 - len(self.head)
            self.head = b""
        else:
            self.left -= len(data)
        if self.left == 0:
            self.left = -4
            self.answers += 1
            self.transport.write(self.request)


async def repeat(bootstrap: str, request: bytes, count: int, seconds: float) -> int:
    """Repeat a request on ``count`` connections for ``seconds``; return the number of answers."""
    host, port = bootstrap.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    peers = []
    for _ in range(count):
        _, peer = await loop.create_connection(lambda: Repeat(request), host, int(port))
        peers.append(peer)
    print("loaded", flush=True)
    before, began = sum(p.answers for p in peers), time.monotonic()
    await asyncio.sleep(seconds)
    return int((sum(p.answers for p in peers) - before) / (time.monotonic() - began))


def main() -> None:
    """Run a kind of load."""
    kind, bootstrap, *rest = sys.argv[1:]
    if kind == "beat":
        request, count, seconds = heartbeat("beaten"), int(rest[0]), float(rest[1])
    else:
        request, count, seconds = fetch(rest[0], 0, 2**20), int(rest[1]), float(rest[2])
    print(asyncio.run(repeat(bootstrap, request, count, seconds)), flush=True)


if __name__ == "__main__":
    main()
