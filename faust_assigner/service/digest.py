"""A digest of held partitions, by which a consumer and the service detect a difference.

Each held partition gives a number: the first eight bytes, big-endian, of SHA-256 over
``TOPIC/PARTITION/EPOCH``. The digest is the sum of these numbers modulo 2**64. Changes can
therefore be applied to the digest in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class Held:
    """The number of held partitions, and their digest."""

    count: int = 0
    digest: int = 0

    def plus(self, topic: str, partition: int, epoch: int) -> Held:
        """Return the digest with this partition added."""
        return Held(self.count + 1, (self.digest + _token(topic, partition, epoch)) % _MODULUS)

    def minus(self, topic: str, partition: int, epoch: int) -> Held:
        """Return the digest without this partition."""
        return Held(self.count - 1, (self.digest - _token(topic, partition, epoch)) % _MODULUS)


def digest_of(grants: Iterable[tuple[str, int, int]]) -> Held:
    """Digest the grants, each (topic, partition, epoch); takes some microseconds per grant."""
    tokens = [_token(*grant) for grant in grants]
    return Held(len(tokens), sum(tokens) % _MODULUS)


def _token(topic: str, partition: int, epoch: int) -> int:
    return int.from_bytes(sha256(f"{topic}/{partition}/{epoch}".encode()).digest()[:8])
