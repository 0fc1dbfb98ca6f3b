"""What the service counts, as a face: Prometheus is the network layer's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol


class Metrics(Protocol):
    """What the service counts; every method may be a no-op. Times in seconds."""

    def leading(self, leads: bool) -> None:
        """This instance leads from now on, or does not."""

    def handoffs(self, ages_s: Mapping[str, Sequence[float]]) -> None:
        """The hand-offs under way: phase -> how long each has been."""

    def handoff_ended(self, outcome: str, took_s: float) -> None:
        """``outcome``: handed, orphan, expelled, failed, late, unwanted or target_gone."""

    def stuck(self, count: int) -> None:
        """The leader's view: so many consumers do not get partitions ready."""

    def rebalanced(self, moves: int, took_s: float) -> None:
        """The leader planned."""

    def store_call(self, operation: str, took_s: float, error: str | None) -> None:
        """A call of the store; ``error`` is the exception's name."""

    def stream_resynced(self, consumer_name: str) -> None:
        """A stream overflowed and gets a fresh snapshot."""

    def holdings_repaired(self) -> None:
        """A consumer held other partitions than its own for long, and is told its assignment again."""

    def streams(self, count: int) -> None:
        """How many consumers are connected to this instance."""


class NoMetrics:
    """Counts nothing."""

    def leading(self, leads: bool) -> None:
        """Nothing."""

    def handoffs(self, ages_s: Mapping[str, Sequence[float]]) -> None:
        """Nothing."""

    def handoff_ended(self, outcome: str, took_s: float) -> None:
        """Nothing."""

    def stuck(self, count: int) -> None:
        """Nothing."""

    def rebalanced(self, moves: int, took_s: float) -> None:
        """Nothing."""

    def store_call(self, operation: str, took_s: float, error: str | None) -> None:
        """Nothing."""

    def stream_resynced(self, consumer_name: str) -> None:
        """Nothing."""

    def holdings_repaired(self) -> None:
        """Nothing."""

    def streams(self, count: int) -> None:
        """Nothing."""
