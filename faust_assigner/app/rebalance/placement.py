"""The placement of one round by member and topic: from the plan or, if it failed, round-robin."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from faust_assigner.assignment import ByMember
from faust_assigner.model import NOBODY, Ints, Member
from faust_assigner.planner import Plan
from faust_assigner.wire.directory import Directory

ByTopic = dict[str, list[int]]


@dataclass(frozen=True)
class Placement:
    """The actives and standbys of each member, by topic.

    - ``actives``, ``standbys``: member -> topic -> partitions, in the order of ``member_ids``.
    - ``owners``: topic -> int64[partitions], indexes into ``member_ids`` or ``NOBODY``;
      co-partitioned topics may share one array.
    - ``group_ids``: topic -> id of its co-partitioned group.
    """

    member_ids: tuple[str, ...]
    actives: Mapping[str, ByTopic]
    standbys: Mapping[str, ByTopic]
    owners: Mapping[str, Ints]
    group_ids: Mapping[str, int]


def placement_of_plan(plan: Plan) -> Placement:
    """Convert the planner's arrays to partitions by member and topic."""
    return Placement(
        plan.member_ids,
        _partitions_by_member(
            plan, plan.actives_by_member, [group.topics for group in plan.groups]
        ),
        _partitions_by_member(
            plan, plan.standbys_by_member, [group.changelogs for group in plan.groups]
        ),
        {
            t: owner
            for group, owner in zip(plan.groups, plan.owner, strict=True)
            for t in group.topics
        },
        {t: group.group_id for group in plan.groups for t in group.topics},
    )


def _partitions_by_member(
    plan: Plan, placed: ByMember, topics: Sequence[Sequence[str]]
) -> dict[str, ByTopic]:
    """Return all members' actives or standbys; co-partitioned topics share their lists."""
    found: dict[str, ByTopic] = {m: {} for m in plan.member_ids}
    for named, (numbers, offsets) in zip(topics, placed, strict=True):
        flat, at = numbers.tolist(), offsets.tolist()
        for m, held in enumerate(found.values()):
            if at[m] < at[m + 1]:
                held.update(dict.fromkeys(named, flat[at[m] : at[m + 1]]))
    return found


def dealt(
    members: Sequence[Member],
    partitions: Mapping[str, int],
    *,
    replicas: int,
    changelogs: Collection[str],
    previous_ids: Mapping[str, int],
) -> Placement:
    """Deal the partitions out round-robin, without regard to their former owners.

    The n subscribers of a topic are sorted by member id. Partition p goes to subscriber p modulo n,
    and its standbys go to the next subscribers. So topics with equal partition counts and equal
    subscribers stay co-partitioned.
    """
    ids = tuple(sorted(m.member_id for m in members))
    actives: dict[str, ByTopic] = {m: {} for m in ids}
    standbys: dict[str, ByTopic] = {m: {} for m in ids}
    owners: dict[str, Ints] = {}
    group_of: dict[tuple[int, tuple[int, ...]], int] = {}
    group_ids: dict[str, int] = {}
    place = {m: i for i, m in enumerate(ids)}
    taken = set(previous_ids.values())
    for topic in sorted(partitions):
        mine = sorted(place[m.member_id] for m in members if topic in m.topics)
        count = partitions[topic]
        if not mine or count <= 0:
            continue
        owners[topic] = np.resize(np.array(mine, dtype=np.int64), count)
        spread = min(replicas, len(mine) - 1) if topic in changelogs else 0
        for rank, m in enumerate(mine):
            _add_partitions(actives[ids[m]], topic, range(rank, count, len(mine)))
            warm = sorted(
                p
                for r in range(1, spread + 1)
                for p in range((rank - r) % len(mine), count, len(mine))
            )
            _add_partitions(standbys[ids[m]], topic, warm)
        key = (count, tuple(mine))
        if key not in group_of:
            fresh = max(taken, default=-1) + 1
            remembered = previous_ids.get(topic, fresh)
            group_of[key] = fresh if remembered in group_of.values() else remembered
            taken.add(group_of[key])
        group_ids[topic] = group_of[key]
    return Placement(ids, actives, standbys, owners, group_ids)


