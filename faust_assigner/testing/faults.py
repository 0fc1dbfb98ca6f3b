"""Faults for single clients of a broker, by client id: cut off, stalled, or a lost response.

:func:`with_faults` makes a broker's connections check these faults before each read and write.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from faust_assigner.broker.connection import INSIDE, Connection
from faust_assigner.broker.security.listeners import Listener
from faust_assigner.broker.server import BrokerServer
from faust_assigner.broker.wire import RequestHeader

CLIENT_ID_AT = 12  # bytes before the client id in a request: size, key, version and correlation id


class Faults:
    """The faults by client id. Only the broker's event loop may use this object."""

    def __init__(self) -> None:
        self.dead: set[str] = set()
        self.stalled: dict[str, list[FaultyConnection]] = {}
        self._losses: list[_Loss] = []
        self.lost = 0  # the number of lost responses so far

    def kill(self, client_id: str) -> None:
        """Cut a client off: the broker reads no request of the client and sends no response."""
        self.dead.add(client_id)

    def stall(self, client_id: str) -> None:
        """Hold the client's requests unread until :meth:`resume`."""
        self.stalled.setdefault(client_id, [])

    def resume(self, client_id: str) -> None:
        """Serve the client's held requests."""
        for connection in self.stalled.pop(client_id, ()):
            connection.process_held_data()

    def lose(self, client_id: str, api_key: int | None = None, times: int = 1) -> None:
        """Apply the client's next ``times`` requests, but close the connection before the response.

        With ``api_key`` only requests of this API count.
        """
        self._losses.append(_Loss(client_id, api_key, times))

    def loses(self, client_id: str, api_key: int) -> bool:
        """Return whether the response to this client and API must be lost, and count the loss."""
        for loss in self._losses:
            if loss.client_id == client_id and loss.api_key in (None, api_key):
                loss.times -= 1
                if loss.times <= 0:
                    self._losses.remove(loss)
                self.lost += 1
                return True
        return False


@dataclass(slots=True)
class _Loss:
    client_id: str
    api_key: int | None
    times: int


class FaultyConnection(Connection):
    """A connection of the broker that applies ``faults`` to its client."""

    faults: Faults

    def __init__(self, server: BrokerServer, listener: Listener = INSIDE) -> None:
        super().__init__(server, listener)
        self._client_id: str | None = None
        self._waiting = b""
        self._first = b""

    def data_received(self, data: bytes) -> None:
        """Process received data: at once, later (stalled client) or never (cut-off client)."""
        if self._client_id is None:
            self._first += data
            self._client_id = _client_id(self._first)
        if self._client_id in self.faults.dead:
            self.abort()
            return
        line = self.faults.stalled.get(self._client_id or "")
        if line is None:
            super().data_received(data)
            return
        if self not in line:
            line.append(self)
        self._waiting += data

    def process_held_data(self) -> None:
        """Process the data that arrived while the client was stalled."""
        waiting, self._waiting = self._waiting, b""
        if waiting and not self.is_closing:
            super().data_received(waiting)

    def _answer_repeated(self, frame: bytes) -> bool:
        """Return False: every request must be decoded, because its response may have to be lost."""
        return False

    def _respond(self, header: RequestHeader, outcome: object) -> None:
        # A client may be cut off while its request waits, for example for records.
        is_dead = self._client_id in self.faults.dead
        if is_dead or self.faults.loses(header.client_id, header.api_key):
            self.abort()
        else:
            super()._respond(header, outcome)


def _client_id(data: bytes) -> str | None:
    """Return the client id in a connection's first bytes, or None if too few bytes have arrived."""
    if len(data) < CLIENT_ID_AT + 2:
        return None
    (length,) = struct.unpack_from(">h", data, CLIENT_ID_AT)
    end = CLIENT_ID_AT + 2 + max(length, 0)
    return data[CLIENT_ID_AT + 2 : end].decode(errors="replace") if len(data) >= end else None


def with_faults(server: BrokerServer, faults: Faults) -> None:
    """Make the server's new connections apply ``faults``."""
    server.connection_type = type("Connection", (FaultyConnection,), {"faults": faults})
