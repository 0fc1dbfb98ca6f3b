"""Estimates the downtime of a moving task from the recoveries in a ledger. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from faust_assigner.pipeline.rows import RecoveryRow

#: The sources of a recovery's state: with a copy on the new owner, and without such a copy.
_WARM, _COLD = frozenset({"standby", "local"}), frozenset({"replay", "snapshot"})
#: The duration of a recovery of fewer records shows how long a table takes to open, not the read rate.
FEW = 1000


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """A partition's recovery as the ledger recorded it."""

    topic: str
    source: str
    records: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Recoveries:
    """All known recoveries; ``origin`` names their source."""

    known: tuple[Recovery, ...] = ()
    origin: str = ""

    @classmethod
    def of(cls, rows: Iterable[RecoveryRow], group_id: str, origin: str) -> Recoveries:
        """Select a group's recoveries among the ledger's ``recovery`` rows."""
        return cls(
            known=tuple(
                Recovery(
                    topic=row["topic"],
                    source=row["source"],
                    records=row["records"],
                    seconds=(row["ended"] - row["started"]).total_seconds(),
                )
                for row in rows
                if row["group_id"] == group_id
            ),
            origin=origin,
        )

    def expected_s(
        self, topics: Collection[str], records: int | None, *, warm: bool
    ) -> float | None:
        """Return the seconds until a member with this lag processes the task; None if unknown.

        ``records`` is the lag. The recoveries of the task's own tables have priority over those of all
        tables. From :data:`FEW` records on, the result is the time to open a table plus ``records``
        divided by the mean read rate.
        """
        if records is None:
            return None
        sources = _WARM if warm else _COLD
        alike = [one for one in self.known if one.source in sources]
        own = [one for one in alike if one.topic in topics]
        chosen = own or alike
        few = [one.seconds for one in own or self.known if one.records < FEW]
        many = [one for one in (own or self.known) if one.records >= FEW and one.seconds > 0]
        if not chosen and not few:
            return None
        base = median(few) if few else min(one.seconds for one in chosen)
        if records < FEW:
            return max([base, *(one.seconds for one in chosen if one.records < FEW)])
        if not many:
            return None
        rate = sum(one.records for one in many) / sum(one.seconds for one in many)
        return base + records / rate
