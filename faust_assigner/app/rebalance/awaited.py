"""The awaited standbys of a worker, and the deadlines of their warm-ups. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from faust.types.tuples import TP


@dataclass(frozen=True)
class Awaited:
    """The awaited standbys of this worker, from the assignment of ``generation``.

    Changelogs with the same id in ``group_ids`` and the same partition number are the state of one
    task. ``follows``: a second round follows at once, and only its answer lists the standbys.
    """

    generation: int = -1
    tps: frozenset[TP] = frozenset()
    group_ids: Mapping[str, int] = field(default_factory=dict)
    follows: bool = False

    def whole(self, done: frozenset[TP]) -> frozenset[TP]:
        """Return the partitions in ``done`` whose task has caught up on all its changelogs."""
        behind = {self._task(tp) for tp in self.tps - done}
        return frozenset(tp for tp in done if self._task(tp) not in behind)

    def _task(self, tp: TP) -> tuple[int | str, int]:
        return self.group_ids.get(tp.topic, tp.topic), tp.partition


def by_topic(tps: Iterable[TP]) -> dict[str, list[int]]:
    """Convert partitions to claims: topic -> partition numbers."""
    found: dict[str, list[int]] = {}
    for tp in sorted(tps):
        found.setdefault(tp.topic, []).append(tp.partition)
    return found


class Deadlines:
    """The deadline of each awaited standby; None as ``deadline_s``: no standby is ever late.

    A worker restores two standbys at a time, so all deadlines restart when one standby comes closer to
    the end of its changelog. Times are seconds of one monotonic clock.
    """

    def __init__(self, deadline_s: float | None) -> None:
        self.deadline_s = deadline_s
        #: Standby -> the start of its deadline, and the fewest records that it has lacked so far.
        self._since: Mapping[TP, float] = {}
        self._fewest: Mapping[TP, int] = {}

    def keep(self, awaited: Iterable[TP], now: float) -> None:
        """Start the deadlines of newly awaited standbys; drop standbys that are no longer awaited."""
        self._since = {tp: self._since.get(tp, now) for tp in awaited}
        self._fewest = {tp: lack for tp, lack in self._fewest.items() if tp in self._since}

    def note_progress(self, lacks: Mapping[TP, int], now: float) -> None:
        """Restart all deadlines if a standby lacks fewer records than at any earlier check."""
        if any(lack < self._fewest.get(tp, lack) for tp, lack in lacks.items()):
            self._since = dict.fromkeys(self._since, now)
        self._fewest = {
            **self._fewest,
            **{tp: min(lack, self._fewest.get(tp, lack)) for tp, lack in lacks.items()},
        }

    def late(self, behind: Iterable[TP], now: float) -> frozenset[TP]:
        """Return the standbys in ``behind`` whose deadline is over."""
        if self.deadline_s is None:
            return frozenset()
        return frozenset(tp for tp in behind if now - self._since[tp] >= self.deadline_s)
