"""A digest of held partitions, so that a consumer and the service find out in a few bytes that they disagree.

For each held partition: the first eight bytes, big-endian, of SHA-256 over ``TOPIC/PARTITION/EPOCH``. The
digest is the sum of these numbers modulo 2**64: it can be kept up to date with each change, in any order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class Held:
    """How many partitions are held, and their digest."""

    count: int = 0
    digest: int = 0

    def plus(self, topic: str, partition: int, epoch: int) -> Held:
        """With one partition more."""
        return Held(self.count + 1, (self.digest + _token(topic, partition, epoch)) % _MODULUS)

    def minus(self, topic: str, partition: int, epoch: int) -> Held:
        """With one partition less."""
        return Held(self.count - 1, (self.digest - _token(topic, partition, epoch)) % _MODULUS)


def held(grants: Iterable[tuple[str, int, int]]) -> Held:
    """Of (topic, partition, epoch). Cost: some microseconds each."""
    tokens = [_token(*grant) for grant in grants]
    return Held(len(tokens), sum(tokens) % _MODULUS)


def _token(topic: str, partition: int, epoch: int) -> int:
    return int.from_bytes(sha256(f"{topic}/{partition}/{epoch}".encode()).digest()[:8])