def _add_partitions(to: ByTopic, topic: str, numbers: Collection[int]) -> None:
    if numbers:
        to[topic] = list(numbers)


def with_globals(
    placement: Placement,
    subscriptions: Mapping[str, Collection[str]],
    partitions: Mapping[str, int],
    globals_: Mapping[str, bool],
) -> Placement:
    """Assign all partitions of a global table's changelog to each subscriber, as Faust expects.

    The partitions are actives, so that the subscriber restores them first. The partitions of other
    writers are also standbys, so that the subscriber follows these writers. If the table's flag in
    ``globals_`` is set, all partitions are also standbys.
    """
    if not globals_:
        return placement
    actives = {m: dict(topics) for m, topics in placement.actives.items()}
    standbys = {m: dict(topics) for m, topics in placement.standbys.items()}
    for topic in sorted(globals_.keys() & partitions.keys()):
        everything = range(partitions[topic])
        for member_id, topics in subscriptions.items():
            if topic not in topics or not everything:
                continue
            own = set(placement.actives[member_id].get(topic, ()))
            others = (
                list(everything) if globals_[topic] else [p for p in everything if p not in own]
            )
            actives[member_id][topic] = list(everything)
            standbys[member_id][topic] = others
    return Placement(placement.member_ids, actives, standbys, placement.owners, placement.group_ids)


def directory_of(
    placement: Placement,
    urls: Mapping[str, str],
    instances: Mapping[str, str],
    changelogs: frozenset[str],
    globals_: Collection[str],
    *,
    with_standbys: bool = False,
) -> Directory:
    """Return the directory of owners by URL; ``with_standbys`` adds the holders of standbys.

    The members are numbered by the first partition that they own, so that the encoding is short.
    """
    columns = {id(owner): owner for _, owner in sorted(placement.owners.items())}
    seen = [owner[owner != NOBODY] for owner in columns.values()]
    everyone = np.arange(len(placement.member_ids), dtype=np.int64)
    flat = np.concatenate([*seen, everyone])
    values, first = np.unique(flat, return_index=True)
    order = values[np.argsort(first, kind="stable")]
    rank = np.full(order.size + 1, NOBODY, dtype=np.int64)  # rank[NOBODY] is the last entry
    rank[order] = np.arange(order.size)
    ranked = {key: rank[owner] for key, owner in columns.items()}
    names = [placement.member_ids[m] for m in order.tolist()]
    return Directory(
        tuple(urls.get(m, "") for m in names),
        {topic: ranked[id(owner)] for topic, owner in placement.owners.items()},
        tuple(instances.get(m, "") for m in names) if instances else (),
        changelogs & placement.owners.keys(),
        frozenset(globals_) & placement.owners.keys(),
        _standby_columns(placement, rank) if with_standbys else {},
    )


def _standby_columns(placement: Placement, rank: Ints) -> dict[str, tuple[Ints, ...]]:
    """Return changelog -> columns of standbys: int64[partitions], members' ranks or ``NOBODY``.

    Each column has at most one standby of each partition, in the order of member ids.
    """
    columns: dict[str, list[Ints]] = {}
    for m, member_id in enumerate(placement.member_ids):
        for topic, numbers in placement.standbys[member_id].items():
            size = placement.owners[topic].size
            left = np.array(numbers, dtype=np.int64)
            for column in columns.setdefault(topic, []):
                free = column[left] == NOBODY
                column[left[free]] = rank[m]
                left = left[~free]
            if left.size:
                columns[topic].append(np.full(size, NOBODY, dtype=np.int64))
                columns[topic][-1][left] = rank[m]
    return {topic: tuple(found) for topic, found in columns.items()}
