"""The state needed to judge a group's next step, derived from requests and answers alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Pair = tuple[bytes, int]
NEVER = 1 << 60


def pairs(partitions: Mapping[bytes, Iterable[int]] | None) -> frozenset[Pair]:
    """Return partitions as a set of (topic id, number)."""
    return frozenset((t, p) for t, parts in (partitions or {}).items() for p in parts)


@dataclass
class Known:
    """A member as described by its own requests."""

    classic: bool
    instance: str | None
    names: frozenset[str]
    regex: str
    rebalance_ms: int
    session_ms: int
    assignor: str | None = None
    protocols: tuple[str, ...] = ()
    #: The partitions in use or permitted: granted to the member and not yet revoked.
    held: frozenset[Pair] = frozenset()
    #: By purpose: the earliest and the latest time of the timer.
    due: dict[str, tuple[int, int]] = field(default_factory=dict)

    def set(self, purpose: str, deadline: int) -> None:
        """Set or move a timer."""
        self.due[purpose] = (deadline, deadline)

    def drop(self, *purposes: str) -> None:
        """End timers."""
        for purpose in purposes:
            self.due.pop(purpose, None)


@dataclass
class Model:
    """The members, and the epochs, which never decrease."""

    members: dict[str, Known] = field(default_factory=dict)
    epoch: int = 0
    target_epoch: int = 0
    computed_at: int | None = None
    disk_failed_at: int | None = None

    def instances(self) -> dict[str, str]:
        """The member ids by instance id."""
        return {k.instance: m for m, k in self.members.items() if k.instance is not None}

    def others_hold(self, member_id: str) -> dict[Pair, str]:
        """The partitions of all other members."""
        return {pair: m for m, k in self.members.items() if m != member_id for pair in k.held}

    def may_expire(self, now: int) -> set[str]:
        """The members with a timer that may have fired."""
        return {
            m for m, k in self.members.items() if any(early <= now for early, _ in k.due.values())
        }

    def must_expire(self, now: int) -> set[str]:
        """The members with a timer that must have fired."""
        return {
            m for m, k in self.members.items() if any(late <= now for _, late in k.due.values())
        }

    def disk_failed(self, now: int) -> None:
        """Restart the deadlines after a failed write: the affected members are unknown."""
        for known in self.members.values():
            for purpose, (early, late) in list(known.due.items()):
                again = now + (known.session_ms if purpose == "session" else known.rebalance_ms)
                late = NEVER if purpose in ("join", "sync") else max(late, again)
                known.due[purpose] = early, late

    def restarted(self, now: int, unrevoked: Iterable[str]) -> None:
        """Restart every session, and the rebalance timeout of each revoking member."""
        for known in self.members.values():
            known.due = {"session": (now + known.session_ms, now + known.session_ms)}
        for member_id in unrevoked:
            known = self.members[member_id]
            if not known.classic:
                known.set("rebalance", now + known.rebalance_ms)
