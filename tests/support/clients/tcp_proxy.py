"""A TCP proxy on loopback that can fall silent, as a cut cable does for both ends."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator

from tests.support.waiting import PATIENCE_S


class Proxy:
    """Carry bytes both ways; while the proxy is cut, connections stay open and carry no byte."""

    def __init__(self, host: str, port: int) -> None:
        self.carried = bytearray()  # all carried bytes, both ways
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._flows = threading.Event()
        self._flows.set()
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def endpoint(self) -> str:
        """The proxy's address."""
        return f"127.0.0.1:{self.port}"

    @property
    def target(self) -> str:
        """The address of the target."""
        return f"{self._target[0]}:{self._target[1]}"

    def cut(self) -> None:
        """Stop all traffic."""
        self._flows.clear()

    def heal(self) -> None:
        """Resume all traffic, including the waiting bytes."""
        self._flows.set()

    def close(self) -> None:
        """End all connections."""
        self._ended.set()
        self._flows.set()
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE_S)

    def _wait(self, near: socket.socket) -> None:
        """Return once bytes of the connection ``near`` may get through."""
        self._flows.wait()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                if not select.select([self._listener], [], [], 0.1)[0]:
                    continue
                near, _ = self._listener.accept()
            except (OSError, ValueError):
                return
            thread = threading.Thread(target=self._carry, args=(near,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _carry(self, near: socket.socket) -> None:
        with near, contextlib.suppress(OSError):
            self._wait(near)
            with socket.create_connection(self._target) as far:
                other = {near: far, far: near}
                while not self._ended.is_set():
                    for ready in select.select(list(other), [], [], 0.1)[0]:
                        if not (data := ready.recv(65_536)):
                            return
                        self._wait(near)
                        self.carried += data
                        other[ready].sendall(data)


@contextlib.contextmanager
def proxy_to(endpoint: str) -> Iterator[Proxy]:
    """Run a proxy to ``HOST:PORT``."""
    host, _, port = endpoint.rpartition(":")
    proxy = Proxy(host, int(port))
    try:
        yield proxy
    finally:
        proxy.close()
