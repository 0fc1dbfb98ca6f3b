"""Faults that a test asks for, by client id: a peer that is dead or stalled, an answer that gets lost.

A broker has none of this unless :attr:`BrokerServer.faults` is set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class Faults:
    """What happens to whom. On the broker's event loop only."""

    def __init__(self) -> None:
        self._dead: set[str] = set()
        self._stalled: dict[str, list[Callable[[], None]]] = {}
        self._losses: list[Loss] = []
        self.lost = 0  # answers so far

    # -- what tests say --------------------------------------------------------------------------

    def kill(self, client_id: str) -> None:
        """Nothing more is heard of that client, and it hears nothing: whatever it sends, it is cut off."""
        self._dead.add(client_id)

    def stall(self, client_id: str) -> None:
        """Its requests wait, unseen, until :meth:`resume`."""
        self._stalled.setdefault(client_id, [])

    def resume(self, client_id: str) -> None:
        """Serve what waited."""
        for go_on in self._stalled.pop(client_id, ()):
            go_on()

    def lose(self, client_id: str, api_key: int | None = None, times: int = 1) -> None:
        """Carry out its next request (of that API), and break the connection instead of answering."""
        self._losses.append(Loss(client_id, api_key, times))

    # -- what the server asks --------------------------------------------------------------------

    def is_dead(self, client_id: str) -> bool:
        """Whether a request of that client is to be cut off."""
        return client_id in self._dead

    def waits(self, client_id: str, go_on: Callable[[], None]) -> bool:
        """Whether a request has to wait; ``go_on`` is called once it need not any more."""
        line = self._stalled.get(client_id)
        if line is None:
            return False
        line.append(go_on)
        return True

    def loses(self, client_id: str, api_key: int) -> bool:
        """Whether this answer is to be lost."""
        for loss in self._losses:
            if loss.client_id == client_id and loss.api_key in (None, api_key):
                loss.times -= 1
                if loss.times <= 0:
                    self._losses.remove(loss)
                self.lost += 1
                return True
        return False


@dataclass(slots=True)
class Loss:
    """Answers yet to lose."""

    client_id: str
    api_key: int | None
    times: int
