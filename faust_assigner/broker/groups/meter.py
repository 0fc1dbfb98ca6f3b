"""The metrics of the groups as plain numbers, which are cheap to update and formatted at a scrape."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from faust_assigner.coordinator.errors import Code

HEARTBEAT_BOUNDS_S: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
REBALANCE_BOUNDS_S: Final = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
#: Errors for members whose id, instance, generation or epoch is invalid or outdated.
FENCING: Final = frozenset(
    {
        Code.ILLEGAL_GENERATION,
        Code.UNKNOWN_MEMBER_ID,
        Code.FENCED_INSTANCE_ID,
        Code.UNRELEASED_INSTANCE_ID,
        Code.FENCED_MEMBER_EPOCH,
        Code.STALE_MEMBER_EPOCH,
    }
)
HEARTBEATS: Final = {b"\0\x0c": "classic", b"\0\x44": "consumer"}  # API key -> protocol
SETTLED: Final = frozenset({"Stable", "Empty", "Dead"})  # the states outside a rebalance


class Spread:
    """A histogram: the number of values up to each bound, and their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Add a value; cost O(log bounds)."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Return pairs of an upper bound and the number of values up to this bound, as for Prometheus."""
        sums, so_far = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            so_far += count
            sums.append((bound, float(so_far)))
        return sums


@dataclass(slots=True)
class Meter:
    """Rebalances by reason and duration, fenced requests by error, durations of heartbeats."""

    rebalances: Counter[str] = field(default_factory=Counter)
    rebalance_s: Spread = field(default_factory=lambda: Spread(REBALANCE_BOUNDS_S))
    fenced: Counter[str] = field(default_factory=Counter)
    heartbeat_s: Mapping[str, Spread] = field(
        default_factory=lambda: {
            kind: Spread(HEARTBEAT_BOUNDS_S) for kind in ("classic", "consumer")
        }
    )
    _unsettled: dict[str, int] = field(default_factory=dict)  # group -> rebalance start in ms

    def served(self, api_key: bytes, heard_at: float) -> None:
        """Record the time since a heartbeat's arrival (``time.monotonic``); ignore other requests."""
        protocol = HEARTBEATS.get(api_key)
        if protocol is not None:
            self.heartbeat_s[protocol].add(time.monotonic() - heard_at)

    def state_seen(self, group_id: str, state: str, now_ms: int, reason: str) -> None:
        """Record a group's state after an event, and so the number and duration of rebalances.

        A rebalance begins when the group leaves SETTLED, and ends when the group is Stable.
        """
        if state not in SETTLED:
            if group_id not in self._unsettled:
                self._unsettled[group_id] = now_ms
                self.rebalances[reason] += 1
            return
        since = self._unsettled.pop(group_id, None)
        if since is not None and state == "Stable":
            self.rebalance_s.add((now_ms - since) / 1000)

    def forget(self, group_id: str) -> None:
        """Forget a deleted group."""
        self._unsettled.pop(group_id, None)
