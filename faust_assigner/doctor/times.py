"""Checks settings that must fit together: intervals, timeouts, the supervisor's grace. No I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from faust_assigner.doctor.codes import ERROR, WARNING, Finding, finding

#: Kafka's default limits for a session timeout.
SESSION_BOUNDS_S = (6.0, 1800.0)
#: Seconds in which a worker commits, flushes and closes its tables after the hand-over.
SHUTDOWN_S = 15.0


@dataclass(frozen=True, kw_only=True)
class Times:
    """A worker's intervals and timeouts, in seconds.

    ``poll_s`` is None if the worker may go without records for any time.
    """

    heartbeat_s: float
    session_s: float
    poll_s: float | None
    rebalance_s: float


def check_times(
    times: Times, *, subject: str, bounds_s: tuple[float, float] | None = None
) -> Iterator[Finding]:
    """Check whether a worker's times fit together, and whether brokers allow its session timeout.

    ``bounds_s`` are the brokers' limits for session timeouts, None if unknown.
    """
    if times.heartbeat_s >= times.session_s:
        yield finding(
            "FA007",
            f"broker_heartbeat_interval ({times.heartbeat_s:g} s) is not below broker_session_timeout "
            f"({times.session_s:g} s)",
            subject=subject,
        )
    elif times.heartbeat_s * 3 > times.session_s:
        yield finding(
            "FA007",
            f"broker_heartbeat_interval ({times.heartbeat_s:g} s) is more than a third of "
            f"broker_session_timeout ({times.session_s:g} s): one late heartbeat ends the session",
            subject=subject,
            level=WARNING,
        )
    least, most = bounds_s or SESSION_BOUNDS_S
    if not least <= times.session_s <= most:
        whose = "the brokers allow" if bounds_s else "brokers allow by default"
        yield finding(
            "FA007",
            f"broker_session_timeout ({times.session_s:g} s) is outside of what {whose} "
            f"({least:g} to {most:g} s)",
            subject=subject,
            level=ERROR if bounds_s else WARNING,
        )
    if times.poll_s is not None and times.poll_s < times.rebalance_s:
        yield finding(
            "FA007",
            f"broker_max_poll_interval ({times.poll_s:g} s) is below broker_rebalance_timeout "
            f"({times.rebalance_s:g} s): a worker that waits in a rebalance leaves the group as idle",
            subject=subject,
            level=WARNING,
        )


def check_grace(grace_s: float, leave_s: float, *, subject: str) -> Iterator[Finding]:
    """Check that the supervisor waits long enough for a worker's stop. Times are in seconds."""
    needed = leave_s + SHUTDOWN_S
    if grace_s < needed:
        yield finding(
            "FA007",
            f"the supervisor's grace ({grace_s:g} s) is below the {needed:g} s that a stop may take: "
            f"{leave_s:g} s to hand over and {SHUTDOWN_S:g} s to commit and to close tables",
            subject=subject,
            level=ERROR if grace_s <= leave_s else WARNING,
        )
