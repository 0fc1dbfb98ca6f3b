"""The planner's values, immutable: names on the outside, numpy arrays inside.

A *group* is a set of co-partitioned topics; a (group, partition number) pair is a *task*, the unit of
assignment. A member is represented by its index into the sorted tuple of member ids, so every order
below is the order of member ids and never a hash order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]

#: Accepted forms of partition numbers: a list, a range, a set, a numpy array.
PartitionNumbers: TypeAlias = Iterable[int] | npt.NDArray[Any]
Claims: TypeAlias = Mapping[str, PartitionNumbers]

#: A member's progress in one changelog: partition -> next offset to read, or (partitions ascending,
#: offsets) as two arrays.
Positions: TypeAlias = Mapping[int, int] | tuple[npt.NDArray[Any], npt.NDArray[Any]]

NOBODY = -1


@dataclass(frozen=True)
class Member:
    """One consumer of the group, as the leader sees the consumer in this rebalance.

    ``actives`` and ``standbys`` are the member's claims from the last assignment: topic -> partition numbers.
    A claim on a topic outside ``topics``, or on a partition that does not exist, is ignored.
    ``generation`` dates the claims: the highest generation wins a contested task, equal generations void
    each other (KIP-341). ``former_actives`` are the member's partitions when the member last stopped. They
    are remembered over a restart and dated by ``former_generation`` (``None``: by ``generation``). They are
    a wish for tasks without a living owner, not a claim. A member keeps reporting them after later
    assignments: among equally good moves the planner prefers a task's return to its former owner.
    ``capacity`` scales the member's share of the load, as threads do in Kafka Streams.

    For warm-ups (:class:`faust_assigner.warmup.WarmupPolicy`): ``positions`` maps changelogs to the
    member's progress in standby or file state, and to the log end for the member's own partitions.
    ``None`` means unknown progress, and no task waits for the member. ``awaited`` are the standbys
    whose task was to move to the member in the last round; ``overdue`` are the standbys that took too long.
    """

    member_id: str
    topics: Collection[str]
    actives: Claims = field(default_factory=dict, kw_only=True)
    standbys: Claims = field(default_factory=dict, kw_only=True)
    former_actives: Claims = field(default_factory=dict, kw_only=True)
    former_generation: int | None = field(default=None, kw_only=True)
    generation: int = field(default=-1, kw_only=True)
    instance_id: str | None = field(default=None, kw_only=True)
    rack_id: str | None = field(default=None, kw_only=True)
    capacity: float = field(default=1.0, kw_only=True)
    positions: Mapping[str, Positions] | None = field(default=None, kw_only=True)
    awaited: Claims = field(default_factory=dict, kw_only=True)
    overdue: Claims = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Co-partitioned topics: one partition count, one set of subscribers, one owner per number.

    ``members`` holds the subscribers' indexes, ascending. ``changelogs`` are the ``topics`` with
    state. A *follower* (``follows`` is the index of a wider group in the same tuple of groups) is a
    changelog with other subscribers than its source: a follower adds no load and goes to the owner of
    its number, if the owner subscribes to the changelog. A *weightless* group adds no load either:
    its topic is assigned but carries no work, such as Faust's leader topic.
    """

    group_id: int
    topics: tuple[str, ...]
    partitions: int
    members: Ints
    changelogs: tuple[str, ...] = ()
    follows: int | None = None
    weightless: bool = False

    @property
    def adds_load(self) -> bool:
        """Whether the group's tasks count in the balance."""
        return self.follows is None and not self.weightless

    @property
    def is_stateful(self) -> bool:
        """Whether a task of this group has state to move or to replicate."""
        return bool(self.changelogs)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Members and groups in their fixed order, with the offset of each group in flat task arrays.

    Member ``m`` is ``member_ids[m]`` (ids ascending); the task (group ``g``, number ``p``) has the index
    ``start[g] + p``; T is the number of tasks. ``capacity`` float64[M], ``rack`` int64[M] (``NOBODY`` for
    a member without a rack).
    """

    member_ids: tuple[str, ...]
    groups: tuple[Group, ...]
    start: Ints
    capacity: Floats
    rack: Ints

    @property
    def tasks(self) -> int:
        """T, the number of tasks."""
        return int(self.start[-1])

    def of(self, g: int, flat: Ints) -> Ints:
        """Return the slice of a flat task array that belongs to group ``g``."""
        view: Ints = flat[self.start[g] : self.start[g + 1]]
        return view

    def per_task(self, of_group: Callable[[Group], bool]) -> Bools:
        """Return bool[T]: a property of each task's group."""
        flags = np.array([of_group(group) for group in self.groups], dtype=np.bool_)
        return np.repeat(flags, np.diff(self.start))


@dataclass(frozen=True, kw_only=True)
class Previous:
    """The last assignment, after the resolution of all claims.

    ``owner`` int64[T]: the living, subscribed member with the winning claim, or ``NOBODY``.
    ``former`` int64[T]: for a task without an owner, the living member that owned the task when that member
    last stopped; ``NOBODY`` if other members hold more of the state by now.
    ``home`` int64[T]: the living member that owned the task when that member last stopped, even if the task
    has an owner now, or ``NOBODY``.
    ``awaited`` int64[T]: the member that receives the task as soon as its copy is warm, by the last round.
    The K warm copies besides the owner's, unique and ordered by (task, member): ``copy_task``,
    ``copy_member`` int64[K]; ``copy_logs`` int64[K], the number of the task's changelogs in the copy;
    ``copy_was_standby`` bool[K], the copy was a standby (or a file on disk) and not awaited.
    """

    owner: Ints
    former: Ints
    home: Ints
    awaited: Ints
    copy_task: Ints
    copy_member: Ints
    copy_logs: Ints
    copy_was_standby: Bools

    @cached_property
    def last_owner(self) -> Ints:
        """Return int64[T]: the preferred owner of each task: its owner, else its former owner."""
        if not (self.former != NOBODY).any():  # the usual case; takes a seventh of the time
            return self.owner
        return np.where(self.owner == NOBODY, self.former, self.owner)


@dataclass(frozen=True)
class Onward:
    """The next rounds: ``target`` int64[T], the final owner of each task once its state is there;
    ``warmup`` int64[T], the member with a replica beyond the standbys, or ``NOBODY``; ``awaited`` int64[T],
    the member that takes the task over once the copy of this round has caught up, or ``NOBODY``;
    ``disbelieved`` maps changelogs to the number of ignored positions beyond their end."""

    target: Ints
    warmup: Ints
    awaited: Ints
    disbelieved: Mapping[str, int]
