"""The maximum age of a copy, from the ends of its changelog that the broker reported. Pure.

A look asks the broker for the end of the changelog. A copy that has reached this end lacks no
record written before the look. The received records alone do not show this: a copy without new
records cannot know the number of missing records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

#: The maximum of looks per copy; if a copy is further behind, the oldest looks are dropped.
MOST_LOOKS = 256


class Look(NamedTuple):
    """The changelog's ``end`` (the next record's offset) at ``asked_at`` (seconds) or later."""

    asked_at: float
    end: int


@dataclass
class Marks:
    """The end offsets of one copy's changelog that the copy may still have to reach, the oldest first."""

    looks: list[Look] = field(default_factory=list)
    #: The copy's offset when all offsets before ``_through`` had been read. The last offsets before
    #: an end may hold no record, only a transaction marker.
    _at: int = -1
    _through: int = 0

    def note(self, look: Look) -> None:
        """Add a look."""
        self.looks.append(look)
        del self.looks[:-MOST_LOOKS]

    def read_through(self, applied: int, end: int) -> None:
        """Note that no record lies between ``applied``, the copy's offset, and ``end``."""
        self._at, self._through = applied, end

    def next_offset(self, applied: int) -> int:
        """Return the first offset whose record a copy at ``applied`` may lack."""
        return max(applied + 1, self._through) if applied == self._at else applied + 1

    def lag(self, applied: int) -> int | None:
        """Return how many offsets the copy lacks, as far as known; None before the first look."""
        return max(0, self.looks[-1].end - self.next_offset(applied)) if self.looks else None

    def fresh_at(self, applied: int) -> float | None:
        """Return a time such that the copy has all records written before; None if unknown.

        Looks before the last reached end have no further use and are dropped.
        """
        reached = self.next_offset(applied)
        passed = [i for i, look in enumerate(self.looks) if look.end <= reached]
        if not passed:
            return None
        del self.looks[: passed[-1]]
        return self.looks[0].asked_at
