"""An assignor that gives each partition to several consumers, for example replicas of a search index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aiokafka.cluster import ClusterMetadata

from faust_assigner.clients.assignors import Assigned, Joined, PlannedAssignor
from faust_assigner.planner import plan

_Copies = dict[str, set[tuple[str, int]]]


class RedundantAssignor(PlannedAssignor):
    """Assigns every partition to ``copies`` members, or to all of a smaller group, with few moves.

    With equal subscriptions and capacities, member loads differ by at most 1. All members of a group share
    one committed offset per partition, so such members must store their own offsets with their results.
    """

    def __init__(self, copies: int, *, capacity: float = 1.0) -> None:
        if copies < 1:
            raise ValueError(f"copies must be 1 or more, got {copies}")
        super().__init__(capacity=capacity)
        self.copies = copies
        self.name = f"redundant-{copies}"  # members with different values must not share a round

    def place(
        self, joined: Sequence[Joined], partitions: Mapping[str, int], cluster: ClusterMetadata
    ) -> dict[str, Assigned]:
        """Return member id -> first copies and spare copies."""
        made = plan(
            [one.member for one in joined],
            partitions,
            replicas=self.copies - 1,
            changelogs=partitions,
            co_partitioned=(),
        )
        ids = [one.member_id for one in joined]
        active = {
            m: {(t, n) for t, numbers in made.actives(m).items() for n in numbers} for m in ids
        }
        spare = {
            m: {(t, n) for t, numbers in made.standbys(m).items() for n in numbers} for m in ids
        }
        _even_out_spares(joined, active, spare)
        return {
            m: Assigned(active=_copies_by_topic(active[m]), spare=_copies_by_topic(spare[m]))
            for m in ids
        }


def _even_out_spares(joined: Sequence[Joined], active: _Copies, spare: _Copies) -> None:
    """Move spare copies until the members' sums of first and spare copies are even.

    The planner evens out first and spare copies separately, so that two sums may differ by 2. A spare moves
    if the receiver's new load is below the sender's old load, relative to their capacities. Spares that the
    sender does not hold yet move first. Each move lowers the sum of squared loads, so the loop ends.
    """
    capacity = {one.member_id: one.data.capacity for one in joined}
    held = {
        one.member_id: {
            (t, n)
            for claims in (one.data.active, one.data.spare)
            for t, numbers in claims.items()
            for n in numbers
        }
        for one in joined
    }
    topics = {one.member_id: frozenset(one.topics) for one in joined}

    def load(member: str) -> int:
        return len(active[member]) + len(spare[member])

    def steps() -> Iterator[tuple[str, str]]:
        ordered = sorted(capacity, key=lambda m: (load(m) / capacity[m], m))
        for heavy in reversed(ordered):
            for light in ordered:
                if (load(light) + 1) / capacity[light] < load(heavy) / capacity[heavy]:
                    yield heavy, light

    def step() -> bool:
        for heavy, light in steps():
            movable = [
                c for c in spare[heavy] - spare[light] - active[light] if c[0] in topics[light]
            ]
            if movable:
                copy = min(movable, key=lambda c: (c in held[heavy], c not in held[light], c))
                spare[heavy].discard(copy)
                spare[light].add(copy)
                return True
        return False

    while step():
        pass


def _copies_by_topic(copies: set[tuple[str, int]]) -> Mapping[str, Sequence[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(copies):
        topics.setdefault(topic, []).append(number)
    return topics
