"""Derive the previous owner of each task, and all warm copies of its state, from the members' claims.

A claim has its member's generation. Among the claims on a task's topics, only the claims of the highest
generation count, because a zombie member may still claim lost partitions (KIP-341). If two members claim a
partition in the same generation, both claims are ignored (KIP-792). If the topics of a task still have
different owners, the member with the most of these topics is the owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from faust_assigner.claims import TopicClaims, items_of
from faust_assigner.model import NOBODY, Bools, Group, Ints, Layout, Member, Previous

#: The claims on one topic: (partition numbers, members), one entry per claim.
_Pairs: TypeAlias = tuple[Ints, Ints]
_NO_INTS: Ints = np.empty(0, dtype=np.int64)


def resolve_claims(layout: Layout, members: Sequence[Member]) -> Previous:
    """Derive the last assignment from all claims of ``members`` (in layout order).

    Cost: O(claims), and a sort of contested partitions and of the standbys of stateful groups.
    """
    generations = np.array([_date(m.generation) for m in members], dtype=np.int64)
    topics = {t for group in layout.groups for t in group.topics}
    logs = {t for group in layout.groups for t in group.changelogs}
    actives = _gather((one.actives for one in members), topics)
    standbys = _gather((one.standbys for one in members), logs) if logs else {}
    dates = np.array(
        [_former_generation(m, g) for m, g in zip(members, generations.tolist(), strict=True)],
        dtype=np.int64,
    )
    wishes = _gather((one.former_actives for one in members), topics)
    promised = _gather((one.awaited for one in members), logs) if logs else {}
    owner = np.full(layout.tasks, NOBODY, dtype=np.int64)
    # Usually no member reports former or awaited tasks. Then the three variables share one array.
    last = home = awaited = np.full(layout.tasks, NOBODY, dtype=np.int64)
    if any(claims.members for claims in (*wishes.values(), *promised.values())):
        last, home, awaited = owner.copy(), owner.copy(), owner.copy()
    copies: list[_Copies] = []
    for g, group in enumerate(layout.groups):
        of_subscribers = _Subscribers(group, len(members))
        claims = {t: of_subscribers.pairs(actives.get(t)) for t in group.topics}
        here, agreed = _previous_owner(group, claims, generations)
        layout.of(g, owner)[:] = here
        if any(wishes[t].members for t in group.topics):
            before = {t: of_subscribers.pairs(wishes[t]) for t in group.topics}
            layout.of(g, home)[:] = was = _previous_owner(group, before, dates)[0]
            # A former owner that has had a later assignment does not count: another member may have owned
            # the tasks since then.
            layout.of(g, last)[:] = np.where((dates >= generations)[was], was, NOBODY)
        if any(promised[t].members for t in group.changelogs):
            waits = {t: of_subscribers.pairs(promised.get(t)) for t in group.topics}
            layout.of(g, awaited)[:] = _previous_owner(group, waits, generations)[0]
        if group.is_stateful:
            spares = [of_subscribers.pairs(standbys.get(t)) for t in group.changelogs]
            others = [] if agreed else list(claims.values())
            copies.append(_copies(group, int(layout.start[g]), here, others, spares))
    return _assemble(owner, last, home, awaited, copies)


def _former_generation(member: Member, generation: int) -> int:
    return generation if member.former_generation is None else _date(member.former_generation)


def _date(g: object) -> int:
    return min(max(g, -1), 1 << 62) if type(g) is int else -1


def _gather(sides: Iterable[object], topics: set[str]) -> dict[str, TopicClaims]:
    """Return topic -> all claims on the topic; ``sides`` has the claims of each member."""
    found = {topic: TopicClaims() for topic in topics}
    for m, claims in enumerate(sides):
        for topic, claim in items_of(claims):
            if type(topic) is str and topic in found:
                on_topic = found[topic]
                on_topic.members.append(m)
                on_topic.claims.append(claim)
    return found


class _Subscribers:
    """A reader of the claims on one group; it drops claims of members that do not subscribe to the group."""

    def __init__(self, group: Group, members: int) -> None:
        self.count = group.partitions
        self.mask: Bools | None = None
        if group.members.size < members:
            self.mask = np.zeros(members, dtype=np.bool_)
            self.mask[group.members] = True
        self._read: list[tuple[TopicClaims, _Pairs]] = []

    def pairs(self, claims: TopicClaims | None) -> _Pairs:
        """Return (numbers, members) of a topic's claims; topics with identical claims share the result."""
        if claims is None:
            return _NO_INTS, _NO_INTS
        # Co-partitioned topics mostly have equal claims, and decoders use one object for equal claims.
        for earlier, pairs in self._read[-1:]:
            if earlier.is_same(claims):
                return pairs
        pairs = self._pairs(claims)
        self._read.append((claims, pairs))
        return pairs

    def _pairs(self, claims: TopicClaims) -> _Pairs:
        number, member = claims.pairs(self.count)
        if self.mask is not None and number.size:
            mine = self.mask[member]
            if not mine.all():
                return number[mine], member[mine]
        return number, member


