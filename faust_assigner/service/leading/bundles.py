"""A decision of the leader: a small bundle of compares and writes, which is applied whole or not at all.

Bundles do not depend on each other, so that one partition that is stuck, or has just changed, holds up no
other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from faust_assigner.service import keys as codec
from faust_assigner.service.handoff import TopicPartition
from faust_assigner.service.records import Assigned
from faust_assigner.service.store.base import MAX_OPERATIONS, Compare, Put, Write
from faust_assigner.service.view import View

#: One compare of each transaction is the leader's key.
MAX_BUNDLE = MAX_OPERATIONS - 1
#: etcd refuses a request of 1.5 MiB, keys and all.
MAX_CHUNK_BYTES = 1 << 20
#: Partitions that one line of the log names.
NAMED = 20
#: Stand for leases of a cool-down's time, and of ``EXPELLED_S``, which the leader takes out when it writes
#: the bundle.
COOLDOWN_LEASE = -1
EXPELLED_LEASE = -2


@dataclass(frozen=True)
class Bundle:
    """One decision. ``told`` is for the log: (partition or consumer, what happens to it and why); ``ended``
    has the hand-offs that end by it: (outcome, partition); ``warning`` is for the operator."""

    compares: tuple[Compare, ...]
    writes: tuple[Write, ...]
    told: tuple[tuple[str, str], ...] = ()
    ended: tuple[tuple[str, TopicPartition], ...] = ()
    warning: str = ""


def joined(bundles: Sequence[Bundle]) -> Iterator[Bundle]:
    """Those of one crew, all or none as far as the store takes so many at once; what is left follows."""
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
    """What the bundles do, as lines of the log: one for all partitions to which the same happens."""
    found: dict[str, list[str]] = {}
    for bundle in bundles:
        for subject, what in bundle.told:
            found.setdefault(what, []).append(subject)
    for what, subjects in found.items():
        named = ", ".join(subjects[:NAMED])
        more = f" and {len(subjects) - NAMED} more" if len(subjects) > NAMED else ""
        yield f"{named}{more}: {what}"


def chunks(bundles: Sequence[Bundle], limit: int) -> Iterator[list[Bundle]]:
    """Bundles together while neither their compares nor their writes are more than ``limit``, nor their
    values more than :data:`MAX_CHUNK_BYTES`."""
    chunk: list[Bundle] = []
    sizes = [0, 0, 0]
    for bundle in bundles:
        values = sum(len(write.value) for write in bundle.writes if isinstance(write, Put))
        more = [len(bundle.compares), len(bundle.writes), values]
        limits = (limit, limit, MAX_CHUNK_BYTES)
        if chunk and any(
            size + extra > most for size, extra, most in zip(sizes, more, limits, strict=True)
        ):
            yield chunk
            chunk, sizes = [], [0, 0, 0]
        chunk.append(bundle)
        sizes = [size + extra for size, extra in zip(sizes, more, strict=True)]
    if chunk:
        yield chunk


def still_gone(view: View, name: str) -> Compare:
    """Whoever came back meanwhile goes on with what is its own: it is not given away under its hands."""
    return view.same(view.keys.consumer(name))


def owner(
    view: View, at: TopicPartition, owner: str, incarnation: str, offset: int | None = None
) -> Put:
    """The assignment as it is written for a new owner."""
    assigned = Assigned(at, owner, offset=offset, incarnation=incarnation)
    return Put(view.keys.assignment(at), codec.dump_assigned(assigned))
