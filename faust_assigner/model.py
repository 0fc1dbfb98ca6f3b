"""The words of the planner as frozen values: names outside, numpy arrays inside.

A *group* is a set of co-partitioned topics; (group, partition number) is the *task*, the unit of
assignment. Members are known by their index into the sorted tuple of member ids, so that every
order below is the order of member ids and never that of a hash.
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

#: Partition numbers as a caller may give them: a list, a range, a set, a numpy array.
PartitionNumbers: TypeAlias = Iterable[int] | npt.NDArray[Any]
Claims: TypeAlias = Mapping[str, PartitionNumbers]

#: How far a member's state of one changelog has come: partition -> the offset up to which it was read, or
#: (partitions ascending, offsets) as two arrays.
Positions: TypeAlias = Mapping[int, int] | tuple[npt.NDArray[Any], npt.NDArray[Any]]

NOBODY = -1


@dataclass(frozen=True)
class Member:
    """One consumer of the group, as the leader sees it in this rebalance.

    ``actives`` and ``standbys`` are what the member claims from before: topic -> partition numbers.
    A claim on a topic that is not in ``topics``, or on a partition that does not exist, is ignored.
    ``generation`` dates the claims: the highest wins a contested task, equal ones void each other
    (KIP-341). ``former_actives`` is what it owned when it last stopped, remembered over a restart and dated
    by ``former_generation`` (``None``: by ``generation``): no claim of ownership, only a wish where a task
    has no living owner. A member that was given something since, in a later generation, goes on to say it: of
    equally good moves those are made that bring tasks back to where they were.
    ``capacity`` weighs loads, as threads do in Kafka Streams.

    For warm-ups (:class:`faust_assigner.warmup.WarmupPolicy`): ``positions`` maps changelogs to how far this
    member's state of them has come, as standby or in files, and of what it owns to where the log ends;
    ``None``: it cannot tell, and nothing waits for it. ``awaited`` are those of its standbys whose task was
    to come to it at the last round, ``overdue`` those that were waited for too long.
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

    ``members`` are the subscribers' indexes, ascending. ``changelogs`` are those of ``topics`` that
    carry state. A *follower* (``follows`` is the index of a wider group in the same tuple of groups)
    is a changelog whose subscribers differ from its source's: it adds no load and goes where its
    number's owner is, when that owner subscribes to it. A *weightless* group adds no load either: a
    topic that is assigned but carries no work, such as the one by which Faust elects its leader.
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
        """Whether its tasks count in the balance."""
        return self.follows is None and not self.weightless

    @property
    def is_stateful(self) -> bool:
        """Whether a task of this group has state to move or to replicate."""
        return bool(self.changelogs)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Members and groups in their fixed order, and where each group's tasks lie in flat arrays.

    Member ``m`` is ``member_ids[m]`` (ids ascending); the task (group ``g``, number ``p``) is
    ``start[g] + p``; T tasks in all. ``capacity`` float64[M], ``rack`` int64[M] (``NOBODY`` where the
    member named none).
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
        """The view of a flat task array that belongs to group ``g``."""
        view: Ints = flat[self.start[g] : self.start[g + 1]]
        return view

    def per_task(self, of_group: Callable[[Group], bool]) -> Bools:
        """bool[T]: a property of each task's group."""
        flags = np.array([of_group(group) for group in self.groups], dtype=np.bool_)
        return np.repeat(flags, np.diff(self.start))


@dataclass(frozen=True, kw_only=True)
class Previous:
    """What is left of the last assignment once every claim is resolved.

    ``owner`` int64[T]: the living, subscribed member whose claim won, or ``NOBODY``.
    ``former`` int64[T]: where nobody owns the task, the living member that owned it when it last stopped,
    unless others hold more of the state by now; else ``NOBODY``.
    ``home`` int64[T]: the living member that owned it when it last stopped, whoever does now, or ``NOBODY``.
    ``awaited`` int64[T]: to whom the last round was going to bring the task, once it is warm there.
    The K warm copies other than the owner's own, unique and ordered by (task, member):
    ``copy_task``, ``copy_member`` int64[K]; ``copy_logs`` int64[K], how many of the task's changelogs
    the copy holds; ``copy_was_standby`` bool[K], it was a standby (or a file on disk) and not awaited.
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
        """int64[T]: whom the task stays with if it can: its owner, else its former one."""
        if not (self.former != NOBODY).any():  # nearly always; a seventh of the time
            return self.owner
        return np.where(self.owner == NOBODY, self.former, self.owner)


@dataclass(frozen=True)
class Onward:
    """What comes after this round: ``target`` int64[T], where tasks are to be once their state is there;
    ``warmup`` int64[T], who gets a replica beyond the standbys for that, or ``NOBODY``; ``awaited`` int64[T],
    to whom the task comes onto a copy that is given in this round, or ``NOBODY``; ``disbelieved`` maps
    changelogs to how many positions were beyond their end, and counted for nothing."""

    target: Ints
    warmup: Ints
    awaited: Ints
    disbelieved: Mapping[str, int]
