"""The input of the standby step, as flat arrays without names."""

from __future__ import annotations

from dataclasses import dataclass

from faust_assigner.model import Bools, Floats, Ints


@dataclass(frozen=True, kw_only=True)
class StandbyProblem:
    """The input of the standby step, as flat arrays over the stateful tasks of all groups.

    Tasks have the numbers 0..T-1 in the order (group, partition number); members have the numbers
    0..M-1 in the order of member ids. G' is the number of stateful groups.

    ``owner``      int64[T]   the owner; a task without an owner (``NOBODY``) gets no standby
    ``group``      int64[T]   row of ``eligible`` for each task
    ``eligible``   bool[G',M] the members that may hold a standby: subscribers of the group's changelogs
    ``copy_task``, ``copy_member``  int64[K]  existing warm copies: previous standbys, former
                   actives, files on disk; unique pairs, never on the owner
    ``copy_was_standby`` bool[K]  whether the copy was a standby before; such copies are preferred
    ``wanted_task``, ``wanted_member`` int64[W]  standbys that must be placed: on the target member of
                   a task that has another owner in this round
    ``rack``       int64[M]   rack index, ``NOBODY`` for a member without a rack
    ``capacity``   float64[M]
    ``load``       float64[M] all active tasks of each member, including stateless tasks
    ``replicas``   int        R, the requested standbys; a task gets R' = min(R, eligible members - 1)
    """

    owner: Ints
    group: Ints
    eligible: Bools
    copy_task: Ints
    copy_member: Ints
    copy_was_standby: Bools
    wanted_task: Ints
    wanted_member: Ints
    rack: Ints
    capacity: Floats
    load: Floats
    replicas: int

    @property
    def tasks(self) -> int:
        """T, the number of stateful tasks."""
        return len(self.owner)

    @property
    def members(self) -> int:
        """M, the number of members."""
        return len(self.rack)
