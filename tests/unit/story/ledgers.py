"""Ledgers of made groups: the leader's own code decides and writes the same rows as the app."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from faust_assigner.app.ledger.rows import decision_rows
from faust_assigner.ledger import encode
from faust_assigner.story.read import Story, read
from faust_assigner.warmup import WarmupPolicy
from tests.support.status import AT, LOG, MadeGroup

POLICY = WarmupPolicy(acceptable_recovery_lag=100, acceptable_from_nothing=100)


@dataclass
class Told:
    """A group and a ledger per leader, with a round a minute."""

    group: MadeGroup = field(default_factory=MadeGroup)
    ledgers: dict[str, list[bytes]] = field(default_factory=dict)
    now: float = AT
    session_timeout_s: float = 60.0
    plays_whole: bool = True

    def join(self, *names: str, **offer: Any) -> Told:
        """Add members that take part from the next round on."""
        self.group.join(*names, **{"holds": True, **offer})
        return self

    def round(self, leader: str = "m0", **more: Any) -> Told:
        """Run a round, and its follow-up round if the round requests a second one."""
        self.one_round(leader, **more)
        while self.follows and self.plays_whole:
            self.one_round(leader, **more)
        return self

    @property
    def follows(self) -> bool:
        """Whether a follow-up round is due."""
        return self.group.last is not None and self.group.last.follows

    def one_round(
        self, leader: str = "m0", *, warmups: WarmupPolicy | None = POLICY, seconds: float = 60.0
    ) -> Told:
        """Run a single round and write its rows to the leader's ledger."""
        self.now += 0.5 if self.follows else seconds
        self.group.round(leader=leader, warmups=warmups)
        last = self.group.last
        assert last is not None
        assert last.plan is not None
        rows = decision_rows(
            last.inputs, last.plan, at=self.now, config={}, session_timeout_s=self.session_timeout_s
        )
        self.ledgers.setdefault(leader, []).extend(encode(table, row) for table, row in rows)
        return self

    def leave(self, name: str) -> Told:
        """Remove a member before the next round."""
        self.group.leave(name)
        return self

    def recover(
        self, name: str, topic: str, number: int, *, source: str, records: int, seconds: float
    ) -> Told:
        """Write a recovery after the last round to its owner's ledger."""
        last = self.group.last
        assert last is not None
        row = {
            "group_id": "shop",
            "decision_id": self.group.answer_of(name).decision_id,
            "topic": topic,
            "partition": number,
            "member_id": name,
            "source": source,
            "started": self.now + 0.1,
            "ended": self.now + 0.1 + seconds,
            "start_offset": -1,
            "end_offset": records,
            "records": records,
            "bytes": 10 * records,
        }
        self.ledgers.setdefault(name, []).append(encode("recovery", row))
        return self

    def story(self) -> Story:
        """Return all ledgers, merged in the order of their names."""
        return read(line for name in sorted(self.ledgers) for line in self.ledgers[name])

    def owned(self, name: str) -> list[int]:
        """Return the partitions of the orders that a member owns."""
        return [*self.group.answer_of(name).actives.get("orders", ())]


def told(members: int = 3, **options: Any) -> Told:
    """Return a group of this many members after two rounds."""
    found = Told(MadeGroup(**options)).join(*(f"m{n}" for n in range(members)))
    return found.round().round()


def offering(found: Told, name: str, offer: Mapping[str, Any]) -> None:
    """Change a member's offer from the next round on."""
    found.group.offers[name] = {**found.group.offers[name], **offer}


__all__ = ["LOG", "POLICY", "Told", "offering", "told"]
