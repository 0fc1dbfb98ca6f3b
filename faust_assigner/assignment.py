"""Plan: the result of one planning round, stored as arrays; its methods return member and topic names."""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

import numpy as np

from faust_assigner.model import NOBODY, Ints
from faust_assigner.views.explanation import Explanation, explain
from faust_assigner.views.placed import Placed
from faust_assigner.views.report import Report, report

ByMember: TypeAlias = tuple[tuple[Ints, Ints], ...]


class Plan(Placed):
    """The owner and the standbys of each task, with a comparison to the last assignment.

    :meth:`actives`, :meth:`standbys`, :attr:`moves`, :meth:`report` and :meth:`explain` return names. The
    attributes of :class:`Placed` are arrays, for encoders, ledgers and benchmarks.
    """

    def __repr__(self) -> str:
        return f"<Plan: {self.layout.tasks} tasks on {len(self.member_ids)} members, {self.moves} moves>"

    def report(self) -> Report:
        """Return figures for the comparison of plans; ``print`` shows the report as a table."""
        return report(self)

    def explain(self, topic: str, partition: int) -> Explanation:
        """Return the rule that placed ``topic``-``partition``, and the alternatives; ``print`` shows text.

        Raises ``KeyError`` for an unknown topic, ``IndexError`` for an unknown partition.
        """
        return explain(self, topic, partition)

    def actives(self, member_id: str) -> dict[str, list[int]]:
        """Return topic -> the partitions that ``member_id`` owns, sorted; topics without any are left out.

        Raises ``KeyError`` for a member outside the plan.
        """
        return self._named(self.actives_by_member, self._index(member_id), changelogs_only=False)

    def standbys(self, member_id: str) -> dict[str, list[int]]:
        """Return changelog topic -> the sorted partitions of the standbys and warm-ups of ``member_id``."""
        return self._named(self.standbys_by_member, self._index(member_id), changelogs_only=True)

    def warmups(self, member_id: str) -> dict[str, list[int]]:
        """Return changelog topic -> the partitions of the warm-ups of ``member_id``.

        A warm-up is a temporary replica in addition to the requested standbys.
        """
        return self._named(
            _all_by_member(self.warmup, len(self.member_ids)),
            self._index(member_id),
            changelogs_only=True,
        )

    def awaited(self, member_id: str) -> dict[str, list[int]]:
        """Return changelog topic -> the copies of ``member_id`` that become actives once they have caught up.

        A follow-up round is due when these copies have caught up. The result is empty without a
        :class:`~faust_assigner.warmup.WarmupPolicy`.
        """
        return self._named(self._awaited_by_member, self._index(member_id), changelogs_only=True)

    @cached_property
    def actives_by_member(self) -> ByMember:
        """Per group: (partition numbers int64[n] sorted by owner, the owners' offsets int64[M + 1])."""
        return tuple(_sorted_by_member(o, len(self.member_ids)) for o in self.owner)

    @cached_property
    def standbys_by_member(self) -> ByMember:
        """Per group: (numbers sorted by standby member, offsets int64[M + 1]); empty if stateless."""
        with_warmups = (
            self.standby
            if self.warmup_plan is None
            else tuple(
                np.column_stack((rows, spare)) if spare.size and spare.max() != NOBODY else rows
                for rows, spare in zip(self.standby, self.warmup, strict=True)
            )
        )
        return _all_by_member(with_warmups, len(self.member_ids))

    @cached_property
    def _awaited_by_member(self) -> ByMember:
        return _all_by_member(self._split(self.flat_awaited), len(self.member_ids))

    @cached_property
    def _indexes(self) -> dict[str, int]:
        return {name: m for m, name in enumerate(self.member_ids)}

    def _index(self, member_id: str) -> int:
        try:
            return self._indexes[member_id]
        except KeyError:
            raise KeyError(f"no member {member_id!r} in this plan") from None

    def _named(self, by_member: ByMember, m: int, *, changelogs_only: bool) -> dict[str, list[int]]:
        named: dict[str, list[int]] = {}
        for group, (numbers, offsets) in zip(self.groups, by_member, strict=True):
            mine = numbers[offsets[m] : offsets[m + 1]]
            if mine.size:
                for topic in group.changelogs if changelogs_only else group.topics:
                    named[topic] = mine.tolist()
        return dict(sorted(named.items()))


def _all_by_member(flats: tuple[Ints, ...], members: int) -> ByMember:
    return tuple(_sorted_by_member(who, members) for who in flats)


def _sorted_by_member(who: Ints, members: int) -> tuple[Ints, Ints]:
    """Return (numbers sorted by member, the offset of each member's first number) for member indexes ``who``.

    ``who`` is int64[n] or int64[n, R]; its row index is the number.
    """
    flat = who.reshape(-1)
    key = flat + 1
    order = np.argsort(key.astype(np.uint16) if members < 0xFFFF else key, kind="stable")
    offsets = np.concatenate(([0], np.cumsum(np.bincount(key, minlength=members + 1)))).astype(
        np.int64
    )
    numbers = order // who.shape[1] if who.ndim == 2 and who.shape[1] else order
    return numbers, offsets[1:]
