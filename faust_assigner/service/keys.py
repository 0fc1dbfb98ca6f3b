"""The keys in the store, and checks of names.

The keys of the leader, consumers, topics, assignments and hand-offs are those of the original Kafka
Assigner; the other keys exist only in this package. A name is escaped, so that a legal Kafka name
with dots is one part of a key.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from faust_assigner.service.errors import BadRequest
from faust_assigner.service.handoff import TopicPartition

_CONSUMER_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_INCARNATION = re.compile(r"[A-Za-z0-9._:-]{0,128}")
_ENDPOINT = re.compile(r"[!-~]{0,512}")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_TO_ESCAPE = re.compile(r"[^A-Za-z0-9_-]")
MAX_PARTITIONS = 1_000_000


def checked_consumer(name: str) -> str:
    """Return the consumer's name. Raises ``BadRequest`` for an invalid name."""
    if not _CONSUMER_NAME.fullmatch(name):
        raise BadRequest(f"a consumer's name is 1 to 128 of A-Z a-z 0-9 . _ -, got {name[:200]!r}")
    return name


def checked_incarnation(incarnation: str) -> str:
    """Return the incarnation; "" means none. Raises ``BadRequest`` for an invalid incarnation."""
    if not _INCARNATION.fullmatch(incarnation) or incarnation == "-":
        raise BadRequest(
            f"an incarnation is up to 128 of A-Z a-z 0-9 . _ : -, got {incarnation[:200]!r}"
        )
    return incarnation


def checked_endpoint(endpoint: str) -> str:
    """Return the endpoint; "" means none. Raises ``BadRequest`` for an invalid endpoint."""
    if not _ENDPOINT.fullmatch(endpoint):
        raise BadRequest(
            f"an endpoint is up to 512 printable ASCII characters without spaces, got {endpoint[:200]!r}"
        )
    return endpoint


def checked_topic(name: str) -> str:
    """Return the topic's name. Raises ``BadRequest`` if Kafka does not allow the name."""
    if not _TOPIC_NAME.fullmatch(name) or name in (".", ".."):
        raise BadRequest(f"a topic's name is 1 to 249 of A-Z a-z 0-9 . _ -, got {name[:300]!r}")
    return name


def one_line(text: str, most: int) -> str:
    """Return at most ``most`` characters of a caller's text, without control characters.

    Each unprintable character becomes a space: a line break would forge a line of the log, and an
    escape sequence would act on an operator's terminal.
    """
    return "".join(one if one.isprintable() else " " for one in text[:most])


def escape(name: str) -> str:
    """Escape a name as one part of a key: all but letters, digits, ``-`` and ``_`` become %XX."""
    return _TO_ESCAPE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one group in the store (etcd or memory)."""

    prefix: str

    @property
    def leader(self) -> str:
        """The key of the leading instance; bound to the instance's lease."""
        return f"{self.prefix}assigner/leader"

    def consumer(self, name: str) -> str:
        """The key of a registered consumer; bound to the consumer's lease."""
        return f"{self.prefix}consumers/{escape(name)}"

    def fence(self, name: str, incarnation: str) -> str:
        """The key of a replaced or expelled incarnation; bound to the incarnation's lease.

        Until the key is gone, the process may still work.
        """
        return f"{self.prefix}fences/{escape(name)}/{escape(incarnation) or '-'}"

    def expelled(self, name: str, incarnation: str) -> str:
        """The key of an incarnation that was expelled because it did not release a partition."""
        return f"{self.prefix}expelled/{escape(name)}/{escape(incarnation) or '-'}"

    @property
    def awaiting(self) -> str:
        """The key that makes the leader wait for missing consumers after an outage.

        Its lease lasts for the rebalance delay.
        """
        return f"{self.prefix}awaiting/group"

    def departed(self, name: str) -> str:
        """The key of a consumer that deregistered while it owned partitions."""
        return f"{self.prefix}departed/{escape(name)}"

    def resync(self, name: str) -> str:
        """The key of a consumer that must get its whole assignment again.

        Bound to the consumer's lease.
        """
        return f"{self.prefix}resyncs/{escape(name)}"

    @property
    def paused(self) -> str:
        """The key that stops the leader's moves for balance."""
        return f"{self.prefix}paused/group"

    def pin(self, at: TopicPartition) -> str:
        """The key of an operator's order to keep a partition on a consumer."""
        return f"{self.prefix}pins/{escape(at.topic)}/{at.partition}"

    def topic(self, name: str) -> str:
        """The key of a topic's partition count."""
        return f"{self.prefix}config/topics/{escape(name)}"

    def removed(self, name: str) -> str:
        """The key of a topic that an operator removed, or Kafka deleted.

        An instance does not add such a topic again from its configuration.
        """
        return f"{self.prefix}removed/{escape(name)}"

    def assignment(self, at: TopicPartition) -> str:
        """The key of a partition's owner."""
        return f"{self.prefix}assignments/{escape(at.topic)}/{at.partition}"

    def handoff(self, at: TopicPartition) -> str:
        """The key of a partition's hand-off."""
        return f"{self.prefix}handoffs/{escape(at.topic)}/{at.partition}"

    def cooldown(self, at: TopicPartition, consumer: str) -> str:
        """The key of a cool-down, in which the consumer does not get the partition."""
        return f"{self.prefix}cooldowns/{escape(at.topic)}/{at.partition}/{escape(consumer)}"

    def replicas(self, name: str) -> str:
        """The key of the replicas that a consumer must keep warm."""
        return f"{self.prefix}replicas/{escape(name)}"

    @property
    def epochs(self) -> str:
        """The key of the epochs' base, which is added to each revision.

        The service raises the base after a restore of the store.
        """
        return f"{self.prefix}epochs/base"

    def kind(self, key: str) -> tuple[str, tuple[str, ...]]:
        """Split a key under the prefix: (kind, unescaped names).

        For example ``("assignments", ("orders", "0"))``.
        """
        kind, *names = key[len(self.prefix) :].split("/")
        return kind, tuple(unquote(name) for name in names)
