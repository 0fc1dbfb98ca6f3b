"""The age of a copy (a standby's table), computed from end offsets of its changelog. Pure.

A look is one request to the broker for the end of the changelog. If the copy has reached this end, it
contains all records written before the look. The time of the last received record does not show the
age, because a copy that receives no records may be up to date or behind.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

#: The maximum number of looks per copy; the looks for a copy far behind are further apart.
MOST_LOOKS = 256


class Look(NamedTuple):
    """The changelog's ``end`` (the offset of the next record), requested at ``asked_at`` (seconds)."""

    asked_at: float
    end: int


@dataclass
class Marks:
    """The looks for one copy, oldest first: the last end that the copy has reached, and later ends."""

    looks: list[Look] = field(default_factory=list)
    #: A copy whose last record has the offset ``_at`` has read all offsets before ``_through``. The
    #: offsets in between contain no record, for example only a transaction marker.
    _at: int = -1
    _through: int = 0

    def note(self, look: Look) -> None:
        """Add a look; beyond ``MOST_LOOKS`` drop every second look between the first and the last.

        A dropped look makes the copy at most older than it is.
        """
        self.looks.append(look)
        if len(self.looks) > MOST_LOOKS:
            del self.looks[1:-1:2]

    def note_empty_range(self, applied: int, end: int) -> None:
        """Note that no record exists between ``applied``, the copy's offset, and ``end``."""
        self._at, self._through = applied, end

    def next_offset(self, applied: int) -> int:
        """Return the first offset whose record a copy at ``applied`` may lack."""
        return max(applied + 1, self._through) if applied == self._at else applied + 1

    def lag(self, applied: int) -> int | None:
        """Return the number of offsets between the copy and the last known end; None without a look."""
        return max(0, self.looks[-1].end - self.next_offset(applied)) if self.looks else None

    def fresh_at(self, applied: int) -> float | None:
        """Return the time of the last look whose end the copy has reached; None without such a look.

        The copy contains all records written before this time. Earlier looks are dropped.
        """
        reached = self.next_offset(applied)
        passed = [i for i, look in enumerate(self.looks) if look.end <= reached]
        if not passed:
            return None
        del self.looks[: passed[-1]]
        return self.looks[0].asked_at