def _previous_owner(
    group: Group, claims: dict[str, _Pairs], generations: Ints
) -> tuple[Ints, bool]:
    """Return the owner of each number, and whether all claims come from the owners."""
    different = {id(pairs[0]): pairs for t in group.topics if (pairs := claims[t])[0].size}
    read = [_owner_by_claims(*pairs, group.partitions) for pairs in different.values()]
    if not read:
        return np.full(group.partitions, NOBODY, dtype=np.int64), True
    if all(agreed for _, agreed in read) and all(
        np.array_equal(read[0][0], o) for o, _ in read[1:]
    ):
        return read[0][0], True
    return _vote(group, claims, generations), False


def _owner_by_claims(number: Ints, member: Ints, count: int) -> tuple[Ints, bool]:
    """Return the owners by one topic's claims, and whether each number has at most one claim."""
    owner = np.full(count, NOBODY, dtype=np.int64)
    owner[number] = member
    return owner, number.size == int(np.count_nonzero(owner >= 0))


def _vote(group: Group, claims: dict[str, _Pairs], generations: Ints) -> Ints:
    """Return the owner of each number by the rules of this module, for contested claims."""
    triples = [(t, *claims[topic]) for t, topic in enumerate(group.topics)]
    topic = np.concatenate([np.full(p.size, t, dtype=np.int64) for t, p, _ in triples])
    number = np.concatenate([p for _, p, _ in triples])
    member = np.concatenate([m for _, _, m in triples])
    # Only the newest generation with a claim on any part of the task counts.
    newest = np.full(group.partitions, -2, dtype=np.int64)
    np.maximum.at(newest, number, generations[member])
    heard = generations[member] == newest[number]
    topic, number, member = topic[heard], number[heard], member[heard]
    # Duplicates in one member's claim count once. If two members claim the same partition, neither claim
    # counts.
    number, topic, member = np.unique(np.stack((number, topic, member)), axis=1)
    _, first, times = np.unique(
        number * len(group.topics) + topic, return_index=True, return_counts=True
    )
    alone = first[times == 1]
    return _majority(group.partitions, number[alone], topic[alone], member[alone])


def _majority(count: int, number: Ints, topic: Ints, member: Ints) -> Ints:
    """Return for each number the member with the most topics; a tie goes to the member with the first topic.

    Source topics come before changelogs.
    """
    order = np.lexsort((topic, member, number))
    number, topic, member = number[order], topic[order], member[order]
    new = np.ones(number.size, dtype=bool)
    new[1:] = (number[1:] != number[:-1]) | (member[1:] != member[:-1])
    first = np.flatnonzero(new)
    votes = np.diff(np.append(first, number.size))
    number, topic, member = number[first], topic[first], member[first]
    best = np.lexsort((topic, -votes, number))
    owner = np.full(count, NOBODY, dtype=np.int64)
    owner[number[best[::-1]]] = member[best[::-1]]  # write the best claim last
    return owner


@dataclass(frozen=True, kw_only=True)
class _Copies:
    """The warm copies of one group: unique, sorted (flat task, member) pairs; see :class:`Previous`."""

    task: Ints
    member: Ints
    logs: Ints
    was_standby: Bools


