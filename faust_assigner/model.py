"""The planner's immutable values: members by name as input, numpy arrays inside.

A *group* is a set of co-partitioned topics. A (group, partition number) pair is a *task*, the unit of
assignment. Arrays contain a member's index in the sorted member ids, so orders never depend on hashes.
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

#: The accepted forms of partition numbers: a list, range, set, numpy array or other iterable.
PartitionNumbers: TypeAlias = Iterable[int] | npt.NDArray[Any]
Claims: TypeAlias = Mapping[str, PartitionNumbers]

#: A member's progress in one changelog: partition -> next offset to read, or the two arrays (ascending
#: partitions, offsets).
Positions: TypeAlias = Mapping[int, int] | tuple[npt.NDArray[Any], npt.NDArray[Any]]

#: The member index that means "no member".
NOBODY = -1


@dataclass(frozen=True)
class Member:
    """One consumer of the group, as it joined this rebalance.

    ``actives`` and ``standbys`` are the member's claims: topic -> the partition numbers that it owns or
    replicates since the last assignment. The planner ignores a claim on a topic outside ``topics`` or on a
    partition that does not exist. ``generation`` is the generation of the claims. If several members claim a
    task, the claim with the highest generation counts; claims with equal generations are ignored (KIP-341).

    ``former_actives`` are the partitions that the member owned when it last stopped, in the generation
    ``former_generation`` (``None``: in ``generation``). They are a preference for tasks without a living
    owner, not a claim. A member reports them after later assignments too. Among equally good moves, the
    planner prefers moves that return a task to its former owner.

    ``capacity`` scales the member's share of the load, as the number of threads does in Kafka Streams.

    Three further fields are for warm-ups (:class:`faust_assigner.warmup.WarmupPolicy`). ``positions`` maps
    changelogs to the member's progress in its standbys and files, and to the log end of the partitions that
    it owns. With ``None`` the progress is unknown, and no task waits for the member. ``awaited`` are the
    copies whose task the last round planned to move to the member. ``overdue`` are the copies that took too
    long.
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
    """Co-partitioned topics: same partition count, same subscribers, and one owner per partition number.

    ``members`` has the subscribers' indexes, ascending. ``changelogs`` are the ``topics`` with state.

    A *follower* is a group of changelogs whose subscribers differ from their source's; ``follows`` is the
    index of the source's group. Each partition of a follower goes to the owner of the same source
    partition, if that member subscribes to the changelog. A follower adds no load. A *weightless* group
    adds no load either: its topics are assigned but cause no work, such as Faust's leader topic.
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
        """Whether the group's tasks count in the balance of loads."""
        return self.follows is None and not self.weightless

    @property
    def is_stateful(self) -> bool:
        """Whether a task of this group has state to move or to replicate."""
        return bool(self.changelogs)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Members and groups in their fixed order, with the offset of each group in flat task arrays.

    Member ``m`` is ``member_ids[m]``; the ids are ascending. The task (group ``g``, number ``p``) has the
    index ``start[g] + p``. T is the number of tasks, M the number of members. ``capacity`` is float64[M];
    ``rack`` is int64[M], with ``NOBODY`` for a member without a rack.
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
        """Return the part of a flat task array that belongs to group ``g``, as a view."""
        view: Ints = flat[self.start[g] : self.start[g + 1]]
        return view

    def per_task(self, of_group: Callable[[Group], bool]) -> Bools:
        """Return bool[T]: the result of ``of_group`` for each task's group."""
        flags = np.array([of_group(group) for group in self.groups], dtype=np.bool_)
        return np.repeat(flags, np.diff(self.start))


@dataclass(frozen=True, kw_only=True)
class Previous:
    """The last assignment, as derived from all claims.

    ``owner`` int64[T]: the living, subscribed member whose claim on the task counts, or ``NOBODY``.
    ``former`` int64[T]: for a task without an owner, the living member that owned the task when this
    member last stopped; ``NOBODY`` if another member now has more of the state. ``home`` int64[T]: the
    living member that owned the task when this member last stopped, or ``NOBODY``. Unlike ``former``,
    ``home`` is also set for tasks that have an owner, and copies do not matter. ``awaited`` int64[T]: the
    member to which the last round planned to move the task once its copy is warm. ``copy_task``,
    ``copy_member`` int64[K]: the warm copies on other members than the owner, unique and sorted.
    ``copy_logs`` int64[K]: the number of the task's changelogs in the copy. ``copy_was_standby`` bool[K]:
    whether the copy was a standby or a file on disk, and not an awaited copy.
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
        """int64[T]: the preferred owner of each task: its owner, or else its former owner."""
        if not (self.former != NOBODY).any():  # a fast path for the usual case
            return self.owner
        return np.where(self.owner == NOBODY, self.former, self.owner)


@dataclass(frozen=True)
class WarmupPlan:
    """The plan for the next rounds.

    ``target`` int64[T]: the final owner of each task, once its state is there. ``warmup`` int64[T]: the
    member with a warm-up of the task, or ``NOBODY``. ``awaited`` int64[T]: the member that takes the task
    over once its copy of this round has caught up, or ``NOBODY``. ``disbelieved``: changelog -> the
    number of reported positions that were ignored because they are beyond the changelog's end.
    """

    target: Ints
    warmup: Ints
    awaited: Ints
    disbelieved: Mapping[str, int]
