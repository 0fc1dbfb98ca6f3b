"""How long a task stands still while it moves, expected from the recoveries that a ledger has. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

#: Where the state came from: the new owner had a copy, or none.
_WARM, _COLD = frozenset({"standby", "local"}), frozenset({"replay", "snapshot"})
#: A recovery of fewer records tells how long opening a table takes, not how fast records are read.
FEW = 1000


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """One partition's recovery, as the ledger has it."""

    topic: str
    source: str
    records: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Recoveries:
    """All that are known; ``origin`` says where they come from."""

    known: tuple[Recovery, ...] = ()
    origin: str = ""

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], group_id: str, origin: str) -> Recoveries:
        """Those of a group among the ledger's ``recovery`` rows."""
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
        """Seconds until a member that lacks so many records of a task processes it; None where unknown.

        The tables' own recoveries count where there are any, else those of all tables. A longer tail than
        any that was seen takes in proportion longer; a table without records takes the time of its like.
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
