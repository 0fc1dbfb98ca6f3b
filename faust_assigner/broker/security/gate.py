"""The log-in of one connection (SASL): PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, and delays after failures.

Before the log-in is complete, a peer may send only ApiVersions and the two SASL requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from scramp import ScramException, ScramMechanism
from scramp.core import ScramServer

from faust_assigner.broker.security.credentials import LONGEST_USER, Credential, Credentials

PLAIN: Final = "PLAIN"
API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
BEFORE_LOG_IN: Final = frozenset((API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE))
FRAME_BYTES: Final = 64 * 1024  # the largest request before log-in
#: the longest message of SCRAM. The check of a name takes the event loop some microseconds for each character
SCRAM_BYTES: Final = 2 * LONGEST_USER
LOG_IN_TIMEOUT_S: Final = 10.0
LONGEST_DELAY_S: Final = 5.0
FORGET_AFTER_S: Final = 60.0
ADDRESSES: Final = 10_000  # with failed log-ins; at the limit, the oldest failure is forgotten


class LogInFailed(Exception):
    """The peer sent wrong credentials or violated the protocol."""


class FailedLogIns:
    """The delay of the answer to a failed log-in; each further failure of an address doubles the delay."""

    def __init__(self, base_ms: int, now: Callable[[], float]) -> None:
        self._base_s = base_ms / 1000
        self._now = now
        self._failures: dict[str, tuple[int, float]] = {}

    def delay_s(self, address: str) -> float:
        """Count a failure of an address; return the delay of its answer in seconds."""
        now = self._now()
        count, last = self._failures.pop(address, (0, now))
        count = 1 if now - last > FORGET_AFTER_S else count + 1
        self._failures[address] = (count, now)  # re-inserted, so the oldest failure is first
        if len(self._failures) > ADDRESSES:
            del self._failures[next(iter(self._failures))]
        return min(self._base_s * 2.0 ** min(count - 1, 30), LONGEST_DELAY_S)


class Gate:
    """The state of one connection's log-in. ``aside`` runs work in a thread."""

    def __init__(
        self,
        credentials: Credentials,
        mechanisms: tuple[str, ...],
        failures: FailedLogIns,
        address: str,
        aside: Callable[[Callable[[], bool]], Awaitable[bool]],
    ) -> None:
        self.mechanisms = mechanisms
        self.user: str | None = None
        self.has_failed = False
        self.is_raw = False  # frames are bare tokens without request headers (SaslHandshake 0)
        self._credentials = credentials
        self._failures = failures
        self._address = address
        self._aside = aside
        self._mechanism = ""
        self._claimed = ""
        self._scram: ScramServer | None = None

    @property
    def is_open(self) -> bool:
        """Whether the peer has logged in."""
        return self.user is not None

    def admits(self, api_key: int) -> bool:
        """Whether the peer may call the API in its present state."""
        return self.is_open or (not self.has_failed and api_key in BEFORE_LOG_IN)

    def choose(self, mechanism: str, *, is_raw: bool) -> bool:
        """Start a log-in; return False if the mechanism is not offered, which ends the connection."""
        if mechanism not in self.mechanisms or self._mechanism:
            self.has_failed = True
            return False
        self._mechanism, self.is_raw = mechanism, is_raw
        return True

    async def answer(self, token: bytes) -> bytes:
        """Return the answer to a peer's token. Raises LogInFailed after a delay."""
        try:
            return await self._answer(token)
        except (LogInFailed, ScramException, UnicodeDecodeError):
            self.has_failed = True
            await asyncio.sleep(self._failures.delay_s(self._address))
            raise LogInFailed("the user name, the password or the message is wrong") from None

    async def _answer(self, token: bytes) -> bytes:
        if not self._mechanism or self.is_open:
            raise LogInFailed
        if self._mechanism == PLAIN:
            return await self._plain(token)
        if len(token) > SCRAM_BYTES:
            raise LogInFailed
        text = token.decode()
        if self._scram is None:
            self._scram = ScramMechanism(self._mechanism).make_server(self._keys)
            self._scram.set_client_first(text)
            return str(self._scram.get_server_first()).encode()
        self._scram.set_client_final(text)
        final = str(self._scram.get_server_final()).encode()
        if self._credentials.get(self._claimed, self._mechanism) is None:
            raise LogInFailed
        self._let_in(self._claimed)
        return final

    def _keys(self, user: str) -> Credential:
        self._claimed = user
        known = self._credentials.get(user, self._mechanism)
        return known or self._credentials.fake_credential(user, self._mechanism)

    async def _plain(self, token: bytes) -> bytes:
        parts = token.decode().split("\0")
        if len(parts) != 3 or not parts[1] or not parts[2] or parts[0] not in ("", parts[1]):
            raise LogInFailed
        _, user, password = parts
        if not await self._aside(lambda: self._credentials.is_password(user, password)):
            raise LogInFailed
        self._let_in(user)
        return b""

    def _let_in(self, user: str) -> None:
        self.user, self.is_raw = user, False
