"""The condition of one instance, from which its health and its metrics are computed."""

from __future__ import annotations

from collections.abc import Sequence

from faust_assigner.service.clock import Clock
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.questions import unowned
from faust_assigner.service.view import Change
from faust_assigner.settings.service import ServiceSettings


class Condition:
    """The condition of one instance, from its own copy of the store. A listener of the mirror."""

    def __init__(self, mirror: Mirror, clock: Clock, settings: ServiceSettings) -> None:
        self._mirror = mirror
        self._clock = clock
        self._settings = settings
        self._vacant_since: float | None = -float("inf")

    def heard(self, changes: Sequence[Change]) -> None:
        """Record when the leader's key disappears, and when there is a leader's key again."""
        if any(change.kind == "leaders" for change in changes):
            is_vacant = self._mirror.view.leader is None
            self._vacant_since = self._clock.monotonic() if is_vacant else None

    @property
    def silence_s(self) -> float:
        """Seconds since the last answer or event of the store; infinite before the first."""
        return self._clock.monotonic() - self._mirror.heard_at

    @property
    def hears_store(self) -> bool:
        """Whether the store has answered recently.

        Recently: within the leader's TTL or three times ``reconcile_s``, whichever is longer.
        """
        s = self._settings
        return self.silence_s < max(s.leader_ttl_s, 3 * s.reconcile_s)

    @property
    def has_leader(self) -> bool:
        """Whether some instance leads, or led until less than the leader's TTL ago.

        An ordinary change of leader is thus no fault.
        """
        since = self._vacant_since
        return since is None or self._clock.monotonic() - since < self._settings.leader_ttl_s

    @property
    def unowned(self) -> int:
        """Count partitions without a registered owner. Cost: one step per consumer and topic."""
        return unowned(self._mirror.view)

    @property
    def is_paused(self) -> bool:
        """Whether an operator has paused moves for balance."""
        return self._mirror.view.pause is not None

    @property
    def unreadable(self) -> int:
        """The number of unreadable values in the store."""
        return len(self._mirror.view.unreadable)
