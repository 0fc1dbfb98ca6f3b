"""Users and their salted credentials (RFC 5802): passwords are not stored and cannot be recovered.

A credential belongs to a user and a SCRAM mechanism. A PLAIN log-in checks the password against the user's
first credential in the order of MECHANISMS.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from faust_assigner.broker.storage.store import Store
from faust_assigner.errors import ConfigError

PREFIX: Final = b"z"  # the first byte of a key; the mechanism's number and the user name follow
HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = tuple(HASHES)  # Kafka's numbers of the mechanisms start at 1
ITERATIONS: Final = 4_096
MOST_ITERATIONS: Final = 16_384
SALT_BYTES: Final = 16
LONGEST_USER: Final = 1_024  # bytes
LONGEST_SALT: Final = 1_024  # bytes


class Credential(NamedTuple):
    """The data to verify a user's password, for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def from_salted(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """Derive a credential from a salted password."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    return Credential(salt, stored_key, hmac.digest(salted, b"Server Key", name), iterations)


def from_password(
    mechanism: str, password: str, salt: bytes | None = None, iterations: int = ITERATIONS
) -> Credential:
    """Derive a credential from a password. Cost: some milliseconds; may run in any thread."""
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return from_salted(mechanism, salted, salt, iterations)


class Credentials:
    """All users of one broker, restored from the store and written to it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str], Credential] = {}
        self._secret = os.urandom(32)
        for key, value in store.scan(PREFIX):
            mechanism, user = MECHANISMS[key[1] - 1], key[2:].decode()
            salt, stored_key, server_key, iterations = json.loads(value)
            self._known[user, mechanism] = Credential(
                bytes.fromhex(salt),
                bytes.fromhex(stored_key),
                bytes.fromhex(server_key),
                iterations,
            )

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Return (user, mechanism) pairs in order."""
        return iter(sorted(self._known))

    def __len__(self) -> int:
        return len(self._known)

    def get(self, user: str, mechanism: str) -> Credential | None:
        """Return the user's credential for a mechanism, or None."""
        return self._known.get((user, mechanism))

    def fake_credential(self, user: str, mechanism: str) -> Credential:
        """Return a constant fake credential for an unknown user, which hides that the user is unknown."""
        name = HASHES[mechanism]
        keys = [
            hmac.digest(self._secret, part + user.encode(), name) for part in (b"salt", b"a", b"b")
        ]
        return Credential(keys[0][:SALT_BYTES], keys[1], keys[2], ITERATIONS)

    def change(
        self, puts: Mapping[tuple[str, str], Credential], deletes: Iterable[tuple[str, str]] = ()
    ) -> None:
        """Store and delete credentials by (user, mechanism), all or nothing.

        A credential in both arguments is deleted. Raises StoreFailed.
        """
        gone = list(deletes)
        self._store.write(
            [(_store_key(*name), _store_value(credential)) for name, credential in puts.items()],
            [_store_key(*name) for name in gone],
        )
        self._known.update(puts)
        for name in gone:
            self._known.pop(name, None)

    def set_password(self, user: str, password: str) -> None:
        """Create a user with credentials for all mechanisms, or change the password of a user."""
        if not self.is_password(user, password) or not all(
            (user, mechanism) in self._known for mechanism in MECHANISMS
        ):
            self.change({(user, m): from_password(m, password) for m in MECHANISMS})

    def is_password(self, user: str, password: str) -> bool:
        """Check a user's password, equally slowly for an unknown user. May run in any thread."""
        found = {m: known for m in MECHANISMS if (known := self._known.get((user, m))) is not None}
        mechanism = next(iter(found), MECHANISMS[0])
        known = found.get(mechanism) or self.fake_credential(user, mechanism)
        given = from_password(mechanism, password, known.salt, known.iterations)
        return hmac.compare_digest(given.stored_key, known.stored_key) and bool(found)


def read_users(path: Path) -> list[tuple[str, str]]:
    """Parse ``NAME=PASSWORD`` lines. Raises ConfigError, whose message contains no password."""
    found = []
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"sasl.users.file cannot be read: {path}") from None
    for number, line in enumerate(lines, 1):
        name, _, password = line.partition("=")
        if line.strip() and not line.startswith("#"):
            if not name.strip() or not password:
                raise ConfigError(f"line {number} of {path} is not NAME=PASSWORD")
            found.append((name.strip(), password))
    return found


def _store_key(user: str, mechanism: str) -> bytes:
    return PREFIX + bytes([MECHANISMS.index(mechanism) + 1]) + user.encode()


def _store_value(credential: Credential) -> bytes:
    texts = [part.hex() for part in credential[:3]]
    return json.dumps([*texts, credential.iterations]).encode()
