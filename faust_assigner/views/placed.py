"""The result of the planner as arrays, from which reports and explanations are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from faust_assigner.actives.weighted import Weighed
from faust_assigner.model import NOBODY, Bools, Group, Ints, Layout, Previous, WarmupPlan

#: The rules by which a task may be placed; ``Plan.rule`` holds indexes into this tuple.
RULES = (
    "kept",  # the previous owner keeps the task
    "placed",  # had no living owner: goes to a member with room in the balance
    "placed warm",  # like "placed", on a member with the task's state
    "moved",  # taken from a living owner for the balance
    "moved warm",  # like "moved", to a member with the task's state
    "promoted",  # an orphan that goes to a living holder of its state, off its target
    "follows",  # a changelog with the owner of its source
    "returned",  # had no living owner: goes back to its owner from before the stop
    "waits",  # the owner keeps the task until the target member has caught up
)
KEPT, PLACED, PLACED_WARM, MOVED, MOVED_WARM, PROMOTED, FOLLOWS, RETURNED, WAITS = range(len(RULES))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Placed:
    """The owner and the standbys of every task, and the last assignment.

    Members are indexes into ``member_ids`` (ids ascending); ``NOBODY`` (-1) stands for no member.
    Group ``g`` of ``groups`` has n_g partition numbers:

    ``owner[g]``           int64[n_g]     the active's member
    ``standby[g]``         int64[n_g, R]  standbys' members, ``NOBODY``-padded; R = 0 if stateless
    ``previous_owner[g]``  int64[n_g]     the living, subscribed member with the accepted claim
    ``target[g]``          int64[n_g]     the target member; differs from ``owner`` while promoted
    ``rule[g]``            int8[n_g]      the reason of the placement: an index into ``RULES``
    ``cold[g]``            bool[n_g]      stateful, and placed on a member without any of its state
    ``standby_hit[g]``     bool[n_g]      placed on a member that held a copy without being the owner
    ``warmup[g]``          int64[n_g]     the member with a warm-up, a replica beyond the standbys

    ``layout`` and ``previous`` are the planner's groups and the previous owners. ``flat_*``,
    ``promoted`` and ``waiting`` are flat arrays over all T tasks. ``flat_counted_target`` is the target
    without weights, and ``weighed`` has the weights.
    """

    layout: Layout
    previous: Previous
    flat_target: Ints
    flat_owner: Ints
    flat_standby: Ints
    flat_counted_target: Ints
    promoted: Bools
    partitions: Mapping[str, int]
    replicas: int = 0
    weighed: Weighed | None = None
    waiting: Bools | None = None
    warmup_plan: WarmupPlan | None = None

    @property
    def member_ids(self) -> tuple[str, ...]:
        """The members' ids, ascending."""
        return self.layout.member_ids

    @property
    def groups(self) -> tuple[Group, ...]:
        """The co-partitioned groups; every tuple by group has this order."""
        return self.layout.groups

    @cached_property
    def owner(self) -> tuple[Ints, ...]:
        """int64[n_g] by group: the member that owns each task."""
        return self._split(self.flat_owner)

    @cached_property
    def standby(self) -> tuple[Ints, ...]:
        """int64[n_g, R] by group: the members of each task's standbys; R = 0 if stateless."""
        return tuple(
            rows if group.is_stateful else rows[:, :0]
            for group, rows in zip(self.groups, self._split(self.flat_standby), strict=True)
        )

    @cached_property
    def previous_owner(self) -> tuple[Ints, ...]:
        """int64[n_g] by group: each task's living, subscribed previous owner, or ``NOBODY``."""
        return self._split(self.previous.owner)

    @cached_property
    def target(self) -> tuple[Ints, ...]:
        """int64[n_g] by group: each task's target member."""
        return self._split(self.flat_target)

    @property
    def wanted(self) -> tuple[Ints, ...] | None:
        """int64[n_g] by group: the owners after all warm-ups; None without warm-ups."""
        return None if self.warmup_plan is None else self._split(self.warmup_plan.target)

    @cached_property
    def warmup(self) -> tuple[Ints, ...]:
        """int64[n_g] by group: the member with a warm-up of each task, or ``NOBODY``."""
        return self._split(self.flat_warmup)

    @cached_property
    def rule(self) -> tuple[npt.NDArray[np.int8], ...]:
        """int8[n_g] by group: the rule of each placement, as an index into ``RULES``."""
        return self._split(self.flat_rule)

    @cached_property
    def cold(self) -> tuple[Bools, ...]:
        """bool[n_g] by group: :attr:`flat_cold` of the group's tasks."""
        return self._split(self.flat_cold)

    @cached_property
    def standby_hit(self) -> tuple[Bools, ...]:
        """bool[n_g] by group: :attr:`flat_hit` of the group's tasks."""
        return self._split(self.flat_hit)

    @cached_property
    def flat_warmup(self) -> Ints:
        """int64[T]: the member with a warm-up, the task's next owner, or ``NOBODY``."""
        return self._nobody() if self.warmup_plan is None else self.warmup_plan.warmup

    @cached_property
    def flat_awaited(self) -> Ints:
        """int64[T]: the member to which the task moves once its copy has caught up, or ``NOBODY``."""
        return self._nobody() if self.warmup_plan is None else self.warmup_plan.awaited

    def _nobody(self) -> Ints:
        return np.full(self.layout.tasks, NOBODY, dtype=np.int64)

    @cached_property
    def flat_hit(self) -> Bools:
        """bool[T]: the owner did not own the task before, but held a copy of its state."""
        hit = np.zeros(self.layout.tasks, dtype=np.bool_)
        held = self.previous.copy_task
        hit[held[self.previous.copy_member == self.flat_owner[held]]] = True
        return hit

    @cached_property
    def flat_cold(self) -> Bools:
        """bool[T]: living members have or had state, but the new owner has none of it."""
        somewhere = self.previous.owner != NOBODY
        somewhere[self.previous.copy_task] = True
        stateful = self.layout.per_task(lambda group: group.is_stateful)
        cold: Bools = (
            stateful & somewhere & (self.previous.owner != self.flat_owner) & ~self.flat_hit
        )
        return cold

    @cached_property
    def flat_rule(self) -> npt.NDArray[np.int8]:
        """int8[T]: the rule of each placement, as an index into ``RULES``."""
        rule = np.where(self.previous.owner == NOBODY, PLACED, MOVED) + self.flat_hit
        rule[self.promoted] = PROMOTED
        rule[(self.previous.former != NOBODY) & (self.previous.former == self.flat_owner)] = (
            RETURNED
        )
        followers = np.flatnonzero(self.layout.per_task(lambda group: group.follows is not None))
        rule[followers[self._leader_owner(followers) == self.flat_owner[followers]]] = FOLLOWS
        rule[self.previous.owner == self.flat_owner] = KEPT
        if self.waiting is not None:
            rule[self.waiting] = WAITS
        return rule.astype(np.int8)

    def _leader_owner(self, tasks: Ints) -> Ints:
        """Return the owner of the source task with the same number, for each follower task."""
        follows = np.array(
            [-1 if g.follows is None else g.follows for g in self.groups], dtype=np.int64
        )
        group = np.searchsorted(self.layout.start, tasks, side="right") - 1
        there = tasks - self.layout.start[group] + self.layout.start[follows[group]]
        owner: Ints = self.flat_owner[there]
        return owner

    def _split(self, flat: Any) -> tuple[Any, ...]:
        start = self.layout.start
        return tuple(flat[start[g] : start[g + 1]] for g in range(len(self.groups)))

    @cached_property
    def flat_moved(self) -> Bools:
        """bool[T]: the owner changed; the previous owner lives, or the task was promoted."""
        before = self.previous.owner
        moved: Bools = (self.flat_rule == PROMOTED) | (
            (before != NOBODY) & (before != self.flat_owner)
        )
        return moved

    @cached_property
    def moved(self) -> tuple[Bools, ...]:
        """:attr:`flat_moved` by group."""
        return self._split(self.flat_moved)

    @cached_property
    def moves(self) -> int:
        """The number of tasks that moved away from a living, still subscribed previous owner."""
        before = self.previous.owner
        return int(np.count_nonzero((before != NOBODY) & (before != self.flat_owner)))
