"""The waits of rebalances and commits: each wait has a deadline, after which the worker ends.

Stock Faust waits in many places of a rebalance without a deadline: for a commit, for the producer's flush,
for the consumer's thread. A single missing answer stops the worker for good, without a log line. With this
module the watchdog (``membership/watchdog.py``) counts how long each wait lasts while the group answers this
worker. After half of the deadline the watchdog logs the wait and its reason, then once a minute. After the
deadline the worker ends with CannotGoOn, and other members get its partitions. While the group does not
answer, the worker is not the cause, so it keeps waiting. A worker that is no longer a member sends the group
no heartbeats, so its waits count as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from faust_assigner.app.retry import SAY_EVERY_S

if TYPE_CHECKING:
    from faust.app import App
    from faust.types.app import AppT
    from faust.types.tuples import TP

_MARK = "_faust_assigner_waits"
#: Beginnings of the names of waits; a name may continue with a number of partitions.
COMMIT, REVOCATION, HAND_OVER = "The commit", "The revocation", "The hand-over"


@dataclass(eq=False)
class Wait:
    """One wait: ``what`` waits for ``step``, up to ``limit_s`` seconds in which the group is not silent.

    ``total_s`` counts all seconds, ``counted_s`` the seconds in which the group answered this worker, or this
    worker was no member. ``detail()`` returns further details of the step for the log line.
    """

    what: str
    step: str
    limit_s: float
    detail: Callable[[], str] = str
    total_s: float = 0.0
    counted_s: float = 0.0
    logged_s: float | None = None

    def move_to_step(self, step: str, detail: Callable[[], str] = str) -> None:
        """Replace the awaited step; the deadline stays the same."""
        self.step, self.detail = step, detail

    @property
    def is_over(self) -> bool:
        """Whether the wait has reached its limit."""
        return self.counted_s >= self.limit_s

    def line(self, *, group_answers: bool, has_left: bool) -> str | None:
        """Return the line to log now; None if no line is due."""
        due_s = self.limit_s / 2 if self.logged_s is None else self.logged_s + SAY_EVERY_S
        if self.total_s < due_s:
            return None
        self.logged_s = self.total_s
        detail = self.detail()
        outcome = f"this worker ends when the wait has taken {self.limit_s:.0f} s"
        if has_left:
            outcome = (
                "this worker is no member of its group, which gives its partitions to others; "
                + outcome
            )
        elif not group_answers:
            outcome = "the group does not answer, so this worker keeps waiting"
        return (
            f"{self.what} has waited for {self.total_s:.0f} s for {self.step}"
            f"{detail and f' ({detail})'}; {outcome}"
        )


class Waits:
    """The current waits of one worker; a wait may begin and end on any thread."""

    def __init__(self) -> None:
        self._waits: list[Wait] = []

    @contextmanager
    def during(
        self, what: str, step: str, limit_s: float, detail: Callable[[], str] = str
    ) -> Iterator[Wait]:
        """Count the time in the ``with`` block as a wait of ``what`` for ``step``."""
        wait = Wait(what, step, limit_s, detail)
        self._waits.append(wait)
        try:
            yield wait
        finally:
            self._waits.remove(wait)

    def move_to_step(self, what: str, step: str) -> None:
        """Set the awaited step of all waits with this ``what``."""
        for wait in list(self._waits):
            if wait.what == what:
                wait.move_to_step(step)

    def advance(self, seconds: float, *, group_answers: bool, has_left: bool = False) -> list[str]:
        """Add ``seconds`` to each wait, and return the lines to log.

        ``has_left``: this worker is no member, so the group does not answer it.
        """
        lines = []
        for wait in list(self._waits):
            wait.total_s += seconds
            wait.counted_s += seconds if group_answers or has_left else 0.0
            line = wait.line(group_answers=group_answers, has_left=has_left)
            if line is not None:
                lines.append(line)
        return lines

    def under_way(self) -> tuple[Wait, ...]:
        """Return all current waits, oldest first."""
        return tuple(self._waits)

    def age_s(self, *names: str) -> float | None:
        """Return the age in seconds of the oldest wait whose name begins with any of ``names``.

        Returns None without such a wait.
        """
        ages = [wait.total_s for wait in list(self._waits) if wait.what.startswith(names)]
        return max(ages, default=None)

    def problem(self) -> str | None:
        """Return a description of the first wait beyond its deadline; None without such a wait."""
        for wait in list(self._waits):
            if wait.is_over:
                return f"{wait.what} has waited for {wait.limit_s:.0f} s for {wait.step}"
        return None


def waits_of(app: App) -> Waits:
    """Return the waits of ``app``'s worker, the same object at each call."""
    waits: Waits = vars(app).setdefault(_MARK, Waits())
    return waits


def broker_s(app: AppT) -> float:
    """Return the limit in seconds of a wait for brokers: the time of one rebalance and one request."""
    conf = app.conf
    return float(conf.broker_request_timeout + conf.broker_rebalance_timeout)


def agents_s(app: AppT) -> float:
    """Return the limit of a step that waits for agents or callbacks, in seconds.

    The limit is ``broker_max_poll_interval``, the longest time for one record, and at least the limit for
    brokers.
    """
    return max(float(app.conf.broker_max_poll_interval or 0.0), broker_s(app))


def unsent(app: AppT) -> str:
    """Return a description of the topics with undelivered batches; empty if all batches are delivered."""
    faust = app.producer
    threaded = getattr(faust, "threaded_producer", None)
    producers = [
        getattr(faust, "_producer", None),
        getattr(threaded, "_producer", None),
        *getattr(faust, "_transaction_producers", {}).values(),
    ]
    topics: set[str] = set()
    for accumulator in (getattr(one, "_message_accumulator", None) for one in producers):
        if accumulator is not None:
            topics |= {tp.topic for tp in list(accumulator._batches)}
            topics |= {batch.tp.topic for batch in list(accumulator._pending_batches)}
    return f"not delivered yet: {', '.join(sorted(topics))}" if topics else ""


def committing(app: AppT) -> AbstractContextManager[Wait]:
    """Count the time in the ``with`` block as the wait of a commit, which first waits for the producer."""
    return waits_of(app).during(
        COMMIT, "the delivery of sent records", broker_s(app), lambda: unsent(app)
    )


def committing_offsets(app: AppT) -> None:
    """Note that the current commit, if any, now waits for table changes and for the group's answer."""
    waits_of(app).move_to_step(COMMIT, "changes of tables, and the group's answer")


def revoking(app: AppT, revoked: Collection[TP]) -> AbstractContextManager[Wait]:
    """Count the time in the ``with`` block as the wait of an eager rebalance's revocation."""
    what = f"{REVOCATION} of {len(revoked)} partitions"
    return waits_of(app).during(what, "agents, callbacks and commits", agents_s(app))


def assigning(app: AppT, assigned: Collection[TP]) -> AbstractContextManager[Wait]:
    """Count the time in the ``with`` block as the wait of an eager rebalance's assignment."""
    what = f"The assignment of {len(assigned)} partitions"
    return waits_of(app).during(what, "agents, tables and callbacks", agents_s(app))
