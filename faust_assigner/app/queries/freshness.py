"""How old a copy may be: by what the broker said about the end of its changelog, and when. Pure.

A look asks the broker where the changelog ends. A copy that has reached that end lacks nothing that was
written before the look was made. Records alone do not tell: a copy that hears nothing of its changelog lacks
none that it knows of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

#: A copy that is further behind than so many looks has the oldest of them forgotten.
MOST_LOOKS = 256


class Look(NamedTuple):
    """The changelog ended at ``end``, the offset of its next record, at ``asked_at`` (seconds) or later."""

    asked_at: float
    end: int


@dataclass
class Marks:
    """Of one copy: the looks at its changelog that it may still have to reach, the oldest first."""

    looks: list[Look] = field(default_factory=list)
    #: The copy's offset as it was when everything before ``_through`` had been read: the last offsets before
    #: an end may hold no record, but the marker of a transaction.
    _at: int = -1
    _through: int = 0

    def note(self, look: Look) -> None:
        """One more look."""
        self.looks.append(look)
        del self.looks[:-MOST_LOOKS]

    def read_through(self, applied: int, end: int) -> None:
        """Between ``applied``, the copy's offset, and ``end`` there is no record."""
        self._at, self._through = applied, end

    def next_offset(self, applied: int) -> int:
        """The first offset whose record a copy at ``applied`` may lack."""
        return max(applied + 1, self._through) if applied == self._at else applied + 1

    def lag(self, applied: int) -> int | None:
        """The offsets that it lacks, as far as is known; None before the first look."""
        return max(0, self.looks[-1].end - self.next_offset(applied)) if self.looks else None

    def fresh_at(self, applied: int) -> float | None:
        """The copy has all that was written before that moment; None where that is not known of any.

        What is older than the last end reached says nothing more and is forgotten.
        """
        reached = self.next_offset(applied)
        passed = [i for i, look in enumerate(self.looks) if look.end <= reached]
        if not passed:
            return None
        del self.looks[: passed[-1]]
        return self.looks[0].asked_at
