"""PartitionGrouper: form co-partitioned groups from subscriptions and partition counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain

import numpy as np

from faust_assigner.model import Group, Ints

#: Ids that are hashes start at this number, which is above the partition count of any supported topic.
NARROW_IDS_FROM = 1 << 20
_NARROW_IDS = 1 << 30


@dataclass(frozen=True)
class _Draft:
    """A group without an id yet; ``topics`` has the sources, then the changelogs, each sorted by name."""

    count: int
    members: tuple[int, ...]
    topics: tuple[str, ...]
    changelogs: tuple[str, ...]
    weightless: bool = False

    @property
    def order(self) -> tuple[int, int, bool, str]:
        """The sort key: count, then groups with more members, then groups that add load, then topic name."""
        return self.count, -len(self.members), self.weightless, min(self.topics)

    @property
    def first_topic(self) -> str:
        """The topic from which the group's id is derived.

        This is a source topic if the group has one, so that a new table's changelog does not change the id.
        """
        return self.topics[0]

    @property
    def only_changelogs(self) -> bool:
        return len(self.changelogs) == len(self.topics)


class PartitionGrouper:
    """Forms groups of topics with equal partition counts and equal subscribers (Streams' subtopologies).

    Group ids become transactional ids (``app-<id>-<partition>``), so they must be stable. Of the groups
    with the same partition count, the group with the most members has the count as its id; the other
    groups have a hash of their first topic as id. With ``previous_ids`` (topic -> id), groups keep their
    ids from the last generation.
    """

    def group(
        self,
        subscriptions: Sequence[Collection[str]],
        partitions: Mapping[str, int],
        *,
        changelogs: Collection[str] = (),
        weightless: Collection[str] = (),
        previous_ids: Mapping[str, int] | None = None,
        co_partitioned: Collection[Collection[str]] | None = None,
    ) -> tuple[Group, ...]:
        """Return the groups, sorted by count, then by members (most first), then by smallest topic name.

        ``subscriptions[m]`` has the topics of member ``m``. Topics without partitions or subscribers are
        in no group. ``weightless`` topics are in other groups than topics with load. With
        ``co_partitioned``, topics share a group only if one of these sets contains them, and no group
        follows another group.

        Cost: O(members x topics), less if members share a collection object.
        """
        drafts = _draft_groups(
            subscriptions,
            partitions,
            frozenset(changelogs),
            frozenset(weightless),
            None if co_partitioned is None else bonds(co_partitioned),
        )
        ids = _distinct_ids(drafts, previous_ids or {})
        rows = [np.array(d.members, dtype=np.int64) for d in drafts]
        return tuple(
            Group(
                group_id=ids[i],
                topics=d.topics,
                partitions=d.count,
                members=rows[i],
                changelogs=d.changelogs,
                follows=_leader_of(i, drafts) if co_partitioned is None else None,
                weightless=d.weightless,
            )
            for i, d in enumerate(drafts)
        )


def _draft_groups(
    subscriptions: Sequence[Collection[str]],
    partitions: Mapping[str, int],
    changelogs: frozenset[str],
    weightless: frozenset[str],
    bound: Mapping[str, str] | None,
) -> list[_Draft]:
    classes = _members_by_subscription(subscriptions, partitions)
    classes_of: defaultdict[str, list[int]] = defaultdict(list)
    for k, topics in enumerate(classes):
        for topic in topics:
            classes_of[topic].append(k)
    members_of = list(classes.values())
    topics_of: dict[tuple[str, int, tuple[int, ...], bool], list[str]] = {}
    for topic in sorted(classes_of):
        bond = "" if bound is None else bound.get(topic, topic)
        key = bond, partitions[topic], tuple(classes_of[topic]), topic in weightless
        topics_of.setdefault(key, []).append(topic)
    drafts = []
    for (_, count, kinds, without_work), topics_here in topics_of.items():
        members = tuple(sorted(chain.from_iterable(members_of[k] for k in kinds)))
        logs = tuple(t for t in topics_here if t in changelogs)
        sources = tuple(t for t in topics_here if t not in changelogs)
        drafts.append(_Draft(count, members, sources + logs, logs, without_work))
    return sorted(drafts, key=lambda d: d.order)


def bonds(co_partitioned: Iterable[Collection[str]]) -> dict[str, str]:
    """Return topic -> the smallest topic of its set; overlapping sets are merged."""
    found: dict[str, str] = {}
    for topics in co_partitioned:
        roots = {found.get(topic, topic) for topic in topics}
        first = min(roots, default="")
        found.update(dict.fromkeys(topics, first))
        found.update({topic: first for topic, root in found.items() if root in roots})
    return found


def _members_by_subscription(
    subscriptions: Sequence[Collection[str]], partitions: Mapping[str, int]
) -> dict[frozenset[str], list[int]]:
    """Return subscription -> the members with this subscription, in the order of their first members."""
    known = frozenset(topic for topic, count in partitions.items() if count > 0)
    # id of a collection -> its topics; members often share a collection
    seen: dict[int, frozenset[str]] = {}
    classes: dict[frozenset[str], list[int]] = {}
    for m, topics in enumerate(subscriptions):
        wanted = seen.get(id(topics))
        if wanted is None:
            wanted = seen[id(topics)] = known & _valid_names(topics)
        classes.setdefault(wanted, []).append(m)
    return classes


def _valid_names(topics: Iterable[object]) -> set[str]:
    return {topic for topic in topics if isinstance(topic, str)}


def _leader_of(i: int, drafts: list[_Draft]) -> int | None:
    """Return the group that a changelog-only group follows: a group with sources and most common members."""
    here = drafts[i]
    if not here.only_changelogs:
        return None
    mine = frozenset(here.members)
    best: tuple[int, int, int] | None = None
    for j, wide in enumerate(drafts):
        if (
            wide.count != here.count
            or wide.only_changelogs
            or wide.weightless
            or len(wide.members) < len(mine)
        ):
            continue
        shared = len(mine.intersection(wide.members))
        rank = (-shared, -len(wide.members), j)
        if shared and (best is None or rank < best):
            best = rank
    return None if best is None else best[2]


def _distinct_ids(drafts: list[_Draft], previous: Mapping[str, int]) -> list[int]:
    """Return a distinct id per draft: a previous id if possible, else the count, else a hash.

    A topic's previous id is given only to a group with that topic, because in this round a member may still
    end the topic's transactions under this id.
    """
    ids = _remembered_ids(drafts, previous)
    taken = {i for i in (*ids, *previous.values()) if type(i) is int}
    numbered: set[int] = set()
    for d, draft in enumerate(drafts):  # of each count, the group with the most members comes first
        if draft.count in numbered:
            continue
        numbered.add(draft.count)
        if ids[d] is None and draft.count not in taken:
            ids[d] = draft.count
            taken.add(draft.count)
    # Ids are probed in the order of names: if two hashes collide, changes of membership must not swap ids.
    for d in sorted(
        (d for d, i in enumerate(ids) if i is None), key=lambda d: drafts[d].first_topic
    ):
        ids[d] = _probe(drafts[d].first_topic, taken)
        taken.add(ids[d] or 0)
    return [i if i is not None else 0 for i in ids]


def _remembered_ids(drafts: list[_Draft], previous: Mapping[str, int]) -> list[int | None]:
    """Return each draft's previous id or None.

    If several groups have topics of an id, groups that add load come first, then the group with most of the
    topics, then the group with the first topic.
    """
    group_of = {topic: d for d, draft in enumerate(drafts) for topic in draft.topics}
    topics_of: dict[int, list[str]] = {}
    for topic in sorted(t for t in previous if t in group_of):
        remembered = previous[topic]
        if type(remembered) is int and remembered >= 0:
            topics_of.setdefault(remembered, []).append(topic)
    claims = []
    for remembered, topics in topics_of.items():
        for d in sorted({group_of[t] for t in topics}):
            mine = [t for t in topics if group_of[t] == d]
            claims.append((drafts[d].weightless, -len(mine), mine[0], remembered, d))
    ids: list[int | None] = [None] * len(drafts)
    given: set[int] = set()
    for *_, remembered, d in sorted(claims):
        if ids[d] is None and remembered not in given:
            ids[d] = remembered
            given.add(remembered)
    return ids


def _probe(topic: str, taken: set[int]) -> int:
    attempt = 0
    while True:
        name = f"{attempt}:{topic}".encode("utf-8", "surrogatepass")
        number = (
            NARROW_IDS_FROM + int.from_bytes(blake2b(name, digest_size=8).digest()) % _NARROW_IDS
        )
        if number not in taken:
            return number
        attempt += 1


def starts(groups: Sequence[Group]) -> Ints:
    """Return int64[G + 1]: the index of each group's first task in a flat task array, and the end."""
    return np.concatenate(([0], np.cumsum([g.partitions for g in groups], dtype=np.int64))).astype(
        np.int64
    )
