"""``uniform``: equal numbers of partitions on every member, and as few moves as possible.

Topics with the same subscribers are one class. The number of partitions of each class on each member is
decided first, then the partitions. The loads are as even as subscriptions allow. With such loads, as many
partitions as possible stay, even with different subscriptions (Kafka's heuristic may move more).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from faust_assigner.actives.counts import optimal_counts
from faust_assigner.actives.numbers import count_by_member, fill, keep_and_shed
from faust_assigner.coordinator.assignors.spec import GroupSpec, Target
from faust_assigner.coordinator.catalogue import Topic, TopicId
from faust_assigner.model import NOBODY, Bools, Ints

Pair = tuple[TopicId, int]
Step = tuple[int, int, int]

#: With more members and mixed subscriptions the assignor may make avoidable moves, because the search that
#: avoids them costs O(members^3).
MOST_FOR_EXACT: Final = 300


def assign_uniformly(spec: GroupSpec, topics: Mapping[TopicId, Topic]) -> Target:
    """Return even loads with the fewest moves. In a tie, lower member ids get or keep more partitions.

    Cost: O(members x topics + partitions) for equal subscriptions; otherwise also a min-cost flow over
    classes and members.
    """
    line = sorted(spec.members)
    classes = _topics_by_subscribers(spec, line, topics)
    before = _before(spec, line)
    here = _arrived_partitions(spec)
    tasks = [_partitions_in_order(ids, topics, here) for ids in classes.values()]
    owners = [
        np.array([before.get(pair, NOBODY) for pair in pairs], dtype=np.int64) for pairs in tasks
    ]
    allowed = np.array(
        [[m in readers for m in range(len(line))] for readers in classes], dtype=np.bool_
    )
    allowed = allowed.reshape(len(classes), len(line))
    for owner, may in zip(owners, allowed, strict=True):
        owner[~np.append(may, True)[owner]] = NOBODY  # the member no longer subscribes to the topic
    counts = _counts(owners, allowed)
    given: dict[str, list[Pair]] = {member_id: [] for member_id in line}
    for pairs, owner, count in zip(tasks, owners, counts, strict=True):
        chosen = fill(keep_and_shed(owner, count, count_by_member(owner, len(line))), count)
        for pair, m in zip(pairs, chosen.tolist(), strict=True):
            given[line[m]].append(pair)
    return {member_id: by_topic(pairs) for member_id, pairs in given.items()}


def by_topic(pairs: list[Pair]) -> dict[TopicId, tuple[int, ...]]:
    """Group pairs by topic, with the partitions in ascending order."""
    found: dict[TopicId, list[int]] = {}
    for topic_id, partition in sorted(pairs):
        found.setdefault(topic_id, []).append(partition)
    return {topic_id: tuple(numbers) for topic_id, numbers in found.items()}


def _topics_by_subscribers(
    spec: GroupSpec, line: list[str], topics: Mapping[TopicId, Topic]
) -> dict[frozenset[int], list[TopicId]]:
    """Return topics by their subscribers (indexes into ``line``), without unsubscribed topics."""
    classes: dict[frozenset[int], list[TopicId]] = {}
    for topic_id in sorted(topics):
        readers = frozenset(
            m for m, member_id in enumerate(line) if topic_id in spec.members[member_id].topics
        )
        if readers and topics[topic_id].partitions:
            classes.setdefault(readers, []).append(topic_id)
    return classes


def _arrived_partitions(spec: GroupSpec) -> frozenset[Pair]:
    """Return the partitions that have arrived at their member of the last target."""
    both = (
        (topic_id, number)
        for member in spec.members.values()
        for topic_id, numbers in member.target.items()
        for number in set(numbers).intersection(member.held.get(topic_id, ()))
    )
    return frozenset(both)


def _partitions_in_order(
    ids: list[TopicId], topics: Mapping[TopicId, Topic], here: frozenset[Pair]
) -> list[Pair]:
    """Return the partitions of a class, first the arrived partitions, which are kept with priority."""
    pairs = [(t, p) for t in ids for p in range(topics[t].partitions)]
    return sorted(pairs, key=lambda pair: pair not in here)


def _before(spec: GroupSpec, line: list[str]) -> dict[Pair, int]:
    """Return the member of each partition in the last target; of several members, the first in ``line``."""
    before: dict[Pair, int] = {}
    for m, member_id in enumerate(line):
        for topic_id, numbers in spec.members[member_id].target.items():
            for number in numbers:
                before.setdefault((topic_id, number), m)
    return before


def _counts(owners: list[Ints], allowed: Bools) -> Ints:
    members = allowed.shape[1]
    sizes = np.array([owner.size for owner in owners], dtype=np.int64)
    held = np.array([count_by_member(owner, members) for owner in owners], dtype=np.int64)
    held = held.reshape(allowed.shape)
    counts = optimal_counts(sizes, allowed, held, np.zeros_like(held), np.ones(members))
    if len(owners) > 1 and members <= MOST_FOR_EXACT:
        counts = keep_more(counts, held, allowed)
    return counts


def keep_more(counts: Ints, held: Ints, allowed: Bools) -> Ints:
    """Move partitions between members in cycles until no cycle lets more partitions stay.

    A step moves one partition of a class from a giver to a taker. The step loses a kept partition unless the
    giver has more partitions of the class than in the last target. The step gains a kept partition if the
    taker has fewer. A cycle preserves every load. A path to a load that is smaller by 1 only swaps the two
    loads, so such a path counts as a cycle, too.
    """
    counts = counts.copy()
    while (cycle := _gainful_cycle(counts, held, allowed)) is not None:
        for giver, taker, row in cycle:
            counts[row, giver] -= 1
            counts[row, taker] += 1
    return counts


def _gainful_cycle(counts: Ints, held: Ints, allowed: Bools) -> list[Step] | None:
    """Return the steps (giver, taker, class) of a cycle that lets more partitions stay, or None.

    The search is the algorithm of Bellman and Ford for a cycle of negative cost.
    """
    members = counts.shape[1]
    far = 4 * members + 4
    cost = np.full((members, members), far, dtype=np.int64)
    through = np.full((members, members), NOBODY, dtype=np.int64)
    for row in range(counts.shape[0]):
        gives = np.where(counts[row] > 0, np.where(counts[row] > held[row], 0, 1), far)
        takes = np.where(allowed[row], np.where(counts[row] < held[row], -1, 0), far)
        step = gives[:, None] + takes[None, :]
        better = step < cost
        cost[better], through[better] = step[better], row
    load = counts.sum(axis=0)
    # a step back from the smaller load to the larger
    swap = (load[None, :] == load[:, None] + 1) & (cost > 0)
    cost[swap], through[swap] = 0, NOBODY
    np.fill_diagonal(cost, far)
    steps = _negative_cycle(cost, far)
    return (
        None
        if steps is None
        else [(a, b, r) for a, b in steps if (r := int(through[a, b])) != NOBODY]
    )


def _negative_cycle(cost: Ints, far: int) -> list[tuple[int, int]] | None:
    members = cost.shape[0]
    distance = np.zeros(members, dtype=np.int64)
    previous = np.full(members, NOBODY, dtype=np.int64)
    arcs = np.where(cost >= far // 2, np.int64(1) << 40, cost)
    last = NOBODY
    for _ in range(members + 1):
        reach = distance[:, None] + arcs
        best = reach.argmin(axis=0)
        nearer = reach[best, np.arange(members)] < distance
        if not nearer.any():
            return None
        distance = np.where(nearer, reach[best, np.arange(members)], distance)
        previous[nearer] = best[nearer]
        last = int(np.flatnonzero(nearer)[0])
    for _ in range(members):
        last = int(previous[last])
    steps: list[tuple[int, int]] = []
    at = last
    while not steps or at != last:
        steps.append((int(previous[at]), at))
        at = int(previous[at])
    return steps[::-1]
