"""How one instance is: what its health and its metrics are made of."""

from __future__ import annotations

from collections.abc import Sequence

from faust_assigner.service.clock import Clock
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.settings import ServiceSettings
from faust_assigner.service.view import Change, unowned


class Condition:
    """Of one instance, by its own copy of the store. It is a listener of the mirror."""

    def __init__(self, mirror: Mirror, clock: Clock, settings: ServiceSettings) -> None:
        self._mirror = mirror
        self._clock = clock
        self._settings = settings
        self._vacant_since: float | None = -float("inf")

    def heard(self, changes: Sequence[Change]) -> None:
        """Note when the leader's key goes, and when there is one again."""
        if any(change.kind == "leaders" for change in changes):
            is_vacant = self._mirror.view.leader is None
            self._vacant_since = self._clock.monotonic() if is_vacant else None

    @property
    def silence_s(self) -> float:
        """Seconds since the store was last heard of; infinite before the first time."""
        return self._clock.monotonic() - self._mirror.heard_at

    @property
    def hears_store(self) -> bool:
        """Whether the store was heard of within the leader's TTL, or within the time of three listings where
        that is longer."""
        s = self._settings
        return self.silence_s < max(s.leader_ttl_s, 3 * s.reconcile_s)

    @property
    def has_leader(self) -> bool:
        """Whether some instance leads, or led until less than the leader's TTL ago: an ordinary change of
        leader is no fault."""
        since = self._vacant_since
        return since is None or self._clock.monotonic() - since < self._settings.leader_ttl_s

    @property
    def unowned(self) -> int:
        """Partitions that no registered process owns. Cost: one step for each consumer and topic."""
        return unowned(self._mirror.view)

    @property
    def is_paused(self) -> bool:
        """Whether an operator wants no moves for balance."""
        return self._mirror.view.pause is not None

    @property
    def unreadable(self) -> int:
        """Values in the store that cannot be read."""
        return len(self._mirror.view.unreadable)
