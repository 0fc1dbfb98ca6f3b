"""The input of the standby step: flat arrays, no names."""

from __future__ import annotations

from dataclasses import dataclass

from faust_assigner.model import Bools, Floats, Ints


@dataclass(frozen=True, kw_only=True)
class StandbyProblem:
    """The input of the standby step, as flat arrays over the stateful tasks of all groups.

    Tasks are numbered 0..T-1 in the order (group, partition number); members 0..M-1 in the order of
    member ids; G' stateful groups.

    ``owner``      int64[T]   the active's member, ``NOBODY`` for none (no standby then)
    ``group``      int64[T]   row of ``eligible`` for each task
    ``eligible``   bool[G',M] the possible holders of a standby: subscribers of the group's changelogs
    ``copy_task``, ``copy_member``  int64[K]  existing warm copies: previous standbys, vacated
                   actives, files on disk; unique pairs, never the owner itself
    ``copy_was_standby`` bool[K]  the copy was an assigned standby before (it stays rather than moves)
    ``wanted_task``, ``wanted_member`` int64[W]  standbys that must be placed: the target member of a
                   task that was promoted elsewhere this round
    ``rack``       int64[M]   rack index, ``NOBODY`` for a member without a rack
    ``capacity``   float64[M]
    ``load``       float64[M] all active tasks of each member, the stateless ones too
    ``replicas``   int        R; R' = min(R, eligible members - 1) per task
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
