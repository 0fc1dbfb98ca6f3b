"""Bundles: the leader's decisions, each with its compares and writes, applied atomically.

Bundles do not depend on each other. A refused bundle, for example of a partition that has just
changed, therefore does not delay the other bundles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from faust_assigner.service import values as codec
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.records import Assigned
from faust_assigner.service.store.base import MAX_OPERATIONS, Compare, Put, Write
from faust_assigner.service.view import View

#: One compare of each transaction is reserved for the leader's key.
MAX_BUNDLE = MAX_OPERATIONS - 1
#: etcd refuses a request of 1.5 MiB, including the keys.
MAX_CHUNK_BYTES = 1 << 20
#: Maximum number of partitions that a log line names.
NAMED = 20
#: Placeholders for leases of ``cooldown_s`` and of ``EXPELLED_S`` seconds. The leader replaces the
#: placeholders by granted leases when it writes the bundle.
COOLDOWN_LEASE = -1
EXPELLED_LEASE = -2


@dataclass(frozen=True)
class Bundle:
    """One decision of the leader.

    ``told``     for the log: (partition or consumer, the change and its reason)
    ``ended``    the hand-offs that end by this decision: (outcome, partition)
    ``warning``  for the operator
    """

    compares: tuple[Compare, ...]
    writes: tuple[Write, ...]
    told: tuple[tuple[str, str], ...] = ()
    ended: tuple[tuple[str, TopicPartition], ...] = ()
    warning: str = ""


def joined(bundles: Sequence[Bundle]) -> Iterator[Bundle]:
    """Join the bundles of co-partitioned partitions, to be applied atomically.

    A bundle above the store's limit for a transaction is split into several bundles.
    """
    for chunk in chunks(bundles, MAX_BUNDLE):
        yield (
            chunk[0]
            if len(chunk) == 1
            else Bundle(
                tuple(compare for bundle in chunk for compare in bundle.compares),
                tuple(write for bundle in chunk for write in bundle.writes),
                tuple(line for bundle in chunk for line in bundle.told),
                tuple(ending for bundle in chunk for ending in bundle.ended),
            )
        )


def lines(bundles: Iterable[Bundle]) -> Iterator[str]:
    """Describe the bundles in log lines: partitions with the same change share a line."""
    found: dict[str, list[str]] = {}
    for bundle in bundles:
        for subject, what in bundle.told:
            found.setdefault(what, []).append(subject)
    for what, subjects in found.items():
        named = ", ".join(subjects[:NAMED])
        more = f" and {len(subjects) - NAMED} more" if len(subjects) > NAMED else ""
        yield f"{named}{more}: {what}"


def chunks(bundles: Sequence[Bundle], limit: int) -> Iterator[list[Bundle]]:
    """Group the bundles in order.

    The different compares and the writes of a group are each at most ``limit``, and its values at
    most :data:`MAX_CHUNK_BYTES`. A bundle above these limits gets a separate chunk.
    """
    chunk: list[Bundle] = []
    compared: set[Compare] = set()
    writes = size = 0
    for bundle in bundles:
        values = sum(len(write.value) for write in bundle.writes if isinstance(write, Put))
        more = len(set(bundle.compares) - compared)
        if chunk and (
            len(compared) + more > limit
            or writes + len(bundle.writes) > limit
            or size + values > MAX_CHUNK_BYTES
        ):
            yield chunk
            chunk, compared, writes, size = [], set(), 0, 0
        chunk.append(bundle)
        compared.update(bundle.compares)
        writes, size = writes + len(bundle.writes), size + values
    if chunk:
        yield chunk


def still_gone(view: View, name: str) -> Compare:
    """Make a compare that fails if the consumer has returned, and thus keeps its partitions."""
    return view.same(view.keys.consumer(name))


def owner(
    view: View, at: TopicPartition, owner: str, incarnation: str, offset: int | None = None
) -> Put:
    """Make the write that assigns the partition to a new owner."""
    assigned = Assigned(at, owner, offset=offset, incarnation=incarnation)
    return Put(view.keys.assignment(at), codec.dump_assigned(assigned))
