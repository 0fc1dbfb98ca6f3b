"""Ports on loopback for servers that tests start."""

from __future__ import annotations

import random
import socket

#: Below the ports that Linux (32,768 and above) and macOS (49,152 and above) give to outgoing connections.
SERVED = range(20_000, 32_000)
TRIES = 100


def free_port() -> int:
    """Return a TCP port of loopback that nothing listens on, for a server that starts a little later.

    The port is not one that the system gives to outgoing connections: such a connection, of any process, may
    take the port before the server does. It is drawn without the seed of ``random``, so that tests with one
    seed that run side by side get different ports.

    Raises:
        OSError: none of 100 drawn ports is free.
    """
    for port in random.SystemRandom().sample(SERVED, TRIES):
        with socket.socket() as probe:
            # As servers do: a port whose last connections are still being closed is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(
        f"none of {TRIES} ports between {SERVED.start} and {SERVED.stop} is free on 127.0.0.1"
    )
