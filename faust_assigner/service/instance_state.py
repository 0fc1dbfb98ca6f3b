"""The condition of one instance, from which its health and its metrics are computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from faust_assigner.service.clock import Clock
from faust_assigner.service.mirror import Mirror
from faust_assigner.service.questions import unowned
from faust_assigner.service.view import Change
from faust_assigner.settings.service import ServiceSettings


@dataclass(eq=False, repr=False)
class InstanceState:
    """The condition of one instance, from its own copy of the store; it listens to the mirror."""

    mirror: Mirror
    clock: Clock
    settings: ServiceSettings
    _vacant_since: float | None = field(default=-float("inf"), init=False)

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Record since when the leader's key is missing, if the changes concern the key."""
        if any(change.kind == "leaders" for change in changes):
            is_vacant = self.mirror.view.leader is None
            self._vacant_since = self.clock.monotonic() if is_vacant else None

    @property
    def silence_s(self) -> float:
        """Seconds since the store's last answer or event; infinite before its first answer."""
        return self.clock.monotonic() - self.mirror.heard_at

    @property
    def hears_store(self) -> bool:
        """Whether the store has answered recently.

        The limit is the leader's TTL or three times ``reconcile_s``, whichever is longer.
        """
        s = self.settings
        return self.silence_s < max(s.leader_ttl_s, 3 * s.reconcile_s)

    @property
    def has_leader(self) -> bool:
        """Whether an instance leads, or led until less than the leader's TTL ago.

        The margin keeps an ordinary change of leader from counting as a fault.
        """
        since = self._vacant_since
        return since is None or self.clock.monotonic() - since < self.settings.leader_ttl_s

    @property
    def unowned(self) -> int:
        """Count partitions without a registered owner. Cost: one step per consumer and topic."""
        return unowned(self.mirror.view)

    @property
    def is_paused(self) -> bool:
        """Whether an operator has paused moves for balance."""
        return self.mirror.view.pause is not None

    @property
    def unreadable(self) -> int:
        """The number of unreadable values in the store."""
        return len(self.mirror.view.unreadable)
