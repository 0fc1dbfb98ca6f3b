"""Ports on loopback for servers that tests start."""

from __future__ import annotations

import random
import socket

#: Ports that the system does not give to outgoing connections: Linux gives ports from 32,768 on,
#: macOS ports from 49,152 on.
SERVED = range(20_000, 32_000)
TRIES = 100


def free_port() -> int:
    """Return a free TCP port of loopback, for a server that starts a little later.

    The system gives no outgoing connection this port, so no connection can take the port before the
    server does. The choice ignores the seed of ``random``, so that tests with equal seeds that run
    side by side get different ports. Raises OSError if none of 100 random ports is free.
    """
    for port in random.SystemRandom().sample(SERVED, TRIES):
        with socket.socket() as probe:
            # Servers set this option, too: a port whose last connections are still being closed is
            # free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(
        f"none of {TRIES} ports between {SERVED.start} and {SERVED.stop} is free on 127.0.0.1"
    )
