"""What must be remembered of a group to judge its next step, learnt from requests and answers alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Pair = tuple[bytes, int]
NEVER = 1 << 60


def pairs(partitions: Mapping[bytes, Iterable[int]] | None) -> frozenset[Pair]:
    """Partitions as a set of (topic id, number)."""
    return frozenset((t, p) for t, parts in (partitions or {}).items() for p in parts)


@dataclass
class Known:
    """One member, as its own requests told of it."""

    classic: bool
    instance: str | None
    names: frozenset[str]
    regex: str
    rebalance_ms: int
    session_ms: int
    assignor: str | None = None
    protocols: tuple[str, ...] = ()
    #: What it uses, or may: granted to it and not yet given up.
    held: frozenset[Pair] = frozenset()
    #: By purpose: when a timer may ring, and when it must have.
    due: dict[str, tuple[int, int]] = field(default_factory=dict)

    def set(self, purpose: str, deadline: int) -> None:
        """A timer starts, or is moved."""
        self.due[purpose] = (deadline, deadline)

    def drop(self, *purposes: str) -> None:
        """Timers end."""
        for purpose in purposes:
            self.due.pop(purpose, None)


@dataclass
class Model:
    """The members, and what only ever rises."""

    members: dict[str, Known] = field(default_factory=dict)
    epoch: int = 0
    target_epoch: int = 0
    computed_at: int | None = None
    disk_failed_at: int | None = None

    def instances(self) -> dict[str, str]:
        """Member ids by instance id."""
        return {k.instance: m for m, k in self.members.items() if k.instance is not None}

    def others_hold(self, member_id: str) -> dict[Pair, str]:
        """What members other than this one hold."""
        return {pair: m for m, k in self.members.items() if m != member_id for pair in k.held}

    def may_expire(self, now: int) -> set[str]:
        """Whose timers may have rung."""
        return {
            m for m, k in self.members.items() if any(early <= now for early, _ in k.due.values())
        }

    def must_expire(self, now: int) -> set[str]:
        """Whose timers must have rung."""
        return {
            m for m, k in self.members.items() if any(late <= now for _, late in k.due.values())
        }

    def disk_failed(self, now: int) -> None:
        """What was to happen did not: timers of members that were touched begin anew, nobody knows whose."""
        for known in self.members.values():
            for purpose, (early, late) in list(known.due.items()):
                again = now + (known.session_ms if purpose == "session" else known.rebalance_ms)
                late = NEVER if purpose in ("join", "sync") else max(late, again)
                known.due[purpose] = early, late

    def restarted(self, now: int, unrevoked: Iterable[str]) -> None:
        """Every session is a fresh one, whoever is giving something up has its time again."""
        for known in self.members.values():
            known.due = {"session": (now + known.session_ms, now + known.session_ms)}
        for member_id in unrevoked:
            known = self.members[member_id]
            if not known.classic:
                known.set("rebalance", now + known.rebalance_ms)
