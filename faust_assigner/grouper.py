"""PartitionGrouper: subscriptions + partition counts -> co-partitioned groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from faust_assigner.model import Group, Ints

#: Ids of narrower groups start here; no topic of ours has as many partitions.
NARROW_IDS_FROM = 1 << 20
_NARROW_IDS = 1 << 30


@dataclass(frozen=True)
class _Draft:
    """A group before it has an id: its topics, sources before changelogs, each by name."""

    count: int
    members: tuple[int, ...]
    topics: tuple[str, ...]
    changelogs: tuple[str, ...]
    weightless: bool = False

    @property
    def order(self) -> tuple[int, int, bool, str]:
        """By count, the wider before the narrower, work before none, then by the smallest topic name."""
        return self.count, -len(self.members), self.weightless, min(self.topics)

    @property
    def first_topic(self) -> str:
        """The topic that stands for the group; a source where it has one, so that adding a table's
        changelog never renames the group."""
        return self.topics[0]

    @property
    def only_changelogs(self) -> bool:
        return len(self.changelogs) == len(self.topics)


class PartitionGrouper:
    """Topics with equal partition counts and equal subscribers are one group (Streams' subtopology).

    Group ids become transactional ids (``app-<id>-<partition>``), so they must not wander: the widest
    group of a partition count is numbered by that count, a narrower one by a hash of its first topic.
    ``previous_ids`` (topic -> id) carries ids over from the last generation where a group of that time
    lives on.
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
        """The groups, by (count, wider first, smallest topic name).

        ``subscriptions[m]`` are the topics of member ``m``; topics without partitions or without
        subscribers form no group; ``weightless`` topics form groups of their own. With
        ``co_partitioned`` only topics of a common set of it may share a group, and nothing follows. Cost:
        O(members x topics), less where members share one collection.
        """
        drafts = _drafts(
            subscriptions,
            partitions,
            frozenset(changelogs),
            frozenset(weightless),
            None if co_partitioned is None else bonds(co_partitioned),
        )
        ids = _ids(drafts, previous_ids or {})
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


def _drafts(
    subscriptions: Sequence[Collection[str]],
    partitions: Mapping[str, int],
    changelogs: frozenset[str],
    weightless: frozenset[str],
    bound: Mapping[str, str] | None,
) -> list[_Draft]:
    classes = _members_by_subscription(subscriptions, partitions)
    classes_of: dict[str, list[int]] = {}
    for k, topics in enumerate(classes):
        for topic in topics:
            classes_of.setdefault(topic, []).append(k)
    members_of = list(classes.values())
    topics_of: dict[tuple[str, int, tuple[int, ...], bool], list[str]] = {}
    for topic in sorted(classes_of):
        bond = "" if bound is None else bound.get(topic, topic)
        key = bond, partitions[topic], tuple(classes_of[topic]), topic in weightless
        topics_of.setdefault(key, []).append(topic)
    drafts = []
    for (_, count, kinds, without_work), topics_here in topics_of.items():
        members = tuple(sorted(m for k in kinds for m in members_of[k]))
        logs = tuple(t for t in topics_here if t in changelogs)
        sources = tuple(t for t in topics_here if t not in changelogs)
        drafts.append(_Draft(count, members, sources + logs, logs, without_work))
    return sorted(drafts, key=lambda d: d.order)


def bonds(co_partitioned: Iterable[Collection[str]]) -> dict[str, str]:
    """Topic -> the smallest topic it is bound to, sets that overlap being one."""
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
    """Classes of members with equal subscriptions, in the order of their first members."""
    known = {topic for topic, count in partitions.items() if count > 0}
    seen: dict[int, frozenset[str]] = {}  # members often share one collection object
    classes: dict[frozenset[str], list[int]] = {}
    for m, topics in enumerate(subscriptions):
        wanted = seen.get(id(topics))
        if wanted is None:
            wanted = seen[id(topics)] = frozenset(_names(topics) & known)
        classes.setdefault(wanted, []).append(m)
    return classes


def _names(topics: Iterable[object]) -> set[str]:
    return {topic for topic in topics if isinstance(topic, str)}


def _leader_of(i: int, drafts: list[_Draft]) -> int | None:
    """The wider group a group made only of changelogs follows: the one it shares most members with."""
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


def _ids(drafts: list[_Draft], previous: Mapping[str, int]) -> list[int]:
    """One id per draft, all different: remembered first, then the count, then a hash.

    An id that a topic had goes to no group without such a topic: in this very round a member may still end
    the transactions of that topic.
    """
    ids = _remembered(drafts, previous)
    taken = {i for i in (*ids, *previous.values()) if type(i) is int}
    numbered: set[int] = set()
    for d, draft in enumerate(drafts):  # the widest of a count comes first
        if draft.count in numbered:
            continue
        numbered.add(draft.count)
        if ids[d] is None and draft.count not in taken:
            ids[d] = draft.count
            taken.add(draft.count)
    # Probing in the order of names, not of widths: member churn must not swap two collided ids.
    for d in sorted(
        (d for d, i in enumerate(ids) if i is None), key=lambda d: drafts[d].first_topic
    ):
        ids[d] = _probe(drafts[d].first_topic, taken)
        taken.add(ids[d] or 0)
    return [i if i is not None else 0 for i in ids]


def _remembered(drafts: list[_Draft], previous: Mapping[str, int]) -> list[int | None]:
    """Each remembered id goes to a group with work, to the one with most of its topics, or with its first."""
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
    """Where each group's tasks begin in a flat task array; one more entry for the end."""
    return np.concatenate(([0], np.cumsum([g.partitions for g in groups], dtype=np.int64))).astype(
        np.int64
    )
