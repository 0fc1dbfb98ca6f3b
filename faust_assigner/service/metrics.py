"""The service's interface for metrics; the network layer implements it for Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class Metrics:
    """The counters of the service; subclasses implement the methods. Times are in seconds."""

    def leading(self, leads: bool) -> None:
        """Record whether this instance leads from now on."""

    def handoffs(self, ages_s: Mapping[str, Sequence[float]]) -> None:
        """Record the ages of the hand-offs in progress: phase -> the age of each."""

    def handoff_ended(self, outcome: str, took_s: float) -> None:
        """Count the end of a hand-off.

        ``outcome``: handed, orphan, expelled, failed, late, unwanted or target_gone.
        """

    def stuck(self, count: int) -> None:
        """Record how many consumers the leader regards as stuck."""

    def rebalanced(self, moves: int, took_s: float) -> None:
        """Count a plan of the leader with at least one move."""

    def store_call(self, operation: str, took_s: float, error: str | None) -> None:
        """Count a call of the store; ``error`` is the exception's name, or None."""

    def stream_resynced(self, consumer_name: str) -> None:
        """Count a stream that overflowed and gets a fresh snapshot."""

    def holdings_repaired(self) -> None:
        """Count a repair: a consumer held the wrong partitions and gets its assignment again."""

    def streams(self, count: int) -> None:
        """Record the number of consumers connected to this instance."""