_NO_COPIES = _Copies(
    task=_NO_INTS, member=_NO_INTS, logs=_NO_INTS, was_standby=np.empty(0, dtype=bool)
)


def _copies(
    group: Group, start: int, owner: Ints, actives: list[_Pairs], standbys: list[_Pairs]
) -> _Copies:
    """Return the copies of each task on other members than its owner, with their number of changelogs.

    A member that was active on any topic of the task had all of its state. Claims of any generation count,
    because even a stale file saves most of a restore.
    """
    every = len(group.changelogs)
    found = [(*_other_claims(*pairs, owner), every, False) for pairs in actives]
    found += [(*_other_claims(*pairs, owner), 1, True) for pairs in standbys]
    return _merge(
        start,
        every,
        number=np.concatenate([p for p, _, _, _ in found]) if found else _NO_INTS,
        member=np.concatenate([m for _, m, _, _ in found]) if found else _NO_INTS,
        weight=np.repeat([logs for *_, logs, _ in found], [p.size for p, *_ in found]).astype(
            np.int64
        ),
        spare=np.repeat([spare for *_, spare in found], [p.size for p, *_ in found]).astype(
            np.bool_
        ),
    )


def _other_claims(number: Ints, member: Ints, owner: Ints) -> _Pairs:
    """Return the unique (number, member) pairs of a topic, without the pairs of the owners."""
    others = owner[number] != member
    width = int(member.max(initial=0)) + 1
    keys = np.unique(number[others] * width + member[others])
    return keys // width, keys % width


def _merge(
    start: int, every: int, *, number: Ints, member: Ints, weight: Ints, spare: Bools
) -> _Copies:
    order = np.lexsort((member, number))
    number, member, weight, spare = number[order], member[order], weight[order], spare[order]
    new = np.ones(number.size, dtype=bool)
    new[1:] = (number[1:] != number[:-1]) | (member[1:] != member[:-1])
    first = np.flatnonzero(new)
    if first.size == 0:
        return _NO_COPIES
    return _Copies(
        task=number[first] + start,
        member=member[first],
        logs=np.minimum(np.add.reduceat(weight, first), every),
        was_standby=np.logical_or.reduceat(spare, first),
    )


def _assemble(
    owner: Ints, last: Ints, home: Ints, awaited: Ints, copies: list[_Copies]
) -> Previous:
    task = np.concatenate([_NO_INTS, *(c.task for c in copies)])
    member = np.concatenate([_NO_INTS, *(c.member for c in copies)])
    logs = np.concatenate([_NO_INTS, *(c.logs for c in copies)])
    was_standby = np.concatenate([np.empty(0, dtype=np.bool_), *(c.was_standby for c in copies)])
    return Previous(
        owner=owner,
        former=_best_places(owner, last, task, member, logs),
        home=home,
        awaited=_awaited_with_copy(awaited, owner, task, member),
        copy_task=task,
        copy_member=member,
        copy_logs=logs,
        copy_was_standby=was_standby & (awaited[task] != member),
    )


def _awaited_with_copy(awaited: Ints, owner: Ints, task: Ints, member: Ints) -> Ints:
    """Return ``awaited`` where the member has a copy and the task has another, living owner; else NOBODY."""
    if not (awaited != NOBODY).any():
        return awaited
    found = np.full(owner.size, NOBODY, dtype=np.int64)
    here = (awaited[task] == member) & (owner[task] != NOBODY)
    found[task[here]] = member[here]
    return found


def _best_places(owner: Ints, last: Ints, task: Ints, member: Ints, logs: Ints) -> Ints:
    """Return ``last`` for tasks without an owner, unless another member has more of the state.

    If the task returned to a former owner with less state, that member would have to restore the rest.
    """
    if not (last != NOBODY).any():
        return last
    former = np.where(owner == NOBODY, last, NOBODY)
    most, mine = (np.zeros(former.size, dtype=np.int64) for _ in range(2))
    np.maximum.at(most, task, logs)
    own = member == former[task]
    mine[task[own]] = logs[own]
    return np.where(mine == most, former, NOBODY)
